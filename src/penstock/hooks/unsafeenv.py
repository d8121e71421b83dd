"""Would anything in a job's environment run code of its owner's on the Slurm node, before or in our launcher?

job_submit.lua puts such variables aside. But Lua sees only the first of several of the same name, while the
dynamic linker obeys the last and slurmd looks at all of them. So the result is looked at: slurmctld keeps the
environment in a file of its state folder (StateSaveLocation), from which it is sent to slurmd when the job
starts. Tasks of an array share the array's. The file: how many (4 bytes), then so many strings, each with a
NUL behind it; alike in Slurm 22.05, 24.11 and 26.05. What is not laid out like that is not understood, and
not taken for harmless.
"""

import sys

LOADERS = (  # what the dynamic linker and the C library obey
    *("LD_AUDIT", "LD_BIND_NOT", "LD_BIND_NOW", "LD_DEBUG", "LD_DEBUG_OUTPUT", "LD_DYNAMIC_WEAK"),
    *("LD_HWCAP_MASK", "LD_LIBRARY_PATH", "LD_ORIGIN_PATH", "LD_POINTER_GUARD", "LD_PREFER_MAP_32BIT_EXEC"),
    *("LD_PRELOAD", "LD_PROFILE", "LD_PROFILE_OUTPUT", "LD_SHOW_AUXV", "LD_TRACE_LOADED_OBJECTS"),
    *("LD_USE_LOAD_BIAS", "LD_VERBOSE", "LD_WARN"),
    *("GCONV_PATH", "GETCONF_DIR", "GLIBC_TUNABLES", "LOCPATH", "NLSPATH"),
)
LOGIN_SHELL = "SLURM_GET_USER_ENV"  # anything but 0 may make slurmd run the owner's login shell


class NotUnderstoodError(Exception):
    """The file is not laid out as Slurm's are."""


def file_of(state: str, job: str) -> str:
    """Where slurmctld keeps the environment of a job, or of an array."""
    return f"{state}/hash.{int(job) % 10}/job.{int(job)}/environment"


def names_in(path: str) -> "list[str]":
    """Variables in such a file that should have been put aside; OSError when it cannot be read."""
    with open(path, "rb") as file:  # noqa: PTH123  # pathlib costs 10 ms at every job
        data = file.read()
    entries = data[4:].split(b"\0")
    if entries.pop() or len(entries) != int.from_bytes(data[:4], sys.byteorder):
        raise NotUnderstoodError(f"{len(data)} bytes that are no list of variables")
    harmless = {name.encode(): b"" for name in LOADERS}
    harmless[LOGIN_SHELL.encode()] = b"0"
    split = (entry.partition(b"=") for entry in entries)
    found = {name.decode() for name, _, value in split if value != harmless.get(name, value)}
    return sorted(found)
