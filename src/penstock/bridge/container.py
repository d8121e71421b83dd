"""What is done inside a job's container, through the API: signals, commands of the agent, the log."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import AsyncIterator

from penstock import wellknown
from penstock.bridge import protocols
from penstock.kube import types


@dataclasses.dataclass(frozen=True)
class Container:
    """The container of one pod."""

    kube: protocols.Kube
    pod: types.Pod

    async def signal(self, number: signal.Signals, *, everyone: bool, agent: bool = True) -> None:
        """Deliver a signal to the script (through the agent, if there is one) or to all processes of the job.

        An agent that gets a SIGTERM ends them all: kubelets have no other word for that.
        """
        target = "-1" if everyone else "1"
        alone = agent and not everyone and number == signal.SIGTERM
        name = wellknown.TERM_FOR_THE_SCRIPT if alone else number.name
        await self._sh(f"kill -{name.removeprefix('SIG')} {target}")

    async def touch(self, file: str) -> None:
        """Leave a mark in the pod: an empty file."""
        await self._sh(f": >{file}")

    async def _sh(self, line: str) -> None:
        meta = self.pod.metadata
        await self.kube.run(
            ("/bin/sh", "-c", line),
            namespace=meta.namespace,
            name=meta.name,
            container=wellknown.CONTAINER_NAME,
        )

    def agent(self, *words: str) -> AsyncIterator[tuple[int, bytes]]:
        """What the agent prints when it is called with these words beside the one that runs the job."""
        meta = self.pod.metadata
        command = ("/bin/sh", f"{wellknown.AGENT_MOUNT}/agent.sh", *words)
        return self.kube.stream(
            command, namespace=meta.namespace, name=meta.name, container=wellknown.CONTAINER_NAME
        )

    def log(self) -> AsyncIterator[bytes]:
        """The container's output, from its beginning until it has ended."""
        meta = self.pod.metadata
        return self.kube.log(namespace=meta.namespace, name=meta.name, container=wellknown.CONTAINER_NAME)
