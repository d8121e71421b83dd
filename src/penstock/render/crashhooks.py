"""Hooks for the crash matrix: comments that name a step become calls; all other bytes stay."""

from __future__ import annotations

import re

POINTS = "points.py"
_PYTHON = re.compile(rb"^( *)# crash point: ([a-z.-]+)$", re.MULTILINE)
_LUA = re.compile(rb"^( *)-- crash point: ([a-z.-]+)$", re.MULTILINE)
_IMPORT = re.compile(rb"^from \. import .+$", re.MULTILINE)
_LUA_CALL = (
    rb"\1if os.rename('%(folder)s/\2', '%(folder)s/\2.reached') then "
    rb"while os.rename('%(folder)s/\2.reached', '%(folder)s/\2.reached') do os.execute('sleep 0.02') end end"
)


def armed(source: bytes, folder: str) -> bytes:
    """A Python hook with calls of its steps; one without steps stays unchanged."""
    if not _PYTHON.search(source):
        return source
    call = rb"\1points.reach(%r, '\2')" % folder
    importing, count = _IMPORT.subn(rb"\g<0>, points", source, count=1)
    if not count:
        raise ValueError("a hook with crash points lacks `from . import`: add points.py to its imports")
    return _PYTHON.sub(call, importing)


def armed_lua(source: bytes, folder: str) -> bytes:
    """job_submit.lua with its steps. It only waits there, because it runs inside slurmctld."""
    return _LUA.sub(_LUA_CALL % {b"folder": folder.encode()}, source)
