"""`lcm config`: values with sources, masked secrets, and checks with remedies."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from lcm.cli.config.check import check_data_dir, check_etcd, check_regions, check_secret_keys, check_store, run_checks
from lcm.cli.config.commands import _mask_url_password, setting_rows
from lcm.settings import CoordinationSettings, RegionSettings, describe, load
from lcm.wiring.control_plane import ControlPlaneComponentSettings, ControlPlaneProcessSettings
from lcm.wiring.up import UpSettings

if TYPE_CHECKING:
    from pathlib import Path


def test_every_setting_with_its_source() -> None:
    env = {"ETCD_PORT": "4001", "LCM_BOOTSTRAP_TOKEN": "s3cret", "STORE_URL": "mongodb://me:s3cret@db/?replicaSet=a"}
    shown = {each.name: each for each in setting_rows(load(ControlPlaneProcessSettings, env=env))}
    assert set(shown) == {doc.variable for doc in describe(ControlPlaneProcessSettings)}
    assert (shown["ETCD_PORT"].value, shown["ETCD_PORT"].source) == ("4001", "environment ETCD_PORT")
    assert shown["ETCD_HOST"].source == "default"
    assert shown["LCM_BOOTSTRAP_TOKEN"].value == "***"
    assert shown["LCM_CONTROLLER_TOKEN"].value is None
    assert "s3cret" not in repr(shown)
    assert all(each.description for each in shown.values())


def test_a_secret_that_is_empty_is_not_set() -> None:
    shown = {each.name: each for each in setting_rows(load(UpSettings, env={}))}
    assert shown["CML_DEFAULT_PASSWORD"].value is None


def test_a_folder(tmp_path: Path) -> None:
    assert check_data_dir(tmp_path / "deep" / "er").says.endswith("(will be created)")
    (tmp_path / "file").touch()
    wrong = check_data_dir(tmp_path / "file" / "below")
    assert (wrong.ok, "LCM_DATA_DIR" in wrong.remedy) == (False, True)


async def test_a_store_file_is_checked_and_not_created(tmp_path: Path) -> None:
    settings = ControlPlaneComponentSettings(lcm_data_dir=tmp_path)
    assert (await check_store(settings)).says.endswith("lcm.db will be created")
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "lcm.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE one (a)")
    connection.close()
    assert (await check_store(settings)).says.endswith("opens and is intact")
    path.write_bytes(b"not a database, whatever its name says" * 100)
    damaged = await check_store(settings)
    assert (damaged.ok, "backup" in damaged.remedy) == (False, True)


def test_keys(tmp_path: Path) -> None:
    settings = ControlPlaneComponentSettings(lcm_data_dir=tmp_path)
    assert "will be created" in check_secret_keys(settings).says
    (tmp_path / "secret.key").write_text("short\n")
    (tmp_path / "secret.key").chmod(0o600)
    assert not check_secret_keys(settings).ok


def test_regions() -> None:
    assert check_regions(RegionSettings()).says == "us-east-1"
    assert not check_regions(RegionSettings(aws_region_configs="/nowhere.yaml")).ok


async def test_memory_needs_no_etcd() -> None:
    assert (await check_etcd(CoordinationSettings(coordination="memory"))).ok


async def test_everything_of_lcm_up_in_a_fresh_folder(tmp_path: Path) -> None:
    reported: list[str] = []
    found = await run_checks(UpSettings(lcm_data_dir=tmp_path), lambda each: reported.append(each.part))
    assert all(each.ok for each in found), found
    assert reported == ["settings", "etcd", "data folder", "store", "secret key", "regions", "AWS"]


@pytest.mark.parametrize("url", ["mongodb://user:s3cret@", "mongodb://[::1"])
async def test_an_address_of_mongodb_is_not_quoted(url: str, tmp_path: Path) -> None:
    finding = await check_store(ControlPlaneComponentSettings(store_url=url, lcm_data_dir=tmp_path))
    assert not finding.ok
    assert "s3cret" not in repr(finding)


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://me:s3cret@db/?replicaSet=a",
        "mongodb://me:a/s3cret@db/?replicaSet=a",
        "mongodb://db/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:s3cret,X:y",
        "mongodb://db/?tls=true&tlsCertificateKeyFilePassword=s3cret&appName=lcm",
        "mongodb://db/?proxyPassword=s3cret",
    ],
)
def test_no_secret_in_a_url_is_shown(url: str) -> None:
    shown = _mask_url_password(url)
    assert shown is not None
    assert "s3cret" not in shown
    assert shown.startswith("mongodb://")
    assert "db/?" in shown
