"""Certificates, users and passwords."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.core.coordination import CoordinationDeniedError, CoordinationError, CoordinationUnavailableError
from tests.support.network.coordination import DEADLINE, eventually, following, until_served
from tests.support.servers.certificates import CertificateAuthority
from tests.support.servers.etcd import EtcdServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.coordination.conftest import Connect


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("ca"), "test CA")


@pytest.fixture(scope="module")
def mtls(tmp_path_factory: pytest.TempPathFactory, authority: CertificateAuthority) -> Iterator[EtcdServer]:
    """A server that requires client certificates."""
    folder = tmp_path_factory.mktemp("mtls")
    server = EtcdServer(folder, authority=authority, client_certificates=True).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory: pytest.TempPathFactory, authority: CertificateAuthority) -> Iterator[EtcdServer]:
    """A server with TLS, users and passwords."""
    server = EtcdServer(tmp_path_factory.mktemp("auth"), authority=authority).start()
    server.enable_auth(root_password="root-secret", user="lcm", password="secret", prefix="/lcm/")
    yield server
    server.stop()


@pytest.fixture
def guarded(guarded_server: EtcdServer) -> EtcdServer:
    if not guarded_server.running:
        guarded_server.launch()
    guarded_server.wait_ready()
    return guarded_server


async def test_tls_with_a_client_certificate(
    mtls: EtcdServer, authority: CertificateAuthority, connect: Connect
) -> None:
    mine = authority.issue("client")
    settings = {"ca_file": authority.ca_file, "cert_file": mine.cert_file, "key_file": mine.key_file}
    for endpoint in (mtls.endpoint, f"https://{mtls.endpoint}", f"https://localhost:{mtls.client_port}"):
        client = connect(endpoint, **settings)
        revision = await client.put("/a", b"1")
        async with client.watch("/", from_revision=revision) as batches, asyncio.timeout(DEADLINE):
            assert [event.key for event in (await anext(batches)).events] == ["/a"]


async def test_a_server_of_another_ca_is_refused(
    mtls: EtcdServer, authority: CertificateAuthority, connect: Connect, tmp_path: Path
) -> None:
    other = CertificateAuthority(tmp_path, "another CA")
    mine = authority.issue("client")
    client = connect(mtls.endpoint, ca_file=other.ca_file, cert_file=mine.cert_file, key_file=mine.key_file)
    with pytest.raises(
        CoordinationDeniedError, match=f"etcd {mtls.endpoint}: TLS: the server's certificate is not signed by our CA"
    ):
        await client.check()


async def test_a_missing_client_certificate_is_named(
    mtls: EtcdServer, authority: CertificateAuthority, connect: Connect
) -> None:
    client = connect(mtls.endpoint, ca_file=authority.ca_file)
    with pytest.raises(CoordinationError, match="client certificate"):
        await client.check()


async def test_a_client_certificate_of_another_ca_is_named(
    mtls: EtcdServer, authority: CertificateAuthority, connect: Connect, tmp_path: Path
) -> None:
    mine = CertificateAuthority(tmp_path, "another CA").issue("client")
    client = connect(mtls.endpoint, ca_file=authority.ca_file, cert_file=mine.cert_file, key_file=mine.key_file)
    with pytest.raises(CoordinationError, match="client certificate"):
        await client.check()


async def test_plain_to_a_tls_server_says_so(mtls: EtcdServer, connect: Connect) -> None:
    with pytest.raises(CoordinationUnavailableError, match=f"etcd {mtls.endpoint}: .*TLS"):
        await connect(f"http://{mtls.endpoint}").check()


async def test_tls_to_a_plain_server_says_so(
    etcd: EtcdServer, authority: CertificateAuthority, connect: Connect
) -> None:
    with pytest.raises(CoordinationUnavailableError, match=f"etcd {etcd.endpoint}: TLS mismatch"):
        await connect(etcd.endpoint, ca_file=authority.ca_file).check()


async def test_a_certificate_file_that_is_not_there_is_named(
    etcd: EtcdServer, connect: Connect, tmp_path: Path
) -> None:
    with pytest.raises(CoordinationDeniedError, match=f"cannot read the CA file {tmp_path}/no.pem"):
        await connect(etcd.endpoint, ca_file=tmp_path / "no.pem").check()


async def test_a_file_without_a_certificate_is_named(mtls: EtcdServer, connect: Connect, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    with pytest.raises(CoordinationDeniedError, match="file has no usable content"):
        await connect(mtls.endpoint, ca_file=empty).check()


async def test_a_user_may_do_what_the_role_allows(
    guarded: EtcdServer, authority: CertificateAuthority, connect: Connect
) -> None:
    client = connect(guarded.endpoint, ca_file=authority.ca_file, user="lcm", password="secret")
    revision = await client.put("/lcm/a", b"1")
    lease = await client.grant_lease(60)
    assert (await client.put_if_absent("/lcm/b", b"1", lease_id=lease.id)).succeeded
    assert await client.keep_alive(lease.id) > 0
    await client.revoke_lease(lease.id)
    async with client.watch("/lcm/", from_revision=revision) as batches, asyncio.timeout(DEADLINE):
        assert (await anext(batches)).events[0].key == "/lcm/a"


async def test_check_needs_a_quorum_and_a_sign_in_but_no_role(
    guarded: EtcdServer, authority: CertificateAuthority, connect: Connect
) -> None:
    await connect(guarded.endpoint, ca_file=authority.ca_file, user="lcm", password="secret").check()


async def test_a_wrong_password_is_denied(
    guarded: EtcdServer, authority: CertificateAuthority, connect: Connect
) -> None:
    client = connect(guarded.endpoint, ca_file=authority.ca_file, user="lcm", password="wrong")
    for call in (client.check(), client.get("/lcm/a"), client.put("/lcm/a", b""), client.keep_alive(1)):
        with pytest.raises(CoordinationDeniedError, match=f"etcd {guarded.endpoint}: sign-in as lcm denied"):
            await call
    with pytest.raises(CoordinationDeniedError):
        async with client.watch("/lcm/", from_revision=1):
            pass


async def test_no_password_is_denied(guarded: EtcdServer, authority: CertificateAuthority, connect: Connect) -> None:
    client = connect(guarded.endpoint, ca_file=authority.ca_file)
    for call in (client.check(), client.get("/lcm/a"), client.put("/lcm/a", b"")):
        with pytest.raises(CoordinationDeniedError, match="requires a user and password"):
            await call
    with pytest.raises(CoordinationDeniedError):
        async with client.watch("/lcm/", from_revision=1):
            pass


async def test_what_the_role_forbids_is_denied(
    guarded: EtcdServer, authority: CertificateAuthority, connect: Connect
) -> None:
    client = connect(guarded.endpoint, ca_file=authority.ca_file, user="lcm", password="secret")
    for call in (client.get("/other"), client.put("/other", b""), client.list_prefix("/"), client.delete("/other")):
        with pytest.raises(CoordinationDeniedError, match="permission denied"):
            await call
    with pytest.raises(CoordinationDeniedError, match="permission denied"):
        async with client.watch("/other/", from_revision=1):
            pass


async def test_an_unneeded_password_does_no_harm(etcd: EtcdServer, connect: Connect, prefix: str) -> None:
    client = connect(etcd.endpoint, user="lcm", password="secret")
    revision = await client.put(prefix + "a", b"1")
    async with client.watch(prefix, from_revision=revision):
        pass


async def test_a_token_the_server_forgot_is_fetched_again(
    guarded: EtcdServer, authority: CertificateAuthority, connect: Connect
) -> None:
    """Each kind of call is the first one after a restart, since the others would sign in for it."""
    client = connect(guarded.endpoint, ca_file=authority.ca_file, user="lcm", password="secret")
    lease = await client.grant_lease(600)
    async with following(client, "/lcm/followed/") as follower:
        await asyncio.to_thread(guarded.restart)
        await eventually(lambda: follower.opened == 2, "the watch is open again")
        await client.put("/lcm/followed/a", b"")
        await eventually(lambda: len(follower.events) == 1, "the watch works again")
    await asyncio.to_thread(guarded.restart)
    await until_served(lambda: client.put("/lcm/a", b"after"))
    await asyncio.to_thread(guarded.restart)
    assert await until_served(lambda: client.keep_alive(lease.id)) > 0
    found = await client.get("/lcm/a")
    assert found is not None
    assert found.value == b"after"


async def test_many_callers_sign_in_once(
    guarded: EtcdServer, authority: CertificateAuthority, connect: Connect
) -> None:
    before = signed_in(guarded)
    client = connect(guarded.endpoint, ca_file=authority.ca_file, user="lcm", password="secret")
    await asyncio.gather(*(client.get("/lcm/a") for _ in range(50)))
    assert signed_in(guarded) == before + 1
    await asyncio.to_thread(guarded.restart)
    before = signed_in(guarded)
    await until_served(client.check)
    await asyncio.gather(*(client.get("/lcm/a") for _ in range(50)))
    assert signed_in(guarded) == before + 1


def signed_in(server: EtcdServer) -> int:
    """How many sign-ins the server has served."""
    return server.served("Authenticate")
