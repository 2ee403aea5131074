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
    folder = tmp_path / "dist"
    folder.mkdir()
    wheel = folder / "lcm_fleet-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    monkeypatch.setattr(release, "DIST", folder)
    monkeypatch.setattr(release, "build", lambda: wheel)
    monkeypatch.setattr(release, "try_wheel", lambda *_: 0.0)
    assert release.main(["--dirty"]) == 0
    return folder


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


def test_a_release_says_which_tag_to_make(checkout: Path) -> None:
    assert release.tag_advice(checkout, "1.0").endswith("when you publish it: git tag v1.0")
    git(checkout, "tag", "v1.0")
    assert release.tag_advice(checkout, "1.0") == "this commit has the tag v1.0"


def test_a_version_that_another_commit_has_is_refused(checkout: Path) -> None:
    release.check_tag(checkout, "1.0")
    git(checkout, "tag", "v1.0")
    release.check_tag(checkout, "1.0")
    git(checkout, "commit", "--quiet", "--allow-empty", "-m", "second")
    with pytest.raises(release.ReleaseError, match=r"another commit has the tag v1\.0: raise the version"):
        release.check_tag(checkout, "1.0")
    release.check_tag(checkout, "1.1")


@pytest.mark.parametrize("check", ["check_tree", "check_tag"])
def test_a_release_is_refused_before_anything_is_built(
    check: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise release.ReleaseError("for a reason")

    for each in ("check_tree", "check_tag"):
        monkeypatch.setattr(release, each, lambda *_: None)
    monkeypatch.setattr(release, check, refuse)
    monkeypatch.setattr(release, "build", lambda: pytest.fail("it was built"))
    assert release.main([]) == 1
    assert capsys.readouterr().err == "make release: for a reason\n"


# A release by whoever has the key

PAGE = (release.ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
WHO = "release@example.com"


def documented(start: str) -> str:
    """The command of deploy/README.md that begins so."""
    (command,) = re.findall(rf"^{re.escape(start)}.*$", PAGE, re.MULTILINE)
    return str(command)


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-ec", command], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key of a person, without a passphrase."""
    file = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", WHO, "-f", str(file)], check=True)
    return file


@pytest.fixture
def signed(dist: Path, key: Path) -> Path:
    release.write_checksums()
    release.sign(key)
    return dist


def verify(dist: Path, signer: Path) -> subprocess.CompletedProcess[str]:
    """What deploy/README.md tells those to do who get a release."""
    public = signer.with_suffix(".pub").read_text().rpartition(" ")[0]
    trust = documented("echo '").replace("ssh-ed25519 AAAA…", public)
    steps = " && ".join((trust, documented("ssh-keygen -Y verify"), documented("sha256sum --check")))
    return shell(steps, dist)


def test_a_signature_is_verified_as_the_page_says(signed: Path, key: Path) -> None:
    checked = verify(signed, key)
    assert checked.returncode == 0, checked.stderr
    assert f'Good "lcm-release" signature for {WHO}' in checked.stdout


@pytest.mark.parametrize("name", ["SHA256SUMS", "lcm_fleet-1.0-py3-none-any.whl"])
def test_a_file_that_was_changed_is_noticed(signed: Path, key: Path, name: str) -> None:
    with (signed / name).open("a") as file:
        file.write("changed\n")
    assert verify(signed, key).returncode != 0


def test_the_signature_of_somebody_else_is_not_accepted(signed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    assert verify(signed, other).returncode != 0


def test_a_trial_is_never_signed(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        release.main(["--dirty", "--key", str(key)])
    assert "a trial is not signed" in capsys.readouterr().err


def test_a_key_that_is_missing_is_noticed_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in ("check_tree", "check_tag"):
        monkeypatch.setattr(release, each, lambda *_: None)
    monkeypatch.setattr(release, "build", lambda: pytest.fail("it was built"))
    assert release.main(["--key", str(tmp_path / "my key")]) == 1
    assert "my key: KEY is the file of a key" in capsys.readouterr().err


def test_the_path_of_a_key_may_have_a_space() -> None:
    assert '--key "~/my key"' in shell("make --dry-run release KEY='~/my key'", release.ROOT).stdout


def test_with_a_key_the_tag_is_signed_too(checkout: Path, key: Path) -> None:
    command = release.tag_advice(checkout, "1.0", key).partition("when you publish it: ")[2]
    identity = "export GIT_COMMITTER_NAME=LCM GIT_COMMITTER_EMAIL=lcm@example.com"
    made = shell(f"{identity}; {command}", checkout)
    assert made.returncode == 0, made.stderr
    assert "BEGIN SSH SIGNATURE" in shell("git cat-file tag v1.0", checkout).stdout
