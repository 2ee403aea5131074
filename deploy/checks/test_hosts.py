"""Files for hosts without containers: the unit and the example of a balancer, read by systemd and haproxy."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from deploy.checks.conftest import DEPLOY, program
from docs.settings_page import SERVICES

if TYPE_CHECKING:
    from pathlib import Path

UNIT = DEPLOY / "systemd" / "lcm@.service"


@pytest.mark.parametrize("service", sorted(SERVICES.keys() - {"up", "controller"}))
def test_systemd_accepts_the_unit(tmp_path: Path, service: str) -> None:
    # The command and the settings are those of a host on which LCM is installed.
    lcm = tmp_path / "lcm"
    lcm.write_text("#!/bin/sh\n")
    lcm.chmod(0o755)
    text = UNIT.read_text(encoding="utf-8").replace("/opt/lcm/bin/lcm", str(lcm))
    (tmp_path / f"lcm@{service}.service").write_text(text, encoding="utf-8")
    run = subprocess.run(
        [program("systemd-analyze"), "verify", "--man=no", str(tmp_path / f"lcm@{service}.service")],
        capture_output=True,
        text=True,
        check=False,
        env={"SYSTEMD_LOG_LEVEL": "warning", "PATH": "/usr/bin:/bin"},
    )
    own = [line for line in (run.stdout + run.stderr).splitlines() if "lcm@" in line]
    assert (run.returncode, own) == (0, [])


def test_haproxy_accepts_the_example(tmp_path: Path) -> None:
    key, cert, pem = tmp_path / "key", tmp_path / "cert", tmp_path / "lcm.pem"
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=lcm", "-days", "2"]
    subprocess.run([*openssl, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    pem.write_text(cert.read_text() + key.read_text())
    text = (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8")
    file = tmp_path / "haproxy.cfg"
    file.write_text(re.sub("/etc/lcm/lcm.pem", str(pem), text), encoding="utf-8")
    run = subprocess.run([program("haproxy"), "-c", "-f", str(file)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "WARNING" not in run.stderr
