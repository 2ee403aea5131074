"""One control plane for all tests of a file, and a terminal for each test that needs one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.servers.control_plane import ControlPlaneProcess, FakeWorkerController
from tests.support.servers.pseudo_terminal import PseudoTerminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers.etcd import EtcdServer


@pytest.fixture(scope="module")
def plane(
    tmp_path_factory: pytest.TempPathFactory, etcd_server: EtcdServer, request: pytest.FixtureRequest
) -> Iterator[ControlPlaneProcess]:
    made = ControlPlaneProcess(tmp_path_factory.mktemp("plane"), etcd_server, f"cli-{request.path.stem}")
    try:
        yield made.start()
    finally:
        made.process.end()


@pytest.fixture(scope="module")
def controller(plane: ControlPlaneProcess) -> FakeWorkerController:
    return FakeWorkerController(plane)


@pytest.fixture
def terminal(plane: ControlPlaneProcess) -> Iterator[Callable[..., PseudoTerminal]]:
    """`lcm` in a pseudo-terminal."""
    made: list[PseudoTerminal] = []

    def start(*arguments: str, columns: int = 100, lines: int = 30, **env: str) -> PseudoTerminal:
        made.append(PseudoTerminal(*arguments, env=plane.environment(**env), columns=columns, lines=lines))
        return made[-1]

    yield start
    for each in made:
        each.close()
