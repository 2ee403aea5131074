"""Files for hosts without containers: the unit and the examples of balancers, read by systemd and haproxy."""

from __future__ import annotations

import re
import subprocess
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from deploy.checks.conftest import DEPLOY, program
from docs.settings_page import SERVICES
from lcm.settings import describe, load
from tests.support.servers.etcd import free_ports
from tests.support.servers.processes import wait_until

if TYPE_CHECKING:
    from pathlib import Path

UNIT = DEPLOY / "systemd" / "lcm@.service"
_OPENSSL = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes")
SELF_SIGNED = (*_OPENSSL, "-subj", "/CN=lcm", "-days", "2")


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


def settings_in(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("# "))


@pytest.mark.parametrize("service", sorted(SERVICES.keys() - {"up", "controller"}))
def test_the_settings_of_each_unit_are_those_of_its_service(tmp_path: Path, service: str) -> None:
    shared, own = settings_in(UNIT.with_name("lcm.env")), UNIT.with_name(f"{service}.env")
    named = {doc.variable for each in SERVICES.values() for doc in describe(each)}
    assert {name.removeprefix("#") for name in shared} <= named
    given = {name: value for name, value in shared.items() if not name.startswith("#")}
    if own.exists():
        variables = {doc.variable for doc in describe(SERVICES[service])}
        assert {name.removeprefix("#") for name in settings_in(own)} <= variables | {"FORWARDED_ALLOW_IPS"}
        given |= {name: value for name, value in settings_in(own).items() if not name.startswith("#")}
    # What the files leave empty, and where the certificates are.
    entered = {"LCM_CONTROLLER_TOKEN": "c" * 32, "LCM_BOOTSTRAP_TOKEN": "b" * 32, "LCM_SECRET_KEY": "a" * 43 + "="}
    certificate = tmp_path / "ca.crt"
    subprocess.run(
        [*SELF_SIGNED, "-keyout", str(tmp_path / "key"), "-out", str(certificate)], check=True, capture_output=True
    )
    files = {name: str(certificate) for name in given if name.endswith("_FILE")}
    load(SERVICES[service], env={**given, **entered, **files})


def test_whatever_stops_a_service_waits_until_it_has_ended() -> None:
    """It finishes requests for SHUTDOWN_SECONDS, then hands leadership over: as the chart counts, 10 s more."""
    (setting,) = [doc for doc in describe(SERVICES["control-plane"]) if doc.variable == "SHUTDOWN_SECONDS"]
    unit = UNIT.read_text(encoding="utf-8")
    compose = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    limits = {
        "TimeoutStopSec": (unit, r"^TimeoutStopSec=(\d+)$"),
        "stop_grace_period": (compose, r"^  stop_grace_period: (\d+)s$"),
    }
    for name, (text, pattern) in limits.items():
        (seconds,) = re.findall(pattern, text, re.MULTILINE)
        most = int(seconds) - 10
        assert float(setting.default or 0) <= most, name
        assert f"# SHUTDOWN_SECONDS (at most {most}) and 10 s" in text, name
        assert f"`{name}`" in setting.description


BALANCER, FOR_CONTROLLERS = DEPLOY / "haproxy.cfg", UNIT.with_name("haproxy.cfg")


@pytest.mark.parametrize("files", [[BALANCER], [FOR_CONTROLLERS], [BALANCER, FOR_CONTROLLERS]])
def test_haproxy_accepts_the_examples_alone_and_together(tmp_path: Path, files: list[Path]) -> None:
    key, cert, pem = tmp_path / "key", tmp_path / "cert", tmp_path / "server.pem"
    subprocess.run([*SELF_SIGNED, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    pem.write_text(cert.read_text() + key.read_text())
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    file = tmp_path / "haproxy.cfg"
    file.write_text(text.replace("/etc/lcm/server.pem", str(pem)), encoding="utf-8")
    run = subprocess.run([program("haproxy"), "-c", "-f", str(file)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "WARNING" not in run.stderr


def test_what_is_the_same_on_all_hosts_depends_on_none_of_them() -> None:
    """Copied to every host, an address of one would be what all controllers depend on."""
    hosts = set(re.findall(r"^  server \S+ ([\d.]+):", FOR_CONTROLLERS.read_text(encoding="utf-8"), re.MULTILINE))
    assert settings_in(UNIT.with_name("control-plane.env"))["BIND_HOST"] in hosts
    for file in UNIT.parent.glob("*.env"):
        if file.name != "control-plane.env":
            named = {
                name
                for name, value in settings_in(file).items()
                if not name.startswith("#") and any(host in value for host in hosts)
            }
            assert named == set(), file.name
    (address,) = re.findall(r"^  bind (\S+)$", FOR_CONTROLLERS.read_text(encoding="utf-8"), re.MULTILINE)
    assert settings_in(UNIT.with_name("lcm.env"))["CONTROL_PLANE_API_URL"] == f"http://{address}"


def test_controllers_reach_the_control_plane_that_is_left(tmp_path: Path) -> None:
    """One does not respond from the start: no request may fail, not even before its first check has."""

    class Plane(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

    here, gone = free_ports(2)
    text = FOR_CONTROLLERS.read_text(encoding="utf-8")
    text = text.replace("127.0.0.1:8090", f"127.0.0.1:{here}").replace("10.0.0.11:8080", f"127.0.0.1:{gone}")
    with ThreadingHTTPServer(("127.0.0.1", 0), Plane) as plane:
        threading.Thread(target=plane.serve_forever, daemon=True).start()
        file = tmp_path / "haproxy.cfg"
        file.write_text(text.replace("10.0.0.12:8080", f"127.0.0.1:{plane.server_port}"), encoding="utf-8")
        with (tmp_path / "log").open("wb") as log:
            haproxy = subprocess.Popen([program("haproxy"), "-f", str(file)], stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{here}/api/internal/workers"
            wait_until(lambda: status(url) is not None, "haproxy listens")
            answers = [status(url, body) for _ in range(5) for body in (None, b"{}")]
        finally:
            haproxy.terminate()
            haproxy.wait()
            plane.shutdown()
    assert answers == [200] * 10, (tmp_path / "log").read_text()


def status(url: str, body: bytes | None = None) -> int | None:
    """The status of a response; None: nobody listens."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


@pytest.mark.parametrize("quote", ["", '"', "'"])
def test_a_backup_on_a_host_reads_the_address_as_systemd_does(tmp_path: Path, quote: str) -> None:
    """Beside settings with spaces, as sign-in.md shows them: env would take the second word of one for the command."""
    url = "mongodb://lcm:secret@a,b,c/?replicaSet=lcm&tls=true"
    (tmp_path / "lcm.env").write_text(
        f"# The CA.\nLCM_CA_FILE={quote}/etc/lcm/ca.crt{quote} \nLCM_CONTROLLER_TOKEN=a b\n"
    )
    (tmp_path / "control-plane.env").write_text(
        f'STORE_URL={quote}{url}{quote}\nOIDC_ROLE_MAP={{"staff": "operator"}}\n'
    )
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$STORE_URL $LCM_CA_FILE $*"\n')
    python.chmod(0o755)
    script = UNIT.with_name("backup.sh").read_text(encoding="utf-8")
    here = script.replace("/etc/lcm/", f"{tmp_path}/").replace("/opt/lcm/bin/python", str(python))
    done = subprocess.run(
        ["bash", "-euc", here],
        env={"PATH": "/usr/bin:/bin", "COPY": "copy"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{url} /etc/lcm/ca.crt -m lcm.control_plane.store.mongo.backup save copy\n", done.stderr


PIP = """#!/bin/bash
echo "$0 $*" >> "$ROOT/pip.log"
if [[ "$*" == *"${FAILS:-nothing}"* ]]; then ${ENDS:-false} "$SHELL_ID"; exit; fi
if [[ "$*" == *.whl ]]; then printf '#!/bin/sh\\n' > "${0%pip}lcm" && chmod +x "${0%pip}lcm"; fi
"""
"""It installs nothing but the command, and with FAILS it fails; with ENDS its shell ends too."""
PROGRAMS = {
    "python3": 'mkdir -p "$3/bin" && cd "$3/bin" && echo "$PIP" > pip && chmod +x pip && test "${FAILS:-}" != venv\n',
    "useradd": "",
    # The group lcm is not there.
    "install": 'exec /usr/bin/install "${@/#lcm/$(id -g)}"\n',
}


def on_a_host(
    script: str, root: Path, *, options: str = "-euo pipefail", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a script of deploy/systemd, with /opt and /etc in a folder."""
    programs = root / "programs"
    programs.mkdir(exist_ok=True)
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}")
        (programs / name).chmod(0o755)
    text = UNIT.with_name(script).read_text(encoding="utf-8")
    text = text.replace("/opt/", f"{root}/").replace(" /etc/", f" {root}/etc/")
    return subprocess.run(
        ["bash", *options.split(), "-c", f"export SHELL_ID=$$\n{text}"],
        cwd=root,
        env={"PATH": f"{programs}:/usr/bin:/bin", "ROOT": str(root), "PIP": PIP, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_upgrade_of_a_host_leaves_the_running_version_and_leads_back(tmp_path: Path) -> None:
    """Controllers of the old version start pollers from its files until they are restarted themselves."""
    lcm, dist = tmp_path / "lcm", tmp_path / "dist"
    dist.mkdir()
    for version in ("1.0", "1.1"):
        for wheel in dist.iterdir():
            wheel.unlink()
        (dist / f"lcm_fleet-{version}-py3-none-any.whl").touch()
        (tmp_path / "pip.log").write_text("")
        done = on_a_host("package.sh", tmp_path)
        assert done.returncode == 0, done.stderr
        used = {line.split()[0] for line in (tmp_path / "pip.log").read_text().splitlines()}
        assert used == {f"{tmp_path}/lcm-{version}/bin/pip"}
        assert not lcm.exists() if version == "1.0" else lcm.resolve().name == "lcm-1.0"
        done = on_a_host("switch.sh", tmp_path, VERSION=version)
        assert (done.returncode, lcm.resolve().name) == (0, f"lcm-{version}"), done.stderr
    (tmp_path / "pip.log").write_text("")
    assert on_a_host("package.sh", tmp_path).returncode != 0, "a version that may run is not replaced"
    assert (tmp_path / "pip.log").read_text() == ""
    assert on_a_host("switch.sh", tmp_path, VERSION="1.2").returncode != 0, "this version is not there"
    assert on_a_host("switch.sh", tmp_path, VERSION="1.0").returncode == 0
    assert lcm.resolve().name == "lcm-1.0"


# People paste the commands into a shell that goes on after an error.
SHELLS = pytest.mark.parametrize("options", ["-euo pipefail", "-u"], ids=["script", "pasted"])


def put_wheel(root: Path) -> None:
    (root / "dist").mkdir()
    (root / "dist" / "lcm_fleet-1.0-py3-none-any.whl").touch()


@SHELLS
@pytest.mark.parametrize("step", ["venv", "requirements/deploy.txt", ".whl"])
def test_a_package_that_was_not_installed_leaves_nothing_and_the_next_run_works(
    tmp_path: Path, step: str, options: str
) -> None:
    put_wheel(tmp_path)
    assert on_a_host("package.sh", tmp_path, options=options, FAILS=step).returncode != 0
    assert not (tmp_path / "lcm-1.0").exists()
    done = on_a_host("package.sh", tmp_path, options=options)
    assert (done.returncode, (tmp_path / "lcm-1.0" / "bin" / "lcm").exists()) == (0, True), done.stderr


@SHELLS
def test_half_a_package_is_not_started_and_is_replaced(tmp_path: Path, options: str) -> None:
    """Its shell was killed, or it is of an earlier version, which left the folder."""
    put_wheel(tmp_path)
    assert on_a_host("package.sh", tmp_path, options=options, FAILS=".whl", ENDS="kill -9").returncode == -9
    (tmp_path / "lcm-1.0" / "half").touch()
    done = on_a_host("switch.sh", tmp_path, options=options, VERSION="1.0")
    assert (done.returncode, (tmp_path / "lcm").is_symlink()) == (1, False)
    assert "package.sh" in done.stderr, "it says what to do"
    done = on_a_host("package.sh", tmp_path, options=options)
    assert (done.returncode, (tmp_path / "lcm-1.0" / "half").exists()) == (0, False), done.stderr
    assert on_a_host("switch.sh", tmp_path, options=options, VERSION="1.0").returncode == 0


@SHELLS
def test_a_whole_package_stays_as_it_is_whatever_fails(tmp_path: Path, options: str) -> None:
    put_wheel(tmp_path)
    assert on_a_host("package.sh", tmp_path, options=options).returncode == 0
    (tmp_path / "lcm-1.0" / "runs").touch()
    for step in ("venv", "whl", "nothing"):
        done = on_a_host("package.sh", tmp_path, options=options, FAILS=step)
        assert done.returncode != 0
        assert "lcm-1.0 is installed" in done.stderr
    assert (tmp_path / "lcm-1.0" / "runs").exists()
    assert (tmp_path / "lcm-1.0" / "bin" / "lcm").exists()


PAGE = (DEPLOY.parent / "docs" / "operations.md").read_text(encoding="utf-8")


def host_to_install(root: Path) -> Path:
    """The file of haproxy on a host that is being set up, with what install.sh needs beside it."""
    (root / "deploy").symlink_to(DEPLOY)
    (root / "etc" / "systemd" / "system").mkdir(parents=True)
    certificates = root / "certificates"
    certificates.mkdir()
    for name in ("ca.crt", "lcm.crt", "lcm.key"):
        (certificates / name).touch()
    return root / "etc" / "haproxy" / "haproxy.cfg"


def test_setting_a_host_up_keeps_the_configuration_that_haproxy_had(tmp_path: Path) -> None:
    """A host that also balances for people has one; the page says how both become one file."""
    file = host_to_install(tmp_path)
    file.parent.mkdir()
    people = BALANCER.read_text(encoding="utf-8")
    file.write_text(people, encoding="utf-8")
    done = on_a_host("install.sh", tmp_path, CERTIFICATES="certificates")
    assert done.returncode == 0, done.stderr
    own = FOR_CONTROLLERS.read_text(encoding="utf-8")
    assert file.read_text(encoding="utf-8") == own
    assert file.with_name("haproxy.cfg.~1~").read_text(encoding="utf-8") == people
    (line,) = re.findall(r"`(cat /etc/haproxy/haproxy\.cfg\.~1~ [^`]+)`", PAGE)
    subprocess.run(["bash", "-euc", line.replace("/etc/", f"{tmp_path}/etc/")], cwd=tmp_path, check=True)
    assert file.read_text(encoding="utf-8") == people + own


def test_setting_a_host_up_twice_loses_no_addresses(tmp_path: Path) -> None:
    file = host_to_install(tmp_path)
    for entered in ("first", "second"):
        done = on_a_host("install.sh", tmp_path, CERTIFICATES="certificates")
        assert done.returncode == 0, done.stderr
        file.write_text(entered)
    on_a_host("install.sh", tmp_path, CERTIFICATES="certificates")
    kept = {path.name: path.read_text() for path in file.parent.glob("haproxy.cfg.*")}
    assert kept == {"haproxy.cfg.~1~": "first", "haproxy.cfg.~2~": "second"}


def test_a_site_of_an_earlier_version_has_one_line_for_the_haproxy_of_its_controllers(tmp_path: Path) -> None:
    file = host_to_install(tmp_path)
    file.parent.mkdir()
    file.write_text(BALANCER.read_text(encoding="utf-8"), encoding="utf-8")
    upgrading = PAGE.partition("\n## Upgrading\n")[2].partition("\n## ")[0]
    (line,) = re.findall(r"`(\S[^`]* /etc/haproxy/haproxy\.cfg)`", upgrading)
    subprocess.run(["bash", "-euc", line.replace("/etc/", f"{tmp_path}/etc/")], cwd=tmp_path, check=True)
    assert file.read_text(encoding="utf-8") == "".join(
        path.read_text(encoding="utf-8") for path in (BALANCER, FOR_CONTROLLERS)
    )
