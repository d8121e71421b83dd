"""Site and facts → all files of an installation, deterministically."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import msgspec

from penstock import wellknown
from penstock.install.facts import Facts, include_path
from penstock.model import cluster as model
from penstock.render import clifilter, hooks, includes, pam, slurmconf, units
from penstock.site import clusters, daemonsettings, policies
from penstock.site.schema import Site
from penstock.slurm import conffile

OWN_LUA = "job_submit.penstock.lua"
SITE_LUA = "job_submit.site.lua"
CLI_FILTER = "cli_filter.lua"
GRES_INCLUDE = "penstock-gres.conf"
SLURMD_CONF = "penstock-slurmd.conf"
STATE_SAVE_DEFAULT = "/var/spool"  # Slurm's default of StateSaveLocation
KINDS = ("slurm", "hooks", "penstockd", "units", "kubernetes")


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    path: Path
    content: bytes
    mode: int = 0o644
    owner: str = "root"
    kind: str
    """One of KINDS."""


def all_files(site: Site, facts: Facts) -> tuple[File, ...]:
    """All files of ours; edits of the site's files are in `all_edits`."""
    cluster = describe(site, facts)
    found = [*_slurm(site, facts, cluster)]
    if cluster.hooks is not None:
        found += [*_hooks(site, facts), *_penstockd(site, facts), *_units(site, facts)]
    return tuple(found)


def describe(site: Site, facts: Facts) -> model.SlurmCluster:
    return clusters.describe(
        site, facts.groups, release=facts.release, existing=facts.existing, password=facts.password
    )


def _slurm(site: Site, facts: Facts, cluster: model.SlurmCluster) -> Iterator[File]:
    conf = Path(site.slurm.conf)
    for number in range(max((node.gpus for node in _virtual_nodes(cluster, facts)), default=0)):
        yield File(path=Path(site.slurm.gpu_device_dir) / f"gpu{number}", content=b"", kind="slurm")
    if facts.existing is not None:
        text = includes.render_include(cluster, facts.existing)
        yield File(path=include_path(site), content=text.encode(), kind="slurm")
        if _brings_gpus(site, facts):
            gres = slurmconf.render_gres_conf(_new_nodes_only(cluster, facts.existing))
            yield File(path=conf.parent / GRES_INCLUDE, content=gres.encode(), kind="slurm")
        if _virtual_nodes(cluster, facts):
            text = includes.render_slurmd_conf(cluster, facts.existing, conf=str(conf))
            yield File(path=slurmd_conf(site), content=text.encode(), kind="slurm")
        return
    yield File(path=conf, content=slurmconf.render_slurm_conf(cluster).encode(), kind="slurm")
    if cluster.hooks is not None and not cluster.hooks_everywhere:
        text = slurmconf.render_slurmd_conf(cluster.hooks, conf=str(conf))
        yield File(path=slurmd_conf(site), content=text.encode(), kind="slurm")
    for name, text in (
        ("gres.conf", slurmconf.render_gres_conf(cluster)),
        ("cgroup.conf", slurmconf.render_cgroup_conf(cluster)),
    ):
        yield File(path=conf.parent / name, content=text.encode(), kind="slurm")
    secret = slurmconf.render_slurmdbd_conf(cluster).encode()
    path = conf.parent / "slurmdbd.conf"
    yield File(path=path, content=secret, mode=0o600, owner=site.slurm.user, kind="slurm")


def _virtual_nodes(cluster: model.SlurmCluster, facts: Facts) -> tuple[model.NodeSpec, ...]:
    """Nodes that we define and whose slurmds share a host."""
    known = facts.existing.nodes if facts.existing is not None else frozenset()
    return tuple(node for node in cluster.nodes if node.host and node.name not in known)


def slurmd_conf(site: Site) -> Path:
    """The file that slurmds of virtual nodes read: slurm.conf with their own folders, and our hooks."""
    return Path(site.slurm.conf).parent / SLURMD_CONF


def conf_of_slurmds(site: Site, facts: Facts) -> Path:
    """The file with which slurmds of bridged nodes are started."""
    cluster = describe(site, facts)
    if facts.existing is not None and not _virtual_nodes(cluster, facts):
        return Path(site.slurm.conf)
    return Path(site.slurm.conf) if facts.existing is None and cluster.hooks_everywhere else slurmd_conf(site)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Edit:
    """A file of the site's that gets an include of ours and loses the settings that ours replaces."""

    path: Path
    include: Path
    settings: tuple[str, ...] = ()


def all_edits(site: Site, facts: Facts) -> tuple[Edit, ...]:
    if facts.existing is None:
        return ()
    conf = Path(site.slurm.conf)
    settings = includes.replaced_settings(describe(site, facts), facts.existing)
    edits = [Edit(path=conf, include=include_path(site), settings=tuple(settings))]
    if _brings_gpus(site, facts):
        edits.append(Edit(path=conf.parent / "gres.conf", include=conf.parent / GRES_INCLUDE))
    return tuple(edits)


def edited(edit: Edit) -> str:
    """The file's text after the edit; a missing file counts as empty."""
    text = edit.path.read_text(encoding="utf-8", errors="surrogateescape") if edit.path.exists() else ""
    return conffile.bridged(text, include=str(edit.include), settings=edit.settings)


def _brings_gpus(site: Site, facts: Facts) -> bool:
    known = facts.existing.nodes if facts.existing is not None else frozenset()
    nodes = describe(site, facts).nodes
    return any(node.gpus for node in nodes if node.name not in known)


def _new_nodes_only(cluster: model.SlurmCluster, existing: includes.Existing) -> model.SlurmCluster:
    new = tuple(node for node in cluster.nodes if node.name not in existing.nodes)
    return dataclasses.replace(cluster, nodes=new)


def _hooks(site: Site, facts: Facts) -> Iterator[File]:
    settings = hooks.HookSettings(
        libexec=site.penstockd.libexec,
        socket=site.penstockd.socket,
        bridged_partitions=clusters.bridged_partitions(site),
        default_partition=facts.default_partition,
        admit_timeout=site.timeouts.admit,
        release_timeout=site.timeouts.release,
        slurm_conf=site.slurm.conf,
        state_dir=state_dir(site, facts),
        slurm_commands=site.slurm.commands_dir,
        root_may_submit=site.penstockd.root_may_submit,
        shared_mounts=policies.resolved(site).shared_mounts,
        missing_workdir=policies.missing_workdir(site),
        crash_points=facts.crash_points,
    )
    libexec, etc = Path(site.penstockd.libexec), Path(site.slurm.conf).parent
    for each in hooks.render_hooks(settings):
        name = OWN_LUA if each.name == wellknown.JOB_SUBMIT and facts.site_lua else each.name
        folder = etc if each.name == wellknown.JOB_SUBMIT else libexec
        yield File(path=folder / name, content=each.content, mode=each.mode, kind="hooks")
    if facts.site_lua:
        yield File(path=etc / wellknown.JOB_SUBMIT, content=_lua_chain(etc), kind="hooks")
    yield from _chains(site, facts)
    if site.slurm.pam_file is not None:
        service = pam.render_service(str(libexec / wellknown.SESSION))
        yield File(path=Path(site.slurm.pam_file), content=service.encode(), kind="hooks")
    if site.penstockd.submit_filter:
        text = clifilter.render_cli_filter(
            penstock=site.penstockd.program,
            bridged_partitions=settings.bridged_partitions,
            default_partition=facts.default_partition,
            site_file=daemonsettings.view_path(site),
        )
        yield File(path=etc / CLI_FILTER, content=text.encode(), kind="hooks")


def state_dir(site: Site, facts: Facts) -> str:
    """StateSaveLocation: that of an existing slurm.conf, else the site file's."""
    if facts.existing is None:
        return site.slurm.state_dir
    return facts.existing.get("StateSaveLocation") or STATE_SAVE_DEFAULT


def has_site_lua(site: Site) -> bool:
    """Whether the site has its own job_submit.lua, in its place or moved aside by `apply`."""
    etc = Path(site.slurm.conf).parent
    places = (etc / SITE_LUA, etc / wellknown.JOB_SUBMIT)
    return any(path.exists() and not is_marked_file(path) for path in places)


def common_names(site: Site) -> set[Path]:
    """Files of ours whose names Slurm or PAM prescribes, so that a site may have its own."""
    etc = Path(site.slurm.conf).parent
    pam_file = (Path(site.slurm.pam_file),) if site.slurm.pam_file is not None else ()
    return {etc / wellknown.JOB_SUBMIT, etc / CLI_FILTER, *pam_file}


def is_marked(content: bytes) -> bool:
    """Whether one of the first two lines has our mark; a program's first line is its interpreter."""
    return any(wellknown.WRITTEN.encode() in line for line in content.split(b"\n", 2)[:2])


def is_marked_file(path: Path) -> bool:
    try:
        return is_marked(path.read_bytes())
    except FileNotFoundError:
        return False


def _lua_chain(etc: Path) -> bytes:
    text = resources.files("penstock.hooks").joinpath("job_submit_chain.lua").read_text(encoding="utf-8")
    return text.replace("@SITE@", str(etc / SITE_LUA)).replace("@OWN@", str(etc / OWN_LUA)).encode()


def _chains(site: Site, facts: Facts) -> Iterator[File]:
    if facts.existing is None:
        return
    for setting, own in clusters.hook_programs(site).items():
        theirs = facts.existing.get(setting)
        if theirs:
            text = includes.render_chain(setting, own=own, site=theirs)
            path = Path(clusters.chained(own))
            yield File(path=path, content=text.encode(), mode=0o755, kind="hooks")


def _penstockd(site: Site, facts: Facts) -> Iterator[File]:
    settings = daemonsettings.penstockd(site, slurm_uid=facts.slurm_uid)
    yield File(path=Path(site.penstockd.config), content=_json(settings), kind="penstockd")
    view = daemonsettings.view(site, facts.groups, release=facts.release, conf=facts.conf)
    yield File(path=Path(daemonsettings.view_path(site)), content=_json(view), kind="penstockd")
    if site.nas is not None:
        intake = daemonsettings.intake(site, site.nas, release=facts.release)
        yield File(path=Path(site.intake.config), content=_json(intake), kind="penstockd")
        collector = _json(daemonsettings.collector(site, site.nas))
        yield File(path=Path(site.results.config), content=collector, mode=0o600, kind="penstockd")


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _units(site: Site, facts: Facts) -> Iterator[File]:
    if site.penstockd.run != "systemd":
        return
    folder = Path(site.penstockd.units)
    for name, text in _unit_texts(site, facts):
        yield File(path=folder / name, content=text.encode(), kind="units")


def _unit_texts(site: Site, facts: Facts) -> Iterator[tuple[str, str]]:
    common = {"program": site.penstockd.program, "slurm_commands": site.slurm.commands_dir}
    text = units.penstockd(
        **common,
        config=site.penstockd.config,
        user=site.slurm.user,
        slurm_conf=site.slurm.conf,
        runtime=str(Path(site.penstockd.socket).parent),
        state=site.results.state_dir,
    )
    yield units.PENSTOCKD, text
    if any(group.slurmd for group in site.node_groups.values()):
        conf = str(conf_of_slurmds(site, facts))
        yield units.SLURMD, units.slurmd(slurm_conf=conf, slurm_commands=site.slurm.commands_dir)
    if site.nas is None:
        return
    nas, drop, results = site.nas.path, site.nas.drop, site.nas.results
    text = units.intake(**common, config=site.intake.config, nas=nas, drop=drop, state=site.intake.state_dir)
    yield units.INTAKE, text
    text = units.collector(
        **common, config=site.results.config, nas=nas, results=results, state=site.results.state_dir
    )
    yield units.COLLECTOR, text
