"""Precedence of sources, and the recorded source of each value."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lcm.settings import (
    CmlSettings,
    CoordinationSettings,
    ElectionSettings,
    FleetDefaultSettings,
    LogSettings,
    SettingsError,
    describe,
    load,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "lcm.toml"
    path.write_text('etcd_host = "file"\n[etcd]\netcd_port = 1\n[deep.er]\netcd_namespace = "/file"\n')
    return path


def test_flags_over_environment_over_file_over_defaults(config: Path) -> None:
    env = {"LCM_CONFIG": str(config), "ETCD_PORT": "2", "ETCD_HOST": "environment"}
    loaded = load(CoordinationSettings, env=env, overrides={"etcd_host": "flag", "etcd_namespace": None})
    found = loaded.settings
    assert (found.etcd_host, found.etcd_port, found.etcd_namespace) == ("flag", 2, "/file")
    assert found.coordination == "etcd"
    assert loaded.source_of("etcd_host") == "flag"
    assert loaded.source_of("etcd_port") == "environment ETCD_PORT"
    assert loaded.source_of("etcd_namespace") == f"file {config}"
    assert loaded.source_of("coordination") == "default"


def test_source_of_an_unknown_setting() -> None:
    with pytest.raises(KeyError, match="etcd_prot"):
        load(CoordinationSettings, env={}).source_of("etcd_prot")


def test_the_argument_wins_over_the_variable(config: Path) -> None:
    loaded = load(CoordinationSettings, env={"LCM_CONFIG": "/none"}, config_file=config)
    assert loaded.settings.etcd_host == "file"


def test_empty_variables_are_not_set(config: Path) -> None:
    loaded = load(CoordinationSettings, env={"ETCD_HOST": "", "LCM_CONFIG": ""})
    assert loaded.source_of("etcd_host") == "default"
    assert load(CoordinationSettings, env={"ETCD_HOST": ""}, config_file=config).settings.etcd_host == "file"


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LCM_CONFIG", raising=False)
    monkeypatch.setenv("LOG_LEVEL", "error")
    assert load(LogSettings).settings.log_level == "error"


def test_names_of_variables_are_exact() -> None:
    assert load(LogSettings, env={"log_level": "error"}).settings.log_level == "info"


def test_no_dot_env_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("LOG_LEVEL=error\n")
    monkeypatch.chdir(tmp_path)
    assert load(LogSettings, env={}).settings.log_level == "info"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("etcd_prot = 1", "etcd_prot (file {}): no such setting; did you mean etcd_port?"),
        ("[etcd]\nETCD_PORT = 1", "ETCD_PORT (file {}): no such setting; did you mean etcd_port?"),
        ("zzz = 1", "zzz (file {}): no such setting"),
        ("etcd_port = true", 'ETCD_PORT="true" (file {}): must be a whole number from 1 to 65535'),
        ("[etcd_port]\nx = 1", "ETCD_PORT=\"{{'x': 1}}\" (file {}): must be a whole number from 1 to 65535"),
        ("[a]\netcd_port = 1\n[b]\netcd_port = 2", "etcd_port (file {}): must be given once"),
    ],
)
def test_wrong_file(config: Path, text: str, problem: str) -> None:
    config.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(CoordinationSettings, env={}, config_file=config)
    assert str(caught.value) == problem.format(config)


def test_a_file_serves_several_services(config: Path) -> None:
    loaded = load(ElectionSettings, env={}, config_file=config)
    assert loaded.settings.leader_lease_ttl == 15


def test_a_list_in_a_file(config: Path) -> None:
    config.write_text('etcd_endpoints = ["a:1", "b:2"]')
    assert load(CoordinationSettings, env={}, config_file=config).settings.endpoints == ("a:1", "b:2")


@pytest.mark.parametrize("content", [b"etcd_port = = 1", b"\xff\xfe"])
def test_a_file_that_is_no_toml(config: Path, content: bytes) -> None:
    config.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        load(CoordinationSettings, env={}, config_file=config)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"file {config}: must be a TOML file in UTF-8: ")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(LogSettings, env={"LCM_CONFIG": "/none/lcm.toml"})
    assert str(caught.value) == 'LCM_CONFIG="/none/lcm.toml" (environment): must be an existing file that can be read'
    with pytest.raises(SettingsError, match=r"\(flag\): must be an existing file"):
        load(LogSettings, env={}, config_file=tmp_path)


def test_other_problems_are_reported_beside_a_missing_file() -> None:
    with pytest.raises(SettingsError) as caught:
        load(LogSettings, env={"LCM_CONFIG": "/none/lcm.toml", "LOG_LEVEL": "x"})
    assert len(caught.value.problems) == 2


def test_a_setting_may_be_given_under_its_other_name(config: Path) -> None:
    loaded = load(FleetDefaultSettings, env={"AUTO_IMPORT_ENABLED": "false"})
    assert not loaded.settings.model_dump()["worker_discovery_enabled"]
    assert loaded.source_of("worker_discovery_enabled") == "environment AUTO_IMPORT_ENABLED"
    config.write_text("auto_import_enabled = false")
    assert not load(FleetDefaultSettings, env={}, config_file=config).settings.model_dump()["worker_discovery_enabled"]
    assert load(LogSettings, env={}, config_file=config).settings.log_level == "info", "it may serve several services"
    doc = next(doc for doc in describe(FleetDefaultSettings) if doc.name == "worker_discovery_enabled")
    assert doc.alias_variables == ("AUTO_IMPORT_ENABLED",)


def test_a_higher_source_wins_under_either_name(config: Path) -> None:
    config.write_text("worker_discovery_enabled = true")
    loaded = load(FleetDefaultSettings, env={"AUTO_IMPORT_ENABLED": "false"}, config_file=config)
    assert not loaded.settings.model_dump()["worker_discovery_enabled"]


def test_two_names_of_one_setting_must_not_differ(config: Path) -> None:
    same = {"WORKER_DISCOVERY_ENABLED": "0", "AUTO_IMPORT_ENABLED": "false"}
    assert not load(FleetDefaultSettings, env=same).settings.model_dump()["worker_discovery_enabled"]
    with pytest.raises(SettingsError) as caught:
        load(FleetDefaultSettings, env={"WORKER_DISCOVERY_ENABLED": "true", "AUTO_IMPORT_ENABLED": "false"})
    assert str(caught.value) == (
        'WORKER_DISCOVERY_ENABLED="true" (environment), AUTO_IMPORT_ENABLED="false" (environment): '
        "are two names of one setting and must not differ"
    )
    config.write_text("worker_discovery_enabled = true\nauto_import_enabled = false")
    with pytest.raises(SettingsError, match="are two names of one setting and must not differ"):
        load(FleetDefaultSettings, env={}, config_file=config)


def test_an_invalid_value_is_reported_under_the_given_name() -> None:
    with pytest.raises(SettingsError) as caught:
        load(FleetDefaultSettings, env={"AUTO_IMPORT_ENABLED": "perhaps"})
    assert str(caught.value) == 'AUTO_IMPORT_ENABLED="perhaps" (environment): must be true or false'


def test_a_ca_file_requires_ca_verification(config: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(CmlSettings, env={"CML_CA_FILE": str(config)})
    assert str(caught.value) == (
        f'CML_TLS="pin" (default), CML_CA_FILE="{config}" (environment): CML_CA_FILE requires CML_TLS=ca'
    )
    assert load(CmlSettings, env={"CML_CA_FILE": str(config), "CML_TLS": "CA"}).settings.cml_ca_file == config


def test_importing_settings_does_not_import_what_is_heavy() -> None:
    heavy = ("grpc", "fastapi", "uvicorn", "rich", "structlog")
    code = f"import sys, lcm.settings; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ), timeout=180
    )
    assert done.stdout.strip() == "[]"
