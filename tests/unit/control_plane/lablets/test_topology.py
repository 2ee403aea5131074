"""Topologies: an invalid one is rejected with a remedy; tags of nodes are read without building the document."""

from __future__ import annotations

import asyncio

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.topology import check_topology, read_tagged_nodes
from lcm.model.problems import ProblemCode
from tests.support.records.lablet_records import TOPOLOGY


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no nodes"),
        ("- a list", "must be a mapping with a list of nodes"),
        ("just words", "must be a mapping"),
        ("lab: {version: 0.2.2}", "has no nodes"),
        ("nodes: 3", "nodes must be a list"),
        ("nodes: {n0: {}}", "nodes must be a list"),
        ("nodes: []", "has no nodes"),
        ("nodes: [n0]", "each node must be a mapping"),
        ("other: {nodes: [{id: n0}]}", "has no nodes"),
        ("? nodes\n: [{id: n0}]\nmore: [", "is not YAML"),
        ("nodes: [{a: " + "[" * 60 + "]" * 60 + "}]", "is nested deeper than 50 levels"),
        ("--- {nodes: [{id: n0}]}\n--- {nodes: [{id: n0}]}", "has more than one YAML document"),
        ("nodes:\n\t- {id: n0}", "is not YAML"),
        ("a: &a [1]\nnodes: [{id: n0}]", "uses YAML anchors or aliases"),
        ("nodes: [{id: n0}]\nb: *a", "uses YAML anchors or aliases"),
        ("nodes:\n" + "- {id: n}\n" * 10_001, "has 10001 nodes; at most 10000"),
    ],
)
async def test_an_invalid_topology_is_rejected(text: str, why: str) -> None:
    with pytest.raises(ProblemError, match=f"^topology: {why}") as caught:
        await check_topology(text, ())
    assert caught.value.code is ProblemCode.INVALID


@pytest.mark.parametrize(
    "text", [TOPOLOGY, "{nodes: [{id: n0}, {id: n1}], links: []}", "links: [[a]]\nnodes: [{id: n0, nodes: 3}]"]
)
async def test_a_valid_topology_is_accepted(text: str) -> None:
    await check_topology(text, ())


async def test_a_text_that_expands_to_a_huge_document_is_rejected() -> None:
    layers = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))
    with pytest.raises(ProblemError, match="uses YAML anchors or aliases"):
        await check_topology(f"a0: &a0 [x]\n{layers}\nnodes: [{{id: n0}}]", ())


async def test_the_loop_is_not_blocked_while_a_large_topology_is_read() -> None:
    many = "nodes:\n" + "".join(f"- {{id: n{number}, label: R{number}}}\n" for number in range(3000))
    reading, turns = asyncio.create_task(check_topology(many, ())), 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    await reading
    assert turns >= 10
    with pytest.raises(ProblemError, match="is not YAML"):
        await check_topology(many + "]", ())


async def test_ports_that_are_used_must_be_listed() -> None:
    used = TOPOLOGY + "x: ['serial:${CON_1}', 'vnc:${VNC}', '${lower} is a script\\'s own', '$PLAIN']\n".replace(
        "\\'", "''"
    )
    with pytest.raises(ProblemError, match=r"topology: \$\{CON_1\}, \$\{VNC\} is used but .*; add CON_1, VNC there"):
        await check_topology(used, ())
    with pytest.raises(ProblemError, match=r"topology: \$\{VNC\} is used"):
        await check_topology(used, ("CON_1",))
    await check_topology(used, ("VNC", "CON_1", "SPARE"))


async def test_nodes_with_tags_are_read_in_their_order() -> None:
    text = """
    lab: {version: 0.2.2, tags: ['serial:1']}
    nodes:
    - {tags: ['serial:${R1}', core], id: n0, label: r1, interfaces: [{id: i0, label: eth0, tags: ['vnc:3']}]}
    - {id: n1, label: r2}
    - {id: n2, tags: ['pat:${SSH}:22']}
    - {id: n3, label: empty, tags: []}
    links: [{id: l0, label: r1-r2, tags: ['serial:2']}]
    """
    nodes = await read_tagged_nodes(text)
    assert [(node.label, node.tags) for node in nodes] == [("r1", ["serial:${R1}", "core"]), ("n2", ["pat:${SSH}:22"])]


@pytest.mark.parametrize("text", ["nodes: [", "just words", "nodes: 3", "nodes: [n0]", "", "a: 1\n---\nb: 2"])
async def test_text_that_is_no_topology_has_no_tagged_nodes(text: str) -> None:
    assert await read_tagged_nodes(text) == ()
