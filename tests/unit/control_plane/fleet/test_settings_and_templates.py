"""Run-time settings, and templates with their seeding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.settings import patch_fleet_settings, read_fleet_settings
from lcm.control_plane.fleet.templates import put_template, read_template, seed_templates, set_template_enabled
from lcm.control_plane.records.kinds import AUDIT, TEMPLATES
from lcm.model.access import Role
from lcm.model.fleet.settings import FleetSettings, FleetSettingsPatch, ScalingSettings
from lcm.model.worker.template import DEFAULT_TEMPLATES
from tests.support.records.worker_records import ANNA, Desk
from tests.support.virtual.control_plane import serving_plane

if TYPE_CHECKING:
    from pathlib import Path

BASE = FleetSettings(scaling=ScalingSettings(min_workers=2))


async def patch(desk: Desk, **body: Any) -> FleetSettings:
    request = FleetSettingsPatch.model_validate(body)
    return await desk.unit_of_work.run(ANNA, lambda tx: patch_fleet_settings(tx, BASE, request))


async def test_a_stored_value_overrides_the_environment_until_it_is_reset(desk: Desk) -> None:
    assert (await read_fleet_settings(desk.store, BASE)).scaling.min_workers == 2
    assert (await patch(desk, scaling={"min_workers": 5})).scaling.min_workers == 5
    assert (await read_fleet_settings(desk.store, BASE)).scaling.min_workers == 5
    await patch(desk, scaling={"min_workers": None}, idle={"worker_idle_timeout_minutes": 1.5})
    now = await read_fleet_settings(desk.store, BASE)
    assert (now.scaling.min_workers, now.idle.worker_idle_timeout_minutes) == (2, 1.5)


async def test_the_preview_of_a_shorter_timeout_leaves_out_workers_that_an_open_window_keeps_up() -> None:
    ready = {"type": "CmlReady", "status": "True", "since": "2026-01-17T10:30:00Z"}
    settings = {"idle": {"worker_idle_timeout_minutes": 1, "worker_auto_pause_snooze_minutes": 0}}
    async with serving_plane() as plane:
        for name in ("alpha", "bravo"):
            await plane.report(await plane.running(name), "RUNNING", conditions=[ready])
        always = {"name": "always", "windows": ["daily 00:00-24:00"], "zone": "UTC", "selector": {"names": ["alpha"]}}
        assert (await plane.ask("POST", "/api/schedules", json=always)).status_code == 201
        preview = (await plane.ask("POST", "/api/settings/preview", role=Role.VIEWER, json=settings)).json()
    assert preview["effects"] == [
        "1 worker will be stopped within 5 minutes unless used: bravo. With the current settings: 0 workers."
    ]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"scaling": {"min_workers": -1}}, "scaling.min_workers"),
        ({"scaling": {"min_workers": "many"}}, "scaling.min_workers"),
        ({"idle": {"idle_action": "explode"}}, "idle.idle_action"),
        ({"idle": {"min_workers": 1}}, "idle.min_workers"),
        ({"scaling": {"min_workers": 1, "max_workers_per_region": "x"}}, "max_workers_per_region"),
    ],
)
async def test_one_invalid_value_rejects_the_whole_patch(desk: Desk, body: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        await patch(desk, **body)
    assert await read_fleet_settings(desk.store, BASE) == BASE


async def test_a_patch_is_audited_once_and_only_if_it_changes_something(desk: Desk) -> None:
    for _ in range(2):
        await patch(desk, scaling={"min_workers": 5})
    assert [line["action"] for line in await desk.entries(AUDIT)] == ["settings_changed"]


async def seed(desk: Desk, path: Path | None = None) -> int:
    return await desk.unit_of_work.run(ANNA, lambda tx: seed_templates(tx, path))


async def test_the_defaults_are_seeded_once_and_changes_of_people_stay(desk: Desk) -> None:
    assert await seed(desk) == 7
    cheaper = DEFAULT_TEMPLATES[0].model_copy(update={"cost_per_hour_usd": 0.001})
    await desk.unit_of_work.run(ANNA, lambda tx: put_template(tx, cheaper))
    assert await seed(desk) == 0
    assert (await read_template(desk.store, "micro")).cost_per_hour_usd == 0.001


GOOD = """
- name: tiny
  instance_type: t3.nano
  capacity: {cpu_cores: 1, memory_gb: 0.5, storage_gb: 8, max_nodes: 1}
  cost_per_hour_usd: 0.005
"""
BAD = """
- name: broken
  instance_type: t3.nano
  capacity: {cpu_cores: none}
  cost_per_hour_usd: 1
"""


async def test_a_bad_entry_is_reported_and_the_rest_loads(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "templates.yaml"
    path.write_text(BAD + GOOD)
    with capture_logs() as logs:
        assert await seed(desk, path) == 1
    assert (await read_template(desk.store, "tiny")).instance_type == "t3.nano"
    said = next(entry for entry in logs if entry["event"] == "invalid template skipped")
    assert (said["entry"], said["name"], said["field"]) == (1, "broken", "capacity.cpu_cores")


@pytest.mark.parametrize("content", ["{", "just text", "templates: 7"])
async def test_a_file_that_is_no_list_is_reported(desk: Desk, tmp_path: Path, content: str) -> None:
    path = tmp_path / "templates.yaml"
    path.write_text(content)
    with capture_logs() as logs:
        assert await seed(desk, path) == 0
    assert str(path) in str(logs)


async def test_a_template_is_switched_and_an_unknown_one_is_not_found(desk: Desk) -> None:
    await seed(desk)
    off = await desk.unit_of_work.run(ANNA, lambda tx: set_template_enabled(tx, "metal", enabled=False))
    assert not off.enabled
    assert not (await read_template(desk.store, "metal")).enabled
    assert len((await desk.store.find(TEMPLATES)).items) == 7
    with pytest.raises(ProblemError, match="no template nope"):
        await desk.unit_of_work.run(ANNA, lambda tx: set_template_enabled(tx, "nope", enabled=True))
