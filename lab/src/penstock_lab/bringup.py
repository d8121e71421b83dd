"""Bring a lab up: make a new one, or repair an existing one.

Both run the same steps, and each step leaves alone what is already right. If a new lab fails, it is removed
completely; a lab that was up before keeps everything, since its owner may still need it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock import errors
from penstock_lab import (
    accounts,
    components,
    configuration,
    directories,
    files,
    interrupts,
    lock,
    paths,
    ports,
    preparations,
    spec,
    subprocesses,
    supervision,
    taskgraph,
    teardown,
    users,
)
from penstock_lab.faultproxy import labcomponent as faulty
from penstock_lab.kubernetes import variants
from penstock_lab.slurm import firststate, programs


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The caller's options; None keeps what the lab has, or takes the default for a new one."""

    name: str | None = None
    port_base: int | None = None
    nodes: int | None = None
    cpus: int | None = None
    memory_gb: int | None = None
    gpus: int | None = None
    bridge: bool | None = None
    mode: str | None = None
    kubernetes: str | None = None
    fault_proxy: bool | None = None
    kubernetes_version: str | None = None
    slurm: str | None = None

    def given(self) -> dict[str, str | int]:
        return {field: value for field, value in vars(self).items() if value is not None}


def bring_up(
    place: paths.LabPaths, wishes: Wishes, *, listener: taskgraph.Listener, environment: Mapping[str, str]
) -> spec.LabSpec:
    """Make or repair the lab; raises LabError."""
    preparations.require_programs()
    with _locked_directory(place), ports.Claims() as claims:
        is_there = spec.exists(place)
        lab = _repairable(place, wishes) if is_there else _planned(place, wishes, environment, claims)
        try:
            if lab.user_created:
                users.ensure_created(place, lab.user)  # first: another lab may choose this name meanwhile
            lab = programs.with_programs(lab, listener=listener, environment=environment)
            lab = variants.with_programs(lab, listener=listener, environment=environment)
            return _realize(place, lab, listener=listener)
        except BaseException:
            if not lab.complete:
                with interrupts.put_off():
                    teardown.tear_down(place, lab)
            raise


def _planned(
    place: paths.LabPaths, wishes: Wishes, environment: Mapping[str, str], claims: ports.Claims
) -> spec.LabSpec:
    """Plan a new lab and write its lab.json; raises before anything is made if the lab is impossible."""
    directories.require_space(place.directory, megabytes=directories.NEW_LAB_MEGABYTES)
    name = paths.valid_name(wishes.name or paths.name_from(place.directory))
    person = users.person_behind_sudo(environment)
    members = variants.members(wishes.kubernetes or spec.DEV)
    nodes = len(members) or wishes.nodes or spec.DEFAULT_NODES
    count = spec.port_count(nodes, wishes.kubernetes or spec.DEV, fault_proxy=bool(wishes.fault_proxy))
    base = wishes.port_base or claims.choose_base(count)
    ports.require_row(base, count)
    chosen: dict[str, Any] = {
        "members": members,
        "nodes": nodes,
        **({"gpus": max(member.gpus for member in members)} if members else {}),
        "name": name,
        "port_base": base,
        "user": person or users.free_name(name),
        "user_created": not person,
    }
    lab = msgspec.convert(wishes.given() | chosen, spec.LabSpec)
    daemons = components.all_components(place, lab)
    ports.require_free((each.name, each.port) for each in daemons if each.port is not None)
    with subprocesses.os_errors(doing="lab.json"):
        spec.save(place, lab)
    return lab


def _repairable(place: paths.LabPaths, wishes: Wishes) -> spec.LabSpec:
    """The existing lab; UsageError if the options ask for another one. An incomplete lab starts over."""
    lab = spec.load(place)
    for field, wanted in wishes.given().items():
        if getattr(lab, field) != wanted:
            what = f"{field.replace('_', ' ')} {getattr(lab, field)}"
            raise errors.UsageError(
                f"the lab in {place.directory} has {what}, not {wanted}",
                hint="`penstock lab down` first, or another --name or --dir.",
            )
    directories.require_space(place.directory, megabytes=directories.REPAIR_MEGABYTES)
    if not lab.complete:
        teardown.end_processes(place, lab)
    return lab


def _realize(place: paths.LabPaths, lab: spec.LabSpec, *, listener: taskgraph.Listener) -> spec.LabSpec:
    with subprocesses.os_errors(doing="directories"):
        directories.make_directories(place, lab)
    supervisor = supervision.Supervisor(place)
    try:
        taskgraph.run_all(all_steps(place, lab, supervisor), listener=listener, give_up=supervisor.cancel.set)
    except errors.LabError as error:
        raise _true_cause(place, error) from error
    if lab.complete:
        return lab
    complete = msgspec.structs.replace(lab, complete=True)
    with subprocesses.os_errors(doing="lab.json"):
        spec.save(place, complete)
    return complete


def _true_cause(place: paths.LabPaths, error: errors.LabError) -> errors.LabError:
    """On a full disk daemons fail with many messages, few of which say why."""
    if directories.free_megabytes(place.directory) >= directories.REPAIR_MEGABYTES:
        return error
    return subprocesses.full_disk(error.message)


def all_steps(
    place: paths.LabPaths, lab: spec.LabSpec, supervisor: supervision.Supervisor
) -> tuple[taskgraph.Step, ...]:
    """All steps; each names the steps it waits for."""
    made = [
        taskgraph.Step(name="munge key", run=lambda: preparations.make_munge_key(place)),
        taskgraph.Step(name="database files", run=lambda: preparations.make_database(place)),
        taskgraph.Step(name="configuration", run=lambda: configuration.write(place, lab)),
        taskgraph.Step(
            name="accounts", after=(components.SLURMDBD,), run=lambda: accounts.register(place, lab)
        ),
        taskgraph.Step(
            name=firststate.STEP, after=(components.SLURMCTLD,), run=lambda: firststate.save(place, lab)
        ),
    ]
    if lab.bridge and lab.kubernetes == spec.DEV:
        made.append(
            taskgraph.Step(name="certificates", run=lambda: preparations.make_certificates(place, lab))
        )
    made.extend(variants.all_steps(place, lab))
    made.extend(faulty.all_steps(place, lab, after=components.cluster_ready_after(lab)))
    daemons = components.all_components(place, lab)
    return (*made, *(_as_step(component, supervisor) for component in daemons))


def _as_step(component: components.Component, supervisor: supervision.Supervisor) -> taskgraph.Step:
    def run() -> str:
        return "started" if supervisor.ensure(component) else "runs already"

    return taskgraph.Step(name=component.name, after=component.after, run=run)


@contextlib.contextmanager
def _locked_directory(place: paths.LabPaths) -> Iterator[None]:
    """Make the lab's directory if necessary and lock it; remove it again on failure if it is empty."""
    directories.require_usable(place.directory)
    try:
        with subprocesses.os_errors(doing=f"making {place.directory}"):
            place.directory.parent.mkdir(parents=True, exist_ok=True)
            files.directory(place.directory, owner=files.Owner(os.geteuid(), os.getegid()))
        directories.require_ours(place.directory)  # until now its previous owner could add files
        with lock.lock(place.directory):
            yield
    except BaseException:
        teardown.remove_if_empty(place.directory)
        raise
