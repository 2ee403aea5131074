"""The control plane's HTTP app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.auth.headers import SecurityHeadersMiddleware
from lcm.control_plane.http import errors, internal, routing
from lcm.control_plane.http.api import (
    activity,
    auth,
    command_line,
    definitions,
    fleet,
    lablets,
    seat_links,
    subscriptions,
    teams,
    templates,
    workers,
)
from lcm.control_plane.http.api.calendar import bookings, schedules
from lcm.control_plane.http.openapi import DocumentedApp
from lcm.control_plane.web import routing as site
from lcm.http.request_limits import MAX_BODY_BYTES, RequestLimitsMiddleware

if TYPE_CHECKING:
    from fastapi import FastAPI

    from lcm.control_plane.services import Services


MAX_SIGN_IN_BYTES = 64 * 1024
MAX_TOPOLOGY_BYTES = 4 * 1024 * 1024
_SIGN_IN_PATHS = ("/sign-in", "/sign-out", "/api/session", "/seat", "/my")
_TOPOLOGY_PATHS = ("/api/lablet-definitions", "/definitions")


def max_body_bytes(path: str) -> int:
    """How large a body for this path may be."""
    if path.startswith(_SIGN_IN_PATHS):
        return MAX_SIGN_IN_BYTES
    return MAX_TOPOLOGY_BYTES if path.startswith(_TOPOLOGY_PATHS) else MAX_BODY_BYTES


def make_app(services: Services, version: str) -> FastAPI:
    """The app with all routes over these services."""
    app = DocumentedApp(
        title="LCM control plane",
        version=version,
        description="Owns the fleet's records: set the desired state, read the actual state and the reasons for it.",
        redirect_slashes=False,
        docs_url=None,  # its pages load scripts from other hosts, which our security headers forbid
        redoc_url=None,
    )
    app.state.services = services
    routers = [
        workers.router,
        templates.router,
        lablets.router,
        seat_links.router,
        definitions.router,
        fleet.router,
        activity.router,
        fleet.system_router,
        activity.events_router,
        subscriptions.router,
        schedules.router,
        bookings.router,
        teams.router,
        teams.workers_router,
        auth.router,
        auth.session_router,
        command_line.router,
        internal.router,
    ]
    app.api_routers = routers
    errors.install_error_handlers(app, [*routers, *site.ROUTERS])
    for router in routers:
        routing.include_routes(app, router)
    site.install(app)
    routing.install_route_index(app)
    app.add_middleware(RequestLimitsMiddleware, max_body=max_body_bytes)
    app.add_middleware(SecurityHeadersMiddleware)
    return app
