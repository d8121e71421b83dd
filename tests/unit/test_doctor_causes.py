"""A cause is reported once, and nodes with the same problem in one line."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from penstock import errors, pings
from penstock.cli import doctor as command
from penstock.doctor import all_checks, checks, penstock_side
from penstock.doctor.checks import Check, NotChecked, Problem
from penstock.doctor.live import Live
from penstock.install import kubeadmin
from penstock.kube import kubeconfig
from penstock.model import cluster, nodes, resources
from tests.install import sites

CHECKS = {check.name: check for check in all_checks.ALWAYS}
OF_SLURM = ("slurmctld", "partitions", "job-submit", "cred-expire", "timeouts", "accounting", "drained")


def raising(name: str, error: Exception) -> Check:
    def find(live: Live) -> Iterator[Problem]:
        raise error
        yield

    return Check(name, name, find)


def test_silent_slurmctld_is_reported_once() -> None:
    """Slurm's commands word it differently; checks that need it refer to the check `slurmctld`."""
    live = Live(sites.site())
    for name, program in (("settings", "scontrol"), ("slurm_nodes", "sinfo"), ("slurm_partitions", "x")):
        live.answers[name] = (None, errors.SlurmUnavailable(f"{program}: Unable to contact controller"))
    live.answers["bridged_nodes"] = ({"n1": cluster.NodeSpec(name="n1", port=0)}, None)
    live.answers["files"] = ((), None)
    results = list(checks.run([CHECKS[name] for name in OF_SLURM], live))
    assert [each.status for each in results] == ["failed"] + ["unknown"] * (len(OF_SLURM) - 1)
    assert {each.message for each in results[1:]} == {"not checked: see slurmctld"}


def test_equal_errors_are_one_cause() -> None:
    """The first check that meets an error reports it."""
    down, denied = errors.KubeUnavailable("no route"), errors.KubeUnavailable("Unauthorized")
    made = [raising("a", down), raising("b", errors.KubeUnavailable("no route")), raising("c", denied)]
    results = list(checks.run(made, Live(sites.site())))
    assert [(each.message, each.see) for each in results] == [
        ("no route", ""),
        ("not checked: see a", "a"),
        ("Unauthorized", ""),
    ]


def test_check_that_could_not_run_is_never_ok() -> None:
    assert checks.worst(checks.run([raising("a", NotChecked("b"))], Live(sites.site()))) == "unknown"


def test_table_lists_dependent_checks_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    down = errors.KubeUnavailable("no route")
    results = list(checks.run([raising(name, down) for name in "abcd"], Live(sites.site())))
    command._show(results, show_all=False)
    said = capsys.readouterr().out
    assert (said.count("no route"), said.count("not checked: b, c, d")) == (1, 1)


def test_nodes_with_one_problem_are_one_line() -> None:
    """As a host list, in the remedy as well; the time at which each was drained does not matter."""
    names = [f"n{number}" for number in range(1, 137)]
    live = Live(sites.site())
    live.answers["bridged_nodes"] = ({name: cluster.NodeSpec(name=name, port=0) for name in names}, None)
    live.answers["slurm_nodes"] = (
        {
            name: nodes.Node(
                name=name,
                state="IDLE+DRAIN" if number else "DOWN",
                amount=resources.Amount(),
                reason=f"fan [root@2026-11-17T16:48:{number % 60:02}]",
            )
            for number, name in enumerate(names)
        },
        None,
    )
    down, drained = checks.run([CHECKS["drained"]], live)
    assert (down.message, down.remedy.split()[2]) == ("n1 is DOWN: fan", "NodeName=n1")
    assert (drained.message, drained.remedy.split()[2]) == (
        "n[2-136] is IDLE+DRAIN: fan",
        "NodeName=n[2-136]",
    )


@pytest.mark.parametrize(("away", "see"), [("settings", "slurmctld"), ("kube_nodes", "kubernetes"), ("", "")])
def test_disconnected_penstockd_is_reported_only_if_both_sides_answer(
    monkeypatch: pytest.MonkeyPatch, away: str, see: str
) -> None:
    """Otherwise the side that does not answer is the cause."""
    monkeypatch.setattr(penstock_side, "STARTING_SECONDS", 0.0)
    monkeypatch.setattr(pings, "ping", lambda path: ("starting", 0.01))
    live = Live(sites.site())
    for name in ("settings", "kube_nodes"):
        live.answers[name] = (None, errors.PenstockError("away")) if name == away else ({}, None)
    (result,) = checks.run([CHECKS["penstockd"]], live)
    assert (result.status, result.see) == ("unknown" if see else "failed", see)


@pytest.fixture
def unauthorized() -> Iterator[str]:
    """An API server that answers 401 to everybody."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b'{"kind": "Status", "message": "Unauthorized", "reason": "Unauthorized", "code": 401}'
            self.send_response(401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_refused_credentials_are_reported_with_their_file_and_remedy(unauthorized: str) -> None:
    live = Live(sites.site())
    origin = "/etc/penstock/penstockd.kubeconfig"
    whose = kubeadmin.Cluster(kubeconfig.Access(server=unauthorized), origin=origin, renew="Make a new one.")
    live.answers["as_penstockd"] = (whose, None)
    (result,) = checks.run([CHECKS["rbac"]], live)
    assert result.status == "unknown"
    assert f"does not accept the credentials in {origin}" in result.message
    assert result.remedy == "Make a new one."
