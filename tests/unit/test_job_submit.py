"""job_submit.lua and its chain in a Lua interpreter: what they change and refuse, and that no error accepts
a job.
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
    """slurm_job_submit's return code; the job stays in the global `job`."""
    lua.run(f"job = {description}; answer = slurm_job_submit(job, {{}}, 1001)")
    return lua.value("answer")


def test_a_job_gets_the_launcher_and_the_mark(own: luas.Lua) -> None:
    """The first line changes, the rest stays."""
    assert submit(own, FINE) == "0"
    assert own.value("job.script") == WRAPPED
    assert own.value("job.admin_comment").startswith("penstock ")


def test_the_mark_has_the_time_of_submission(own: luas.Lua) -> None:
    """Unlike SubmitTime it does not change when the job is requeued."""
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
def test_control_characters_in_printed_fields_are_refused(own: luas.Lua, field: str) -> None:
    """At submission and update: otherwise users could forge a line with nodes."""
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
    """Not even the mark is set."""
    assert submit(own, r'{ partition = "host", script = "#!/bin/sh\n" }') == "0"
    assert own.value("job.admin_comment") == "nil"


def test_loader_variables_are_put_aside(own: luas.Lua) -> None:
    """The pod gets them back; slurmd starts no login shell."""
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
def test_refusals_are_not_format_strings(own: luas.Lua, description: str, words: str) -> None:
    """A user's percent sign is shown as it is, and the job is refused."""
    assert submit(own, description) == "-1"
    assert words in own.value("said[1]")


def test_a_refused_job_has_no_mark(own: luas.Lua) -> None:
    assert submit(own, '{ script = "true" }') == "-1"
    assert own.value("job.admin_comment") == "nil"


def test_internal_error_is_a_refusal(own: luas.Lua) -> None:
    """The user gets a message, slurmctld's log the Lua error."""
    assert submit(own, "{ script = {} }") == "-1"
    assert own.value("said[1]") == "penstock: the job could not be checked: tell the administrator"
    assert "job_submit.lua failed: " in own.value("logged[1]")
    own.run("answer = slurm_job_modify({ partition = {} }, { partition = 'gpu' }, {}, 1001)")
    assert own.value("answer") == "-1"


def test_job_cannot_move_in_or_out_of_bridged_partitions(own: luas.Lua) -> None:
    """Other updates are allowed."""
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
    """The result for a job with that working directory and that line in its script."""
    script = f"#!/bin/bash\\n{line}\\ntrue\\n".replace('"', '\\"')
    return submit(lua, f'{{ user_id = 1001, script = "{script}", work_dir = "{workdir}" }}')


@pytest.mark.parametrize("case", [*SEEN, *UNSEEN])
def test_working_directory_outside_shared_mounts_is_refused(lua: luas.Lua, case: str) -> None:
    """With advice; one that pods see or that the script sets itself is accepted silently."""
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
    """With a warning; without shared mounts it names no other folder."""
    lua.run(luas.job_submit("gpu", shared=shared, missing_workdir="tmp"))
    assert submitted_in(lua, "/home/alice", "") == "0"
    told = lua.value("said[1]")
    assert "the job runs in /tmp of its pod, and files it leaves there vanish with it" in told
    assert (WAY_OUT in told) == bool(shared)
    assert submitted_in(lua, "/home/alice", "#K8S_WORKDIR=/app") == "0"
    assert lua.value("#said") == "1"


def test_workdir_update_is_checked(lua: luas.Lua) -> None:
    """`scontrol update WorkDir=` follows the same rule; other partitions are left alone."""
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
    """A site's own file, with ours after it."""

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
def test_job_accepted_by_the_site_is_wrapped(chain: Chain, body: str) -> None:
    """Also if the site's function returns nothing, which Slurm takes for success."""
    assert chain.submit(body) == "0"
    assert chain.lua.value("job.script") == WRAPPED


@pytest.mark.parametrize(("body", "answer"), [("return slurm.ERROR", "-1"), ("return 2045", "2045")])
def test_job_refused_by_the_site_is_refused(chain: Chain, body: str, answer: str) -> None:
    """With the site's return code."""
    assert chain.submit(body) == answer
    assert chain.lua.value("job.admin_comment") == "nil"


@pytest.mark.parametrize("body", ["error('bad %d')", "error()", "local x = job.a.b.c"])
def test_error_in_the_sites_part_does_not_skip_ours(chain: Chain, body: str) -> None:
    """Slurm 22.05 accepts a job after an error: the script must be wrapped all the same."""
    assert chain.submit(body) == "0"
    assert chain.lua.value("job.script") == WRAPPED
    assert "site.lua failed" in chain.lua.value("logged[1]")
    assert chain.submit(body, r'{ partition = "host", script = "#!/bin/sh\n" }') == "0"
    chain.lua.run("answer = slurm_job_modify({}, { partition = 'gpu' }, {}, 1001)")
    assert chain.lua.value("answer") == "0"


def test_error_in_our_part_is_a_refusal(chain: Chain) -> None:
    assert chain.submit("return 0", "{ script = {} }") == "-1"


@pytest.mark.parametrize("body", ["error('bad %d')", "return nil", "return 'yes'"])
def test_non_number_from_our_part_is_a_refusal(chain: Chain, body: str) -> None:
    """Slurm takes it for success, and the script would run on the node."""
    chain.own.write_text(f"function slurm_job_submit() {body} end")
    assert chain.submit("return 0") == "-1"
    assert "own.lua failed" in chain.lua.value("said[1]")


@pytest.mark.parametrize("text", ["this is no Lua %s", "", None])
def test_without_our_part_every_job_is_refused(chain: Chain, text: str | None) -> None:
    """The file is missing, unreadable, or lacks the function."""
    chain.own.unlink() if text is None else chain.own.write_text(text)
    assert chain.submit("return 0") == "-1"
    assert "own.lua cannot be used" in chain.lua.value("said[1]")


@pytest.mark.parametrize(
    ("said", "kept"),
    [("requeue = 0,", False), ("requeue = 1,", True), ("requeue = 65534,", None)],
)
def test_job_may_be_requeued_whatever_its_owner_chose(own: luas.Lua, said: str, kept: bool | None) -> None:
    """Slurm cancels a job without room that may not be requeued. The mark keeps the owner's choice."""
    assert submit(own, rf'{{ {said} script = "#!/bin/sh\n" }}') == "0"
    assert own.value("job.requeue") == "1"
    mark = marks.read(own.value("job.admin_comment"))
    assert mark is not None
    assert mark.requeue is kept
