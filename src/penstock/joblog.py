"""Log lines about one job: the job id is a prefix of the message and a field of the record."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

FIELD = "job"


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        fields = dict(self.extra or {})
        return f"job {fields[FIELD]}: {msg}", {**kwargs, "extra": fields}


def of(log: logging.Logger, job_id: int) -> logging.LoggerAdapter[logging.Logger]:
    """The module's logger, for that job."""
    return _JobLog(log, {FIELD: job_id})
