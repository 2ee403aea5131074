"""Servers with a wrong identity or with invalid responses."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from lcm.cml.client.tls import CaBundle, Insecure, PinnedCertificate, PinPerServer, TrustPolicy, fingerprint
from lcm.cml.errors import (
    CMLCertificateChangedError,
    CMLError,
    CMLNotReadyError,
    CMLOutcomeUnknownError,
    CMLProtocolError,
    CMLTlsError,
)
from lcm.cml.simulator import CmlSimulator, SimulatorSettings
from lcm.cml.simulator.listener import make_server_identity
from lcm.cml.simulator.state.faults import Fault, FaultKind
from lcm.cml.simulator.state.world import BootPhase
from tests.integration.cml.conftest import ADDRESS, ADMIN, FAST, Clients, clients, control
from tests.support.servers.certificates import CertificateAuthority

if TYPE_CHECKING:
    from pathlib import Path

    from lcm.cml.simulator.listener import ServerIdentity

BOUND_SECONDS = 120.0


def answering(kind: FaultKind, path: str = "/", *, method: str | None = None) -> Fault:
    return Fault(kind, path=path, method=method)


async def version(trust: TrustPolicy, url: str) -> str:
    async with clients(trust, lambda _address: url) as cml:
        return (await cml.system.get_system_information(ADDRESS)).version


async def test_the_pinned_certificate_is_accepted_under_any_name_and_no_other_is(simulator: CmlSimulator) -> None:
    assert await version(PinnedCertificate(simulator.identity.pem), simulator.url) == "2.9.1+build.7"
    assert await version(PinnedCertificate(simulator.identity.pem), simulator.url.replace("127.0.0.1", "localhost"))
    with pytest.raises(CMLTlsError, match="certificate"):
        await version(PinnedCertificate(make_server_identity().pem), simulator.url)


async def test_self_signed_certificates_are_rejected_by_default(simulator: CmlSimulator) -> None:
    with pytest.raises(CMLTlsError):
        await version(CaBundle(), simulator.url)
    assert await version(Insecure(), simulator.url)


async def test_no_password_is_sent_to_a_server_with_a_wrong_certificate(simulator: CmlSimulator) -> None:
    async with clients(PinnedCertificate(make_server_identity().pem), lambda _address: simulator.url) as cml:
        with pytest.raises(CMLTlsError):
            await cml.system.get_license(ADDRESS, ADMIN)
    assert simulator.world.sessions.logins == 0


async def test_a_ca_is_trusted_only_for_the_right_name(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path, "house")
    for hosts, accepted in ((("localhost", "127.0.0.1"), True), (("cml.example",), False)):
        issued = authority.issue("cml", hosts=hosts)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.cert_file, issued.key_file)
        identity = make_server_identity()
        simulator = CmlSimulator(
            SimulatorSettings(boot_seconds=0), identity=type(identity)(issued.cert_file.read_text(), context)
        )
        await simulator.start()
        if accepted:
            assert await version(CaBundle(authority.ca_file), simulator.url)
        else:
            with pytest.raises(CMLTlsError, match=r"127\.0\.0\.1"):
                await version(CaBundle(authority.ca_file), simulator.url)
        assert await version(PinnedCertificate(simulator.identity.pem), simulator.url), (
            "a certificate signed by a CA can be pinned, too"
        )
        await simulator.stop()


async def test_a_missing_ca_bundle_is_reported(simulator: CmlSimulator, tmp_path: Path) -> None:
    with pytest.raises(CMLTlsError, match=r"none\.pem cannot be used"):
        await version(CaBundle(tmp_path / "none.pem"), simulator.url)


async def test_only_the_pinned_certificate_of_a_server_is_accepted(simulator: CmlSimulator) -> None:
    """cloud-and-cml.md#certificates: secrets go to pinned servers only, and each server has its own pin."""
    impostor = CmlSimulator(SimulatorSettings(boot_seconds=0))
    await impostor.start()
    pinned, other = fingerprint(simulator.identity.pem), fingerprint(impostor.identity.pem)
    url = simulator.url
    async with clients(PinPerServer(), lambda _address: url) as cml:
        with pytest.raises(CMLNotReadyError, match="not pinned yet"):
            await cml.system.get_system_health(ADDRESS, ADMIN)
        answers = await asyncio.gather(*(cml.system.get_system_information(ADDRESS) for _ in range(5)))
        assert {answer.certificate for answer in answers} == {pinned}
        url = impostor.url
        assert (await cml.system.get_system_information(ADDRESS)).certificate == other, "asking leaves no pin"
        cml.system.trust(ADDRESS, pinned)
        with pytest.raises(CMLCertificateChangedError) as first:
            await cml.system.get_system_information(ADDRESS)
        url = simulator.url
        assert (await cml.system.get_system_health(ADDRESS, ADMIN)).valid
        url = impostor.url
        with pytest.raises(CMLCertificateChangedError) as later:
            await cml.system.get_system_health(ADDRESS, ADMIN)
        assert {(error.value.pinned, error.value.presented) for error in (first, later)} == {(pinned, other)}
        cml.system.trust(ADDRESS, other)
        impostor.world.sessions.accounts[ADMIN.username].password = ADMIN.password
        assert (await cml.system.get_system_health(ADDRESS, ADMIN)).valid, "it is trusted without a restart"
        cml.system.forget(ADDRESS)
        assert (await cml.system.get_system_information(ADDRESS)).certificate == other
    await impostor.stop()


async def test_the_certificate_of_a_server_that_still_boots_may_change(identity: ServerIdentity) -> None:
    """It was pinned at the stage of 502, and refused for ever when the server had made its own."""
    simulator = CmlSimulator(SimulatorSettings(boot_seconds=0), identity=identity, control_port=0)
    simulator.world.boot.hold(BootPhase.GATEWAY)
    await simulator.start()
    async with clients(PinPerServer(), lambda _address: simulator.url) as cml:
        with pytest.raises(CMLNotReadyError):
            await cml.system.get_system_information(ADDRESS)
        assert (await control(simulator, "PUT", "/certificate"))[0] == 200
        simulator.world.boot.hold(None)
        answer = await cml.system.get_system_information(ADDRESS)
        assert (answer.ready, answer.certificate) == (True, fingerprint(simulator.identity.pem))
    await simulator.stop()


async def test_a_booting_server_is_not_ready() -> None:
    simulator = CmlSimulator(SimulatorSettings(boot_seconds=1000))
    async with clients(PinPerServer(), lambda _address: simulator.url) as cml:
        with pytest.raises(CMLNotReadyError):
            await cml.system.get_system_information(ADDRESS)
    await simulator.stop()


async def test_a_server_without_tls_is_rejected(simulator: CmlSimulator) -> None:
    with pytest.raises((CMLTlsError, CMLNotReadyError)):
        await version(Insecure(), simulator.control_url.replace("http:", "https:"))


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        (FaultKind.HTML, CMLNotReadyError, "web page"),
        (FaultKind.HUGE, CMLProtocolError, "longer than 64 KiB"),
        (FaultKind.REDIRECT, CMLProtocolError, "redirects to https://elsewhere.invalid"),
        (FaultKind.WRONG_TYPE, CMLProtocolError, "application/octet-stream"),
        (FaultKind.WRONG_SHAPE, CMLProtocolError, "not a string"),
        (FaultKind.DEEP, CMLProtocolError, "response is n"),
        (FaultKind.STATUS, CMLProtocolError, "HTTP 500"),
        (FaultKind.DROP, CMLNotReadyError, "connection broke"),
    ],
)
async def test_invalid_responses_are_rejected(
    simulator: CmlSimulator, cml: Clients, kind: FaultKind, error: type[CMLError], words: str
) -> None:
    simulator.world.faults.add(answering(kind))
    async with asyncio.timeout(BOUND_SECONDS):
        with pytest.raises(error, match=words) as caught:
            await cml.system.get_system_information(ADDRESS)
    assert type(caught.value) is error
    simulator.world.faults.clear()
    assert (await cml.system.get_system_information(ADDRESS)).ready, "the server works again without the fault"


@pytest.mark.parametrize("kind", [FaultKind.WRONG_SHAPE, FaultKind.DEEP, FaultKind.HUGE])
async def test_no_call_accepts_an_invalid_response(simulator: CmlSimulator, cml: Clients, kind: FaultKind) -> None:
    await cml.system.get_license(ADDRESS, ADMIN)
    simulator.world.faults.add(answering(kind))
    calls = (
        cml.system.get_system_stats(ADDRESS, ADMIN),
        cml.system.get_license(ADDRESS, ADMIN),
        cml.system.get_activity_events(ADDRESS, ADMIN),
        cml.labs.list_labs(ADDRESS, ADMIN),
        cml.labs.get_lab(ADDRESS, ADMIN, "x"),
        cml.labs.has_converged(ADDRESS, ADMIN, "x"),
        cml.labs.element_states(ADDRESS, ADMIN, "x"),
        cml.labs.nodes(ADDRESS, ADMIN, "x"),
    )
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [CMLProtocolError] * len(calls)


@pytest.mark.parametrize("kind", [FaultKind.DRIP, FaultKind.HANG])
async def test_slow_responses_time_out(simulator: CmlSimulator, kind: FaultKind) -> None:
    simulator.world.faults.add(answering(kind))
    async with clients(Insecure(), lambda _address: simulator.url, seconds=0.5) as cml:
        async with asyncio.timeout(BOUND_SECONDS):
            with pytest.raises(CMLNotReadyError):
                await cml.system.get_system_information(ADDRESS)


async def test_one_broken_read_is_repeated(simulator: CmlSimulator, cml: Clients) -> None:
    simulator.world.faults.add(Fault(FaultKind.DROP, count=1))
    assert (await cml.system.get_system_information(ADDRESS)).ready


async def test_a_mutating_call_with_a_lost_response_is_not_repeated(simulator: CmlSimulator, cml: Clients) -> None:
    await cml.system.get_license(ADDRESS, ADMIN)
    simulator.world.faults.add(Fault(FaultKind.LOST_REPLY, path="/api/v0/import", count=1))
    topology = "lab: {version: 0.2.2, title: x}\nnodes: []\nlinks: []"
    with pytest.raises(CMLOutcomeUnknownError):
        await cml.labs.import_lab(ADDRESS, ADMIN, topology, title="Exam", marker="lablet-1")
    assert simulator.world.labs.imported == 1
    (found,) = [lab for lab in await cml.labs.list_labs(ADDRESS, ADMIN) if lab.marker == "lablet-1"]
    assert found.title == "Exam [lcm:lablet-1]"


async def test_faults_can_be_set_and_cleared_by_the_control_port(simulator: CmlSimulator, cml: Clients) -> None:
    assert simulator.world.time.speed == FAST
    status, state = await control(simulator, "POST", "/faults", {"kind": "html", "path": "/api/v0/system_information"})
    assert (status, state["faults"]) == (200, [{"kind": "html", "path": "/api/v0/system_information", "count": None}])
    with pytest.raises(CMLNotReadyError):
        await cml.system.get_system_information(ADDRESS)
    await control(simulator, "DELETE", "/faults")
    assert (await cml.system.get_system_information(ADDRESS)).ready
