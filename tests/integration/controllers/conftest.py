"""What the tests of controllers as processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.run import sockets

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="module")
def no_socket_is_left() -> Iterator[None]:
    """A socket that outlives its file fails the last test of that file.

    EC2 and the CML servers of a file run in this process: connections to them are those of controllers that live on.
    """
    before = sockets.open_sockets()
    yield
    left = sockets.left_open(before)
    assert not left, f"sockets outlive the tests of this file: {left}"
