"""Placeholders for ports."""

from __future__ import annotations

from lcm.model.lablet.ports import substitute_ports


def test_port_placeholders_are_substituted() -> None:
    topology = "tags: [serial:${CONSOLE}, vnc:${VNC_1}]\nshell: ${HOME} ${console} $CONSOLE ${CONSOLE}"
    assert substitute_ports(topology, {"CONSOLE": 20001, "VNC_1": 20002}) == (
        "tags: [serial:20001, vnc:20002]\nshell: ${HOME} ${console} $CONSOLE 20001"
    )
