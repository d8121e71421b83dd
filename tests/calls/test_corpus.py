"""Every srun of the corpus becomes a step, or is refused for a reason that is known."""

from __future__ import annotations

import collections

from penstock.calls import outcomes, srunplan
from tests.calls import calling, corpus

KNOWN = {
    "srun: invalid option -- 'g'": 7,
    "srun: error: --container-image does not work in pods: ": 6,
    "srun: error: --container-mounts does not work in pods: ": 2,
}
"""The beginnings of the answers, and how many calls get each: -gpus for --gpus, and Pyxis' options."""


def test_calls_of_real_scripts() -> None:
    """With their options passed on, and their programs' words untouched."""
    answers: collections.Counter[str] = collections.Counter()
    steps = 0
    for script, words in corpus.calls():
        planned = srunplan.plan([word.encode() for word in words], calling.environment(), calling.JOB)
        if isinstance(planned, outcomes.Answer):
            text = planned.stderr.decode()
            answers[next((known for known in KNOWN if text.startswith(known)), f"{script}: {text}")] += 1
            continue
        assert isinstance(planned, outcomes.Step), (script, words)
        program = [word.decode() for word in planned.program]
        assert words[len(words) - len(program) :] == program, script
        steps += 1
    assert (dict(answers), steps > 100) == (KNOWN, True)
