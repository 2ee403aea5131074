"""The control plane's HTTP app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.auth.headers import SecurityHeadersMiddleware
from lcm.control_plane.http import errors, routing
from lcm.control_plane.http.api import activity, auth, definitions, fleet, lablets, system, templates, workers
from lcm.control_plane.http.internal import lablets as internal_lablets
from lcm.control_plane.http.internal import workers as internal_workers
from lcm.control_plane.http.openapi import DocumentedApp
from lcm.control_plane.web import routing as site

if TYPE_CHECKING:
    from fastapi import FastAPI

    from lcm.control_plane.services import Services


def make_app(parts: Services, version: str) -> FastAPI:
    """All routes over these parts."""
    app = DocumentedApp(
        title="LCM control plane",
        version=version,
        description="The only owner of the fleet's records: say what you want here, and see why it is as it is.",
        redirect_slashes=False,
        docs_url=None,  # its pages load scripts from elsewhere, which our own headers forbid
        redoc_url=None,
    )
    app.state.parts = parts
    routers = [
        workers.router,
        templates.router,
        lablets.router,
        definitions.router,
        fleet.router,
        activity.router,
        system.router,
        activity.events_router,
        auth.router,
        auth.session_router,
        internal_workers.router,
        internal_lablets.router,
    ]
    app.documented = routers
    errors.install_error_handlers(app, [*routers, *site.ROUTERS])
    for router in routers:
        routing.include_routes(app, router)
    site.install(app)
    routing.install_route_index(app)
    app.add_middleware(SecurityHeadersMiddleware)
    return app
