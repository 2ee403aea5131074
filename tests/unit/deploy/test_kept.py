"""What `make image-test` and `make drills` install once and both use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.image_test import downloads

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(downloads, "FOLDER", tmp_path)
    return tmp_path


def install(draft: Path) -> None:
    draft.mkdir()
    (draft / "begun").touch()


def test_two_runs_at_once_do_not_take_each_others_draft_away(folder: Path) -> None:
    def make(draft: Path) -> None:
        install(draft)
        downloads.kept("servers/shell", install)  # another run, while this one is half done
        (draft / "done").touch()

    path = downloads.kept("servers/shell", make)
    assert path == folder / "servers" / "shell"
    assert (path / "begun").exists()
    assert [each.name for each in folder.iterdir()] == ["servers"]


def test_what_failed_half_way_is_made_again() -> None:
    def fail(draft: Path) -> None:
        install(draft)
        raise downloads.CommandFailedError("no network")

    with pytest.raises(downloads.CommandFailedError):
        downloads.kept("servers/shell", fail)
    assert (downloads.kept("servers/shell", install) / "begun").exists()
