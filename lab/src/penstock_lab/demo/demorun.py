"""The demo on a running lab: submit, watch, check."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from rich import console, live

from penstock import errors
from penstock.kube import client, kubeconfig, podview
from penstock_lab import passwd, paths, shellenv
from penstock_lab.demo import demostate, display, scenario

PATIENCE = 90.0  # seconds from the last submission to the last job's end
LOOK_EVERY = 0.25
GONE_WITHIN = 5.0


@dataclasses.dataclass
class Demo:
    """One run; `problems` lists everything that was wrong."""

    place: paths.LabPaths
    user: str
    out: console.Console
    jobs: tuple[scenario.DemoJob, ...] = scenario.JOBS
    problems: list[str] = dataclasses.field(default_factory=list)
    logs: dict[int, asyncio.Task[bytes]] = dataclasses.field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.place.nas_home(self.user)

    async def run(self) -> None:
        """Submit, watch, cancel one job, check everything."""
        kube = client.KubeClient(kubeconfig.load(self.place.admin_kubeconfig))
        observer = demostate.Observer(str(self.place.slurm_conf), kube)
        try:
            submitted = self._submit_all()
            await self._watch(observer, submitted)
            await self._report(observer, submitted)
        finally:
            await kube.close()

    def _submit_all(self) -> dict[str, scenario.DemoJob]:
        number = len(self.jobs)
        self.out.print(f"\n{number} plain sbatch scripts, submitted by [bold]{self.user}[/] in {self.home}\n")
        self.out.print(display.script(self.jobs[0]))
        submitted = {}
        for job in self.jobs:
            (self.home / job.file).write_text(job.script, encoding="utf-8")
            job_id = self._as_user("sbatch", "--parsable", job.file)
            submitted[job_id] = job
            self.out.print(f"$ sbatch {job.file}  →  job {job_id}", highlight=False)
        return submitted

    def _as_user(self, *argv: str) -> str:
        variables = (
            os.environ
            | shellenv.variables(self.place, root=False, user=self.user)
            | {"HOME": str(self.home), "USER": self.user}
        )
        result = subprocess.run(
            argv,
            env=variables,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **passwd.identity(self.user),
        )
        if result.returncode:
            raise errors.LabError(f"{' '.join(argv)}: {result.stderr.strip()}")
        return result.stdout.strip()

    async def _watch(self, observer: demostate.Observer, submitted: Mapping[str, scenario.DemoJob]) -> None:
        """Show queue and pods until the queue is empty; cancel the jobs to be cancelled once they run."""
        to_cancel = {int(job_id) for job_id, job in submitted.items() if job.cancelled}
        before: demostate.Snapshot | None = None
        deadline = asyncio.get_running_loop().time() + PATIENCE
        with live.Live(console=self.out, auto_refresh=False, transient=False) as view:
            while True:
                now = await observer.look()
                self.problems += [stray for stray in now.strays(before) if stray not in self.problems]
                if self.out.is_terminal:
                    view.update(display.side_by_side(now), refresh=True)
                elif before is None or _changed(before, now):
                    self.out.print(display.side_by_side(now))
                if not now.queue:
                    return
                self._follow_logs(observer, now, submitted)
                to_cancel -= self._cancel_running(now, to_cancel)
                if asyncio.get_running_loop().time() > deadline:
                    self.problems.append(
                        f"still in the queue after {PATIENCE:g} s: {[line.shown_id for line in now.queue]}"
                    )
                    return
                before = now
                await asyncio.sleep(LOOK_EVERY)

    def _follow_logs(
        self, observer: demostate.Observer, now: demostate.Snapshot, submitted: Mapping[str, scenario.DemoJob]
    ) -> None:
        """Start reading the logs to be shown as soon as their containers run."""
        for pod in now.pods:
            job_id = podview.job_id(pod)
            job = submitted.get(str(job_id))
            if job and job.logged and job_id and job_id not in self.logs and podview.has_started(pod):
                self.logs[job_id] = asyncio.create_task(observer.log(pod))

    def _cancel_running(self, now: demostate.Snapshot, wanted: set[int]) -> set[int]:
        """Cancel the running jobs of `wanted` once no other job runs; returns those cancelled."""
        running = {line.job_id for line in now.queue if line.state == "R"}
        if not wanted or running - wanted:
            return set()
        for job_id in wanted & running:
            self._as_user("scancel", str(job_id))
        return wanted & running

    async def _report(self, observer: demostate.Observer, submitted: Mapping[str, scenario.DemoJob]) -> None:
        records = await observer.ended_records(tuple(submitted), within=10)
        outputs = {
            file.name: file.read_text(encoding="utf-8", errors="replace") for file in self.home.glob("*.out")
        }
        outputs = {name: text for name, text in outputs.items() if _belongs(name, submitted)}
        self.out.print(display.outputs(outputs))
        for job_id, log in self.logs.items():
            shown = (await log).decode(errors="replace")
            self.out.print(display.log(job_id, shown))
            self.problems += scenario.wrong_log(submitted[str(job_id)], shown)
        self.out.print(display.records(records))
        self.problems += scenario.wrong_records(submitted, records)
        self.problems += scenario.wrong_outputs(submitted, outputs)
        self.problems += await self._left_pods(observer)

    async def _left_pods(self, observer: demostate.Observer) -> list[str]:
        for _ in range(int(GONE_WITHIN / LOOK_EVERY)):
            left = await observer.pods()
            if not left:
                return []
            await asyncio.sleep(LOOK_EVERY)
        return [f"pod {pod.metadata.name} is left behind" for pod in left]


def _belongs(name: str, submitted: Mapping[str, scenario.DemoJob]) -> bool:
    return any(
        name.startswith(f"{job.file.rpartition('.')[0]}-{job_id}") for job_id, job in submitted.items()
    )


def _changed(before: demostate.Snapshot, now: demostate.Snapshot) -> bool:
    """Whether the snapshots differ; used where the output cannot be redrawn."""
    story = [
        (
            [(line.shown_id, line.state) for line in seen.queue],
            [(p.metadata.name, p.status.phase) for p in seen.pods],
        )
        for seen in (before, now)
    ]
    return story[0] != story[1]
