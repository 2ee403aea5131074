"""The poller process, which fetches and parses large pages outside the interpreter of the event loop.

`Poller` is the parent's side. It starts the process on first use and again after it died. A page in progress is then
lost and its sweep incomplete; the next sweep uses a new process. `main` is the process itself: it reads requests from
standard input and writes responses to standard output, one line of JSON each, and exits at the end of its input, so
that it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import os
import signal
import sys
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

from lcm.cloud import errors
from lcm.cloud.aws.clients import new_client, new_session, reading_within
from lcm.cloud.aws.config import RegionConfig, Tuning
from lcm.cloud.aws.error_mapping import is_throttling, outcome_label, translate_error
from lcm.cloud.aws.instances import INSTANCE_MEMBERS, InstancePage, instance_from_row, rows_from_response
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lcm.cloud.aws.gateway import AwsGateway
    from lcm.cloud.types import Instance


_MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_BACKOFF = 20.0
_EXIT_GRACE = 5.0
# Not `-m`: the package has imported the module by then, and Python would warn about it.
_COMMAND = (sys.executable, "-c", "from lcm.cloud.aws.poller import main; main()")


class Poller:
    """One process that fetches one page at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._number = 0

    @property
    def pid(self) -> int | None:
        """The process id, while the process exists."""
        return self._process.pid if self._process is not None else None

    async def page(self, gateway: AwsGateway, parameters: dict[str, Any]) -> InstancePage:
        """Fetch a page; the call has already waited for the rate limit."""
        async with self._turn:
            began, outcome = clock.boottime(), "cancelled"
            try:
                async with asyncio.timeout(page_timeout(gateway.tuning)):
                    page = await self._fetch(gateway, parameters)
                outcome = "ok"
            except TimeoutError:
                outcome = "unreachable"
                await self._end()
                raise errors.CloudUnreachableError(
                    f"{DESCRIBE_INSTANCES} in {gateway.region.region}: no response from the poller process",
                    operation=DESCRIBE_INSTANCES,
                ) from None
            except errors.CloudError as error:
                outcome = outcome_label(error)
                raise
            finally:
                gateway.metrics.ended(DESCRIBE_INSTANCES, outcome, clock.boottime() - began)
            return page

    async def _fetch(self, gateway: AwsGateway, parameters: dict[str, Any]) -> InstancePage:
        self._number += 1
        try:
            process = await self._running()
            assert process.stdin is not None
            process.stdin.write(request_line(self._number, gateway.region, gateway.tuning, parameters))
            await process.stdin.drain()
            return await self._read(process, gateway)
        except (OSError, asyncio.IncompleteReadError) as error:
            await self._end()
            raise errors.CloudUnreachableError(
                f"{DESCRIBE_INSTANCES} in {gateway.region.region}: the poller process died; the next sweep restarts it",
                operation=DESCRIBE_INSTANCES,
            ) from error

    async def _read(self, process: asyncio.subprocess.Process, gateway: AwsGateway) -> InstancePage:
        assert process.stdout is not None
        instances: list[Instance] = []
        while True:
            response = json.loads(await process.stdout.readuntil(b"\n"))
            if response["number"] != self._number:
                continue  # of a page whose caller was cancelled
            if "rows" in response:
                instances.extend(map(instance_from_row, response["rows"]))
                # Reading a buffered line does not yield to other tasks.
                await asyncio.sleep(0)
                continue
            if response["throttled"]:
                gateway.metrics.was_throttled(DESCRIBE_INSTANCES, response["throttled"])
            end = response["end"]
            if "error" in end:
                kind: type[errors.CloudError] = getattr(errors, end["error"])
                raise kind(end["message"], code=end["code"], operation=DESCRIBE_INSTANCES)
            return InstancePage(instances, end["next_token"])

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is not None:
            await self._end()
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *_COMMAND,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_MAX_LINE_BYTES,
            )
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await _reap(process)

    async def close(self) -> None:
        """End the process, by force if it does not exit in time."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_EXIT_GRACE):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
        await _reap(process)


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Wait for a process that exited or was killed, and read the remaining output, which closes the pipes."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    while await process.stdout.read(_MAX_LINE_BYTES):
        pass
    await process.wait()


def page_timeout(tuning: Tuning) -> float:
    """Longer than the slowest page that the process itself gives up."""
    return tuning.read_deadline + MAX_BACKOFF + _EXIT_GRACE


DESCRIBE_INSTANCES = "DescribeInstances"
# The parent parses this many rows in about a millisecond, and yields to other tasks after each line.
_ROWS_PER_LINE = 200


def request_line(number: int, region: RegionConfig, tuning: Tuning, parameters: dict[str, Any]) -> bytes:
    """Return the request line for one page."""
    region_text, tuning_text = region.model_dump_json(), json.dumps(dataclasses.asdict(tuning))
    request = {"number": number, "region": region_text, "tuning": tuning_text, "parameters": parameters}
    return json.dumps(request).encode() + b"\n"


class _ThrottleCounter:
    """Counts throttled responses, including those that botocore retries."""

    count = 0

    def check(self, response: Any, **_: Any) -> None:
        if response is not None and is_throttling(response[1]):
            self.count += 1


@cache
def _cached_client(region_text: str, tuning_text: str) -> tuple[Any, _ThrottleCounter]:
    region, tuning = RegionConfig.model_validate_json(region_text), Tuning(**json.loads(tuning_text))
    session = new_session(region, tuning)
    _trim_service_model(session)
    client = new_client(session, "ec2", region, tuning, mutating=False)
    throttling = _ThrottleCounter()
    client.meta.events.register(f"needs-retry.ec2.{DESCRIBE_INSTANCES}", throttling.check)
    gc.collect()
    gc.freeze()
    return client, throttling


def _trim_service_model(session: Any) -> None:
    """Remove unused members from the service model: parsing without them takes half the time."""
    shapes = session.get_component("data_loader").load_service_model("ec2", "service-2")["shapes"]
    members = shapes["Instance"]["members"]
    shapes["Instance"]["members"] = {name: shape for name, shape in members.items() if name in INSTANCE_MEMBERS}
    members = shapes["Reservation"]["members"]
    shapes["Reservation"]["members"] = {"Instances": members["Instances"]}


def _response_lines(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    number = request["number"]
    region = json.loads(request["region"])["region"]
    throttled, before = None, 0
    try:
        client, throttled = _cached_client(request["region"], request["tuning"])
        before = throttled.count
        with reading_within(json.loads(request["tuning"])["read_deadline"]):
            response = client.describe_instances(**request["parameters"])
    except Exception as error:  # noqa: BLE001 - any error is reported to the parent
        failure = translate_error(error, operation=DESCRIBE_INSTANCES, region=region, mutating=False)
        if isinstance(failure, errors.CloudAuthenticationError):
            _cached_client.cache_clear()  # the next page reads the credentials again
        end: dict[str, Any] = {"error": type(failure).__name__, "message": str(failure), "code": failure.code}
    else:
        rows = rows_from_response(response)
        while some := list(islice(rows, _ROWS_PER_LINE)):
            yield {"number": number, "rows": some}
        end = {"next_token": response.get("NextToken")}
    yield {"number": number, "end": end, "throttled": throttled.count - before if throttled else 0}


def serve_requests(requests: TextIO, responses: TextIO) -> None:
    """Respond to requests until the end of the input."""
    for line in requests:
        for response in _response_lines(json.loads(line)):
            responses.write(json.dumps(response, separators=(",", ":")) + "\n")
        responses.flush()
        gc.collect()  # between requests, when no response waits for it; see gc.disable below


def main() -> None:
    """Run the poller process. The parent handles Ctrl-C; this process exits at the end of its input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output printed by libraries must not get between the responses.
    responses = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    gc.disable()
    serve_requests(sys.stdin, responses)
