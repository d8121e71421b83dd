"""Room on the nodes of an allocation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.bridge import capacity, jobstore
from penstock.kube import types
from penstock.model import jobs, sentences
from tests.unit import fakes


def refusals(
    allocation: jobs.Allocation,
    *pods: types.Pod,
    nodes: tuple[types.Node, ...] = (),
    held: tuple[jobs.Allocation, ...] = (),
) -> tuple[str, ...]:
    reserved = jobstore.Store(lambda: 5.0)
    for other in held:
        reserved.reserve(other)
    known = {f"/{node.metadata.name}": node for node in nodes or (fakes.node("n1"), fakes.node("n2"))}
    found = capacity.refusals(allocation, nodes=known, pods=pods, reserved=reserved)
    return tuple(map(sentences.refusal, found))


def test_an_empty_node_has_room() -> None:
    assert refusals(fakes.allocation(cpus=8, gib=32, gpus=4)) == ()


def test_a_foreign_pod_takes_its_room_and_is_named() -> None:
    """The refusal names resource, node, amounts and pod."""
    found = refusals(fakes.allocation(gpus=2), fakes.pod("notebook-7", gpus=3))
    assert found == ("waits for gpu on n1: 1 free of 2 needed, held by default/notebook-7",)


def test_pod_level_requests_of_a_foreign_pod_count() -> None:
    """Its containers have no requests."""
    whole = types.Requirements(requests={"cpu": "8"})
    spec = types.PodSpec(node_name="n1", containers=[types.Container(name="main")], resources=whole)
    database = types.Pod(metadata=types.Meta(name="db", namespace="default"), spec=spec)
    assert refusals(fakes.allocation(cpus=2), database) == (
        "waits for cpu on n1: 0 free of 2 needed, held by default/db",
    )


def test_a_terminating_pod_takes_room() -> None:
    assert refusals(fakes.allocation(gpus=2), fakes.pod(gpus=3, deleting=True))


def test_an_ended_pod_takes_no_room() -> None:
    assert (
        refusals(fakes.allocation(gpus=4), fakes.pod(gpus=4, status=types.PodStatus(phase="Succeeded"))) == ()
    )


def test_an_unbound_pod_takes_no_room() -> None:
    assert refusals(fakes.allocation(gpus=4), fakes.pod(gpus=4, on="")) == ()


def test_requests_beyond_the_reservation_count() -> None:
    """The reservation has no GPUs if it was read while the job was COMPLETING; or the job has moved to
    another node.
    """
    ending = fakes.pod("slurm-job-1", job=fakes.identity(1), gpus=3)
    for promise in (fakes.allocation(1, gpus=0), fakes.allocation(1, gpus=3, on=("n2",))):
        assert refusals(fakes.allocation(2, gpus=2), ending, held=(promise,)) == (
            "waits for gpu on n1: 1 free of 2 needed",
        )
    assert refusals(fakes.allocation(2, gpus=1), ending, held=(fakes.allocation(1, gpus=3),)) == ()


def test_reserved_room_is_taken() -> None:
    """Even if its pods are not visible yet."""
    assert refusals(fakes.allocation(2, gpus=2), held=(fakes.allocation(1, gpus=3),)) == (
        "waits for gpu on n1: 1 free of 2 needed",
    )


def test_a_reservation_and_its_pod_count_once() -> None:
    held = fakes.allocation(1, gpus=2)
    assert refusals(fakes.allocation(2, gpus=2), fakes.pod(gpus=2, job=held.identity), held=(held,)) == ()


def test_admission_can_be_repeated() -> None:
    """After a crash it gives the same answer."""
    own = fakes.allocation(1, gpus=4)
    assert refusals(own, fakes.pod(gpus=4, job=own.identity), held=(own,)) == ()


def test_pods_of_an_earlier_attempt_take_room() -> None:
    old = fakes.pod("old", gpus=4, job=fakes.identity(1, restart=0))
    assert refusals(fakes.allocation(1, gpus=1, restart=1), old) != ()


def test_unusable_nodes_are_refused() -> None:
    """Unknown, not ready and cordoned."""
    job = fakes.allocation(on=("n1", "n2", "n3"))
    nodes = (fakes.node("n1", ready=False), fakes.node("n2", cordoned=True))
    assert refusals(job, nodes=nodes) == (
        "waits for node n1: not Ready in Kubernetes",
        "waits for node n2: cordoned in Kubernetes",
        "waits for node n3: Kubernetes does not know it",
    )


def test_one_full_node_refuses_the_gang() -> None:
    """Only the full node is named."""
    found = refusals(fakes.allocation(on=("n1", "n2"), gpus=2), fakes.pod(gpus=3, on="n2"))
    assert len(found) == 1
    assert "on n2" in found[0]


def test_only_the_first_holders_are_named() -> None:
    """Comments must stay readable."""
    pods = tuple(fakes.pod(f"p{n}", cpus="1") for n in range(8))
    assert refusals(fakes.allocation(cpus=1), *pods)[0].endswith(
        "held by default/p0, default/p1, default/p2 and 5 more"
    )


@given(
    st.lists(st.tuples(st.sampled_from(("n1", "n2")), st.integers(0, 3)), max_size=6),
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from((("n1",), ("n2",), ("n1", "n2")))), max_size=12),
)
def test_no_sequence_of_admissions_overbooks_a_node(
    foreign: list[tuple[str, int]], asks: list[tuple[int, tuple[str, ...]]]
) -> None:
    """I1: reservations and foreign pods never exceed a node; foreign pods alone may."""
    pods = tuple(fakes.pod(f"f{n}", on=on, gpus=gpus) for n, (on, gpus) in enumerate(foreign))
    reserved = jobstore.Store(lambda: 5.0)
    nodes = {"/n1": fakes.node("n1"), "/n2": fakes.node("n2")}
    for job_id, (gpus, on) in enumerate(asks, start=1):
        wish = fakes.allocation(job_id, on=on, cpus=0, gib=0, gpus=gpus)
        if not capacity.refusals(wish, nodes=nodes, pods=pods, reserved=reserved):
            reserved.reserve(wish)
    for name in ("n1", "n2"):
        ours = reserved.reserved_on(name, besides=0).gpus
        theirs = sum(gpus for on, gpus in foreign if on == name)
        assert ours == 0 or ours + theirs <= 4
