"""Imports everything before penstockd drops root.

The code may be readable by root only, as in a checkout in somebody's home, and libraries import parts of
themselves at first use. So each kind of call is made once, against a short-lived server on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib

from penstock import errors
from penstock.calls import commands, outcomes, requests
from penstock.kube import client, kinds, kubeconfig
from penstock.sbatch import poddirectives as pods_of_scripts
from penstock.slurm import commands as slurm_commands

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
)
DIRECTIVES = b"""#!/bin/sh
#K8S_IMAGE=a/b:1
#K8S_WORKDIR=/a
#K8S_SCRIPT=a
#K8S_COMMAND=a 'b c'
#K8S_SHM_SIZE=1G
#K8S_PRIORITY_CLASS=a
#K8S_OUTPUTS=*.a
#K8S_MOUNT=/a:/b:ro
#K8S_ENV=A=b
#K8S_PULL_SECRET=a
#K8S_NODE_SELECTOR=a=b
#K8S_TOLERATION=a=b:NoSchedule
"""


def warm_up() -> None:
    """Make every call that imports at first use."""
    asyncio.run(_use_everything())


async def _use_everything() -> None:
    async with await asyncio.start_server(_answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        kube = client.KubeClient(kubeconfig.Access(server=f"http://127.0.0.1:{port}", token="none"))  # noqa: S106  # nobody's
        try:
            await kube.list(kinds.PODS)
            with contextlib.suppress(errors.KubeError):
                await kube.run(("true",), namespace="none", name="none", container="none")
            async for _ in kube.log(namespace="none", name="none", container="none"):
                pass
        finally:
            await kube.close()
    pods_of_scripts.pod_of(DIRECTIVES)
    submission = requests.Request(name="sbatch", words=(b"-n1", b"x"))
    job = outcomes.Job(id=0, release=(22, 5))
    commands.plan(submission, job, {b"x": DIRECTIVES})
    await asyncio.to_thread(str)
    await slurm_commands.run(("true",), slurm_conf="")


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(ANSWER)
    await writer.drain()
    writer.close()
