"""`explain`, `mkyaml` and `mkinst` show the pods that penstockd creates."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.install import sites

from penstock import errors
from penstock.daemon import settings
from penstock.model import jobs, launches, resources
from penstock.model.siteview import NodeKind, SiteView
from penstock.render import pods
from penstock.sbatch import compiler, siteviews
from penstock.site import daemonsettings, loader
from penstock.views import pods as shown_pods

TEXT = """\
cluster: hall
nas: {path: /nas, nfs: {server: filer, path: /export}}
registry: {default_image: site/default, pull_secrets: [regcred], pull_policy: Always}
gpus: {a100: {labels: {gpu: a100}}}
node_groups: {w: {nodes: "n[1-2]", cpus: 8, memory: 32Gi, gpus: 4, gpu_type: a100}}
partitions:
  gpu:
    mode: check
    default: true
    nodes: [w]
    priority_class: high
    tolerations: [{key: gpu}]
    node_selector: {pool: gpu}
priority_classes: {high: {value: 100}}
quota: {pods: 100}
"""


def view() -> SiteView:
    """The view that `penstock apply` writes."""
    site = loader.loads(TEXT.encode())
    made = daemonsettings.view(site, sites.known(site, existing=None).groups, release=(22, 5))
    return msgspec.json.decode(msgspec.json.encode(made), type=SiteView)


def test_view_has_all_pod_settings() -> None:
    """None is a default; penstockd takes the cluster's name from slurmctld."""
    site = loader.loads(TEXT.encode())
    document = json.dumps(daemonsettings.penstockd(site, slurm_uid=64030)).encode()
    of_penstockd = msgspec.json.decode(document, type=settings.Settings).pods
    assert shown_pods.policy_of(view()) == of_penstockd


def shown(*lines: str, site: SiteView | None = None) -> dict[str, Any]:
    """The only pod of a script that is submitted outside the shared mounts."""
    script = "".join(f"{line}\n" for line in ("#!/bin/sh", *lines)).encode()
    done = compiler.compile_script(script, name="job.sh")
    assert done.spec is not None
    (pod,) = shown_pods.of_job(done.spec, script, site or view(), here="/home/me")
    return pod


def test_shown_pods_have_the_sites_settings() -> None:
    """Tolerations, selector, labels of the GPU type, pull secrets and policy, priority, the NAS by NFS."""
    pod = shown("#SBATCH --gres=gpu:a100:2")
    spec = pod["spec"]
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert spec["nodeSelector"] == {"pool": "gpu", "gpu": "a100"}
    assert (spec["imagePullSecrets"], spec["priorityClassName"]) == ([{"name": "regcred"}], "high")
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert {"server": "filer", "path": "/export"} in [volume.get("nfs") for volume in spec["volumes"]]
    assert pod["metadata"]["labels"]["penstock.dev/cluster"] == "hall"


def test_shown_pod_equals_penstockds() -> None:
    """For the same job's allocation and launch request; its nodes have placeholders for names."""
    site = loader.loads(TEXT.encode())
    told = msgspec.convert(daemonsettings.penstockd(site, slurm_uid=0), settings.Settings).pods
    owner = shown_pods.owner_named()
    share = jobs.NodeShare(
        node="node-0",
        amount=resources.Amount(millicpus=2000, memory=4 * 2**30, gpus=1),
        gpus_by_type=(("a100", 1),),
    )
    request = launches.LaunchRequest(
        interpreter=b"/bin/sh",
        script=b"",
        arguments=(),
        environment=(),
        workdir=b"/home/me",
        stdout=b"/home/me/slurm-0.out",
        stderr=b"/home/me/slurm-0.out",
    )
    made = pods.render_pod(
        jobs.Allocation(
            identity=jobs.JobIdentity(job_id=0, restart=0, uid=owner.uid), shares=(share,), partition="gpu"
        ),
        0,
        owner=owner,
        request=request,
        policy=told,
    )
    assert shown("#SBATCH -c2 --mem=4G --gres=gpu:1") == made
    assert "output" in [volume["name"] for volume in made["spec"]["volumes"]]


def test_gpu_resource_by_type() -> None:
    """Each requested type by its resource; without a type, that of all nodes if they agree."""
    kinds = (NodeKind(gpus=4, gpu_type="a100"), NodeKind(gpus=4, gpu_type="mi300"))
    policy = msgspec.structs.replace(view().pods, gpu_resources={"mi300": "amd.com/gpu"})
    both = msgspec.structs.replace(view(), nodes=kinds, pods=policy)

    def asked(gres: str, site: SiteView) -> dict[str, str]:
        requests = shown(f"#SBATCH --gres={gres}", site=site)["spec"]["containers"][0]["resources"][
            "requests"
        ]
        return {name: count for name, count in requests.items() if "gpu" in name}

    assert asked("gpu:a100:1,gpu:mi300:2", both) == {"nvidia.com/gpu": "1", "amd.com/gpu": "2"}
    assert asked("gpu:2", both) == {"nvidia.com/gpu": "2"}
    assert asked("gpu:2", msgspec.structs.replace(both, nodes=kinds[1:])) == {"amd.com/gpu": "2"}


def test_view_of_an_older_release_is_reported() -> None:
    """Scripts are still validated, but incomplete pods are not shown."""
    old = {"registries": ["hub/"], "partitions": {"gpu": {"trusted": True}}, "penstockd": {"hook_uids": []}}
    found = siteviews.decode(json.dumps(old).encode())
    assert (found.pods.allowed_images, found.pods.partition("gpu").mode) == (("hub/",), "trust")
    with pytest.raises(errors.UsageError, match="an older release") as raised:
        shown_pods.policy_of(found)
    assert "`penstock apply`" in raised.value.hint
