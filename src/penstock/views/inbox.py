"""Where each file is that was dropped on the NAS, as its intake has written it down."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock import errors, wellknown
from penstock.intake import status
from penstock.views import threads

LOCAL = Path("/run/penstock/inbox.json")


async def inbox(nas: Path | None, *, uid: int | None = None) -> status.Inbox:
    """On this NAS, or of the intake on this host; with `uid` that user's files only."""
    path = nas / wellknown.DROP_FOLDER / wellknown.DROP_INDEX if nas else LOCAL
    found = await threads.run(_read, path)
    if uid is None:
        return found
    return msgspec.structs.replace(
        found,
        waiting=tuple(item for item in found.waiting if item.uid == uid),
        done=tuple(item for item in found.done if item.uid == uid),
    )


def _read(path: Path) -> status.Inbox:
    try:
        return msgspec.json.decode(path.read_bytes(), type=status.Inbox)
    except OSError as error:
        raise errors.PenstockError(
            f"there is no inbox at {path}: {error.strerror}",
            hint="Name the NAS with --nas; if it is right, the intake has not run yet.",
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.PenstockError(f"{path} is not an inbox: {error}") from error
