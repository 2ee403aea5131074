"""How a lablet is reached: hosts, forwarded ports and commands, and what is said where there is no address."""

from __future__ import annotations

from typing import Any

import pytest

from lcm.model.lablet.access import describe_access, forwards_port
from lcm.model.lablet.record import NodeEndpoint
from tests.support.records.lablet_records import a_lablet, a_ready_worker

WITH_IT, SINCE = "with its worker alpha, which has been", "since 2026-01-17 10:30:00 UTC."
NOT_KNOWN = "Whether the lab is running is not known: it is on"
RUNNING = {"status": "RUNNING", "worker_id": "w-1", "instance_id": "i-1", "lab_id": "lab-1"}


def on_alpha(**changes: Any) -> Any:
    return a_ready_worker(**{"name": "alpha", "public_ip": "192.0.2.7", "private_ip": "10.0.0.1", **changes})


@pytest.mark.parametrize(
    ("tag", "kind", "inside", "command"),
    [
        ("serial:${P}", "console", None, "telnet 192.0.2.7 20000"),
        ("serial:${P}:1", "console", 1, "telnet 192.0.2.7 20000"),
        ("vnc:${P}", "vnc", None, "vncviewer 192.0.2.7::20000"),
        ("pat:${P}:22", "tcp", 22, "ssh -p 20000 192.0.2.7"),
        ("pat:tcp:${P}:23", "tcp", 23, "telnet 192.0.2.7 20000"),
        ("pat:${P}:443", "tcp", 443, "https://192.0.2.7:20000"),
        ("pat:${P}:80", "tcp", 80, "http://192.0.2.7:20000"),
        ("pat:${P}:8080", "tcp", 8080, None),
        ("pat:udp:${P}:161", "udp", 161, None),
    ],
)
def test_each_kind_of_tag_has_its_command(tag: str, kind: str, inside: int | None, command: str | None) -> None:
    access = describe_access(a_lablet(**RUNNING, ports={"P": 20000}), on_alpha(), [("r1", [tag])])
    ((port,),) = (node.ports for node in access.nodes)
    assert (port.name, port.port, port.kind, port.inside, port.command) == ("P", 20000, kind, inside, command)
    assert port.address == "192.0.2.7:20000"
    assert forwards_port(tag)


@pytest.mark.parametrize("tag", ["serial", "serial:0", "vnc:70000", "pat:22", "pat:sctp:1:2", "serial:${Q}"])
def test_other_tags_forward_nothing(tag: str) -> None:
    access = describe_access(a_lablet(**RUNNING, ports={"P": 20000}), on_alpha(), [("r1", [tag, "core"])])
    assert access.nodes == ()
    assert access.other_ports == {"P": 20000}


def test_a_running_lablet_has_host_page_and_nodes() -> None:
    endpoints = (NodeEndpoint(node="r2", addresses=("10.0.0.7",)),)
    lablet = a_lablet(**RUNNING, ports={"A": 20000, "B": 20001}, endpoints=endpoints)
    access = describe_access(lablet, on_alpha(), [("r1", ["serial:${A}", "serial:2005"])])
    assert (access.state, access.host, access.private) == ("available", "192.0.2.7", False)
    assert access.lab_url == "https://192.0.2.7/lab/lab-1"
    assert [(node.node, node.addresses, [port.port for port in node.ports]) for node in access.nodes] == [
        ("r1", (), [20000, 2005]),
        ("r2", ("10.0.0.7",), []),
    ]
    assert access.other_ports == {"B": 20001}


def test_a_private_address_is_named_as_one() -> None:
    access = describe_access(a_lablet(**RUNNING), on_alpha(public_ip=None), ())
    assert (access.host, access.private) == ("10.0.0.1", True)
    ipv6 = describe_access(a_lablet(**RUNNING), on_alpha(public_ip="2001:db8::7"), ())
    assert (ipv6.host, ipv6.cml_url) == ("2001:db8::7", "https://[2001:db8::7]")


@pytest.mark.parametrize(
    ("lablet", "worker", "state", "message"),
    [
        ({}, None, "pending", "placed on a worker"),
        ({"status": "SCHEDULED", "worker_id": "w-1"}, {}, "starting", "being started"),
        ({**RUNNING, "status": "INSTANTIATING"}, {}, "starting", "being started"),
        (RUNNING, {"status": "STOPPING"}, "unreachable", "The lab is being stopped with its worker alpha, "),
        (
            RUNNING,
            {"status": "STOPPED", "public_ip": None},
            "unreachable",
            f"The lab is stopped {WITH_IT} STOPPED {SINCE}",
        ),
        (RUNNING, {"status": "TERMINATED", "public_ip": None}, "unreachable", f"The lab is gone {WITH_IT} TERMINATED"),
        (RUNNING, {"status": "UNKNOWN"}, "unreachable", f"{NOT_KNOWN} alpha, which has been UNKNOWN {SINCE}"),
        (RUNNING, {"status": "FAILED"}, "unreachable", f"{NOT_KNOWN} alpha, which has been FAILED {SINCE}"),
        (RUNNING, {"public_ip": None, "private_ip": None}, "unreachable", "alpha, which has been RUNNING"),
        ({"status": "SCHEDULED", "worker_id": "w-1"}, {"status": "STOPPED"}, "unreachable", "There is no address now"),
        (RUNNING, {"status": "DRAINING"}, "available", "The lab is running."),
        (RUNNING, {"desired_status": "STOPPED"}, "available", "The lab is running."),
        (RUNNING, {"instance_id": "i-2"}, "unreachable", "another instance"),
        (RUNNING, {"conditions": ()}, "available", "alpha is not ready"),
        ({**RUNNING, "message": "a user stopped it"}, {}, "available", "may not be running: a user stopped it."),
        ({**RUNNING, "message": "on hold by ada: her disks"}, {}, "available", "The lab is running."),
        (RUNNING, None, "unreachable", "w-1 has no record"),
        ({**RUNNING, "status": "STOPPING"}, {}, "released", "released"),
        ({**RUNNING, "status": "EXPIRED"}, {}, "released", "released"),
    ],
)
def test_it_says_why_there_is_no_address(
    lablet: dict[str, Any], worker: dict[str, Any] | None, state: str, message: str
) -> None:
    access = describe_access(
        a_lablet(**lablet), None if worker is None else on_alpha(**worker), [("r1", ["serial:2001"])]
    )
    assert access.state == state
    assert message in access.message
    assert (access.host is not None) == (state in ("starting", "available"))
    assert bool(access.nodes) == (access.host is not None)
