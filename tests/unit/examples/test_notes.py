"""The example controller is short, generic and correct."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from examples.notes import NotesController
from lcm.coordination.memory.client import MemoryCoordination
from lcm.wiring.controllers import ControllerRuntime
from lcm.wiring.up import UpSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def notes(folder: Path) -> AsyncIterator[tuple[NotesController, MemoryCoordination]]:
    coordination = MemoryCoordination()
    controller = NotesController(ControllerRuntime(coordination, UpSettings(lcm_data_dir=folder)))
    await controller.start()
    try:
        await asyncio.sleep(3)
        yield controller, coordination
    finally:
        await controller.stop()


def test_it_is_under_sixty_lines() -> None:
    assert len((Path(__file__).parents[3] / "examples" / "notes.py").read_text().splitlines()) < 60


async def test_files_follow_the_keys(tmp_path: Path) -> None:
    async with notes(tmp_path) as (controller, coordination):
        await coordination.put("/notes/hello", b"good evening")
        await asyncio.sleep(0.01)
        assert (controller.folder / "hello").read_bytes() == b"good evening"
        await coordination.delete("/notes/hello")
        await asyncio.sleep(1)
        assert not (controller.folder / "hello").exists()


async def test_a_changed_file_is_repaired_by_the_next_poll(tmp_path: Path) -> None:
    async with notes(tmp_path) as (controller, _):
        welcome = controller.folder / "welcome"
        expected = welcome.read_bytes()
        welcome.unlink()
        (controller.folder / "stranger").write_text("unexpected")
        await asyncio.sleep(31)
        assert welcome.read_bytes() == expected
        assert not (controller.folder / "stranger").exists()
