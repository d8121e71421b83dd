"""scontrol in pods: shows everything, and changes jobs.

The word of an action is written out, because scontrol itself takes abbreviations.
"""

from __future__ import annotations

import re

from penstock.calls.outcomes import Answer, refused

_LEAST = 3  # letters of an abbreviation
_ACTIONS = (
    *("show", "update", "hold", "uhold", "release", "requeue", "requeuehold", "suspend", "resume"),
    *("top", "notify", "wait_job", "ping", "version", "completing", "write"),
)
_SHORT_ACTIONS = {"u": "update", "up": "update", "su": "suspend", "uh": "uhold"}
_OPTIONS = re.compile(
    r"-[adFhoQvV]+|--(?:all|details|federation|help|hide|local|oneliner|quiet|sibling|usage|verbose|version)"
    r"|--(?:json|yaml)(?:=[\w.+-]*)?"
)
_JOB = re.compile(r"job(?:id|name)?(?:=.*)?|stepid=.*", re.IGNORECASE | re.DOTALL)
NAME = "scontrol"


def words(given: tuple[bytes, ...]) -> tuple[bytes, ...] | Answer:
    """The words for the real scontrol, or why there are none."""
    texts = [word.decode("utf-8", "surrogateescape") for word in given]
    for text in texts:
        if text.startswith("-") and text != "-" and not _OPTIONS.fullmatch(text):
            return refused(NAME, f"the option {text} does not work in pods")
    options = [text for text in texts if text.startswith("-") and text != "-"]
    rest = [text for text in texts if text not in options]
    if not rest:
        if options:
            return _bytes(options)
        return refused(NAME, "scontrol has no prompt in pods; write a command behind it")
    action = _action(rest[0])
    problem = _problem(action, rest[1:]) if action else f"{rest[0]} does not work in pods"
    return refused(NAME, problem) if problem else _bytes([*options, action, *rest[1:]])


def _action(word: str) -> str:
    """The action that the word abbreviates; empty if it is not for pods."""
    word = word.lower()
    if word in _ACTIONS:
        return word
    if len(word) < _LEAST:
        return _SHORT_ACTIONS.get(word, "")
    return next((action for action in _ACTIONS if action.startswith(word)), "")


def _problem(action: str, rest: list[str]) -> str:
    if action == "update" and not any(map(_JOB.fullmatch, rest)):
        return "in pods scontrol updates jobs only: scontrol update JobId=..."
    if action == "write" and not (len(rest) == len(("batch_script", "job", "-")) and rest[-1] == "-"):
        return "in pods scontrol writes to standard output only: scontrol write batch_script JOB -"
    if action == "show" and len(rest) > 1 and rest[0].lower().startswith("hostl") and rest[1].startswith("/"):
        return "in pods scontrol reads no file with host names: name them"
    return ""


def _bytes(texts: list[str]) -> tuple[bytes, ...]:
    return tuple(text.encode("utf-8", "surrogateescape") for text in texts)
