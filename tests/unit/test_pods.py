"""Manifests of a job, compared with golden files, and their rules."""

from __future__ import annotations

import base64
import dataclasses
import json

import msgspec
import pytest

from penstock import errors
from penstock.model import namespacepattern, podcommands
from penstock.model.jobspec import Mount, PodSpec
from penstock.model.podpolicy import PodPolicy
from penstock.render import namespaces, pods, secrets, workdirs
from penstock.sbatch import poddirectives as scripts
from penstock_lab.devcluster import containers
from tests import goldens
from tests.unit import fakes

KEPT = "/penstock-output"
HOME = workdirs.Home("/nas/home/alice", made=False)


def shown(manifest: pods.Manifest) -> str:
    return json.dumps(manifest, indent=2, sort_keys=True) + "\n"


def render(rank: int, **changes: object) -> pods.Manifest:
    allocation = fakes.allocation(on=("n1", "n2"), cpus=2, gib=4, gpus=1)
    request = dataclasses.replace(fakes.REQUEST, **changes)  # type: ignore[arg-type]  # test data by name
    return pods.render_pod(allocation, rank, owner=fakes.OWNER, request=request, policy=fakes.SETTINGS)


def test_rank_zero_runs_the_script() -> None:
    """The complete first pod of a gang."""
    text = shown(render(0))
    assert text == goldens.reviewed("pod-rank0.json", text)


def test_other_ranks_hold_the_room() -> None:
    """They differ in name, rank and command."""
    manifest = render(1)
    assert manifest["metadata"]["name"] == "slurm-job-17-n1"
    assert manifest["spec"]["containers"][0]["command"][-1] == "hold"


@pytest.mark.parametrize(
    ("restart", "rank", "name"),
    [
        (0, 0, "slurm-job-17"),
        (1, 0, "slurm-job-17-r1"),
        (0, 1, "slurm-job-17-n1"),
        (1, 1, "slurm-job-17-r1-n1"),
    ],
)
def test_pod_names(restart: int, rank: int, name: str) -> None:
    """The first attempt's first pod has only the job id."""
    assert pods.pod_name(fakes.identity(17, restart=restart), rank) == name


def test_pods_of_array_tasks_carry_the_arrays_number() -> None:
    """Besides the task's own job id."""
    allocation = dataclasses.replace(fakes.allocation(19), array=(17, 2))
    manifest = pods.render_pod(allocation, 0, owner=fakes.OWNER, request=fakes.REQUEST, policy=fakes.SETTINGS)
    labels = manifest["metadata"]["labels"]
    assert (labels["job-id"], labels["array-job-id"], labels["array-task-id"]) == ("19", "17", "2")
    assert "array-job-id" not in render(0)["metadata"]["labels"]


def test_the_secret_holds_all_that_the_agent_reads() -> None:
    """Script, arguments, environment and settings; programs of ours are too long for a golden file."""
    manifest = secrets.render_secret(
        fakes.identity(),
        owner=fakes.OWNER,
        request=fakes.REQUEST,
        policy=fakes.SETTINGS,
        owner_pod_uid="uid-1",
    )
    data = manifest.pop("data")
    for name in ("agent.sh", "serve.sh", "shim.sh"):
        assert base64.b64decode(data.pop(name)).startswith(b"#!/bin/sh\n")
    shims = {data.pop(name) for name in podcommands.SHIMS}
    assert [base64.b64decode(shim) for shim in shims] == [b"#!/bin/sh\n. /penstock/shim.sh\n"]
    manifest["decoded"] = {name: base64.b64decode(content).decode() for name, content in data.items()}
    assert shown(manifest) == goldens.reviewed("secret.json", shown(manifest))


def test_script_in_the_pod_has_its_original_first_line() -> None:
    """The launcher's name never enters the container; all other bytes are the user's."""
    script = secrets.secret_files(fakes.REQUEST, fakes.SETTINGS, HOME)["slurm_script"]
    assert script == b"#!/bin/bash\n#SBATCH -n1\necho hello\n"


@pytest.mark.parametrize(
    ("interpreter", "words"),
    [
        (b"/bin/bash", b"'/bin/bash' "),
        (b"/usr/bin/env python3", b"'/usr/bin/env' 'python3' "),
        (b"/usr/bin/env -S bash -x", b"'/usr/bin/env' '-S bash -x' "),
    ],
)
def test_the_interpreter_is_split_as_the_kernel_does(interpreter: bytes, words: bytes) -> None:
    """A program and at most one argument."""
    request = dataclasses.replace(fakes.REQUEST, interpreter=interpreter)
    assert secrets.secret_files(request, fakes.SETTINGS, HOME)["arguments"].startswith(b"set -- " + words)


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        ("/nas/out", "/nas/out", ("/nas/out", "/nas/out", "")),
        ("/nas/out", "/home/a/err", ("/nas/out", f"{KEPT}/2", KEPT)),
        ("/nas/out", "/nas/err", ("/nas/out", "/nas/err", "")),
        ("/home/a/out", "/home/a/out", (f"{KEPT}/1", f"{KEPT}/1", KEPT)),
        ("/home/a/out", "/home/a/err", (f"{KEPT}/1", f"{KEPT}/2", KEPT)),
        ("/home/a/out", "/nas/err", (f"{KEPT}/1", "/nas/err", KEPT)),
        ("/dev/null", "/nas/err", ("/dev/null", "/nas/err", "")),
        ("/nasty/out", "/nasty/out", (f"{KEPT}/1", f"{KEPT}/1", KEPT)),
    ],
)
def test_the_pod_writes_only_files_it_can_see(
    stdout: str, stderr: str, expected: tuple[str, str, str]
) -> None:
    """Other output is kept in a volume of the pod, which exists only then."""
    request = dataclasses.replace(fakes.REQUEST, stdout=stdout.encode(), stderr=stderr.encode())
    lines = secrets.secret_files(request, fakes.SETTINGS, HOME)["settings"].decode().splitlines()
    names = ("stdout", "stderr", "kept")
    assert lines[-3:] == [f"penstock_{name}='{value}'" for name, value in zip(names, expected, strict=True)]
    spec = render(0, stdout=request.stdout, stderr=request.stderr)["spec"]
    mounts = [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]]
    assert (KEPT in mounts) == ({"name": "output", "emptyDir": {}} in spec["volumes"]) == bool(expected[2])


def test_agent_gets_umask_and_input() -> None:
    """As slurmd gave them to the batch process."""
    request = dataclasses.replace(fakes.REQUEST, umask=b"0027", stdin=b"/nas/in put")
    lines = secrets.secret_files(request, fakes.SETTINGS, HOME)["settings"].splitlines()
    assert lines[2:4] == [b"penstock_umask='0027'", b"penstock_stdin='/nas/in put'"]


def asking(*lines: str) -> PodSpec:
    """The PodSpec of a script with these directives."""
    return scripts.pod_of(b"#!/bin/sh\n" + "".join(f"#K8S_{line}\n" for line in lines).encode())


def test_an_image_line_wins_over_the_default() -> None:
    assert render(0)["spec"]["containers"][0]["image"] == "site/default:1"
    manifest = render(0, pod=asking("IMAGE=nas-hub.local:5407/pytorch:latest"))
    assert manifest["spec"]["containers"][0]["image"] == "nas-hub.local:5407/pytorch:latest"


def test_directives_change_the_pod() -> None:
    """Mounts, shared memory, labels, tolerations, pull secrets and priority."""
    asked = asking(
        "MOUNT=/nas/data:/data:ro",
        "SHM_SIZE=2G",
        "NODE_SELECTOR=disk=ssd",
        "TOLERATION=dedicated=ml:NoSchedule",
        "PULL_SECRET=hub",
        "PRIORITY_CLASS=urgent",
    )
    text = shown(render(0, pod=asked))
    assert text == goldens.reviewed("pod-directives.json", text)


@pytest.mark.parametrize(
    ("qos", "partition", "expected"),
    [("high", "gpu", "from-qos"), ("normal", "gpu", "from-partition"), ("normal", "cpu", None)],
)
def test_priority_comes_from_qos_or_partition(qos: str, partition: str, expected: str | None) -> None:
    """QOS first; without either there is none."""
    policy = msgspec.structs.replace(
        fakes.policy("gpu", priority_class="from-partition"), qos_priority_classes={"high": "from-qos"}
    )
    allocation = dataclasses.replace(fakes.allocation(), qos=qos, partition=partition)
    spec = pods.render_pod(allocation, 0, owner=fakes.OWNER, request=fakes.REQUEST, policy=policy)["spec"]
    assert spec.get("priorityClassName") == expected


def test_site_sets_image_pulls_and_gpu_labels() -> None:
    """The labels of a GPU type only on the rank whose share has it."""
    policy = msgspec.structs.replace(
        fakes.SETTINGS,
        image_pull_policy="Always",
        image_pull_secrets=("hub",),
        gpu_labels={"a100": {"gpu": "A100"}},
    )
    plain = fakes.allocation()
    share = dataclasses.replace(plain.shares[0], gpus_by_type=(("a100", 1),))
    allocation = dataclasses.replace(plain, shares=(share, plain.shares[0]))
    first, second = (
        pods.render_pod(allocation, rank, owner=fakes.OWNER, request=fakes.REQUEST, policy=policy)["spec"]
        for rank in (0, 1)
    )
    assert first["nodeSelector"] == {"gpu": "A100"}
    assert "nodeSelector" not in second
    assert first["imagePullSecrets"] == [{"name": "hub"}]
    assert first["containers"][0]["imagePullPolicy"] == "Always"


def test_only_the_sites_folders_can_be_mounted() -> None:
    with pytest.raises(errors.UsageError, match="only folders under /nas"):
        render(0, pod=asking("MOUNT=/etc:/data"))


def test_script_cannot_override_the_sites_labels() -> None:
    """It may add others."""
    allocation = fakes.allocation()
    policy = fakes.policy(allocation.partition, node_selector={"pool": "small"})

    def selector(*lines: str) -> object:
        request = dataclasses.replace(fakes.REQUEST, pod=asking(*lines))
        pod = pods.render_pod(allocation, 0, owner=fakes.OWNER, request=request, policy=policy)
        return pod["spec"]["nodeSelector"]

    assert selector("NODE_SELECTOR=disk=fast", "NODE_SELECTOR=pool=small") == {
        "pool": "small",
        "disk": "fast",
    }
    with pytest.raises(errors.UsageError, match="#K8S_NODE_SELECTOR=pool=large"):
        selector("NODE_SELECTOR=pool=large")


def test_script_cannot_override_the_sites_priority() -> None:
    """It may choose one if the site sets none."""
    allocation = fakes.allocation()
    request = dataclasses.replace(fakes.REQUEST, pod=asking("PRIORITY_CLASS=high"))

    def chosen(priority_class: str) -> object:
        policy = fakes.policy(allocation.partition, priority_class=priority_class)
        pod = pods.render_pod(allocation, 0, owner=fakes.OWNER, request=request, policy=policy)
        return pod["spec"]["priorityClassName"]

    assert chosen("") == chosen("high") == "high"
    with pytest.raises(
        errors.UsageError, match="#K8S_PRIORITY_CLASS=high: this job's pods have the class 'low'"
    ):
        chosen("low")


def test_workdir_environment_script_and_command_reach_the_agent() -> None:
    """Each in its file."""
    asked = asking("WORKDIR=/nas/run", "ENV=MODE=fast one", "SCRIPT=train.sh")
    files = secrets.secret_files(dataclasses.replace(fakes.REQUEST, pod=asked), fakes.SETTINGS, HOME)
    assert b"penstock_workdir='/nas/run'" in files["settings"]
    assert b"export MODE='fast one'" in files["environment"]
    assert files["arguments"] == b"set -- '/bin/bash' 'train.sh' 'a' 'b c'\n"
    request = dataclasses.replace(fakes.REQUEST, pod=asking("COMMAND=python3 -m 'my mod'"))
    files = secrets.secret_files(request, fakes.SETTINGS, HOME)
    assert files["arguments"] == b"set -- 'python3' '-m' 'my mod'\n"


DOLLARS = ("pa$$word", "$$(HOME)", "$(HOME)", "$5$salt", "a$", "$$$", "$(", "${X}")


@pytest.mark.parametrize("text", DOLLARS)
def test_dollars_are_escaped(text: str) -> None:
    """A kubelet must restore what the user wrote in variables, arguments and folders."""
    pod = msgspec.structs.replace(
        asking("COMMAND=@entrypoint"), mounts=(Mount(source=f"/nas/{text}", target="/d"),)
    )
    spec = render(0, pod=pod, environment=(f"V={text}".encode(),), arguments=(text.encode(),))["spec"]
    (container,), (looks,) = spec["containers"], spec["initContainers"]
    home = {"HOME": "/root"}
    (value,) = (one["value"] for one in container["env"] if one["name"] == "V")
    assert containers.expand(value, home) == text
    assert [containers.expand(word, home) for word in container["args"]] == [text]
    assert containers.expand(looks["command"][-1], home) == f"/nas/{text}"


def test_an_image_may_run_its_own_entrypoint() -> None:
    """No agent, and the environment as container variables."""
    container = render(0, pod=asking("COMMAND=@entrypoint"))["spec"]["containers"][0]
    assert "command" not in container
    assert container["args"] == ["a", "b c"]
    assert {"name": "GREETING", "value": "it's me"} in container["env"]


def test_wrong_directive_is_named_by_its_line() -> None:
    with pytest.raises(errors.UsageError, match="line 2"):
        asking("IMAGE=Not An Image")


def test_too_large_script_is_refused() -> None:
    """A Secret holds 1 MiB."""
    request = dataclasses.replace(fakes.REQUEST, script=b"#!/bin/sh\n" + b"#" * 2**20)
    with pytest.raises(errors.UsageError, match="at most"):
        secrets.render_secret(
            fakes.identity(), owner=fakes.OWNER, request=request, policy=fakes.SETTINGS, owner_pod_uid="u"
        )


@pytest.mark.parametrize(
    ("user", "namespace"), [("alice", "user-alice"), ("Bob_Smith", "user-1001"), ("ünal", "user-1001")]
)
def test_namespaces_are_valid_names(user: str, namespace: str) -> None:
    """Other user names are replaced by the uid."""
    owner = dataclasses.replace(fakes.OWNER, name=user)
    assert namespacepattern.namespace_of(owner, fakes.SETTINGS) == namespace


def test_the_sites_image_looks_for_folders() -> None:
    """Not the script's, which may have no shell or a manipulated one; unless the site has none."""
    asked = PodSpec(image="own/image:1", mounts=(Mount("/nas/data", "/data"),))
    request = dataclasses.replace(fakes.REQUEST, pod=asked)
    allocation = fakes.allocation(on=("n1",))
    for default, expected in (("site/default:1", "site/default:1"), ("", "own/image:1")):
        policy = msgspec.structs.replace(fakes.SETTINGS, default_image=default)
        found = pods.render_pod(allocation, 0, owner=fakes.OWNER, request=request, policy=policy)
        (looks,) = found["spec"]["initContainers"]
        assert (looks["image"], looks["command"][-2:]) == (expected, ["look", "/nas/data"])


def test_gang_makes_etc_hosts_before_the_container_that_mounts_it() -> None:
    """The init container requests no more than the job's, and does not mount the file that it makes."""
    for rank, node in enumerate(("n1", "n2")):
        spec = render(rank)["spec"]
        (container,), (names,) = spec["containers"], spec["initContainers"]
        mounted = {"name": "run", "mountPath": "/etc/hosts", "subPath": "hosts"}
        assert spec["hostname"] == node
        assert mounted in container["volumeMounts"]
        assert mounted not in names["volumeMounts"]
        assert {"name": "run", "mountPath": "/penstock-run"} in names["volumeMounts"]
        limits = container["resources"]["limits"]
        assert names["resources"]["limits"] == {name: limits[name] for name in ("cpu", "memory")}
        assert {"name": "PENSTOCK_NAMES", "value": node} in names["env"]
        assert names["image"] == container["image"]


def test_folders_and_names_have_one_init_container() -> None:
    """Of the site's image, as the folders need it."""
    (names,) = render(0, pod=asking("IMAGE=own/image:1", "MOUNT=/nas/data:/data"))["spec"]["initContainers"]
    assert (names["name"], names["image"], names["command"][-1]) == ("names", "site/default:1", "/nas/data")


@pytest.mark.parametrize(("rank", "held"), [(0, True), (1, False)])
def test_an_images_own_entrypoint_is_held_in_rank_0(rank: int, held: bool) -> None:
    """The agents of the other ranks start no script."""
    (names,) = render(rank, pod=asking("COMMAND=@entrypoint"))["spec"]["initContainers"]
    assert ({"name": "PENSTOCK_HELD", "value": "1"} in names["env"]) == held


def test_lone_pod_has_its_nodes_name_and_no_init_container() -> None:
    """Its kubelet writes /etc/hosts."""
    lone = fakes.allocation(on=("gpu_1.site",))
    spec = pods.render_pod(lone, 0, owner=fakes.OWNER, request=fakes.REQUEST, policy=fakes.SETTINGS)["spec"]
    assert spec["hostname"] == "gpu-1"
    assert "initContainers" not in spec
    assert [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]] == [
        "/penstock", "/penstock-run", "/nas",
    ]  # fmt: skip


def test_pods_may_have_the_nodes_network() -> None:
    """And with it the node's names: nothing of Penstock's."""
    policy = fakes.policy("gpu", network="host")
    for nodes in (("n1",), ("n1", "n2")):
        allocation = fakes.allocation(on=nodes)
        pod = pods.render_pod(allocation, 0, owner=fakes.OWNER, request=fakes.REQUEST, policy=policy)
        spec = pod["spec"]
        assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "Default")
        assert not {"hostname", "initContainers"} & spec.keys()
        assert "/etc/hosts" not in {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}


def test_an_account_of_any_name_has_a_namespace() -> None:
    """If all share one, its label is the account's, made valid for Kubernetes."""
    owner = dataclasses.replace(fakes.OWNER, account="R&D (2026)")
    labels = namespaces.render_namespace(owner, PodPolicy(namespace_pattern="jobs"))["metadata"]["labels"]
    assert list(labels.values()) == ["R-D--2026"]
