"""What `make release` puts beside the package, with the real tool for the list of its parts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools import release


@pytest.fixture
def dist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a release whose package is not built: that takes minutes."""
    wheel = tmp_path / "lcm_fleet-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    monkeypatch.setattr(release, "DIST", tmp_path)
    monkeypatch.setattr(release, "build", lambda: wheel)
    monkeypatch.setattr(release, "try_wheel", lambda *_: 0.0)
    assert release.main() == 0
    return tmp_path


def test_a_release_lists_every_package_that_an_installation_gets(dist: Path) -> None:
    locked = re.findall(r"^([\w.-]+)==(\S+)", Path("requirements/deploy.txt").read_text(), re.MULTILINE)
    components = json.loads((dist / "sbom.cdx.json").read_text())["components"]
    assert {(each["name"], each["version"]) for each in components} == set(locked)
    assert all(reference["hashes"] for each in components for reference in each["externalReferences"])


def test_the_checksums_of_a_release_are_of_all_its_files(dist: Path) -> None:
    listed = [line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()]
    assert listed == sorted(path.name for path in dist.iterdir() if path.name != "SHA256SUMS")
