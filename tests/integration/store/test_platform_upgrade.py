"""What `lcm up` 0.1.0 stored, on SQLite and MongoDB, is served by this version as that version served it."""

from __future__ import annotations

import gzip
import json
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.records.make_store_data import load_mongo
from tests.support.servers.control_plane import CONTROLLER, ControlPlaneProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers.etcd import EtcdServer

DATA = Path(__file__).parents[2] / "data" / "platform-0.1.0"
SECRET_KEY = "0" * 43 + "="
BOOTSTRAP = "a-token-that-nobody-can-guess-1234"
TOKENS = {
    "sqlite": "lcm_t-73q2ffhdy1fz_183f3f825bd5e2b1d50fa2c16e719fc59408cc8795d1a42973f08c84f1099fbf",
    "mongo": "lcm_t-p7rmgannwvtr_54f5e5e029537d3f290b5c0befa03f09e3112ebb73abc948be73c8ffddc2ec57",
}
LICENSE_TOKEN = "a-license-token-0123456789"


@pytest.fixture(params=["sqlite", "mongo"])
def upgraded(
    request: pytest.FixtureRequest, tmp_path: Path, etcd_server: EtcdServer, mongodb_uri: str, database: str
) -> Iterator[tuple[str, ControlPlaneProcess]]:
    """A control plane of this version on a copy of the old store; no controller runs, so nothing changes by itself."""
    kind = request.param
    if kind == "sqlite":
        (tmp_path / "lcm.db").write_bytes(gzip.decompress((DATA / "lcm.db.gz").read_bytes()))
        url = f"sqlite:///{tmp_path / 'lcm.db'}"
    else:
        load_mongo(gzip.decompress((DATA / "mongo.json.gz").read_bytes()).decode(), mongodb_uri, database)
        url = mongodb_uri.replace("/?", f"/{database}?")
    plane = ControlPlaneProcess(tmp_path, etcd_server, f"upgrade-{kind}")
    plane.process.add_settings(
        STORE_URL=url, LCM_SECRET_KEY=SECRET_KEY, LCM_BOOTSTRAP_TOKEN=BOOTSTRAP, JOURNAL_RETENTION_DAYS="0"
    )
    plane.start()
    yield kind, plane
    plane.process.end()


def get(plane: ControlPlaneProcess, path: str, token: str = BOOTSTRAP) -> Any:
    request = urllib.request.Request(plane.url + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def difference(old: Any, new: Any, where: str) -> list[str]:
    """Where the new response lacks or changes something that the old one had. New fields and new items are fine.

    The owner of an old lablet is a name, which proves nothing: it is served as `owner_name`.
    """
    if isinstance(old, dict):
        if not isinstance(new, dict):
            return [f"{where}: {old!r} became {new!r}"]
        now = {**new, "owner": new["owner_name"]} if "owner_name" in new else new
        return [line for key in old for line in difference(old[key], now.get(key), f"{where}.{key}")]
    if isinstance(old, list) and where.endswith(".items"):
        by_key = {_key(item): item for item in new or []}
        return [line for item in old for line in difference(item, by_key.get(_key(item)), f"{where}[{_key(item)}]")]
    return [] if old == new else [f"{where}: {old!r} became {new!r}"]


def _key(item: dict[str, Any]) -> str:
    names = ("id", "at", "action", "subject", "from_status", "to_status", "type", "name")
    return " ".join(str(item[name]) for name in names if name in item)


def test_every_record_is_served_as_before(upgraded: tuple[str, ControlPlaneProcess]) -> None:
    kind, plane = upgraded
    responses = json.loads(gzip.decompress((DATA / f"{kind}-responses.json.gz").read_bytes()))
    assert len(responses) > 12
    for path, old in responses.items():
        assert not difference(old, get(plane, path), path)


def test_tokens_and_secrets_still_work(upgraded: tuple[str, ControlPlaneProcess]) -> None:
    kind, plane = upgraded
    assert get(plane, "/api/whoami", TOKENS[kind])["role"] == "viewer"
    (worker,) = [item for item in get(plane, "/api/workers?limit=200")["items"] if item["name"] == "seat-1"]
    revealed = get(plane, f"/api/internal/workers/{worker['id']}/license-token", CONTROLLER)
    assert revealed["token"] == LICENSE_TOKEN


def test_an_old_record_can_be_changed(upgraded: tuple[str, ControlPlaneProcess]) -> None:
    _, plane = upgraded
    plane.lcm("workers", "release", "alpha", env={"LCM_TOKEN": BOOTSTRAP})
    plane.lcm("workers", "stop", "seat-1", "--reason", "upgrade test", env={"LCM_TOKEN": BOOTSTRAP})
    workers = {item["name"]: item for item in get(plane, "/api/workers?limit=200")["items"]}
    assert workers["alpha"]["hold"] is None
    assert workers["seat-1"]["desired_status"] == "STOPPED"
