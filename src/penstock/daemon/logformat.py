"""penstockd's log: plain text, or JSON lines with the job id as a field."""

from __future__ import annotations

import logging
import sys

import msgspec

from penstock import joblog

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """One object per line: at, level, from, message, and job if the line is about one."""

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
    """Log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
