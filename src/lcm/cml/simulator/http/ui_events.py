"""`/ws/ui`: what the web interface listens to."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from lcm.cml.simulator.http.requests import world_of
from lcm.cml.simulator.http.system import stats_of
from lcm.cml.simulator.state.faults import Refusal

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from lcm.cml.simulator.state.world import World

REFUSED = 3000
STATS_SECONDS = 3.0
_LOOK_SECONDS = 0.05


async def ui(socket: WebSocket) -> None:
    """Take anybody, but let stay only who shows a token in the first message."""
    world = world_of(socket)
    await socket.accept()
    try:
        async with asyncio.timeout(world.listener_seconds):
            first = json.loads(await socket.receive_text())
        world.sessions.check(first["token"])
    except (TimeoutError, ValueError, KeyError, TypeError, AttributeError, Refusal):
        await socket.close(REFUSED)
        return
    except WebSocketDisconnect:
        return
    await _serve(socket, world)


async def _serve(socket: WebSocket, world: World) -> None:
    mailbox = world.telemetry.listen()
    leaving = asyncio.create_task(_until_gone(socket))
    stats_due = world.time.now
    try:
        while not leaving.done():
            world.time.advance()
            if world.time.now >= stats_due:
                stats_due = world.time.now + STATS_SECONDS
                mailbox.append({"event_type": "system_stats", "data": stats_of(world)})
            while mailbox:
                await socket.send_json(mailbox.popleft())
            await asyncio.wait([leaving], timeout=_LOOK_SECONDS)
    except (WebSocketDisconnect, RuntimeError):
        return  # the listener left while something was being sent
    finally:
        world.telemetry.leave(mailbox)
        leaving.cancel()


async def _until_gone(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


ROUTES = [WebSocketRoute("/ws/ui", ui)]
