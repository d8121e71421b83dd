"""Pods that `explain`, `mkyaml` and `mkinst` show are those that penstockd makes: by the same settings."""

from __future__ import annotations

import dataclasses
import json

import msgspec
import pytest
from tests.install import sites

from penstock import errors
from penstock.daemon import settings
from penstock.model.siteview import SiteView
from penstock.site import daemons, loading
from penstock.views import pods

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
    """The site as `penstock apply` writes it for those who check scripts."""
    site = loading.loads(TEXT.encode())
    made = daemons.view(site, sites.known(site, existing=None).groups, release=(22, 5))
    return msgspec.json.decode(msgspec.json.encode(made), type=SiteView)


def test_all_settings_of_pods_are_penstockds() -> None:
    """None is left at its default; the cluster's name is what penstockd asks slurmctld for."""
    site = loading.loads(TEXT.encode())
    document = json.dumps(daemons.penstockd(site, slurm_uid=64030)).encode()
    of_penstockd = msgspec.json.decode(document, type=settings.Settings).pods
    assert pods.pod_settings(view()) == dataclasses.replace(of_penstockd, cluster="hall")


def test_the_pods_of_a_script_have_what_the_site_decides() -> None:
    """Tolerations, selector, labels of the GPU type, pull secrets and policy, priority, the NAS by NFS."""
    script = b"#!/bin/sh\n#SBATCH --gres=gpu:a100:2\ntrue\n"
    from penstock.sbatch import compiler

    done = compiler.compile_script(script, name="job.sh")
    assert done.spec is not None
    (pod,) = pods.of_job(done.spec, script, view())
    spec = pod["spec"]
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert spec["nodeSelector"] == {"pool": "gpu", "gpu": "a100"}
    assert (spec["imagePullSecrets"], spec["priorityClassName"]) == ([{"name": "regcred"}], "high")
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert {"server": "filer", "path": "/export"} in [volume.get("nfs") for volume in spec["volumes"]]
    assert pod["metadata"]["labels"]["penstock.dev/cluster"] == "hall"


def test_a_view_of_another_version_is_told_in_words() -> None:
    """Not a traceback."""
    odd = msgspec.structs.replace(view(), penstockd={"socket": "s"})
    with pytest.raises(errors.UsageError, match="this version does not know"):
        pods.pod_settings(odd)
