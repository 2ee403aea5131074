"""Who sends a request: code of this process, or a client on the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from typing import TypeAlias

    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

_IN_PROCESS: Final = "lcm.in_process"


def mark_in_process(app: App) -> App:
    """The app for callers inside this process. No header can claim this: only code that holds the app can."""

    async def call(scope: Message, receive: Receive, send: Send) -> None:
        await app({**scope, _IN_PROCESS: True}, receive, send)

    return call


def is_in_process(scope: Message) -> bool:
    """Whether a request comes from inside this process."""
    return scope.get(_IN_PROCESS) is True
