"""What `make release` puts beside the package, with the real tool for the list of its parts."""

from __future__ import annotations

import json
import re
import subprocess
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
    assert release.main(["--dirty"]) == 0
    return tmp_path


def test_a_release_lists_every_package_that_an_installation_gets(dist: Path) -> None:
    locked = re.findall(r"^([\w.-]+)==(\S+)", Path("requirements/deploy.txt").read_text(), re.MULTILINE)
    components = json.loads((dist / "sbom.cdx.json").read_text())["components"]
    assert {(each["name"], each["version"]) for each in components} == set(locked)
    assert all(reference["hashes"] for each in components for reference in each["externalReferences"])


def test_the_checksums_of_a_release_are_of_all_its_files(dist: Path) -> None:
    listed = [line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()]
    assert listed == sorted(path.name for path in dist.iterdir() if path.name != "SHA256SUMS")


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=LCM", "-c", "user.email=lcm@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a commit."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / ".gitignore").write_text("dist/\n")
    (folder / "module.py").write_text("a = 1\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def test_a_release_of_a_commit_is_made(checkout: Path) -> None:
    (checkout / "dist").mkdir()
    (checkout / "dist" / "wheel").touch()
    release.check_tree(checkout)


@pytest.mark.parametrize("name", ["module.py", "new.py"])
def test_a_release_with_changes_that_no_commit_has_is_refused(checkout: Path, name: str) -> None:
    """A new file too: it would be in the wheel, and in no commit."""
    (checkout / name).write_text("a = 2\n")
    with pytest.raises(release.ReleaseError, match=rf"(?s){name}.*commit them.*DIRTY=yes"):
        release.check_tree(checkout)


def test_what_is_made_of_a_tree_with_changes_is_not_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release, "DIST", tmp_path)
    for step in ("build", "write_sbom", "write_checksums", "try_wheel"):
        monkeypatch.setattr(release, step, lambda *_: 0.0)
    assert release.main(["--dirty"]) == 0
    assert "do not publish it" in capsys.readouterr().out


def test_the_tree_is_checked_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise release.ReleaseError("the tree has changes")

    monkeypatch.setattr(release, "check_tree", refuse)
    monkeypatch.setattr(release, "build", lambda: pytest.fail("it was built"))
    assert release.main([]) == 1
    assert capsys.readouterr().err == "make release: the tree has changes\n"


def test_a_release_says_whether_its_commit_has_the_tag_of_the_version(checkout: Path) -> None:
    assert "git tag v1.0" in release.missing_tag(checkout, "1.0")
    git(checkout, "tag", "v1.0")
    assert release.missing_tag(checkout, "1.0") == ""
    git(checkout, "commit", "--quiet", "--allow-empty", "-m", "second")
    assert "another commit has the tag v1.0" in release.missing_tag(checkout, "1.0")
