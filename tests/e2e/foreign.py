"""A Slurm not configured by Penstock: files in administrators' style, and its own hooks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e import labs, plainsite

from penstock_lab import testing

EPILOG = '#!/bin/sh\necho "$SLURM_JOB_ID" >> {log}\n'
TASK_PROLOG = "#!/bin/sh\necho export SITE_WAS_HERE=yes\n"
ROWS = ("NodeName=", "PartitionName=")
KINDS = (
    "namespaces,clusterroles,clusterrolebindings,priorityclasses,serviceaccounts,resourcequotas,"
    "networkpolicies,limitranges"
)


@contextlib.contextmanager
def foreign_site() -> Iterator[plainsite.PlainSite]:
    """The plain site with differently written configuration files."""
    with plainsite.plain_site() as site:
        log = epilog_log(site)
        for name, text in (("epilog.sh", EPILOG.format(log=log)), ("task.sh", TASK_PROLOG)):
            (site.etc / name).write_text(text)
            (site.etc / name).chmod(0o755)
        conf = site.lab.place.slurm_conf
        lines = [line for line in conf.read_text().split("\n") if line and not line.startswith("#")]
        rows = [line for line in lines if line.startswith(ROWS)]
        (site.etc / "hall.conf").write_text("".join(f"{_continued(row)}\n" for row in rows))
        settings = [_in_another_hand(line) for line in lines if line not in rows]
        hooks = (f"Epilog\t=\t{site.etc}/epilog.sh # health check", f"TaskProlog={site.etc}/task.sh")
        text = "\n".join(("# Hall 3: ask the operators first", *settings, *hooks, "Include hall.conf"))
        conf.write_text(text)
        site.lab.penstock("lab", "restart", "slurmctld")
        site.lab.run(("scontrol", "reconfigure"))
        yield site


def _in_another_hand(line: str) -> str:
    name, _, value = line.partition("=")
    return f"{name.lower()} = {value}"


def _continued(row: str) -> str:
    first, _, rest = row.partition(" ")
    return f"{first} \\\n    {rest}"


def epilog_log(site: plainsite.PlainSite) -> Path:
    """The file to which the site's Epilog appends every job."""
    return site.lab.place.directory / "site-epilog.log"


def world(site: plainsite.PlainSite) -> dict[str, Any]:
    """Files with their times, daemons' processes, objects with their versions."""
    place = site.lab.place
    found: dict[str, Any] = {f"process {name}": pid for name, pid in labs.pids(place).items()}
    for folder in (place.etc, place.libexec, place.installed, place.gpu_devices):
        for path in (folder, *folder.rglob("*")) if folder.exists() else ():
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found[str(path)] = (status.st_ino, status.st_mode, status.st_mtime_ns, content)
    listed = site.lab.run(("kubectl", "get", KINDS, "--all-namespaces", "-o", "json")).stdout
    for item in json.loads(listed)["items"]:
        meta = item["metadata"]
        found[f"{item['kind']} {meta.get('namespace')}/{meta['name']}"] = meta["resourceVersion"]
    return found


def dry(site: plainsite.PlainSite, command: str) -> testing.Result:
    """Run the command with --dry-run; raises AssertionError if it changed anything."""
    before = world(site)
    done = site.penstock(command, "--dry-run", check=False)
    after = world(site)
    changed = sorted(key for key in before | after if before.get(key) != after.get(key))
    assert changed == [], f"`penstock {command} --dry-run` changed {changed}: {done.stdout}{done.stderr}"
    return done
