"""Access to a job's container through the API: signals, commands of the agent, the log."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import AsyncIterator

from penstock import wellknown
from penstock.bridge import protocols
from penstock.kube import types


@dataclasses.dataclass(frozen=True)
class Container:
    kube: protocols.Kube
    pod: types.Pod

    @property
    def _address(self) -> dict[str, str]:
        meta = self.pod.metadata
        return {"namespace": meta.namespace, "name": meta.name, "container": wellknown.CONTAINER_NAME}

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
        await self.kube.run(("/bin/sh", "-c", line), **self._address)

    def agent(self, *words: str) -> AsyncIterator[tuple[int, bytes]]:
        """Output of a second agent process, run with these arguments."""
        command = ("/bin/sh", f"{wellknown.AGENT_MOUNT}/agent.sh", *words)
        return self.kube.stream(command, **self._address)

    def log(self) -> AsyncIterator[bytes]:
        """The container's log from its start until the container ends."""
        return self.kube.log(**self._address)

    def converse(self, program: str) -> contextlib.AbstractAsyncContextManager[protocols.Conversation]:
        """A second process of the agent's, with which to exchange data."""
        command = ("/bin/sh", f"{wellknown.AGENT_MOUNT}/{program}.sh")
        return self.kube.converse(command, **self._address)
