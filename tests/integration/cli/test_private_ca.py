"""A private CA for everything, given once: etcd, the control plane, controllers and client commands."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from lcm.client.errors import ClientError, UntrustedCertificateError
from lcm.settings import SettingsError, load
from lcm.wiring.controllers import BuiltinControllerSettings, make_control_plane_client
from tests.support.servers.certificates import CertificateAuthority
from tests.support.servers.etcd import EtcdServer, free_ports
from tests.support.servers.processes import ROOT, LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADMIN, CONTROLLER = "a" * 32, "c" * 32


class PrivatePlane:
    """A control plane and its etcd, both with certificates that only one CA verifies."""

    def __init__(self, folder: Path) -> None:
        self.authority = CertificateAuthority(folder / "ca", "Private")
        self.ca_file = self.authority.ca_file
        self.etcd = EtcdServer(folder / "etcd", authority=self.authority)
        identity = self.authority.issue("plane")
        (port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{port}"
        settings = {
            "CONTROL_PLANE_PORT": str(port),
            "TLS_CERT_FILE": str(identity.cert_file),
            "TLS_KEY_FILE": str(identity.key_file),
            "LCM_CA_FILE": str(self.ca_file),
            "LCM_BOOTSTRAP_TOKEN": ADMIN,
            "LCM_CONTROLLER_TOKEN": CONTROLLER,
        }
        self.process = LcmProcess(folder, "plane", "control-plane", env=settings)

    def start(self) -> None:
        self.etcd.start()
        self.process.add_settings(ETCD_ENDPOINTS=self.etcd.client_url)
        self.process.start()
        wait_until(lambda: '"ready":true' in self.ready(), "the control plane is ready")

    def ready(self) -> str:
        context = ssl.create_default_context(cafile=self.ca_file)
        try:
            with urllib.request.urlopen(f"{self.url}/ready", context=context, timeout=30) as response:
                return str(response.read().decode())
        except OSError:
            return ""

    def lcm(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A client command."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LCM_", "SSL_"))}
        return subprocess.run(
            [sys.executable, "-m", "lcm", *arguments],
            cwd=ROOT,
            env={**kept, "LCM_URL": self.url, "LCM_TOKEN": ADMIN, "HOME": str(self.ca_file.parent), **env},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivatePlane]:
    made = PrivatePlane(tmp_path_factory.mktemp("private"))
    try:
        made.start()
        yield made
    finally:
        made.process.end()
        made.etcd.stop()


def test_the_control_plane_trusts_etcd(plane: PrivatePlane) -> None:
    wait_until(lambda: '"degraded":[]' in plane.ready(), "etcd is trusted by the CA that is given once")


def test_commands_trust_the_control_plane_only_with_the_ca(plane: PrivatePlane) -> None:
    trusted = plane.lcm("workers", "list", LCM_CA_FILE=str(plane.ca_file))
    assert (trusted.returncode, trusted.stderr) == (0, "")
    planned = plane.lcm("workers", "create", "one", "--template", "small", "--dry-run", LCM_CA_FILE=str(plane.ca_file))
    assert planned.returncode == 0, planned.stderr

    refused = plane.lcm("workers", "list")
    assert refused.returncode != 0
    assert f"the certificate of {plane.url} is not accepted" in refused.stderr
    assert "set LCM_CA_FILE to the file of that CA" in refused.stderr
    assert "no control plane responds" not in refused.stderr


@pytest.mark.parametrize("content", [None, "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_file_without_certificates_is_refused_by_name(
    plane: PrivatePlane, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    shown = plane.lcm("workers", "list", LCM_CA_FILE=str(file))
    assert shown.returncode != 0
    assert f"LCM_CA_FILE: {file} is not a readable file of CA certificates as PEM" in shown.stderr
    with pytest.raises(SettingsError, match=r"LCM_CA_FILE=.*must be a readable file of CA certificates as PEM"):
        load(BuiltinControllerSettings, env={"LCM_CA_FILE": str(file), "LCM_CONTROLLER_TOKEN": CONTROLLER})


async def test_a_controller_trusts_the_control_plane_only_with_the_ca(plane: PrivatePlane) -> None:
    env = {"CONTROL_PLANE_API_URL": plane.url, "LCM_CONTROLLER_TOKEN": CONTROLLER}
    trusting = load(BuiltinControllerSettings, env={**env, "LCM_CA_FILE": str(plane.ca_file)}).settings
    async with make_control_plane_client(trusting) as client:
        assert (await client.access.whoami()).role == "controller"
    async with make_control_plane_client(load(BuiltinControllerSettings, env=env).settings) as client:
        with pytest.raises(ClientError) as caught:
            await client.access.whoami()
    assert isinstance(caught.value, UntrustedCertificateError)
