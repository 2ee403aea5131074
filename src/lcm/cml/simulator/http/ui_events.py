"""`/ws/ui`: what the web interface listens to."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from lcm.cml.simulator.http.requests import get_world
from lcm.cml.simulator.http.system import stats_payload
from lcm.cml.simulator.state.faults import SimulatorApiError

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from lcm.cml.simulator.state.world import World

UNAUTHORIZED_CLOSE_CODE = 3000
STATS_SECONDS = 3.0
_POLL_SECONDS = 0.05


async def ui_websocket(socket: WebSocket) -> None:
    """Take anybody, but let stay only who shows a token in the first message."""
    world = get_world(socket)
    await socket.accept()
    try:
        async with asyncio.timeout(world.listener_seconds):
            first = json.loads(await socket.receive_text())
        world.sessions.check(first["token"])
    except (TimeoutError, ValueError, KeyError, TypeError, AttributeError, SimulatorApiError):
        await socket.close(UNAUTHORIZED_CLOSE_CODE)
        return
    except WebSocketDisconnect:
        return
    await _stream_events(socket, world)


async def _stream_events(socket: WebSocket, world: World) -> None:
    mailbox = world.telemetry.listen()
    leaving = asyncio.create_task(_wait_for_disconnect(socket))
    stats_due = world.time.now
    try:
        while not leaving.done():
            world.time.advance()
            if world.time.now >= stats_due:
                stats_due = world.time.now + STATS_SECONDS
                mailbox.append({"event_type": "system_stats", "data": stats_payload(world)})
            while mailbox:
                await socket.send_json(mailbox.popleft())
            await asyncio.wait([leaving], timeout=_POLL_SECONDS)
    except (WebSocketDisconnect, RuntimeError):
        return  # the listener left while something was being sent
    finally:
        world.telemetry.leave(mailbox)
        leaving.cancel()


async def _wait_for_disconnect(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


ROUTES = [WebSocketRoute("/ws/ui", ui_websocket)]
