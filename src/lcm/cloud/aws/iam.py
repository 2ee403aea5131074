"""Which account calls run as."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lcm.cloud.aws.gateway import Gateway


class Identity:
    """Asked for once: credentials are renewed, but never become another account's."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._account: str | None = None
        self._asking = asyncio.Lock()

    async def account_id(self) -> str:
        """The number of the account."""
        async with self._asking:
            if self._account is None:
                answer = await self._gateway.call("GetCallerIdentity", {})
                self._account = str(answer["Account"])
            return self._account
