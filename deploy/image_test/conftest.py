"""The image and the servers around it, built once for all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.image_test.engine import PYTHON_IMAGE, Engine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    made = Engine()
    try:
        made.import_base(PYTHON_IMAGE, "python3,python3-venv,python-is-python3,ca-certificates")
        made.build_lcm()
        yield made
    finally:
        made.close()
