"""The process that fetches and parses large pages, so that the event loop's interpreter does not have to.

It reads requests from its standard input and writes answers to its standard output, one line of JSON each, and ends
with its input: however its parent goes, it does not stay behind.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import signal
import sys
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

from lcm.cloud.aws.clients import new_client, new_session
from lcm.cloud.aws.config import RegionConfig, Tuning
from lcm.cloud.aws.error_mapping import is_throttling, translate
from lcm.cloud.aws.rows import MEMBERS, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

OPERATION = "DescribeInstances"
# So many rows are read in about a millisecond: the reader lets others have their turn after each line.
_ROWS_A_LINE = 200


def request_line(number: int, region: RegionConfig, tuning: Tuning, parameters: dict[str, Any]) -> bytes:
    """What the parent writes for one page."""
    region_text, tuning_text = region.model_dump_json(), json.dumps(dataclasses.asdict(tuning))
    request = {"number": number, "region": region_text, "tuning": tuning_text, "parameters": parameters}
    return json.dumps(request).encode() + b"\n"


class _Throttling:
    """Counts throttled replies, also those that botocore answers by trying again."""

    count = 0

    def look(self, response: Any, **_: Any) -> None:
        if response is not None and is_throttling(response[1]):
            self.count += 1


@cache
def _client(region_text: str, tuning_text: str) -> tuple[Any, _Throttling]:
    region, tuning = RegionConfig.model_validate_json(region_text), Tuning(**json.loads(tuning_text))
    session = new_session(region, tuning)
    _read_only_what_is_used(session)
    client = new_client(session, "ec2", region, tuning, mutating=False)
    throttling = _Throttling()
    client.meta.events.register(f"needs-retry.ec2.{OPERATION}", throttling.look)
    gc.collect()
    gc.freeze()
    return client, throttling


def _read_only_what_is_used(session: Any) -> None:
    """Most of an instance's description is nobody's business here: parsing without it takes half the time."""
    shapes = session.get_component("data_loader").load_service_model("ec2", "service-2")["shapes"]
    members = shapes["Instance"]["members"]
    shapes["Instance"]["members"] = {name: shape for name, shape in members.items() if name in MEMBERS}
    members = shapes["Reservation"]["members"]
    shapes["Reservation"]["members"] = {"Instances": members["Instances"]}


def _answer(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    number = request["number"]
    region = json.loads(request["region"])["region"]
    throttled, before = None, 0
    try:
        client, throttled = _client(request["region"], request["tuning"])
        before = throttled.count
        answer = client.describe_instances(**request["parameters"])
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent must hear of it
        failure = translate(error, operation=OPERATION, region=region, mutating=False)
        end: dict[str, Any] = {"error": type(failure).__name__, "message": str(failure), "code": failure.code}
    else:
        rows = rows_of(answer)
        while some := list(islice(rows, _ROWS_A_LINE)):
            yield {"number": number, "rows": some}
        end = {"next_token": answer.get("NextToken")}
    yield {"number": number, "end": end, "throttled": throttled.count - before if throttled else 0}


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer until there are no more requests."""
    for line in requests:
        for answer in _answer(json.loads(line)):
            answers.write(json.dumps(answer, separators=(",", ":")) + "\n")
        answers.flush()
        gc.collect()


def main() -> None:
    """A terminal's interrupt is the parent's to handle; this process ends when its input does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever a library may print must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    gc.disable()
    serve(sys.stdin, answers)
