"""Definitions: a version never changes, and what cannot be a topology is refused with a remedy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.definitions import (
    check_topology,
    read_definition,
    resolve_definition,
    set_definition_enabled,
)
from lcm.control_plane.records.kinds import AUDIT
from lcm.model.lablet.record import CreateDefinitionRequest, LabletDefinition, LabletRequirements
from lcm.model.problems import ProblemCode
from tests.support.records.lablet_records import ANNA, TOPOLOGY, LabletDesk


async def a_desk() -> LabletDesk:
    return await LabletDesk().open()


async def switch(desk: LabletDesk, definition_id: str, *, enabled: bool) -> LabletDefinition:
    return await desk.records.change(
        ANNA.actor, lambda change: set_definition_enabled(change, definition_id, enabled=enabled)
    )


async def test_a_version_is_kept_whole_and_the_same_again_is_no_change() -> None:
    desk = await a_desk()
    await desk.define(ports=("CON",), cpu_cores=2.5)
    commits = desk.commits
    assert await desk.define(ports=("CON",), cpu_cores=2.5) == "ospf@1"
    assert desk.commits == commits
    definition = await read_definition(desk.store, "ospf@1")
    assert (definition.topology, definition.created_by, definition.enabled) == (TOPOLOGY, "anna", True)
    assert definition.requirements == LabletRequirements(license=False, ports=("CON",), cpu_cores=2.5)
    assert [line["action"] for line in await desk.told(AUDIT, "ospf@1")] == ["definition_created"]


@pytest.mark.parametrize("change", [{"topology": TOPOLOGY + "\n"}, {"cpu_cores": 2}, {"ports": ("CON",)}])
async def test_a_version_never_changes(change: dict[str, Any]) -> None:
    desk = await a_desk()
    await desk.define()
    before = await read_definition(desk.store, "ospf@1")
    with pytest.raises(
        ProblemError, match="ospf@1 is there with other content, and a version never changes"
    ) as refused:
        await desk.define(**change)
    assert refused.value.code is ProblemCode.NAME_TAKEN
    assert await read_definition(desk.store, "ospf@1") == before
    assert await desk.define(version="2", **change) == "ospf@2"


async def test_a_name_alone_means_the_newest_that_is_enabled() -> None:
    desk = await a_desk()
    for version in ("2", "10", "1"):
        await desk.define(version=version)
        await asyncio.sleep(1)
    assert (await resolve_definition(desk.store, "ospf")).version == "1"
    await switch(desk, "ospf@1", enabled=False)
    assert (await resolve_definition(desk.store, "ospf")).version == "10"
    assert (await resolve_definition(desk.store, "ospf@1")).enabled is False
    for version in ("2", "10"):
        await switch(desk, f"ospf@{version}", enabled=False)
    with pytest.raises(ProblemError, match="no version of definition ospf is enabled") as refused:
        await resolve_definition(desk.store, "ospf")
    assert refused.value.code is ProblemCode.NOT_POSSIBLE_NOW
    await switch(desk, "ospf@2", enabled=True)
    assert (await resolve_definition(desk.store, "ospf")).version == "2"


async def test_lablets_of_a_disabled_version_stay_and_no_more_are_made() -> None:
    desk = await a_desk()
    await desk.define()
    lablet = await desk.make("ospf@1")
    switched = await switch(desk, "ospf@1", enabled=False)
    assert switched == await read_definition(desk.store, "ospf@1")
    assert await desk.lablet(lablet.id) == lablet
    with pytest.raises(ProblemError, match="disabled"):
        await desk.make("ospf@1")
    commits = desk.commits
    await switch(desk, "ospf@1", enabled=False)
    assert desk.commits == commits


@pytest.mark.parametrize("asked", ["nothing", "nothing@1"])
async def test_one_that_is_not_there_is_told_with_where_to_look(asked: str) -> None:
    desk = await a_desk()
    with pytest.raises(ProblemError, match=f"there is no definition {asked}; lcm definitions list"):
        await desk.make(asked)


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
        ("nodes: [n0]", "each of its nodes must be a mapping"),
        ("other: {nodes: [{id: n0}]}", "has no nodes"),
        ("? nodes\n: &a [{id: n0}]\nmore: [", "is not YAML"),
        ("nodes: [{a: " + "[" * 60 + "]" * 60 + "}]", "is nested deeper than 50 levels"),
        ("--- {nodes: [{id: n0}]}\n--- {nodes: [{id: n0}]}", "holds more than one document"),
        ("nodes:\n\t- {id: n0}", "is not YAML"),
    ],
)
async def test_what_cannot_be_a_topology_is_refused(text: str, why: str) -> None:
    with pytest.raises(ProblemError, match=f"^topology: {why}") as refused:
        await check_topology(text, ())
    assert refused.value.code is ProblemCode.INVALID


@pytest.mark.parametrize(
    "text", [TOPOLOGY, "{nodes: [{id: n0}, {id: n1}], links: []}", "links: [[a]]\nnodes: [{id: n0, nodes: 3}]"]
)
async def test_what_can_be_one_is_taken(text: str) -> None:
    await check_topology(text, ())


async def test_what_unfolds_to_much_more_than_it_is_takes_no_time() -> None:
    layers = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))
    await check_topology(f"a0: &a0 [x]\n{layers}\nnodes: [{{id: n0}}]", ())


async def test_others_have_their_turn_while_a_large_one_is_read() -> None:
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
    with pytest.raises(ProblemError, match=r"topology: \$\{CON_1\}, \$\{VNC\} is used, .*: add CON_1, VNC there"):
        await check_topology(used, ())
    with pytest.raises(ProblemError, match=r"topology: \$\{VNC\} is used"):
        await check_topology(used, ("CON_1",))
    await check_topology(used, ("VNC", "CON_1", "SPARE"))


@pytest.mark.parametrize(
    ("needs", "field"),
    [
        ({"cpu": 2}, "cpu is not known; there are cpu_cores"),
        ({"ports": ["A", "A"]}, "each name once"),
        ({"ports": ["lower"]}, "pattern"),
        ({"cml_version": "2.6"}, "must be comparisons"),
        ({"cpu_cores": -1}, "greater than or equal to 0"),
    ],
)
def test_needs_that_make_no_sense_are_refused(needs: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        CreateDefinitionRequest.model_validate(
            {"name": "ospf", "version": "1", "topology": TOPOLOGY, "requirements": needs}
        )
