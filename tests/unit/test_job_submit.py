"""job_submit.lua and its chain in a Lua of their own: what they change, what they refuse, and that no error
gets out of them. Slurm 22.05 accepts a job whose plugin raised one, and then its script runs on the node.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from penstock.slurm import marks
from tests import luas
from tests.unit import test_jobtexts

WRAPPED = "#!/usr/libexec/penstock/penstock-launch /bin/bash\ntrue\n"
FINE = r'{ user_id = 1001, script = "#!/bin/bash\ntrue\n", environment = {} }'


@pytest.fixture
def lua() -> Iterator[luas.Lua]:
    made = luas.Lua()
    yield made
    made.close()


@pytest.fixture
def own(lua: luas.Lua) -> luas.Lua:
    """Penstock's file alone."""
    lua.run(luas.job_submit("gpu", "cpu"))
    return lua


def submit(lua: luas.Lua, description: str) -> str:
    """Slurm's answer to a job, as a number; the job is called `job`."""
    lua.run(f"job = {description}; answer = slurm_job_submit(job, {{}}, 1001)")
    return lua.value("answer")


def test_a_job_gets_the_launcher_and_the_mark(own: luas.Lua) -> None:
    """The first line changes, the rest stays, and penstockd can see that it was done."""
    assert submit(own, FINE) == "0"
    assert own.value("job.script") == WRAPPED
    assert own.value("job.admin_comment").startswith("penstock ")


def test_the_mark_has_the_time_of_submission(own: luas.Lua) -> None:
    """penstockd finds both in what squeue shows: the mark, and a time that no requeue changes."""
    before = int(time.time())
    submit(own, FINE)
    comment = own.value("job.admin_comment")
    found = test_jobtexts.told(admin_comment=comment)
    assert found.prepared
    assert before <= int(found.submission) <= time.time()


PRINTED_FIRST = (
    *("name", "account", "wckey", "mcs_label", "batch_features"),
    *("req_nodes", "exc_nodes", "dependency", "alloc_node"),
)


@pytest.mark.parametrize("field", PRINTED_FIRST)
def test_no_word_that_scontrol_prints_before_the_nodes_has_a_line_break(own: luas.Lua, field: str) -> None:
    """At submission and later: a forged line of nodes would stand before the true one."""
    forged = r"x\n     Nodes=n9 CPU_IDs=0-63 Mem=9 GRES=gpu:8"
    assert submit(own, FINE.replace("{ user", f'{{ {field} = "{forged}", user', 1)) == "-1"
    assert "has a control character in it" in own.value("said[1]")
    assert own.value("job.admin_comment") == "nil"
    for partition, answer in (("gpu", "-1"), ("host", "0")):
        own.run(
            f"answer = slurm_job_modify({{ {field} = '{forged}' }}, {{ partition = '{partition}' }}, {{}}, 1)"
        )
        assert own.value("answer") == answer


def test_other_partitions_are_left_alone(own: luas.Lua) -> None:
    """Not even the mark is put on them."""
    assert submit(own, r'{ partition = "host", script = "#!/bin/sh\n" }') == "0"
    assert own.value("job.admin_comment") == "nil"


def test_what_makes_the_launcher_load_code_is_put_aside(own: luas.Lua) -> None:
    """Under another name, which the pod gets back; slurmd starts no login shell."""
    environment = '{ LD_PRELOAD = "/x.so", HOME = "/h", SLURM_GET_USER_ENV = "1" }'
    assert submit(own, rf'{{ script = "#!/bin/sh\n", environment = {environment} }}') == "0"
    assert own.value("job.environment.LD_PRELOAD") == ""
    assert own.value("job.environment.PENSTOCK_GIVEN_LD_PRELOAD") == "/x.so"
    assert own.value("job.environment.HOME") == "/h"
    assert own.value("job.environment.SLURM_GET_USER_ENV") == "0"
    assert own.value("job.environment.PENSTOCK_GIVEN_SLURM_GET_USER_ENV") == "1"


@pytest.mark.parametrize(
    ("description", "words"),
    [
        (r'{ script = "#!/bin/sh\n#K8S_IMAGE %d%n\n" }', '"#K8S_IMAGE %d%n" is not of the form'),
        (r'{ script = "#!/bin/sh\n", partition = "gpu,%s" }', "partitions gpu,%s are partly pods"),
    ],
)
def test_a_refusals_words_are_no_format(own: luas.Lua, description: str, words: str) -> None:
    """A percent sign of the user's is shown as it is, and the job is refused."""
    assert submit(own, description) == "-1"
    assert words in own.value("said[1]")


def test_a_refused_job_has_no_mark(own: luas.Lua) -> None:
    """What was not wrapped does not look as if it was."""
    assert submit(own, '{ script = "true" }') == "-1"
    assert own.value("job.admin_comment") == "nil"


def test_an_error_of_our_own_is_a_refusal(own: luas.Lua) -> None:
    """Whatever a job looks like: in words for the user, in Lua's for the administrator."""
    assert submit(own, "{ script = {} }") == "-1"
    assert own.value("said[1]") == "penstock: the job could not be looked at: tell the administrator"
    assert "job_submit.lua failed: " in own.value("logged[1]")
    own.run("answer = slurm_job_modify({ partition = {} }, { partition = 'gpu' }, {}, 1001)")
    assert own.value("answer") == "-1"


def test_a_job_stays_among_its_kind(own: luas.Lua) -> None:
    """Moving a queued job out of the pods is refused, other changes are not."""
    own.run("away = slurm_job_modify({ partition = 'host' }, { partition = 'gpu' }, {}, 1001)")
    own.run("within = slurm_job_modify({ partition = 'cpu' }, { partition = 'gpu' }, {}, 1001)")
    assert (own.value("away"), own.value("within")) == ("-1", "0")


SHARED = ("/nas", "/scratch/all")
WAY_OUT = "Submit from a folder under /nas or /scratch/all, or name one: --chdir=/nas/..."
SEEN = {
    "a-mount": ("/nas", ""),
    "below-a-mount": ("/scratch/all/x/y", ""),
    "by-a-roundabout-way": ("/home/../nas/./x//y", ""),
    "chosen": ("/home/alice", "#K8S_WORKDIR=/app"),
    "mounted": ("/home/alice/x", "#K8S_MOUNT=/nas/home/alice:/home/alice"),
    "mounted-read-only": ("/home/alice", '#K8S_MOUNT="/nas/a:/home/alice:ro"'),
    "the-images-own": ("/home/alice", "#K8S_COMMAND=@entrypoint"),
}
UNSEEN = {
    "elsewhere": ("/home/alice", ""),
    "a-longer-name": ("/nasty/x", ""),
    "above-a-mount": ("/scratch", ""),
    "up-and-out": ("/nas/../home/alice", ""),
    "root": ("/", ""),
    "too-late": ("/home/alice", "true\\n#K8S_WORKDIR=/app"),
    "mounted-elsewhere": ("/home/alice", "#K8S_MOUNT=/nas/home/alice:/home/al"),
}


def submitted_in(lua: luas.Lua, workdir: str, line: str) -> str:
    """The answer to a job with that working directory and that line in its script."""
    script = f"#!/bin/bash\\n{line}\\ntrue\\n".replace('"', '\\"')
    return submit(lua, f'{{ user_id = 1001, script = "{script}", work_dir = "{workdir}" }}')


@pytest.mark.parametrize("case", [*SEEN, *UNSEEN])
def test_a_working_directory_that_pods_do_not_see_is_refused(lua: luas.Lua, case: str) -> None:
    """In words, with the way out; what they see, and what the script chooses itself, is taken in silence."""
    lua.run(luas.job_submit("gpu", shared=SHARED, missing_workdir="refuse"))
    answer = submitted_in(lua, *(SEEN | UNSEEN)[case])
    if case in SEEN:
        assert (answer, lua.value("#said")) == ("0", "0")
        return
    path = UNSEEN[case][0]
    lost = f"pods do not see the working directory {path}: what the job writes there would be lost"
    assert (answer, lua.value("said[1]")) == ("-1", f"penstock: {lost}. {WAY_OUT}")
    assert lua.value("job.admin_comment") == "nil"


@pytest.mark.parametrize("shared", [SHARED, ()])
def test_a_site_may_let_such_jobs_run_in_tmp(lua: luas.Lua, shared: tuple[str, ...]) -> None:
    """And they are told; where pods share nothing there is no other folder to name."""
    lua.run(luas.job_submit("gpu", shared=shared, missing_workdir="tmp"))
    assert submitted_in(lua, "/home/alice", "") == "0"
    told = lua.value("said[1]")
    assert "the job runs in /tmp of its pod, and files it leaves there vanish with it" in told
    assert (WAY_OUT in told) == bool(shared)
    assert submitted_in(lua, "/home/alice", "#K8S_WORKDIR=/app") == "0"
    assert lua.value("#said") == "1"


def test_a_queued_job_cannot_be_moved_where_pods_see_nothing(lua: luas.Lua) -> None:
    """`scontrol update WorkDir=` is held to the same; other partitions are left alone."""
    lua.run(luas.job_submit("gpu", shared=SHARED, missing_workdir="refuse"))
    for workdir, partition, answer in (
        ("/home", "gpu", "-1"),
        ("/nas/x", "gpu", "0"),
        ("/home", "host", "0"),
    ):
        change = f"{{ work_dir = '{workdir}' }}, {{ partition = '{partition}' }}"
        lua.run(f"answer = slurm_job_modify({change}, {{}}, 1001)")
        assert lua.value("answer") == answer


class Chain:
    """A site's own file, and ours behind it."""

    def __init__(self, lua: luas.Lua, folder: Path) -> None:
        self.lua = lua
        self.site, self.own = folder / "site.lua", folder / "own.lua"
        self.own.write_bytes(luas.job_submit("gpu", "cpu"))
        text = resources.files("penstock.hooks").joinpath("job_submit_chain.lua").read_text()
        lua.run(text.replace("@SITE@", str(self.site)).replace("@OWN@", str(self.own)))

    def submit(self, body: str, description: str = FINE) -> str:
        """Slurm's answer where the site's function has this body."""
        self.site.write_text(
            f"function slurm_job_submit(job)\n{body}\nend\nfunction slurm_job_modify()\n{body}\nend\n"
        )
        return submit(self.lua, description)


@pytest.fixture
def chain(lua: luas.Lua, tmp_path: Path) -> Chain:
    return Chain(lua, tmp_path)


@pytest.mark.parametrize("body", ["return slurm.SUCCESS", "", "return nil", "return 'yes'"])
def test_what_the_site_lets_through_is_wrapped(chain: Chain, body: str) -> None:
    """Also by a function that returns nothing: Slurm takes that for a yes."""
    assert chain.submit(body) == "0"
    assert chain.lua.value("job.script") == WRAPPED


@pytest.mark.parametrize(("body", "answer"), [("return slurm.ERROR", "-1"), ("return 2045", "2045")])
def test_what_the_site_refuses_is_refused(chain: Chain, body: str, answer: str) -> None:
    """With its own number."""
    assert chain.submit(body) == answer
    assert chain.lua.value("job.admin_comment") == "nil"


@pytest.mark.parametrize("body", ["error('bad %d')", "error()", "local x = job.a.b.c"])
def test_an_error_of_the_sites_does_not_keep_our_part_from_the_job(chain: Chain, body: str) -> None:
    """Slurm 22.05 takes it for a yes: the script is wrapped all the same, and other jobs go their way."""
    assert chain.submit(body) == "0"
    assert chain.lua.value("job.script") == WRAPPED
    assert "site.lua failed" in chain.lua.value("logged[1]")
    assert chain.submit(body, r'{ partition = "host", script = "#!/bin/sh\n" }') == "0"
    chain.lua.run("answer = slurm_job_modify({}, { partition = 'gpu' }, {}, 1001)")
    assert chain.lua.value("answer") == "0"


def test_an_error_of_ours_is_a_refusal_in_the_chain(chain: Chain) -> None:
    """As without a file of the site's."""
    assert chain.submit("return 0", "{ script = {} }") == "-1"


@pytest.mark.parametrize("body", ["error('bad %d')", "return nil", "return 'yes'"])
def test_no_number_of_our_part_is_a_refusal(chain: Chain, body: str) -> None:
    """Slurm takes whatever is no number for a yes, and the script would run on the node."""
    chain.own.write_text(f"function slurm_job_submit() {body} end")
    assert chain.submit("return 0") == "-1"
    assert "own.lua failed" in chain.lua.value("said[1]")


@pytest.mark.parametrize("text", ["this is no Lua %s", "", None])
def test_without_our_part_nothing_is_accepted(chain: Chain, text: str | None) -> None:
    """It is not there, cannot be read, or has not the function."""
    chain.own.unlink() if text is None else chain.own.write_text(text)
    assert chain.submit("return 0") == "-1"
    assert "own.lua cannot be used" in chain.lua.value("said[1]")


@pytest.mark.parametrize(
    ("said", "kept"),
    [("requeue = 0,", False), ("requeue = 1,", True), ("requeue = 65534,", None)],
)
def test_a_job_may_wait_whatever_its_owner_says_of_running_again(
    own: luas.Lua, said: str, kept: bool | None
) -> None:
    """Slurm cancels a job without room that it may not requeue. What the owner said is kept in the mark."""
    assert submit(own, rf'{{ {said} script = "#!/bin/sh\n" }}') == "0"
    assert own.value("job.requeue") == "1"
    mark = marks.read(own.value("job.admin_comment"))
    assert mark is not None
    assert mark.requeue is kept
