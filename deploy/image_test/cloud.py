"""EC2 and CML servers for containers on an internal network: those of the tests, on all addresses of this container.

    python -m deploy.image_test.cloud 5000 3128

Worker controllers reach EC2 at the first port (AWS_ENDPOINT_URL) and CML servers through the proxy at the second
(CML_PROXY_URL).
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from datetime import timedelta
from urllib.parse import urlsplit

from lcm.core import clock
from tests.support.aws.conformance_aws import ACCOUNT, AwsBed
from tests.support.aws.credentials import dummy_credentials
from tests.support.real.cml_on_moto import Machines

_CHUNK = 65536


async def serve(ec2_port: int, proxy_port: int) -> None:
    """Serve until the process is ended."""
    cloud = AwsBed()
    cloud._add_image("cml-2.9.1", ACCOUNT, clock.now() - timedelta(days=1), "available")
    machines = Machines()
    await machines.open()
    async with (
        await forward(ec2_port, cloud.server.url),
        await forward(proxy_port, machines.proxy.url) as last,
    ):
        print("ready", flush=True)
        await last.serve_forever()


async def forward(port: int, url: str) -> asyncio.Server:
    """Connect every address of this container to a server on its loopback."""
    place = urlsplit(url)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(place.hostname, place.port)
            await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))
        writer.close()

    return await asyncio.start_server(accept, "0.0.0.0", port)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    with dummy_credentials():
        asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
