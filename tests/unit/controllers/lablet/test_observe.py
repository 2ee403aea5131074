"""The small parts of the lablet controller, each on its own."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from lcm.client.errors import NotFoundError
from lcm.cml.types import Credentials, LabState, NodeAddress, NodeState
from lcm.controllers.common.accounts import CmlAccounts
from lcm.controllers.lablet.decide.decision import LabOperation
from lcm.controllers.lablet.deps import LabletControllerConfig
from lcm.controllers.lablet.lab_client import WorkerLabClient
from lcm.controllers.lablet.memory import IMPORT_GRACE_SECONDS, REPEAT_DELAY_SECONDS, LabletMemories
from lcm.controllers.lablet.observe import (
    MAX_CACHED_TOPOLOGIES,
    TopologyCache,
    node_endpoints,
    oldest_first,
    substitute_ports,
)
from lcm.core import clock
from lcm.model.lablet.record import LabletDefinition, NodeEndpoint
from lcm.model.worker.conditions import ConditionStatus
from tests.support.records.workers import NOW
from tests.support.virtual.fake_cml import FakeSecrets
from tests.unit.controllers.lablet.builders import a_lablet, a_ready_worker, ago, cml_ready_condition

ACCOUNT = Credentials("admin", "pw")


class Library:
    """Definitions by id."""

    def __init__(self, **topologies: str) -> None:
        self.topologies = topologies
        self.asked: list[str] = []

    async def definition(self, definition_id: str) -> LabletDefinition:
        self.asked.append(definition_id)
        name = definition_id.partition("@")[0]
        if name not in self.topologies:
            raise NotFoundError(404, "not_found", f"there is no {definition_id}")
        return LabletDefinition(
            id=definition_id,
            name=name,
            version="1",
            topology=self.topologies[name],
            created_at=NOW,
            created_by="anna",
        )


def test_ports_take_their_places() -> None:
    topology = "tags: [serial:${CONSOLE}, vnc:${VNC_1}]\nshell: ${HOME} ${console} $CONSOLE ${CONSOLE}"
    assert substitute_ports(topology, {"CONSOLE": 20001, "VNC_1": 20002}) == (
        "tags: [serial:20001, vnc:20002]\nshell: ${HOME} ${console} $CONSOLE 20001"
    )


async def test_a_topology_is_read_once_and_the_last_few_are_kept() -> None:
    library = Library(**{f"d{number}": f"lab {number} ${{P}}" for number in range(MAX_CACHED_TOPOLOGIES + 1)})
    topologies = TopologyCache(library)
    for _ in range(2):
        recipe = await topologies.recipe(a_lablet("INSTANTIATING", definition="d0@1", ports={"P": 7}))
        assert (recipe.topology, recipe.trouble) == ("lab 0 7", "")
    assert library.asked == ["d0@1"]
    for number in range(1, MAX_CACHED_TOPOLOGIES + 1):
        await topologies.recipe(a_lablet("INSTANTIATING", definition=f"d{number}@1"))
    await topologies.recipe(a_lablet("INSTANTIATING", definition="d0@1"))
    assert library.asked.count("d0@1") == 2


async def test_a_definition_that_is_not_there_will_not_come() -> None:
    recipe = await TopologyCache(Library()).recipe(a_lablet("INSTANTIATING"))
    assert (recipe.lasting, recipe.trouble) == (True, "there is no definition exercise@1")


def test_where_nodes_can_be_reached() -> None:
    nodes = [
        NodeState("n2", "sw", "unmanaged_switch", "BOOTED"),
        NodeState("n1", "host", "alpine", "BOOTED"),
        NodeState("n3", "a\x00b" + "x" * 200, "alpine", "STARTED"),
    ]
    addresses = [
        NodeAddress("n1", "eth1", "m2", ("10.0.0.9",), ("fe80::1",)),
        NodeAddress("n1", "eth0", "m1", ("10.0.0.1", "\x1b[31m", "1" * 65), ()),
        NodeAddress("gone", "eth0", "m3", ("10.0.0.7",), ()),
    ]
    strange, host, switch = node_endpoints(nodes, addresses)
    assert host == NodeEndpoint(node="host", addresses=("10.0.0.1", "10.0.0.9", "fe80::1"))
    assert switch == NodeEndpoint(node="sw")
    assert len(strange.node) == 128
    assert strange.node.isprintable()


def test_the_oldest_of_two_is_ours() -> None:
    def lab(lab_id: str, seconds: float | None) -> LabState:
        created = None if seconds is None else NOW + timedelta(seconds=seconds)
        return LabState(lab_id, "t", "STARTED", "m", None, 1, created)

    labs = [lab("c", None), lab("b", 5), lab("a", 5), lab("z", 1)]
    assert [each.id for each in oldest_first(labs)] == ["z", "a", "b", "c"]


async def test_an_import_of_a_former_leader_may_land_for_a_while() -> None:
    notes = LabletMemories()
    note = notes.of(a_lablet("INSTANTIATING"))
    assert note.import_may_complete
    await asyncio.sleep(IMPORT_GRACE_SECONDS)
    assert not note.import_may_complete
    assert not LabletMemories().of(a_lablet("INSTANTIATING", lab_id="lab-1")).import_may_complete
    assert not LabletMemories().of(a_lablet("SCHEDULED")).import_may_complete
    assert LabletMemories().of(a_lablet("STOPPING", lab_id=None)).import_may_complete


async def test_a_note_is_of_one_placement() -> None:
    notes = LabletMemories()
    first = notes.of(a_lablet("SCHEDULED"))
    assert notes.of(a_lablet("INSTANTIATING")) is first, "we wrote it ourselves, and have asked for nothing yet"
    assert not first.import_may_complete
    assert notes.of(a_lablet("SCHEDULED", placement_attempt=2)) is not first
    notes.keep_only([])
    assert notes.of(a_lablet("INSTANTIATING")).import_may_complete


async def test_what_cml_took_is_not_asked_again_at_once() -> None:
    note = LabletMemories().of(a_lablet("STOPPING"))
    note.refusal = "busy"
    note.took(LabOperation.STOP)
    assert (note.recent_operations, note.refusal) == (frozenset({"stop"}), "")
    await asyncio.sleep(REPEAT_DELAY_SECONDS + 1)
    assert note.recent_operations == frozenset()


def test_a_worker_in_trouble_stays_in_trouble_until_it_is_ready() -> None:
    note = LabletMemories().of(a_lablet("RUNNING"))
    assert note.update_unready_since(a_ready_worker(), NOW) is None
    silent = a_ready_worker(conditions=cml_ready_condition(ConditionStatus.FALSE, since=300))
    assert note.update_unready_since(silent, NOW) == ago(300)
    stopped = a_ready_worker(status="STOPPED", status_since=ago(20))
    assert note.update_unready_since(stopped, NOW) == ago(300), "one trouble after the other is one trouble"
    assert LabletMemories().of(a_lablet("RUNNING")).update_unready_since(stopped, NOW) == ago(20)
    assert note.update_unready_since(a_ready_worker(), NOW) is None


class Labs:
    """A labs client whose lists take a while."""

    def __init__(self) -> None:
        self.lists = 0
        self.labs: list[LabState] = []

    async def list_labs(self, _address: str, _account: Credentials) -> list[LabState]:
        self.lists += 1
        found = list(self.labs)
        await asyncio.sleep(10)
        return found


@pytest.fixture
async def servers() -> tuple[WorkerLabClient, Labs, list[str]]:
    forgotten: list[str] = []
    rules = LabletControllerConfig(ACCOUNT)
    accounts = CmlAccounts(FakeSecrets(), ACCOUNT)
    made = WorkerLabClient(None, accounts, rules.address_of, forgotten.append)  # type: ignore[arg-type]
    labs = Labs()
    made._labs = labs  # type: ignore[assignment]
    return made, labs, forgotten


async def test_a_list_that_began_before_it_was_asked_for_does_not_count(
    servers: tuple[WorkerLabClient, Labs, list[str]],
) -> None:
    """It may lack a lab that was made since: by such a list a second one would be made."""
    made, labs, _ = servers
    worker = a_ready_worker()
    early = [asyncio.create_task(made.labs(worker)) for _ in range(5)]
    await asyncio.sleep(5)
    labs.labs.append(LabState("new", "t", "STARTED", "m", None, 1))
    late = [asyncio.create_task(made.labs(worker)) for _ in range(5)]
    began = clock.boottime()
    assert [await task for task in early] == [()] * 5
    assert {tuple(lab.id for lab in await task) for task in late} == {("new",)}
    assert labs.lists == 2, "those who ask at once share a list"
    assert clock.boottime() - began == pytest.approx(15, abs=1)


async def test_nothing_of_one_machine_reaches_the_next_at_its_address(
    servers: tuple[WorkerLabClient, Labs, list[str]],
) -> None:
    made, _, forgotten = servers
    await made.labs(a_ready_worker())
    await made.labs(a_ready_worker())
    assert forgotten == []
    await made.labs(a_ready_worker(id="w-2", instance_id="i-2"))
    assert forgotten == ["192.0.2.7"]
