"""The control plane's HTTP app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.auth.headers import SecurityHeadersMiddleware
from lcm.control_plane.http import errors, internal, routing
from lcm.control_plane.http.api import activity, auth, definitions, fleet, lablets, templates, workers
from lcm.control_plane.http.openapi import DocumentedApp
from lcm.control_plane.web import routing as site

if TYPE_CHECKING:
    from fastapi import FastAPI

    from lcm.control_plane.services import Services


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
        definitions.router,
        fleet.router,
        activity.router,
        fleet.system_router,
        activity.events_router,
        auth.router,
        auth.session_router,
        internal.router,
    ]
    app.api_routers = routers
    errors.install_error_handlers(app, [*routers, *site.ROUTERS])
    for router in routers:
        routing.include_routes(app, router)
    site.install(app)
    routing.install_route_index(app)
    app.add_middleware(SecurityHeadersMiddleware)
    return app
