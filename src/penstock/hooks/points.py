"""Stops or kills this very process at a named step, for the crash matrix. Never part of an installation.

A file of the step's name in the folder arms it, once: whoever gets there first takes the file by renaming it.
`die` in it means SIGKILL here and now; anything else means: wait until the renamed file is taken away, while
the test kills somebody else.
"""

import posix
import time

SUFFIX = ".reached"
SIGKILL = 9


def reach(folder: str, name: str) -> None:
    """This step is reached; returns at once when it is not armed."""
    path = f"{folder}/{name}"
    mark = path + SUFFIX
    try:
        fd = posix.open(path, posix.O_RDONLY)
        how = posix.read(fd, 16)
        posix.close(fd)
        posix.rename(path, mark)
    except OSError:
        return
    if how == b"die":
        posix.kill(posix.getpid(), SIGKILL)
    while is_there(mark):
        time.sleep(0.01)


def is_there(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True
