"""Observation of labs: topologies, endpoints and copies."""

from __future__ import annotations

from datetime import timedelta

from lcm.client.errors import NotFoundError
from lcm.cml.types import LabState, NodeAddress, NodeState
from lcm.controllers.lablet.observe import MAX_CACHED_TOPOLOGIES, TopologyCache, node_endpoints, oldest_first
from lcm.model.lablet.record import LabletDefinition, NodeEndpoint
from tests.support.records.workers import NOW
from tests.unit.controllers.lablet.builders import a_lablet


class FakeDefinitions:
    """Definitions by id."""

    def __init__(self, **topologies: str) -> None:
        self.topologies = topologies
        self.requested: list[str] = []

    async def definition(self, definition_id: str) -> LabletDefinition:
        self.requested.append(definition_id)
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


async def test_the_latest_topologies_are_cached() -> None:
    definitions = FakeDefinitions(
        **{f"d{number}": f"lab {number} ${{P}}" for number in range(MAX_CACHED_TOPOLOGIES + 1)}
    )
    topologies = TopologyCache(definitions)
    for _ in range(2):
        topology = await topologies.resolve(a_lablet("INSTANTIATING", definition="d0@1", ports={"P": 7}))
        assert (topology.text, topology.error) == ("lab 0 7", "")
    assert definitions.requested == ["d0@1"]
    for number in range(1, MAX_CACHED_TOPOLOGIES + 1):
        await topologies.resolve(a_lablet("INSTANTIATING", definition=f"d{number}@1"))
    await topologies.resolve(a_lablet("INSTANTIATING", definition="d0@1"))
    assert definitions.requested.count("d0@1") == 2


async def test_a_missing_definition_is_a_permanent_error() -> None:
    topology = await TopologyCache(FakeDefinitions()).resolve(a_lablet("INSTANTIATING"))
    assert (topology.is_permanent, topology.error) == (True, "there is no definition exercise@1")


def test_node_endpoints() -> None:
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


def test_the_oldest_lab_comes_first() -> None:
    def lab(lab_id: str, seconds: float | None) -> LabState:
        created = None if seconds is None else NOW + timedelta(seconds=seconds)
        return LabState(lab_id, "t", "STARTED", "m", None, 1, created)

    labs = [lab("c", None), lab("b", 5), lab("a", 5), lab("z", 1)]
    assert [each.id for each in oldest_first(labs)] == ["z", "a", "b", "c"]
