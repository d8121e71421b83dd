"""`python -m penstock_lab.faultproxy`: started by the lab; runs until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import ssl
import urllib.parse
from pathlib import Path

from penstock.kube import kubeconfig
from penstock_lab.faultproxy import controlsocket, faultrules, messages, proxy

LOOPBACK = "127.0.0.1"


def main() -> None:
    parser = argparse.ArgumentParser(prog="penstock_lab.faultproxy", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="port on loopback")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="access to the real API")
    parser.add_argument("--tls-cert", type=Path, required=True)
    parser.add_argument("--tls-key", type=Path, required=True)
    parser.add_argument("--control", type=Path, required=True, help="unix socket for control requests")
    parser.add_argument("--seed", type=int, default=0, help="of the random generator that selects faults")
    asyncio.run(run(parser.parse_args()))


async def run(options: argparse.Namespace) -> None:
    """Serve clients and control requests until SIGTERM."""
    access = kubeconfig.load(options.kubeconfig)
    address = urllib.parse.urlsplit(access.server)
    port = address.port or (443 if access.tls else 80)
    upstream = proxy.Upstream(address.hostname or LOOPBACK, port, access.tls)
    serving = proxy.Proxy(upstream, faultrules.Faults(seed=options.seed))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(options.tls_cert, options.tls_key)
    os.umask(0o077)
    await asyncio.to_thread(options.control.unlink, missing_ok=True)
    orders = await asyncio.start_unix_server(controlsocket.Server(serving).serve, options.control)
    clients = await asyncio.start_server(
        serving.serve, LOOPBACK, options.port, ssl=tls, limit=messages.LARGEST_HEAD
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    for server in (orders, clients):
        server.close()


if __name__ == "__main__":
    main()
