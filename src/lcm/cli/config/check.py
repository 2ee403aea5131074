"""Checks of what a service needs: which parts respond, which do not, and a remedy for each problem.

Nothing is changed: no schema is created, no instance is touched, no lock is taken.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lcm.settings import (
    CloudSettings,
    CmlSettings,
    ControlPlaneAddressSettings,
    CoordinationSettings,
    DataSettings,
    PrivateCaSettings,
    RegionSettings,
    StoreSettings,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lcm.client.client import Client
    from lcm.cml.spi import CMLSystemSPI
    from lcm.model.worker.record import Worker
    from lcm.settings import Settings
    from lcm.wiring.worker_controller import WorkerControllerComponentSettings

CONTROL_PLANE = "control plane"

_TIMEOUT_SECONDS = 10.0
_MAX_CML_SERVERS = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A note reports a check that could not be made: neither passed nor failed.

    The field names are part of the output of `lcm config check -o json`.
    """

    part: str
    ok: bool
    says: str
    remedy: str = ""
    note: bool = False


async def run_checks(settings: Settings, tell: Callable[[Finding], None] | None = None) -> list[Finding]:
    """Run all checks, and report each finding as soon as it is known."""
    found = []
    async for finding in _check_all(settings):
        found.append(finding)
        if tell is not None:
            tell(finding)
    return found


async def _check_all(settings: Settings) -> AsyncIterator[Finding]:
    yield Finding("settings", True, "all values are valid and consistent")
    if isinstance(settings, CoordinationSettings):
        yield await check_etcd(settings)
    if isinstance(settings, DataSettings):
        yield check_data_dir(settings.lcm_data_dir)
    if isinstance(settings, StoreSettings):
        yield await check_store(settings)
        yield check_secret_keys(settings)
    if isinstance(settings, RegionSettings):
        yield check_regions(settings)
    plane_answers = False
    if isinstance(settings, ControlPlaneAddressSettings) and not isinstance(settings, StoreSettings):
        async for finding in check_control_plane(settings):
            plane_answers = plane_answers or (finding.part == CONTROL_PLANE and finding.ok)
            yield finding
    if isinstance(settings, CloudSettings):
        from lcm.cli.config.check_aws import check_cloud

        async for finding in check_cloud(settings, plane_answers=plane_answers):
            yield finding


async def check_etcd(settings: CoordinationSettings) -> Finding:
    """Check that a quorum responds."""
    if settings.coordination == "memory":
        return Finding("etcd", True, "not needed: this process coordinates its own parts in memory")
    from lcm.core.coordination import CoordinationDeniedError, CoordinationError
    from lcm.wiring.connections import connect_coordination

    where = ", ".join(settings.endpoints)
    coordination = connect_coordination(settings)
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            await coordination.check()
    except CoordinationDeniedError as error:
        return Finding("etcd", False, str(error), "check ETCD_USER, ETCD_PASSWORD and the certificates")
    except (CoordinationError, TimeoutError) as error:
        remedy = "start it, or name the right members: ETCD_ENDPOINTS=host:2379,…"
        return Finding("etcd", False, str(error) or f"{where}: no response in {_TIMEOUT_SECONDS:g} s", remedy)
    finally:
        await coordination.close()
    return Finding("etcd", True, f"{coordination.description} responds")


def check_data_dir(folder: Path) -> Finding:
    """Check that the data folder is writable."""
    near = next(each for each in (folder, *folder.parents) if each.exists())
    if not near.is_dir() or not os.access(near, os.W_OK | os.X_OK):
        return Finding("data folder", False, f"{near} cannot be written", "name another: LCM_DATA_DIR=/path")
    return Finding("data folder", True, f"{folder}{'' if near == folder else ' (will be created)'}")


async def check_store(settings: StoreSettings) -> Finding:
    """Check that the store opens and is intact."""
    url = settings.store_url
    if url is not None and not url.startswith("sqlite:///"):
        ca_file = settings.lcm_ca_file if isinstance(settings, PrivateCaSettings) else None
        return await _check_mongo(url, ca_file)
    folder = settings.lcm_data_dir if isinstance(settings, DataSettings) else Path()
    path = Path(url.removeprefix("sqlite:///")) if url is not None else folder / "lcm.db"
    if not path.exists():
        parent = check_data_dir(path.parent)
        return Finding("store", parent.ok, f"{path} will be created" if parent.ok else parent.says, parent.remedy)
    return _check_sqlite(path)


def _check_sqlite(path: Path) -> Finding:
    remedy = "restore it from a backup, or name another: STORE_URL=sqlite:////path/lcm.db"
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_TIMEOUT_SECONDS)
        try:
            verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error as error:
        return Finding("store", False, f"{path}: {error}", remedy)
    if verdict != "ok":
        return Finding("store", False, f"{path} is damaged: {verdict}", remedy)
    if not os.access(path, os.W_OK):
        return Finding("store", False, f"{path} cannot be written", f"check its owner and permissions: ls -l {path}")
    return Finding("store", True, f"{path} opens and is intact")


async def _check_mongo(url: str, ca_file: Path | None) -> Finding:
    from lcm.control_plane.store.mongo_address import tls_options

    try:
        from pymongo import AsyncMongoClient
        from pymongo.errors import PyMongoError
    except ModuleNotFoundError:
        return Finding("store", False, "MongoDB's driver is missing", "install it: pip install 'lcm-fleet[mongo]'")
    try:
        client: AsyncMongoClient[dict[str, object]] = AsyncMongoClient(
            url,
            serverSelectionTimeoutMS=int(_TIMEOUT_SECONDS * 1000),
            appname="lcm-check",
            **tls_options(url, ca_file),
        )
        try:
            hello = await client.admin.command("hello")
        finally:
            await client.close()
            await asyncio.sleep(0.1)  # the driver's transports close their sockets some turns later
    except (PyMongoError, ValueError) as error:
        # The driver's message may quote the URL, which may contain a password.
        return Finding("store", False, f"MongoDB does not respond ({type(error).__name__})", "check STORE_URL")
    if "setName" not in hello:
        remedy = "start mongod with --replSet and run rs.initiate()"
        return Finding("store", False, "MongoDB is not a replica set, which transactions need", remedy)
    return Finding("store", True, f"MongoDB responds, replica set {hello['setName']}")


def check_secret_keys(settings: StoreSettings) -> Finding:
    """Check that the keys for stored secrets are usable."""
    from lcm.control_plane.secrets.keys import SecretKeyError, load_keys

    key = None if settings.lcm_secret_key is None else settings.lcm_secret_key.get_secret_value()
    path = settings.lcm_secret_key_file
    if key is None and path is None and isinstance(settings, DataSettings):
        path = settings.lcm_data_dir / "secret.key"
        if not path.exists():
            return Finding("secret key", True, f"{path} will be created; back it up separately from the store")
    try:
        keys = load_keys(key, path)
    except SecretKeyError as error:
        return Finding("secret key", False, str(error), "fix or replace the key; without it stored secrets are lost")
    return Finding("secret key", True, f"{len(keys)} usable in {path or 'LCM_SECRET_KEY'}")


def check_regions(settings: RegionSettings) -> Finding:
    """Check the configured regions."""
    from lcm.wiring.control_plane import RegionConfigError, region_names

    try:
        names = region_names(settings)
    except RegionConfigError as error:
        return Finding("regions", False, str(error), "AWS_REGION_CONFIGS is the path of a YAML file, or JSON")
    return Finding("regions", True, ", ".join(names))


async def check_control_plane(settings: ControlPlaneAddressSettings) -> AsyncIterator[Finding]:
    """Check that the control plane accepts the controller's token."""
    from lcm.client.errors import ClientError
    from lcm.wiring.connections import InvalidSettingsError
    from lcm.wiring.controllers import make_control_plane_client
    from lcm.wiring.worker_controller import WorkerControllerComponentSettings

    assert isinstance(settings, WorkerControllerComponentSettings)
    part, url = CONTROL_PLANE, settings.control_plane_api_url
    try:
        client = make_control_plane_client(settings)
    except InvalidSettingsError as error:
        yield Finding(part, False, str(error), "CONTROL_PLANE_API_URL=http://host:8080")
        return
    async with client:
        try:
            me = await client.access.whoami()
        except ClientError as error:
            yield Finding(part, False, str(error), "check CONTROL_PLANE_API_URL and LCM_CONTROLLER_TOKEN")
            return
        if me.role != "controller":
            remedy = "LCM_CONTROLLER_TOKEN must match the control plane's"
            yield Finding(part, False, f"{url} identifies this process as {me.name}, role {me.role}", remedy)
            return
        yield Finding(part, True, f"{url} accepts this process as {me.name}")
        async for finding in check_cml(settings, client):
            yield finding


async def check_cml(settings: WorkerControllerComponentSettings, client: Client) -> AsyncIterator[Finding]:
    """Check that CML servers of running workers respond and accept the account."""
    from lcm.model.worker.status import WorkerStatus
    from lcm.wiring.connections import InvalidSettingsError, connect_cml

    assert isinstance(settings, CmlSettings)
    try:
        servers = connect_cml(settings)
    except InvalidSettingsError as error:
        yield Finding("CML", False, str(error), "fix CML_CA_FILE, or unset it")
        return
    if not settings.cml_default_password.get_secret_value():
        remedy = "set it, unless every worker has its own account"
        yield Finding("CML", False, "CML_DEFAULT_PASSWORD is not set: sign-in to new servers is impossible", remedy)
    others = [status for status in WorkerStatus if status is not WorkerStatus.RUNNING]
    tried = 0
    try:
        async for worker in client.internal.workers(exclude_statuses=others):
            address = worker.private_ip if settings.cml_use_private_address else worker.public_ip or worker.private_ip
            if address is not None and tried < _MAX_CML_SERVERS:
                tried += 1
                yield await _check_cml_server(settings, client, worker, address, servers.system)
    finally:
        await servers.close()
    if not tried:
        yield Finding("CML", True, "no worker is running, so no server was checked")


async def _check_cml_server(
    settings: WorkerControllerComponentSettings, client: Client, worker: Worker, address: str, servers: CMLSystemSPI
) -> Finding:
    from lcm.client.errors import ClientError
    from lcm.cml.errors import CMLAuthenticationError, CMLError, CMLTlsError
    from lcm.cml.types import Credentials
    from lcm.wiring.worker_controller import controller_config

    part = f"CML {worker.name}"
    account = controller_config(settings).account
    try:
        own = await client.internal.cml_credentials(worker.id)
        account = Credentials(own.username, own.password.get_secret_value())
    except ClientError:
        pass  # it has no account of its own
    try:
        if worker.cml_certificate is not None:
            servers.trust(address, worker.cml_certificate)
        about = await servers.get_system_information(address)
        if worker.cml_certificate is None and about.certificate is not None:
            servers.trust(address, about.certificate)
        await servers.get_system_health(address, account)
    except CMLAuthenticationError as error:
        return Finding(
            part, False, str(error), "check CML_DEFAULT_USERNAME and CML_DEFAULT_PASSWORD, or the worker's own account"
        )
    except CMLTlsError as error:
        return Finding(part, False, str(error), f"check CML_TLS and CML_CA_FILE, or: lcm workers trust {worker.name}")
    except CMLError as error:
        return Finding(part, False, str(error), "is it reachable from here? CML_USE_PRIVATE_ADDRESS, CML_PROXY_URL")
    return Finding(part, True, f"CML {about.version} at {address} accepts the account")
