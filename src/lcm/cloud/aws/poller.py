"""The parent's side of the poller process: ask for a page, get rows, notice a death.

The process is started when first needed and again after it died. A page that was under way then is lost, and the sweep
that wanted it is incomplete; the next one finds a new process.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lcm.cloud import errors
from lcm.cloud.aws.error_mapping import outcome_of
from lcm.cloud.aws.poller_process import OPERATION, request_line
from lcm.cloud.aws.rows import instance_of
from lcm.core import clock

if TYPE_CHECKING:
    from lcm.cloud.aws.config import Tuning
    from lcm.cloud.aws.gateway import Gateway
    from lcm.cloud.types import Instance

_LONGEST_LINE = 16 * 1024 * 1024
_LONGEST_BACKOFF = 20.0
_GRACE = 5.0
# Not `-m`: the package has imported the module by then, and Python would warn of it.
_COMMAND = (sys.executable, "-c", "from lcm.cloud.aws.poller_process import main; main()")


@dataclass(frozen=True, slots=True)
class Page:
    """A page's instances, and where the next one begins."""

    instances: list[Instance]
    next_token: str | None


class Poller:
    """One process, one page at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._number = 0

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return self._process.pid if self._process is not None else None

    async def page(self, gateway: Gateway, parameters: dict[str, Any]) -> Page:
        """Fetch a page that has been paid for."""
        async with self._turn:
            began, outcome = clock.boottime(), "cancelled"
            try:
                async with asyncio.timeout(_patience(gateway.tuning)):
                    page = await self._fetch(gateway, parameters)
                outcome = "ok"
            except TimeoutError:
                outcome = "unreachable"
                await self._end()
                raise errors.Unreachable(
                    f"{OPERATION} in {gateway.region.region}: no answer of the poller process", operation=OPERATION
                ) from None
            except errors.CloudError as error:
                outcome = outcome_of(error)
                raise
            finally:
                gateway.metrics.ended(OPERATION, outcome, clock.boottime() - began)
            return page

    async def _fetch(self, gateway: Gateway, parameters: dict[str, Any]) -> Page:
        self._number += 1
        try:
            process = await self._running()
            assert process.stdin is not None
            process.stdin.write(request_line(self._number, gateway.region, gateway.tuning, parameters))
            await process.stdin.drain()
            return await self._read(process, gateway)
        except (OSError, asyncio.IncompleteReadError) as error:
            await self._end()
            raise errors.Unreachable(
                f"{OPERATION} in {gateway.region.region}: the poller process ended; the next sweep starts another",
                operation=OPERATION,
            ) from error

    async def _read(self, process: asyncio.subprocess.Process, gateway: Gateway) -> Page:
        assert process.stdout is not None
        instances: list[Instance] = []
        while True:
            answer = json.loads(await process.stdout.readuntil(b"\n"))
            if answer["number"] != self._number:
                continue  # of a page that nobody waits for any more
            if "rows" in answer:
                instances.extend(map(instance_of, answer["rows"]))
                # Reading a line that is already here does not give others their turn.
                await asyncio.sleep(0)
                continue
            if answer["throttled"]:
                gateway.metrics.was_throttled(OPERATION, answer["throttled"])
            end = answer["end"]
            if "error" in end:
                kind: type[errors.CloudError] = getattr(errors, end["error"])
                raise kind(end["message"], code=end["code"], operation=OPERATION)
            return Page(instances, end["next_token"])

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is not None:
            await self._end()
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *_COMMAND,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LONGEST_LINE,
            )
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await _buried(process)

    async def close(self) -> None:
        """End the process, by force if it does not go by itself."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_GRACE):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
        await _buried(process)


async def _buried(process: asyncio.subprocess.Process) -> None:
    """Wait for a process that has ended or was killed, and read the rest, which closes the pipes."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    while await process.stdout.read(_LONGEST_LINE):
        pass
    await process.wait()


def _patience(tuning: Tuning) -> float:
    """Longer than the slowest page that botocore does not give up."""
    attempts = tuning.read_attempts * (tuning.connect_timeout + tuning.read_timeout)
    return attempts + (tuning.read_attempts - 1) * _LONGEST_BACKOFF + _GRACE
