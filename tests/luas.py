"""A Lua for tests of what runs inside slurmctld: the very library that Slurm's plugin uses, and a `slurm`
that notes what it is told.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping

import pytest

from penstock.render import hooks

LIBRARIES = ("liblua5.1.so.0", "liblua5.3.so.0", "liblua5.4.so.0")
_EVERYTHING = -1  # LUA_MULTRET
_LAST = -1
SLURM = """
said, logged = {}, {}
slurm = { SUCCESS = 0, ERROR = -1, reservations = {} }
function slurm.log_user(...) said[#said + 1] = string.format(...) end
function slurm.log_error(...) logged[#logged + 1] = string.format(...) end
"""


def _library() -> ctypes.CDLL:
    for name in LIBRARIES:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    pytest.skip("there is no Lua here, and so no job_submit/lua")


class Lua:
    """One interpreter, as slurmctld has one."""

    def __init__(self) -> None:
        self._lua = _library()
        self._lua.luaL_newstate.restype = ctypes.c_void_p
        self._lua.lua_tolstring.restype = ctypes.c_void_p
        self._state = ctypes.c_void_p(self._lua.luaL_newstate())
        self._lua.luaL_openlibs(self._state)
        self.run(SLURM)

    def run(self, text: str | bytes) -> bytes:
        """What a piece of Lua returns, as text; AssertionError with Lua's words when it raises an error."""
        data = text.encode() if isinstance(text, str) else text
        failed = self._load(data) or self._call()
        length = ctypes.c_size_t()
        at = self._lua.lua_tolstring(self._state, _LAST, ctypes.byref(length))
        answer = ctypes.string_at(at, length.value) if at else b""
        self._lua.lua_settop(self._state, 0)
        assert not failed, answer.decode(errors="replace")
        return answer

    def value(self, expression: str) -> str:
        """What an expression is, as text."""
        return self.run(f"return tostring({expression})").decode(errors="replace")

    def _load(self, data: bytes) -> int:
        size = ctypes.c_size_t(len(data))
        if hasattr(self._lua, "luaL_loadbufferx"):
            return int(self._lua.luaL_loadbufferx(self._state, data, size, b"test", None))
        return int(self._lua.luaL_loadbuffer(self._state, data, size, b"test"))

    def _call(self) -> int:
        if hasattr(self._lua, "lua_pcallk"):
            return int(self._lua.lua_pcallk(self._state, 0, _EVERYTHING, 0, ctypes.c_void_p(), None))
        return int(self._lua.lua_pcall(self._state, 0, _EVERYTHING, 0))

    def close(self) -> None:
        self._lua.lua_close(self._state)

    def refusal(self, job: Mapping[str, bytes]) -> bytes:
        """What slurm_job_submit says to the user of a job with these fields that it refuses; else nothing."""
        return self._submit(job, b'done == slurm.SUCCESS and "" or table.concat(said, "\\n")')

    def hints(self, job: Mapping[str, bytes]) -> bytes:
        """What it says to the user of a job that it takes; else nothing."""
        return self._submit(job, b'done == slurm.SUCCESS and table.concat(said, "\\n") or ""')

    def _submit(self, job: Mapping[str, bytes], answer: bytes) -> bytes:
        fields = b", ".join(b'["%s"] = %s' % (name.encode(), literal(value)) for name, value in job.items())
        submit = b"local done = slurm_job_submit({ user_id = 1000, %s }, {}, 1000)" % fields
        return self.run(b"said = {}\n%s\nreturn %s" % (submit, answer))


def job_submit(*bridged: str, shared: tuple[str, ...] = (), missing_workdir: str = "tmp") -> bytes:
    """Our file as it is installed, with these bridged partitions; the first is the default."""
    settings = hooks.HookSettings(
        libexec="/usr/libexec/penstock",
        socket="/run/penstock/penstockd.sock",
        bridged_partitions=bridged,
        default_partition=bridged[0],
        release_timeout=600,
        slurm_conf="/etc/slurm/slurm.conf",
        state_dir="/var/spool/slurmctld",
        shared_mounts=shared,
        missing_workdir=missing_workdir,
    )
    (found,) = (file for file in hooks.render_hooks(settings) if file.name == "job_submit.lua")
    return found.content


def literal(value: bytes) -> bytes:
    """A Lua string of exactly these bytes."""
    return b'"' + b"".join(b"\\%03d" % byte for byte in value) + b'"'
