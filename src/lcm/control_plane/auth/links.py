"""Sign-in links: a code that is good once and for some minutes, such as `lcm up` prints.

Codes live in the memory of the process that made them, as hashes. A page should take the code from the part of the
address after `#` and post it: then it is in no log, and whoever looks at a link in advance does not use it up.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

from lcm.control_plane.auth.roles import Unauthenticated
from lcm.control_plane.secrets.box import Secret
from lcm.core import clock

if TYPE_CHECKING:
    from lcm.control_plane.auth.roles import Caller

PATH = "/sign-in"
SECONDS = 600.0
MOST = 100
_CODE_BYTES = 32


class SignInLinks:
    """Codes that were not used yet; past `MOST` the oldest is void."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._open: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    def issue(self, caller: Caller) -> Secret:
        """A code by which somebody signs in as `caller`."""
        code = clock.chance().randbytes(_CODE_BYTES).hex()
        self._open[_digest(code)] = (caller, asyncio.get_running_loop().time() + self._seconds)
        if len(self._open) > MOST:
            self._open.popitem(last=False)
        return Secret(code)

    def address(self, caller: Caller) -> Secret:
        """The path of a link that signs somebody in as `caller`."""
        return Secret(f"{PATH}#{self.issue(caller).reveal()}")

    def redeem(self, code: str) -> Caller:
        """Whom the code signs in, once; raises `Unauthenticated` for one that is unknown, used or too old."""
        # Found by its hash: how long that takes says nothing about the code.
        caller, until = self._open.pop(_digest(code), (None, 0.0))
        if caller is None or asyncio.get_running_loop().time() >= until:
            raise Unauthenticated("This sign-in link was used already or is too old. Ask for a new one.")
        return caller


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest()
