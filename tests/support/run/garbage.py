"""The garbage collector, and what pytest collects.

The modules and tests of a run are a million objects that live until it ends. The collector need not look at them while
they are made, nor again after each test that opened a socket.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
