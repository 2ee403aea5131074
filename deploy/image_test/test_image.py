"""The image itself: how large it is, what is in it, and what it says about itself."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from deploy.image_test.downloads import BIN, FOLDER, ROOT, CommandFailedError, run
from deploy.image_test.engine import IMAGE, PYTHON_IMAGE, wait_until

if TYPE_CHECKING:
    from deploy.image_test.engine import Engine

pytestmark = pytest.mark.timeout(1800)

MAX_MEGABYTES = 200
READ_ONLY = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--network=none")
BUILD_TOOLS = {"pip", "setuptools", "wheel", "hatchling", "editables", "pathspec", "pluggy", "trove-classifiers", "uv"}
LIST = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()), sep='\\n')"


def inspect(engine: Engine, image: str) -> dict[str, Any]:
    (found,) = json.loads(engine.podman("image", "inspect", image))
    return dict(found)


def distributions(engine: Engine) -> dict[str, str]:
    listed = engine.podman("run", "--rm", *READ_ONLY, "--entrypoint", "python", IMAGE, "-c", LIST).split()
    return {re.sub("[-_.]+", "-", name).lower(): version for name, version in (each.split("==") for each in listed)}


def test_it_is_small(engine: Engine) -> None:
    size, base = (inspect(engine, name)["Size"] / 1e6 for name in (IMAGE, PYTHON_IMAGE))
    print(f"\nimage: {size:.0f} MB, {size - base:.0f} MB more than its base")
    assert size - base <= MAX_MEGABYTES


def test_it_says_what_it_is(engine: Engine) -> None:
    found = inspect(engine, IMAGE)
    version = engine.podman("run", "--rm", *READ_ONLY, IMAGE, "--version").split()[1]
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in found["Labels"].items()}
    assert (labels["title"], labels["version"], labels["licenses"]) == ("LCM", version, "Apache-2.0")
    assert found["Config"]["User"] == "10001:10001"
    assert "/health" in " ".join(found["Healthcheck"]["Test"])


def test_it_has_nothing_to_build_or_install_with(engine: Engine) -> None:
    assert not distributions(engine).keys() & BUILD_TOOLS
    script = "ls /opt/lcm/bin; command -v gcc cc make git curl wget || true"
    programs = engine.podman("run", "--rm", *READ_ONLY, "--entrypoint", "sh", IMAGE, "-c", script).split()
    assert "lcm" in programs
    assert not set(programs) & {"pip", "pip3", "hatchling"}
    assert not [each for each in programs if each.startswith(("/usr", "/bin"))]


def test_the_sbom_lists_what_is_in_it(engine: Engine) -> None:
    file = FOLDER / "lcm-0.1.0.cdx.json"
    run(BIN / "cyclonedx-py", "requirements", ROOT / "requirements" / "deploy.txt", "--output-reproducible", "-o", file)
    listed = {
        re.sub("[-_.]+", "-", each["name"]).lower(): each["version"]
        for each in json.loads(file.read_text())["components"]
    }
    inside = distributions(engine)
    assert inside.pop("lcm-fleet")
    assert inside.items() <= listed.items()


def test_it_runs_read_only_as_another_user_and_stops_on_sigterm(engine: Engine) -> None:
    memory = ("--tmpfs=/tmp", "--tmpfs=/var/lib/lcm", "--env=LCM_DATA_DIR=/tmp/lcm")
    engine.podman("run", "-d", "--name", "trial", *READ_ONLY, *memory, IMAGE, "up", "--empty")
    try:

        def is_healthy() -> bool:
            try:
                engine.podman("healthcheck", "run", "trial")
            except CommandFailedError:
                return False
            return True

        seconds = wait_until(is_healthy, "the HEALTHCHECK of the image succeeds")
        print(f"\n`lcm up` in the image is healthy after {seconds:.0f} s")
        assert engine.podman("exec", "trial", "id", "-u").strip() == "10001"
        with pytest.raises(CommandFailedError, match="Read-only file system"):
            engine.podman("exec", "--user", "0", "trial", "touch", "/opt/lcm/changed")
        engine.podman("stop", "--time", "30", "trial")
        assert engine.podman("wait", "trial").strip() == "0"
    finally:
        engine.podman("rm", "--force", "--time", "1", "trial")
