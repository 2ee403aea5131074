"""The compose file on a busy host, and what it leaves behind."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deploy.checks.conftest import DEPLOY

if TYPE_CHECKING:
    from pathlib import Path

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
OURS = {name: each for name, each in SERVICES.items() if each["image"].startswith("lcm:")}
SLOW_HOST_SECONDS = 20
"""How long a shell such as mongosh may take to start on a busy host."""


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def test_the_image_is_built_once() -> None:
    assert [name for name, each in SERVICES.items() if "build" in each] == ["control-plane"]
    assert len({each["image"] for each in OURS.values()}) == 1


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_volume_without_a_name_remains(name: str) -> None:
    """A container gets such a volume for each VOLUME of its image on which nothing else is mounted."""
    recipe = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    of_mongo = ["/data/db", "/data/configdb"]  # as the official image of MongoDB declares them
    declared = re.findall(r"^VOLUME (\S+)$", recipe, re.MULTILINE) if name in OURS else []
    declared += of_mongo if name.startswith("mongo") else []
    service = SERVICES[name]
    covered = {*service.get("tmpfs", ()), *(each.split(":")[1] for each in service.get("volumes", ()))}
    assert set(declared) <= covered
    named = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["volumes"]
    sources = {each.split(":")[0] for each in service.get("volumes", ()) if not each.startswith("./")}
    assert sources <= named.keys()


@pytest.mark.parametrize("name", [name for name, each in SERVICES.items() if "healthcheck" in each])
def test_a_busy_host_is_not_mistaken_for_a_failure(name: str) -> None:
    """`up` gives up as soon as a service that others wait for is unhealthy."""
    check = SERVICES[name]["healthcheck"]
    if name.startswith("mongo"):
        assert seconds(check["timeout"]) >= SLOW_HOST_SECONDS
    assert seconds(check["start_period"]) >= 60
    assert check["retries"] * seconds(check["interval"]) >= 60


def test_every_service_that_others_wait_for_has_a_health_check() -> None:
    awaited = {
        needed
        for each in SERVICES.values()
        for needed, how in each.get("depends_on", {}).items()
        if how["condition"] == "service_healthy"
    }
    assert awaited
    assert all("healthcheck" in SERVICES[name] for name in awaited)


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_setting_that_the_file_does_not_name_can_be_given(name: str) -> None:
    assert {"path": "./lcm.env", "required": False} in OURS[name]["env_file"]


def test_each_worker_controller_is_reached_by_its_own_name() -> None:
    urls = {name: each["environment"].get("CML_READER_URL") for name, each in OURS.items()}
    assert {name: url for name, url in urls.items() if url} == {
        name: f"http://{name}:8083" for name in OURS if name.startswith("worker-controller")
    }


@pytest.mark.parametrize("file", ["aws.env", "lcm.env", "regions.yaml"])
def test_what_you_write_for_compose_is_not_committed(tmp_path: Path, file: str) -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    assert f"./{file}" in text
    shutil.copy(DEPLOY.parent / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    done = subprocess.run(["git", "check-ignore", f"deploy/{file}"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, f"deploy/{file} would be committed"
