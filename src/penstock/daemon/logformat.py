"""penstockd's log: lines for people or JSON for machines, with the job's number as a field of its own."""

from __future__ import annotations

import logging
import sys

import msgspec

from penstock import joblog

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """One object a line: at, level, from, job (when the line is about one), message."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, object] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "from": record.name,
            "message": record.getMessage(),
        }
        if hasattr(record, joblog.FIELD):
            found["job"] = getattr(record, joblog.FIELD)
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(found).decode()


def configure(*, level: str, as_json: bool) -> None:
    """Send everything of ours to stderr in that form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
