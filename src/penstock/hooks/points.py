"""Holds this very process at a named step, for the crash matrix. Never part of an installation.

A file of the step's name in the folder arms it, once: whoever gets there first takes the file by renaming it,
leaves its pid beside it, and stays until that is taken away or somebody has killed it. So the test decides
who dies there, and what else happens before.
"""

import posix
import time

TAKEN = ".taken"
SUFFIX = ".reached"


def reach(folder: str, name: str) -> None:
    """This step is reached; returns at once when it is not armed."""
    path = f"{folder}/{name}"
    try:
        posix.rename(path, path + TAKEN)
        fd = posix.open(path + SUFFIX, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL, 0o644)
    except OSError:
        return
    posix.write(fd, b"%d\n" % posix.getpid())
    posix.close(fd)
    while is_there(path + SUFFIX):
        time.sleep(0.01)


def is_there(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True
