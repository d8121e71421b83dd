"""Scripts, arguments, interpreters and exit codes: each row is run by plain Slurm and as a pod, and leaves
the same.
"""

from __future__ import annotations

import pytest
from tests.e2e import semantics
from tests.e2e.semantics import Row

ARGUMENTS = ("a b", "", "$HOME", "it's", '"', "*", "-n", "--", "é\n2nd line", "\\n", "`id`", ";true")
SHOW_ARGUMENTS = '#!/bin/bash\necho $#; for a; do printf "[%s]\\n" "$a"; done\n'
PYTHON = "import sys, os\nprint(sys.argv[1:], os.path.basename(os.getcwd()).partition('-')[2])\nsys.exit(5)\n"
DYING = (
    "#!/usr/bin/python3\nimport os, signal, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    "signal.signal({0}, signal.SIG_DFL)\nos.kill(os.getpid(), {0})\n"
)
ROWS = {
    "exit-0": Row(script="#!/bin/sh\ntrue\n"),
    "exit-1": Row(script="#!/bin/sh\nexit 1\n"),
    "exit-7": Row(script="#!/bin/bash\nexit 7\n"),
    "exit-255": Row(script="#!/bin/sh\nexit 255\n"),
    "exit-137-by-itself": Row(script="#!/bin/sh\nexit 137\n"),
    "a-child-killed": Row(script="#!/bin/sh\nsh -c 'kill -9 $$' 2>/dev/null\necho $?\nexit 3\n"),
    "killed-KILL": Row(script="#!/bin/bash\necho before\nkill -KILL $$\n"),
    "killed-SEGV": Row(script="#!/bin/sh\nulimit -c 0; kill -SEGV $$\n"),
    "killed-TERM": Row(script="#!/bin/sh\nkill -TERM $$\n"),
    "killed-HUP": Row(script="#!/usr/bin/python3\nimport os\nos.kill(os.getpid(), 1)\n"),
    "killed-USR1": Row(script="#!/bin/bash\nkill -USR1 $$\n"),
    **{f"killed-{number}": Row(script=DYING.format(number)) for number in (2, 3, 13, 14, 25, 31, 34)},
    "killed-ABRT": Row(script="#!/usr/bin/python3\nimport os\nos.abort()\n"),
    "trapped-INT": Row(script="#!/bin/bash\ntrap 'echo it' INT QUIT\nkill -INT $$; kill -QUIT $$\necho on\n"),
    "exit-143-by-itself": Row(script="#!/bin/sh\nexit 143\n"),
    "own-name": Row(script="#!/bin/bash\nbasename $0\nnone-such 2>&1 | sed 's,.*/,,'\n"),
    "set-e": Row(script="#!/bin/bash -e\necho before\nfalse\necho after\n"),
    "no-such-command": Row(script="#!/bin/sh\nexec /nonexistent/program 2>/dev/null\n"),
    "not-executable": Row(script="#!/bin/sh\nexec /etc/passwd 2>/dev/null\n"),
    "two-streams-one-file": Row(
        script="#!/bin/bash\nfor i in 1 2 3; do echo out $i; echo err $i >&2; done\n"
    ),
    "two-streams-two-files": Row(
        script="#!/bin/bash\nfor i in 1 2 3; do echo out $i; echo err $i >&2; done\n",
        options=("--output=o.txt", "--error=e.txt"),
    ),
    "error-file-alone": Row(script="#!/bin/sh\necho out; echo err >&2\n", options=("--error=e.txt",)),
    "error-to-null": Row(script="#!/bin/sh\necho out; echo err >&2\n", options=("--error=/dev/null",)),
    "output-to-null": Row(
        script="#!/bin/sh\necho out; echo err >&2\n", options=("--output=/dev/null", "--error=e.txt")
    ),
    "both-to-null": Row(script="#!/bin/sh\necho out; echo err >&2\n", options=("--output=/dev/null",)),
    "bytes": Row(script="#!/bin/bash\nprintf '\\000\\377\\r\\nno newline at the end'\n"),
    "arguments": Row(script=SHOW_ARGUMENTS, arguments=ARGUMENTS),
    "no-arguments": Row(script=SHOW_ARGUMENTS),
    "nothing-to-read": Row(script="#!/bin/sh\ncat; read line; echo $? end\n"),
    "working-directory": Row(
        script="#!/bin/sh\n{ pwd; /bin/pwd; } >$SLURM_SUBMIT_DIR/where\n",
        options=("--chdir=..", "--output=/dev/null"),
    ),
    "wrap": Row(options=("--wrap=echo wrapped; exit 4",)),
    "wrap-with-quotes": Row(options=("--wrap=printf '%s\\n' \"a  b\" 'c\"d' $((1+1))",)),
    "python": Row(script=f"#!/usr/bin/python3\n{PYTHON}", arguments=("x y",)),
    "env-python": Row(script=f"#!/usr/bin/env python3\n{PYTHON}", arguments=("x y",)),
    "env-S": Row(script="#!/usr/bin/env -S python3 -u -B\nimport sys\nprint(sys.dont_write_bytecode)\n"),
    "perl": Row(script='#!/usr/bin/perl -w\nprint "perl @ARGV\\n"; exit 6;\n', arguments=("1", "2")),
    "shell-with-option": Row(script="#!/bin/bash -u\necho $NOT_THERE\necho never\n", options=("--error=e",)),
    "spaces-in-the-first-line": Row(script="#!  /bin/sh  \necho fine\n"),
    "a-child-left-behind": Row(script="#!/bin/bash\nsleep 300 &\necho left\n"),
    "words-only": Row(script="#!/bin/sh\n# no newline at the end\necho last line"),
    "here-document": Row(script="#!/bin/bash\ncat <<'EOF'\n\ttab $x 'q' \\\nEOF\n"),
    "exec-in-place": Row(script="#!/bin/bash\nexec python3 -c 'raise SystemExit(9)'\n"),
    "limits-of-output-name": Row(script="#!/bin/sh\necho named\n", options=("--output=with space.txt",)),
}  # fmt: skip


@pytest.fixture(scope="module")
def traces(lab: semantics.Lab) -> dict[str, dict[str, semantics.Trace]]:
    """All rows, run at once."""
    return semantics.twins(lab, ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_pod_behaves_like_plain_slurm(traces: dict[str, dict[str, semantics.Trace]], name: str) -> None:
    """Same state, same exit code, same files with the same bytes."""
    plain, pod = traces[name][semantics.PLAIN], traces[name][semantics.PODS]
    assert pod.record == plain.record
    assert {file: _comparable(data) for file, data in pod.files.items()} == {
        file: _comparable(data) for file, data in plain.files.items()
    }


def _comparable(data: bytes) -> bytes:
    """Bash names the script it runs in its complaints: the spooled copy or the one in the pod."""
    return b"\n".join(
        line.partition(b"line ")[2] if b": line " in line else line for line in data.split(b"\n")
    )


@pytest.mark.parametrize("name", ["exit-7", "python", "wrap", "perl"])
def test_plain_slurm_gives_the_expected_codes(
    traces: dict[str, dict[str, semantics.Trace]], name: str
) -> None:
    """Two equal failures would look like agreement, so the codes are checked as well."""
    expected = {"exit-7": "7:0", "python": "5:0", "wrap": "4:0", "perl": "6:0"}[name]
    assert traces[name][semantics.PLAIN].record == semantics.Record("FAILED", expected)
