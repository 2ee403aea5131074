"""The recipe of the image, read by a linter."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from deploy.checks.conftest import DEPLOY, program
from tools import image_test

if TYPE_CHECKING:
    from pathlib import Path


def test_hadolint_has_nothing_to_say() -> None:
    run = subprocess.run(
        [program("hadolint"), str(DEPLOY / "Containerfile")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def steps() -> list[str]:
    """The commands that building the image runs, in order."""
    text = re.sub(r"\\\n", "", (DEPLOY / "Containerfile").read_text())
    return [line.removeprefix("RUN ") for line in text.splitlines() if line.startswith("RUN ")]


@pytest.mark.parametrize(
    ("release", "base", "accepted"),
    [
        ("", "python:3.13-slim", True),
        ("yes", "python:3.13-slim", False),
        ("yes", "python@sha512:0", False),
        ("yes", f"python:3.13-slim@sha256:{'0' * 64}", True),
    ],
)
def test_a_release_is_built_only_from_a_base_by_digest(release: str, base: str, accepted: bool) -> None:
    """The first step of the build, run by the shell that runs it there."""
    variables = {"RELEASE": release, "PYTHON": base, "PATH": "/usr/bin:/bin"}
    run = subprocess.run(["sh", "-c", steps()[0]], env=variables, capture_output=True, text=True, check=False)
    assert (run.returncode == 0) is accepted, run.stderr
    assert accepted or "--build-arg PYTHON=" in run.stderr


def test_nothing_that_installs_packages_stays_in_the_image() -> None:
    """Its second stage takes over only the environment, from which the first stage has removed pip and what builds."""
    text = (DEPLOY / "Containerfile").read_text()
    removed = {
        name
        for step in steps()
        for names in re.findall(r"pip uninstall --yes ([\w -]+)", step)
        for name in names.split()
    }
    assert {"pip", "hatchling"} <= removed
    assert re.findall(r"^COPY --from=build (\S+)", text, flags=re.MULTILINE) == ["/opt/lcm"]


def test_an_index_of_packages_is_silent_although_a_folder_has_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI leaves the test of the image out then: pip alone would be content with the folder."""
    (tmp_path / "pip-1.0-py3-none-any.whl").touch()
    monkeypatch.setattr(image_test, "REGISTRIES", {"PyPI": image_test.REGISTRIES["PyPI"]})
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    assert image_test.silent_registries() == ["PyPI"]
