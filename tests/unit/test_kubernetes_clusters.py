"""Which cluster a lab has: our own, a pretended one, or somebody else's."""

from __future__ import annotations

import base64
import dataclasses
import http.server
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.kube import kinds, kubeconfig
from penstock_lab import actions, files, paths, spec
from penstock_lab.kubernetes import api, externalcluster, kwok, labcluster, layout, variants
from tests.install import clusters
from tests.unit.test_kubernetes_layout import cluster

LAB = spec.LabSpec(name="default", port_base=21000, user="alice", user_created=False)
PLACE = paths.LabPaths(Path("/lab"))


def node(name: str, **changes: Any) -> dict[str, Any]:
    """A node as the API shows it."""
    ready = {"type": "Ready", "status": changes.get("ready", "True"), "message": "kubelet is sleepy"}
    allocatable = {"cpu": "7900m", "memory": "32Gi", "nvidia.com/gpu": "2"}
    return {
        "metadata": {"name": name},
        "spec": {"unschedulable": changes.get("cordoned", False), "taints": changes.get("taints", [])},
        "status": {"conditions": [ready], "allocatable": allocatable},
    }


class Server(http.server.BaseHTTPRequestHandler):
    """Answers what it was told to."""

    answers: dict[str, tuple[int, bytes]]

    def do_GET(self) -> None:
        missing = b'{"kind": "Status", "message": "not found", "reason": "NotFound"}'
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, body = self.answers.get(self.path.partition("?")[0], (404, missing))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_DELETE = do_GET  # noqa: N815 - the name is http.server's

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
        """Nobody wants to read it."""


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[dict[str, tuple[int, bytes]]]:
    """An API server; what it answers is put into the dictionary, its kubeconfig is tmp_path/config."""
    Server.answers = {}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        (tmp_path / "config").write_text(json.dumps(config(url)))
        try:
            yield Server.answers
        finally:
            server.shutdown()
            thread.join(10)


def config(server: str, **more: Any) -> dict[str, Any]:
    """A kubeconfig as a dictionary."""
    return {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **more}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }


def pretended() -> layout.Cluster:
    """A cluster whose nodes are not there."""
    return dataclasses.replace(cluster(), pretender=Path("/programs/kwok"))


class TestChoosing:
    def test_our_own_clusters_have_no_members_yet(self) -> None:
        """Their nodes are made as the lab wants them."""
        assert [variants.members(choice) for choice in (spec.DEV, spec.REAL, spec.KWOK)] == [(), (), ()]

    def test_unknown_cluster_choice_is_a_usage_error(self, tmp_path: Path) -> None:
        """One line lists the choices."""
        with pytest.raises(errors.UsageError, match="not dev, real, kwok or an existing file") as failure:
            variants.members(str(tmp_path / "nowhere"))
        assert failure.value.exit_code == 2

    @pytest.mark.parametrize(
        ("choice", "bridge", "builds", "is_foreign"),
        [
            ("dev", True, False, False),
            ("real", True, True, False),
            ("kwok", True, True, False),
            ("/some/config", True, False, True),
            ("real", False, False, False),
            ("/some/config", False, False, False),
        ],
    )
    def test_what_follows_from_the_choice(
        self, choice: str, bridge: bool, builds: bool, is_foreign: bool
    ) -> None:
        """Only a cluster of the lab's own is built; a plain Slurm has none at all."""
        lab = msgspec.structs.replace(LAB, kubernetes=choice, bridge=bridge)
        assert (variants.needs_building(lab), lab.foreign) == (builds, is_foreign)

    def test_lab_without_own_cluster_has_no_cluster_steps(self) -> None:
        """No step, no daemon, nothing to clear."""
        assert variants.all_components(PLACE, LAB) == ()
        assert variants.all_steps(PLACE, LAB) == ()
        assert variants.ready_after(LAB) == ()

    def test_members_are_the_labs_nodes(self) -> None:
        """Their names and sizes, with ports of the lab's own."""
        member = spec.Member(name="worker-7", cpus=48, memory_mb=1000, gpus=8)
        lab = msgspec.structs.replace(LAB, members=(member,), nodes=1)
        (found,) = lab.node_specs
        assert (found.name, found.cpus, found.memory_mb, found.gpus) == ("worker-7", 48, 1000, 8)
        assert found.port == LAB.port_base + 3

    def test_ports_are_counted_for_what_runs_here(self) -> None:
        """A cluster of the lab's own needs more than one that is somewhere else."""
        assert spec.port_count(4, spec.REAL) > spec.port_count(4, "/some/config") == spec.port_count(4)


class TestForeign:
    def test_nodes_that_take_pods_become_members(
        self, answers: dict[str, tuple[int, bytes]], tmp_path: Path
    ) -> None:
        """Whole CPUs, and no node that is cordoned, tainted or not Ready."""
        taint = {"key": "control-plane", "effect": "NoSchedule"}
        items = [node("a"), node("b", cordoned=True), node("c", taints=[taint]), node("d", ready="Unknown")]
        answers["/api/v1/nodes"] = (200, json.dumps({"metadata": {}, "items": items}).encode())
        (member,) = externalcluster.members(tmp_path / "config")
        assert (member.name, member.cpus, member.memory_mb, member.gpus) == ("a", 7, 32768, 2)

    def test_a_cluster_without_nodes_is_no_use(
        self, answers: dict[str, tuple[int, bytes]], tmp_path: Path
    ) -> None:
        """Said before anything is made."""
        answers["/api/v1/nodes"] = (200, b'{"metadata": {}, "items": []}')
        with pytest.raises(errors.UsageError, match="no node that is Ready"):
            externalcluster.members(tmp_path / "config")

    def test_prefer_no_schedule_is_ignored(self) -> None:
        """The taint is only a preference."""
        taint = {"key": "x", "effect": "PreferNoSchedule"}
        assert externalcluster.is_usable(node("a", taints=[taint]))

    def test_another_users_kubeconfig_has_everything_inside(self, tmp_path: Path) -> None:
        """Files that the first one names are not there for the second."""
        (tmp_path / "ca.crt").write_bytes(b"PEM")
        path = tmp_path / "config"
        path.write_text(json.dumps(config("https://k:6443", **{"certificate-authority": "ca.crt"})))
        made = json.loads(externalcluster.render_kubeconfig(path, user={"token": "other"}))
        assert made["clusters"][0]["cluster"] == {
            "server": "https://k:6443",
            "certificate-authority-data": base64.b64encode(b"PEM").decode(),
        }
        assert made["users"] == [{"name": "user", "user": {"token": "other"}}]

    def test_our_client_reads_what_was_written(self, tmp_path: Path) -> None:
        """The same server, the new token."""
        (tmp_path / "config").write_text(json.dumps(config("http://127.0.0.1:1")))
        (tmp_path / "new").write_bytes(
            externalcluster.render_kubeconfig(tmp_path / "config", user={"token": "other"})
        )
        access = kubeconfig.load(tmp_path / "new")
        assert (access.server, access.token) == ("http://127.0.0.1:1", "other")

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"contexts": []}', "current-context: x"])
    def test_invalid_kubeconfig_is_a_usage_error(self, tmp_path: Path, text: str) -> None:
        """Never a traceback."""
        path = tmp_path / "config"
        path.write_text(text)
        with pytest.raises(errors.UsageError, match="is not a usable kubeconfig"):
            externalcluster.render_kubeconfig(path, user={})


class TestRemovingForeign:
    NAME = externalcluster.namespace_of(PLACE, LAB)
    NAMESPACE = f"/api/v1/namespaces/{NAME}"

    def lab(self, config: Path) -> spec.LabSpec:
        return msgspec.structs.replace(LAB, kubernetes=str(config), complete=True)

    @pytest.mark.parametrize("is_there", [True, False], ids=["nobody answers", "no kubeconfig"])
    def test_a_lab_whose_cluster_is_gone_can_be_taken_down(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_there: bool
    ) -> None:
        """Nothing stays here, and what may be left there is named so that it can be removed."""
        if is_there:
            (tmp_path / "config").write_text(json.dumps(config("http://127.0.0.1:1")))
        with tempfile.TemporaryDirectory(prefix="penstock-") as short:
            place = paths.LabPaths(Path(short) / "lab")
            place.run.mkdir(parents=True)
            spec.save(place, self.lab(tmp_path / "config"))
            assert actions.take_down(place)
            assert not place.directory.exists()
            name = externalcluster.namespace_of(place, LAB)
        bindings = f"clusterrolebinding/{name}-penstockd clusterrolebinding/{name}-viewer"
        roles = f"clusterrole/{name}-penstockd clusterrole/{name}-viewer"
        assert f"kubectl delete {bindings} {roles} namespace/{name}," in caplog.text
        assert ("does not answer" if is_there else "cannot read kubeconfig") in caplog.text

    def test_only_what_was_not_removed_is_named(
        self, answers: dict[str, tuple[int, bytes]], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The bindings were gone; the namespace is refused, in the API's own words."""
        answers[self.NAMESPACE] = (403, b'{"kind": "Status", "message": "not today"}')
        externalcluster.remove(PLACE, self.lab(tmp_path / "config"))
        assert "not today" in caplog.text
        assert f"kubectl delete namespace/{self.NAME}," in caplog.text

    def test_complete_removal_logs_nothing(
        self, answers: dict[str, tuple[int, bytes]], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Removed now, or before."""
        answers[self.NAMESPACE] = (200, b"{}")
        externalcluster.remove(PLACE, self.lab(tmp_path / "config"))
        assert caplog.text == ""

    def test_removal_from_an_external_cluster_is_limited_to_our_objects(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The site may have its own ClusterRole `viewer`."""
        (tmp_path / "config").write_text(json.dumps(config("http://127.0.0.1:1")))
        applied: list[str] = []
        removed: list[str] = []

        class Noting(clusters.Cluster):
            def request(self, method: str, path: str, **more: Any) -> dict[str, Any]:
                if method == "GET":
                    raise errors.KubeNotFound(path)
                (removed if method == "DELETE" else applied if method == "PATCH" else []).append(path)
                return {"status": {"token": "t"}}

        monkeypatch.setattr(api, "cluster", lambda config: Noting(api.access_by(config)))
        with tempfile.TemporaryDirectory(prefix="penstock-") as short:
            place = paths.LabPaths(Path(short))
            place.etc.mkdir()
            owner = files.Owner(os.geteuid(), os.getegid())
            externalcluster.install(place, self.lab(tmp_path / "config"), penstockd_owner=owner)
            externalcluster.remove(place, self.lab(tmp_path / "config"))
        inside = f"/api/v1/namespaces/{externalcluster.namespace_of(place, LAB)}/"
        assert {path for path in applied if not path.startswith(inside)} == set(removed)

    def test_labs_of_one_name_are_separate_in_an_external_cluster(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Many labs are called default, and each removes only its own objects."""
        (tmp_path / "machine-id").write_text("f00\n")
        elsewhere = externalcluster.namespace_of(paths.LabPaths(Path("/lab2")), LAB)
        monkeypatch.setattr(externalcluster, "MACHINE_ID", tmp_path / "machine-id")
        on_another_machine = externalcluster.namespace_of(PLACE, LAB)
        assert len({self.NAME, elsewhere, on_another_machine}) == 3
        assert on_another_machine == externalcluster.namespace_of(PLACE, LAB)


def asked(config: Path, name: str) -> bytes:
    return api.cluster(config).ask(lambda kube: kube.get(kinds.NODES, name=name))


class TestApi:
    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (403, errors.KubeError),
            (404, errors.KubeNotFound),
            (409, errors.KubeConflict),
            (429, errors.KubeUnavailable),
            (500, errors.KubeUnavailable),
        ],
    )
    def test_api_errors_are_converted(
        self,
        answers: dict[str, tuple[int, bytes]],
        tmp_path: Path,
        status: int,
        kind: type[errors.KubeError],
    ) -> None:
        """With the API's message, or the raw response if it is not JSON."""
        answers["/api/v1/nodes/json"] = (
            status,
            b'{"kind": "Status", "message": "no way", "reason": "Because"}',
        )
        answers["/api/v1/nodes/text"] = (status, b"<html>proxy</html>")
        with pytest.raises(kind, match="no way") as failure:
            asked(tmp_path / "config", "json")
        assert (failure.value.status, failure.value.reason) == (status, "Because")
        somebody_else = status in (403, 404)  # such an answer says nothing of the object
        with pytest.raises(
            errors.KubeUnavailable if somebody_else else kind,
            match="does not come from the" if somebody_else else "proxy",
        ):
            asked(tmp_path / "config", "text")

    def test_closed_port_is_unavailable(self, tmp_path: Path) -> None:
        """Not an answer of the API."""
        (tmp_path / "config").write_text(json.dumps(config("http://127.0.0.1:1")))
        with pytest.raises(errors.KubeUnavailable, match="does not answer"):
            asked(tmp_path / "config", "any")

    def test_a_nodes_complaint_is_in_its_own_words(
        self, answers: dict[str, tuple[int, bytes]], tmp_path: Path
    ) -> None:
        """Nothing when it is Ready; what it says when not; that it is missing when it is."""
        answers["/api/v1/nodes/a"] = (200, json.dumps(node("a")).encode())
        answers["/api/v1/nodes/b"] = (200, json.dumps(node("b", ready="False")).encode())
        answers["/api/v1/nodes/c"] = (200, b'{"status": {}}')
        said = [api.node_complaint(tmp_path / "config", name) for name in "abcd"]
        assert said == [
            "",
            "kubelet is sleepy",
            "has no Ready condition",
            "its node is not registered yet",
        ]


class TestPretending:
    def test_a_pretended_cluster_has_no_kubelet(self) -> None:
        """kwok plays them all."""
        names = [part.name for part in labcluster.all_components(pretended())]
        assert names == ["etcd", "apiserver", "controllers", "scheduler", "kwok"]

    def test_steps_wait_only_for_what_there_is(self) -> None:
        """As with real nodes."""
        made = pretended()
        steps = labcluster.all_steps(
            made, penstockd_owner=files.ROOT, user="root", namespace_pattern="user-{user}"
        )
        parts = labcluster.all_components(made)
        names = {step.name for step in steps} | {part.name for part in parts}
        waits = [step.after for step in steps] + [part.after for part in parts] + [labcluster.READY_AFTER]
        assert {name for after in waits for name in after} <= names

    def test_a_pretended_node_has_the_labs_size(self) -> None:
        """And the mark by which kwok knows it."""
        made = kwok.render_node(cluster().machines[0])
        assert made["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
        assert made["status"]["capacity"]["memory"] == "32768Mi"
        assert made["status"]["allocatable"]["nvidia.com/gpu"] == "4"

    def test_only_jobs_end_by_themselves(self) -> None:
        """Everybody else's pods run on, as the room that they hold."""
        stages = {stage["metadata"]["name"]: stage["spec"] for stage in kwok.stages()}
        keys = [one["key"] for one in stages["pod-end"]["selector"]["matchExpressions"]]
        assert '.metadata.labels["app"]' in keys
        assert stages["pod-end"]["delay"]["durationMilliseconds"] == kwok.RUN_MILLISECONDS
        assert stages["pod-go"]["next"] == {"delete": True}
        assert list(stages) == ["node-ready", "pod-run", "pod-end", "pod-go"]

    def test_not_every_pretended_node_has_a_slurmd(self) -> None:
        """As many as one machine should carry; a real lab has one for each."""
        lab = msgspec.structs.replace(LAB, kubernetes=spec.KWOK, nodes=1000)
        assert lab.slurmds == spec.PRETENDED_SLURMDS
        assert msgspec.structs.replace(lab, kubernetes=spec.REAL).slurmds == 1000


def test_a_kubeconfig_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    """And only then: reading it takes longer than most answers."""
    path = tmp_path / "config"
    for number in (1, 2):
        path.write_text(
            "current-context: c\n"
            "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
            f"clusters: [{{name: k, cluster: {{server: 'http://127.0.0.1:{number}'}}}}]\n"
            "users: [{name: u, user: {token: t}}]\n"
        )
        os.utime(path, (number, number))
        assert api.access_by(path).server == f"http://127.0.0.1:{number}"
    assert api.access_by(path) is api.access_by(path)
    path.unlink()
    with pytest.raises(errors.UsageError, match="cannot read kubeconfig"):
        api.access_by(path)
