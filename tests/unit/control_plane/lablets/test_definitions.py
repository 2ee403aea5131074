"""Definitions: a version never changes, and an invalid topology is rejected with a remedy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.definitions import read_definition, resolve_definition, set_definition_enabled
from lcm.control_plane.records.kinds import AUDIT
from lcm.model.lablet.record import CreateDefinitionRequest, LabletDefinition, LabletRequirements
from lcm.model.problems import ProblemCode
from tests.support.records.lablet_records import ANNA, TOPOLOGY, LabletDesk


async def a_desk() -> LabletDesk:
    return await LabletDesk().open()


async def switch(desk: LabletDesk, definition_id: str, *, enabled: bool) -> LabletDefinition:
    return await desk.unit_of_work.run(
        ANNA.actor, lambda tx: set_definition_enabled(tx, definition_id, enabled=enabled)
    )


async def test_a_version_is_stored_whole_and_adding_it_again_changes_nothing() -> None:
    desk = await a_desk()
    await desk.define(ports=("CON",), cpu_cores=2.5)
    commits = desk.commits
    assert await desk.define(ports=("CON",), cpu_cores=2.5) == "ospf@1"
    assert desk.commits == commits
    definition = await read_definition(desk.store, "ospf@1")
    assert (definition.topology, definition.created_by, definition.enabled) == (TOPOLOGY, "anna", True)
    assert definition.requirements == LabletRequirements(license=False, ports=("CON",), cpu_cores=2.5)
    assert [line["action"] for line in await desk.entries(AUDIT, "ospf@1")] == ["definition_created"]


@pytest.mark.parametrize("change", [{"topology": TOPOLOGY + "\n"}, {"cpu_cores": 2}, {"ports": ("CON",)}])
async def test_a_version_never_changes(change: dict[str, Any]) -> None:
    desk = await a_desk()
    await desk.define()
    before = await read_definition(desk.store, "ospf@1")
    with pytest.raises(ProblemError, match="ospf@1 exists with different content, and versions never change") as caught:
        await desk.define(**change)
    assert caught.value.code is ProblemCode.NAME_TAKEN
    assert await read_definition(desk.store, "ospf@1") == before
    assert await desk.define(version="2", **change) == "ospf@2"


async def test_a_name_alone_means_the_newest_that_is_enabled() -> None:
    desk = await a_desk()
    for version in ("2", "10", "1"):
        await desk.define(version=version)
        await asyncio.sleep(1)
    assert (await resolve_definition(desk.store, "ospf", ANNA.scope)).version == "1"
    await switch(desk, "ospf@1", enabled=False)
    assert (await resolve_definition(desk.store, "ospf", ANNA.scope)).version == "10"
    assert (await resolve_definition(desk.store, "ospf@1", ANNA.scope)).enabled is False
    for version in ("2", "10"):
        await switch(desk, f"ospf@{version}", enabled=False)
    with pytest.raises(ProblemError, match="no version of definition ospf is enabled") as caught:
        await resolve_definition(desk.store, "ospf", ANNA.scope)
    assert caught.value.code is ProblemCode.NOT_POSSIBLE_NOW
    await switch(desk, "ospf@2", enabled=True)
    assert (await resolve_definition(desk.store, "ospf", ANNA.scope)).version == "2"


async def test_lablets_of_a_disabled_version_stay_and_no_more_are_created() -> None:
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


@pytest.mark.parametrize("reference", ["nothing", "nothing@1"])
async def test_an_unknown_definition_is_rejected_with_a_hint(reference: str) -> None:
    desk = await a_desk()
    with pytest.raises(ProblemError, match=f"there is no definition {reference}; lcm definitions list"):
        await desk.make(reference)


@pytest.mark.parametrize(
    ("needs", "field"),
    [
        ({"cpu": 2}, "unknown: cpu; allowed are cpu_cores"),
        ({"ports": ["A", "A"]}, "names must be unique"),
        ({"ports": ["lower"]}, "pattern"),
        ({"cml_version": "2.6"}, "must be comparisons"),
        ({"cpu_cores": -1}, "greater than or equal to 0"),
    ],
)
def test_invalid_requirements_are_rejected(needs: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        CreateDefinitionRequest.model_validate(
            {"name": "ospf", "version": "1", "topology": TOPOLOGY, "requirements": needs}
        )
