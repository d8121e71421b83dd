"""Partitions that are not bridged, on a host that has nothing of Penstock's: nothing changes for them."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest
from tests.e2e import plainsite

from penstock import wellknown
from penstock.bridge import sweeps
from penstock.install import sitefiles
from penstock.site import loader
from penstock_lab import loopback, paths, spec, supervision, testing
from penstock_lab.components import COLLECTOR, all_components

WORKER = "n1"
"""A node of the site's own; its slurmd sees none of our files."""
SITE_EPILOG = """\
#!/bin/sh
echo "$SLURM_JOB_ID" >> {seen}
[ ! -e {broken}.$SLURMD_NODENAME ]
"""
HOLD = """\
#!/bin/sh
touch {held}
until [ -e {open} ]; do sleep 0.1; done
exec "$@"
"""
HELLO = "#!/bin/sh\nsrun echo a step\necho done\n"
DRAINED, DRAINING = "drained Epilog error", "draining Epilog error"


@pytest.fixture(scope="module")
def site() -> Iterator[plainsite.PlainSite]:
    """A site before Penstock, with an Epilog of its own, whose worker is another host."""
    if os.geteuid() != 0:
        pytest.skip("needs root for a mount namespace")
    with plainsite.plain_site() as made:
        epilog = made.lab.place.directory / "site-epilog"
        text = SITE_EPILOG.format(seen=seen_file(made), broken=broken(made, ""))
        epilog.write_text(text)
        epilog.chmod(0o755)
        conf = made.lab.place.slurm_conf
        conf.write_text(conf.read_text() + f"Epilog={epilog}\nPrologEpilogTimeout=65534\n")
        start_slurmd(made, WORKER, hide=made.lab.place.libexec)
        made.lab.run(("scontrol", "reconfigure"))
        yield made


def seen_file(site: plainsite.PlainSite) -> Path:
    return site.lab.place.directory / "site-epilog.seen"


def broken(site: plainsite.PlainSite, node: str) -> Path:
    """Where this file is, the site's Epilog fails on the node."""
    found = site.lab.place.directory / "site-epilog.broken"
    return found.with_name(f"{found.name}.{node}") if node else found


def start_slurmd(
    site: plainsite.PlainSite, node: str, *, conf: Path | None = None, hide: Path | None = None
) -> None:
    """The node's slurmd with another configuration, or where a folder is empty; it outlives the starter."""
    starting = multiprocessing.get_context("spawn").Process(
        target=_start_slurmd, args=(site.lab.place.directory, node, conf, hide)
    )
    starting.start()
    starting.join(timeout=120)
    assert starting.exitcode == 0


def _start_slurmd(directory: Path, node: str, conf: Path | None, hide: Path | None) -> None:
    place = paths.LabPaths(directory)
    known = next(each for each in all_components(place, spec.load(place)) if each.name == f"slurmd-{node}")
    read = str(loopback.slurm_conf(place))
    argv = tuple(str(conf) if conf and word == read else word for word in known.argv)
    if hide is not None:
        empty = f'mount -t tmpfs none "{hide}" && exec "$0" "$@"'
        argv = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", empty, *argv)
    supervisor = supervision.Supervisor(place)
    supervisor.stop(known)
    supervisor.start(dataclasses.replace(known, argv=argv))


def state_of(site: plainsite.PlainSite, node: str) -> str:
    """Such as `drained Epilog error`."""
    argv = ("sinfo", "--noheader", "--Node", f"--nodes={node}", "--Format=StateLong:20,Reason:60")
    return " ".join(site.lab.run(argv).stdout.split("\n")[0].split())


def require_plain_jobs(site: plainsite.PlainSite, when: str, *, left: str = "idle none") -> None:
    """A job with a step runs on the worker, and its own Epilog is run once."""
    lab, output = site.lab, site.lab.home / f"plain-{when}.out"
    job = lab.sbatch(HELLO, "--partition=host", f"--nodelist={WORKER}", f"--output={output}")
    assert lab.wait_for(job, "COMPLETED", "FAILED")["ExitCode"] == "0:0", when
    assert output.read_text() == "a step\ndone\n", when
    testing.until(lambda: state_of(site, WORKER) == left, seconds=30)
    testing.until(lambda: seen_file(site).read_text().split().count(job) == 1, seconds=30)


def fail_epilog(site: plainsite.PlainSite, node: str, partition: str, *, left: str = DRAINED) -> None:
    """The site's own Epilog finds the node broken."""
    broken(site, node).touch()
    job = site.lab.sbatch(
        "#!/bin/sh\n", f"--partition={partition}", f"--nodelist={node}", "--output=/dev/null"
    )
    site.lab.wait_for(job, "COMPLETED", timeout=180)
    testing.until(lambda: state_of(site, node) == left, seconds=60)
    broken(site, node).unlink()


@contextlib.contextmanager
def lasting_job(site: plainsite.PlainSite, when: str) -> Iterator[None]:
    """One of the worker's jobs runs all the while, and ends as if nothing had happened."""
    lab, end, output = site.lab, site.lab.home / f"end-{when}", site.lab.home / f"lasting-{when}.out"
    script = f"#!/bin/sh\nuntil [ -e {end} ]; do sleep 0.2; done\nsrun echo a step\nexit 3\n"
    job = lab.sbatch(script, "--partition=host", f"--nodelist={WORKER}", f"--output={output}")
    lab.wait_for(job, "RUNNING")
    yield
    end.touch()
    assert lab.wait_for(job, "FAILED", "CANCELLED", "NODE_FAIL")["ExitCode"] == "3:0", when
    assert output.read_text() == "a step\n", when
    testing.until(lambda: seen_file(site).read_text().split().count(job) == 1, seconds=30)


def gate(site: plainsite.PlainSite, name: str) -> Path:
    """What holds slurmctld's restart up (`restart`), says so (`held`), and lets it go on (`open`)."""
    return site.lab.place.directory / f"gate-{name}"


def change(site: plainsite.PlainSite, command: str) -> None:
    """Between the files and slurmctld's restart, a job begins and ends on the worker, and another one's
    Epilog drains it, as it still is when the command is through; a third runs all the while.
    """
    for name in ("held", "open"):
        gate(site, name).unlink(missing_ok=True)
    with lasting_job(site, command), futures.ThreadPoolExecutor() as pool:
        changing = pool.submit(site.penstock, command, "--yes")
        try:
            testing.until(lambda: changing.done() or gate(site, "held").exists())
            require_plain_jobs(site, f"during-{command}", left="mixed none")
            fail_epilog(site, WORKER, "host", left=DRAINING)
            assert not changing.done(), changing.result()
        finally:
            gate(site, "open").touch()
        changing.result()
        assert state_of(site, WORKER) == DRAINING
    testing.until(lambda: state_of(site, WORKER) == DRAINED, seconds=30)
    site.lab.run(("scontrol", "update", f"NodeName={WORKER}", "State=RESUME"))


def bridge_the_new_node(site: plainsite.PlainSite) -> None:
    """The site file bridges the node that only Kubernetes has; the worker is none of its nodes."""
    site.init()
    site.add_new_node()
    lines = site.file.read_text().split("\n")
    start = lines.index("  nodes1:")
    end = next(number for number in range(start + 1, len(lines)) if not lines[number].startswith("    "))
    kept = [line for line in (*lines[:start], *lines[end:]) if line != "      - nodes1"]
    place = site.lab.place
    (place.nas / "results" / wellknown.OUTPUTS_FOLDER).rmdir()
    gate(site, "restart").write_text(HOLD.format(held=gate(site, "held"), open=gate(site, "open")))
    gate(site, "restart").chmod(0o755)
    text = "\n".join(kept).replace("  restart:\n", f"  restart:\n    - {gate(site, 'restart')}\n", 1)
    for used in (place.attempts, place.collector_conf):  # the lab's own collector reads neither
        assert f": {used}\n" in text
        text = text.replace(f": {used}\n", f": {used}-of-none\n")
    restarted = f"    - {COLLECTOR}\n"  # nor is it one of the site's daemons
    assert restarted in text
    site.file.write_text(text.replace(restarted, ""))


def see_bridged_jobs(site: plainsite.PlainSite) -> None:
    """They end as they should, on a node that is free again; the site's own Epilog is run there, too."""
    lab = site.lab
    script = '#!/bin/sh\necho "outputs:$PENSTOCK_OUTPUT_DIR"\nexit 7\n'
    output = lab.home / "bridged.out"
    job = lab.sbatch(script, "--partition=k8s", f"--output={output}")
    assert lab.wait_for(job, "FAILED", timeout=180)["ExitCode"] == "7:0"
    assert output.read_text() == "outputs:\n", "no collector is at work, and the job does not hear of it"
    testing.until(lambda: state_of(site, plainsite.NEW_NODE) == "idle none", seconds=60)
    assert seen_file(site).read_text().split().count(job) == 1
    refused = lab.run_as_user(("srun", "--partition=k8s", "true"), check=False)
    assert refused.returncode != 0


def see_drains_stay(site: plainsite.PlainSite) -> None:
    """Those of the site's own Epilog, on its worker and on the bridged node; penstockd has looked twice."""
    fail_epilog(site, WORKER, "host")
    fail_epilog(site, plainsite.NEW_NODE, "k8s")
    time.sleep(2 * sweeps.INTERVAL + 5)
    assert (state_of(site, WORKER), state_of(site, plainsite.NEW_NODE)) == (DRAINED, DRAINED)
    for node in (WORKER, plainsite.NEW_NODE):
        site.lab.run(("scontrol", "update", f"NodeName={node}", "State=RESUME"))


def see_a_killed_epilog_forgiven(site: plainsite.PlainSite) -> None:
    """One of ours that dies while it asks: Slurm says the same of it, and penstockd frees the node."""
    hook = site.lab.place.libexec / "penstock_hooks" / "ask.py"
    whole, asks = hook.read_text(), "    word = answer(socket_path, question, seconds)\n"
    assert whole.count(asks) == 1
    hook.write_text(whole.replace(asks, "    posix.kill(posix.getpid(), 9)\n"))
    job = site.lab.sbatch("#!/bin/sh\n", "--partition=k8s", "--output=/dev/null")
    site.lab.wait_for(job, "COMPLETED", timeout=180)
    testing.until(lambda: state_of(site, plainsite.NEW_NODE) == DRAINED, seconds=60)
    hook.write_text(whole)
    testing.until(lambda: state_of(site, plainsite.NEW_NODE) == "idle none", seconds=60)


def test_unbridged_partitions_are_not_affected(site: plainsite.PlainSite) -> None:
    """Before, during and after apply and uninstall: their hosts have no file of ours, and need none."""
    require_plain_jobs(site, "before")
    bridge_the_new_node(site)
    change(site, "apply")
    start_slurmd(site, plainsite.NEW_NODE, conf=sitefiles.slurmd_conf(loader.load(site.file)))
    require_plain_jobs(site, "installed")
    shown = site.lab.run(("scontrol", "show", "config")).stdout
    assert f"Epilog                  = {site.lab.place.directory}/site-epilog\n" in shown
    assert "PrologEpilogTimeout     = 65534" in shown
    see_bridged_jobs(site)
    see_a_killed_epilog_forgiven(site)
    see_drains_stay(site)
    change(site, "uninstall")
    require_plain_jobs(site, "taken back")
