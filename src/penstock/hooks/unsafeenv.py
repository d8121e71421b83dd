"""Finds variables in a job's environment that would run the owner's code on the Slurm node, in or before
the launcher.

job_submit.lua puts such variables aside. But Lua sees only the first of several with the same name, while
the dynamic linker uses the last and slurmd looks at all. So the result is checked in the environment file
that slurmctld keeps below StateSaveLocation and sends to slurmd when the job starts; tasks of an array
share the array's file. Its format: the number of strings (4 bytes), then the strings, each ending in a NUL;
the same in Slurm 22.05, 24.11 and 26.05. A file in any other format is reported as not understood, never as
harmless.
"""

import sys

LOADERS = (  # variables of the dynamic linker and the C library
    *("LD_AUDIT", "LD_BIND_NOT", "LD_BIND_NOW", "LD_DEBUG", "LD_DEBUG_OUTPUT", "LD_DYNAMIC_WEAK"),
    *("LD_HWCAP_MASK", "LD_LIBRARY_PATH", "LD_ORIGIN_PATH", "LD_POINTER_GUARD", "LD_PREFER_MAP_32BIT_EXEC"),
    *("LD_PRELOAD", "LD_PROFILE", "LD_PROFILE_OUTPUT", "LD_SHOW_AUXV", "LD_TRACE_LOADED_OBJECTS"),
    *("LD_USE_LOAD_BIAS", "LD_VERBOSE", "LD_WARN"),
    *("GCONV_PATH", "GETCONF_DIR", "GLIBC_TUNABLES", "LOCPATH", "NLSPATH"),
)
LOGIN_SHELL = "SLURM_GET_USER_ENV"  # with any value but 0 slurmd may run the owner's login shell


class NotUnderstoodError(Exception):
    """The file does not have Slurm's format."""


def file_of(state: str, job: str) -> str:
    """slurmctld's environment file of a job, or of an array."""
    return f"{state}/hash.{int(job) % 10}/job.{int(job)}/environment"


def names_in(path: str) -> "list[str]":
    """Variables in the file that should have been put aside. OSError if it cannot be read."""
    with open(path, "rb") as file:  # noqa: PTH123  # pathlib costs 10 ms at every job
        data = file.read()
    entries = data[4:].split(b"\0")
    if entries.pop() or len(entries) != int.from_bytes(data[:4], sys.byteorder):
        raise NotUnderstoodError(f"{len(data)} bytes that are not a list of variables")
    harmless = {name.encode(): b"" for name in LOADERS}
    harmless[LOGIN_SHELL.encode()] = b"0"
    split = (entry.partition(b"=") for entry in entries)
    found = {name.decode() for name, _, value in split if value != harmless.get(name, value)}
    return sorted(found)
