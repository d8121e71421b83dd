"""Child processes of the collector, each of which does one thing."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from penstock import errors

log = logging.getLogger(__name__)


def fork(work: Callable[[], bool], *, lock: int | None) -> int:
    """Call `work` in a child without the collector's lock; its exit code is 0 if that returns true."""
    pid = os.fork()
    if pid == 0:
        if lock is not None:
            os.close(lock)
        _run(work)
    return pid


def _run(work: Callable[[], bool]) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the child that acts as the user, too
        code = 0 if work() else 1
    except errors.PenstockError as error:
        log.warning("%s %s", error.message, error.hint)
    except OSError as error:
        log.warning("%s", error)
    except SystemExit:
        code = 1
    except BaseException:
        log.exception("a child process failed")
    finally:
        os._exit(code)
