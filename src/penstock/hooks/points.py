"""Holds this process at a named step, for the crash matrix. Never part of an installation.

A file named after the step arms it once: the first process to get there renames the file, writes its pid to
a file next to it, and waits until that file is removed or the process is killed. The test so decides which
process dies there, and what else happens first.
"""

import posix
import time

TAKEN = ".taken"
SUFFIX = ".reached"


def reach(folder: str, name: str) -> None:
    """Wait here if the step is armed; otherwise return at once."""
    path = f"{folder}/{name}"
    try:
        posix.rename(path, path + TAKEN)
        fd = posix.open(path + SUFFIX, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL, 0o644)
    except OSError:
        return
    posix.write(fd, b"%d\n" % posix.getpid())
    posix.close(fd)
    while posix.access(path + SUFFIX, posix.F_OK):
        time.sleep(0.01)
