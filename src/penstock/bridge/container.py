"""Access to a job's container through the API: signals, commands of the agent, the log."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import AsyncIterator, Sequence

from penstock import wellknown
from penstock.bridge import protocols
from penstock.kube import types

AGENT = ("/bin/sh", f"{wellknown.AGENT_MOUNT}/agent.sh")


@dataclasses.dataclass(frozen=True)
class Container:
    kube: protocols.Kube
    pod: types.Pod
    name: str = wellknown.CONTAINER_NAME

    @property
    def _address(self) -> dict[str, str]:
        meta = self.pod.metadata
        return {"namespace": meta.namespace, "name": meta.name, "container": self.name}

    async def signal(self, number: signal.Signals, *, everyone: bool, agent: bool = True) -> None:
        """Signal the script (through the agent, if there is one) or all processes of the job.

        The agent takes SIGTERM for the kubelet's and ends all processes, so a SIGTERM for the script alone is
        sent as another signal.
        """
        target = "-1" if everyone else "1"
        for_script = agent and not everyone and number == signal.SIGTERM
        name = wellknown.TERM_FOR_THE_SCRIPT if for_script else number.name
        await self._sh(f"kill -{name.removeprefix('SIG')} {target}")

    async def touch(self, file: str) -> None:
        """Create an empty file."""
        await self._sh(f": >{file}")

    async def _sh(self, line: str) -> None:
        await self._run(("/bin/sh", "-c", line))

    async def tell_names(self, hosts: str) -> None:
        """Add these lines to the pod's /etc/hosts, once."""
        await self._run((*AGENT, "names"), text=f"{hosts}.\n".encode())

    async def has_names(self) -> None:
        """Raises KubeError if the pod was not told the names."""
        await self._sh(f"[ -e {wellknown.RUN_MOUNT}/named ]")

    async def _run(self, command: Sequence[str], *, text: bytes = b"") -> None:
        meta = self.pod.metadata
        await self.kube.run(command, namespace=meta.namespace, name=meta.name, container=self.name, text=text)

    def agent(self, *words: str) -> AsyncIterator[tuple[int, bytes]]:
        """Output of a second agent process, run with these arguments."""
        return self.kube.stream((*AGENT, *words), **self._address)

    def log(self) -> AsyncIterator[bytes]:
        """The container's log from its start until the container ends."""
        return self.kube.log(**self._address)

    def converse(self, program: str) -> contextlib.AbstractAsyncContextManager[protocols.Conversation]:
        """A second process of the agent's, with which to exchange data."""
        command = ("/bin/sh", f"{wellknown.AGENT_MOUNT}/{program}.sh")
        return self.kube.converse(command, **self._address)
