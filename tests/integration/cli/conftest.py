"""One control plane for all commands of a file, and a terminal for each that wants one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.servers.control_plane import LcmPlane, StandIn
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.pseudo_terminal import Typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LcmPlane]:
    etcd = EtcdServer(tmp_path_factory.mktemp("etcd")).start()
    made = LcmPlane(tmp_path_factory.mktemp("plane"), etcd, "cli")
    try:
        yield made.start()
    finally:
        made.process.end()
        etcd.stop()


@pytest.fixture(scope="module")
def controller(plane: LcmPlane) -> StandIn:
    return StandIn(plane)


@pytest.fixture
def terminal(plane: LcmPlane) -> Iterator[Callable[..., Typed]]:
    """`lcm` in a pseudo-terminal."""
    made: list[Typed] = []

    def start(*arguments: str, columns: int = 100, lines: int = 30, **env: str) -> Typed:
        made.append(Typed(*arguments, env=plane.environment(**env), columns=columns, lines=lines))
        return made[-1]

    yield start
    for each in made:
        each.close()
