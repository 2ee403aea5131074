"""The parts of a reading use one connection in turn, and none of them waits long for another."""

from __future__ import annotations

import pytest

from lcm.cml.errors import CMLNotReadyError
from lcm.cml.reading import HEAD_START, SIDE_TIMEOUT, ServerQuery
from lcm.core import clock
from tests.support.virtual.fake_cml import DEFAULT, FakeCml, FakeServer

HERE = "192.0.2.7"
PARTS = ("stats", "license", "health", "definitions")
EVERYTHING = ServerQuery(HERE, DEFAULT, license=True, health=True, definitions=True)


def cml_of(server: FakeServer) -> FakeCml:
    cml = FakeCml(**{HERE: server})
    cml.trust(HERE, server.certificate)
    return cml


async def test_a_server_that_responds_gets_one_request_at_a_time() -> None:
    """cloud-and-cml.md#polling: four at a time opened four connections, three of which were then kept for nothing."""
    cml = cml_of(FakeServer(seconds=0.2, definitions=("iosv",), kvm=True))
    reading = await cml.read_server(EVERYTHING, 45)
    assert cml.most_at_once == 1
    assert reading.stats is not None
    assert reading.license_state is not None
    assert (reading.kvm_enabled, reading.definitions) == (True, ("iosv",))


@pytest.mark.parametrize("part", PARTS)
async def test_a_part_without_a_response_delays_the_others_by_its_head_start(part: str) -> None:
    server = FakeServer(seconds=0.2, definitions=("iosv",), kvm=True, hanging={part})
    cml, began = cml_of(server), clock.boottime()
    reading = await cml.read_server(EVERYTHING, 45)
    arrived = {
        "stats": reading.stats is not None,
        "license": reading.license_state is not None,
        "health": reading.kvm_enabled is not None,
        "definitions": reading.definitions is not None,
    }
    assert arrived == {name: name != part for name in PARTS}
    assert all(server.calls[name] == 1 for name in PARTS)
    if part in ("health", "definitions"):
        assert not reading.timed_out
        assert clock.boottime() - began < SIDE_TIMEOUT + 1, "as long as it may take itself"
    else:
        assert reading.timed_out


async def test_parts_that_take_long_overlap() -> None:
    cml, began = cml_of(FakeServer(seconds=20)), clock.boottime()
    reading = await cml.read_server(EVERYTHING, 45)
    assert reading.stats is not None
    assert reading.license_state is not None
    assert isinstance(reading.health_error, CMLNotReadyError)
    assert clock.boottime() - began == pytest.approx(20 + 20 + HEAD_START)
