"""Calls of slurmctld that are repeated while it is down."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable

from penstock import errors, joblog
from penstock.bridge.context import Context

log = logging.getLogger(__name__)

SLURM_SECONDS = 600.0  # how long a call is repeated
NUMBER_SECONDS = 10.0  # the same while a job's record has no number, which may be forever


async def when_there(context: Context, call: Callable[[], Awaitable[None]]) -> None:
    """Repeat the call while slurmctld is down, up to a limit."""
    began = context.time.now()
    while True:
        try:
            return await call()
        except errors.SlurmUnavailable as error:
            patience = NUMBER_SECONDS if isinstance(error, errors.SlurmNotYet) else SLURM_SECONDS
            if context.time.now() > began + patience:
                raise
            await context.time.sleep(random.uniform(1.0, 2.0))  # noqa: S311  # jitter, not a secret


async def set_requeue(context: Context, job_id: int, *, allowed: bool) -> None:
    try:
        await when_there(context, lambda: context.slurm.set_requeue(job_id, allowed=allowed))
    except errors.SlurmError as error:
        joblog.of(log, job_id).warning("cannot set whether it may be requeued: %s", error.message)
