"""The recipe of the image, read by a linter."""

from __future__ import annotations

import subprocess

from deploy.checks.conftest import DEPLOY, program


def test_hadolint_has_nothing_to_say() -> None:
    run = subprocess.run(
        [program("hadolint"), str(DEPLOY / "Containerfile")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
