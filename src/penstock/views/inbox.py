"""The state of each dropped file, from the intake's inbox file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock import errors, wellknown
from penstock.intake import status
from penstock.views import threads

LOCAL = Path("/run/penstock/inbox.json")


async def inbox(nas: Path | None, *, uid: int | None = None) -> status.Inbox:
    """From this NAS, or of the intake on this host; with `uid` only that user's files."""
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
            f"cannot read the inbox {path}: {error.strerror}",
            hint="Set --nas. If it is right, the intake has not run yet.",
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.PenstockError(f"{path} is not a valid inbox: {error}") from error
