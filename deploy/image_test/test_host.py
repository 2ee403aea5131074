"""A host without containers, set up by the scripts that docs/operations.md quotes; here it is a container."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from deploy.image_test.downloads import BIN, FOLDER, ROOT, run, wheels
from deploy.image_test.engine import PYTHON_IMAGE

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.image_test.engine import Engine

pytestmark = pytest.mark.timeout(1800)

SHOW = """
for file in /etc/lcm/* /etc/systemd/system/lcm@.service; do stat -c '%n %a %U:%G' "$file"; done
as_lcm() { runuser -u lcm -- "$@"; }
as_lcm /opt/lcm/bin/lcm --version
sed 's/mongo.backup save "$COPY"/mongo.backup --help/' deploy/systemd/backup.sh > /tmp/backup.sh
bash /tmp/backup.sh 2>&1 || true
as_lcm cat /etc/lcm/lcm.key > /dev/null && echo "lcm reads its key"
as_lcm cat /etc/lcm/lcm.env 2> /dev/null || echo "lcm cannot read the tokens"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """What the script needs of a checkout: locks, wheel, unit, settings; and the certificates."""
    folder = tmp_path / "repository"
    (folder / "requirements").mkdir(parents=True)
    shutil.copy(ROOT / "requirements" / "deploy.txt", folder / "requirements")
    shutil.copytree(ROOT / "deploy" / "systemd", folder / "deploy" / "systemd")
    build = (BIN / "uv", "build", "--quiet", "--wheel", "--no-build-isolation", "--python", BIN / "python")
    run(*build, "--out-dir", folder / "dist")
    certificates = folder / "certificates"
    certificates.mkdir()
    run("env", "HOSTS=DNS:host", "bash", "-euo", "pipefail", ROOT / "deploy/drills/certificates.sh", cwd=certificates)
    return folder


def test_the_scripts_set_a_host_up(engine: Engine, repository: Path) -> None:
    scripts = ("package.sh", "switch.sh", "install.sh")
    steps = " && ".join(f"bash -euo pipefail deploy/systemd/{name}" for name in scripts)
    (wheel,) = (repository / "dist").glob("*.whl")
    script = f"mkdir -p /etc/systemd/system && VERSION={wheel.name.split('-')[1]} && export VERSION && {steps}{SHOW}"
    packages = ("-v", f"{wheels()}:/wheels:ro", "-v", f"{FOLDER}/pip.conf:/etc/pip.conf:ro")
    place = ("-v", f"{repository}:/repository:ro", "-w", "/repository", "-e", "CERTIFICATES=certificates")
    shown = engine.podman(
        "run", "--rm", "--network=none", *packages, *place, "--entrypoint", "bash", PYTHON_IMAGE, "-c", script
    ).splitlines()
    assert shown[-4].startswith("lcm ")
    assert shown[-3].startswith("usage: "), "the command of a backup is there"
    assert shown[-2:] == ["lcm reads its key", "lcm cannot read the tokens"]
    files = {line.split()[0].rpartition("/")[2]: line.split()[1:] for line in shown[:-4]}
    assert files.pop("lcm.key") == ["640", "root:lcm"]
    assert {name for name, (mode, _) in files.items() if mode == "600"} == {
        path.name for path in (ROOT / "deploy" / "systemd").glob("*.env")
    }
    assert {"ca.crt", "lcm.crt", "lcm@.service"} == {name for name, (mode, _) in files.items() if mode == "644"}
