"""The image and the servers around it, built once for all tests."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from deploy.image_test.downloads import python_base
from deploy.image_test.engine import PYTHON_IMAGE, Engine

_CURRENT = "PYTEST_CURRENT_TEST"

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_configure() -> None:
    """SIGTERM ends the test that runs, by name, and then the containers."""
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit(f"ended by SIGTERM in {os.environ.get(_CURRENT)}", 143))


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    made = Engine()
    try:
        made.import_base(PYTHON_IMAGE, python_base())
        made.build_lcm()
        yield made
    finally:
        made.close()
