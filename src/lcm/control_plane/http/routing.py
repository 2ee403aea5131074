"""Finding the route of a request by the segments of its path, instead of trying all routes one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Match, Route

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from fastapi import APIRouter, FastAPI
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send

    IndexedRoute: TypeAlias = tuple[int, BaseRoute]
    ParameterPositions: TypeAlias = tuple[int, ...]

_PARAMETER = ""


class RouteIndex:
    """Routes by the shape of their paths.

    Among those that a path could mean, the first in the app's order wins, as it would without us. A path that nobody
    answers, a method that a path does not know, and whatever else is rare goes to the app's own router: what is said
    then is said in one place.
    """

    def __init__(self, router: APIRouter) -> None:
        self._router = router
        self._walk: ASGIApp = router.middleware_stack
        self._shapes: dict[int, dict[ParameterPositions, dict[tuple[str, ...], list[IndexedRoute]]]] = {}
        self._anywhere: list[IndexedRoute] = []
        for place, route in enumerate(router.routes):
            self._enter((place, route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A router that is traced tells which route was chosen; one below a prefix strips that first.
        if scope["type"] == "http" and not scope.get("root_path") and "fastapi.telemetry" not in scope:
            for _, route in self._candidates(scope["path"]):
                match, found = route.matches(scope)
                if match is Match.FULL:
                    scope.setdefault("router", self._router)
                    scope.update(found)
                    await route.handle(scope, receive, send)
                    return
        await self._walk(scope, receive, send)

    def _enter(self, placed: IndexedRoute) -> None:
        route = placed[1]
        if not isinstance(route, Route) or ":path}" in route.path:
            self._anywhere.append(placed)
            return
        segments = route.path.split("/")
        blanks = tuple(number for number, segment in enumerate(segments) if "{" in segment)
        fixed = self._shapes.setdefault(len(segments), {}).setdefault(blanks, {})
        fixed.setdefault(_shape(segments, blanks), []).append(placed)

    def _candidates(self, path: str) -> Iterable[IndexedRoute]:
        """The routes that this path could mean, in the app's order."""
        segments = path.split("/")
        found = list(self._anywhere)
        for blanks, fixed in self._shapes.get(len(segments), {}).items():
            found += fixed.get(_shape(segments, blanks), ())
        return sorted(found, key=_position)


def _position(placed: IndexedRoute) -> int:
    return placed[0]


def _shape(segments: list[str], blanks: ParameterPositions) -> tuple[str, ...]:
    kept = segments.copy()
    for number in blanks:
        kept[number] = _PARAMETER
    return tuple(kept)


def include_routes(app: FastAPI, router: APIRouter) -> None:
    """Put a router's routes onto the app as they are: a router kept whole is matched twice for each request."""
    app.router.routes.extend(router.routes)


def install_route_index(app: FastAPI) -> None:
    """Find routes through a switchboard, of all that the app has by now."""
    app.router.middleware_stack = RouteIndex(app.router)
