"""What a release consists of."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from tools import release

if TYPE_CHECKING:
    from pathlib import Path


def test_checksums_cover_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "DIST", tmp_path)
    (tmp_path / "b.whl").write_bytes(b"wheel")
    (tmp_path / "a.tar.gz").write_bytes(b"source")
    release.write_checksums()
    lines = release.write_checksums().read_text().splitlines()
    assert lines == [
        f"{hashlib.sha256(b'source').hexdigest()}  a.tar.gz",
        f"{hashlib.sha256(b'wheel').hexdigest()}  b.whl",
    ]


def test_a_missing_python_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(release.ReleaseError, match=r"no Python 3\.12"):
        release.find_python("3.12")


def test_a_failed_command_shows_its_output() -> None:
    with pytest.raises(release.ReleaseError, match="what went wrong"):
        release.run("sh", "-c", "echo what went wrong; exit 3")
