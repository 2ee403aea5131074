"""A process's own HTTP surface: health, readiness, what it is, and its metrics."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import uvicorn
from fastapi import APIRouter, FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lcm.core.hosting import HostedService
from lcm.http.exposition import render_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

_GRACEFUL_SHUTDOWN_SECONDS = 3


class PortInUseError(Exception):
    """Somebody else listens there."""


class HttpServer(HostedService):
    """Serves an app on one port."""

    def __init__(self, app: FastAPI, host: str, port: int, *, port_setting: str) -> None:
        super().__init__("http")
        self.app = app
        self._host = host
        self._port = port
        self._port_setting = port_setting
        self._socket: socket.socket | None = None
        self._server: _UvicornServer | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it can be reached."""
        port = self._port if self._socket is None else self._socket.getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{port}"

    async def start(self) -> None:
        """Listen. A port that is taken is told before anything else happens."""
        self._socket = self._bind()
        config = uvicorn.Config(
            self.app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_GRACEFUL_SHUTDOWN_SECONDS,
        )
        self._server = _UvicornServer(config)
        self._serving = self._spawn(self._server.serve(sockets=[self._socket]), "serve")

    async def stop(self) -> None:
        """Let requests under way finish, then close."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait([self._serving])
        if self._socket is not None:
            self._socket.close()

    def _bind(self) -> socket.socket:
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, _, protocol, _, address = found[0]
        # The protocol must be named: only then does asyncio send what is written at once. Else the body of a short
        # answer waits until the client has acknowledged the head, for up to 40 ms.
        listening = socket.socket(family, socket.SOCK_STREAM, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
        except OSError as error:
            listening.close()
            hint = f"end what listens there, or set {self._port_setting} or BIND_HOST"
            raise PortInUseError(f"cannot listen on {self._host}:{self._port}: {error.strerror}; {hint}") from None
        listening.setblocking(False)
        return listening


class _UvicornServer(uvicorn.Server):
    """uvicorn without handlers of its own for signals: the host owns those."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def process_routes(
    services: Sequence[HostedService], info: Mapping[str, object], registry: CollectorRegistry = REGISTRY
) -> APIRouter:
    """What anybody may ask of a process: is it alive, can it work, what is it, what did it count."""
    router = APIRouter(tags=["process"])
    # Of this surface alone: where several share a process and a registry, each tells of itself.
    own = CollectorRegistry()
    own.register(_ReadinessCollector(services))

    @router.get("/health")
    async def health() -> dict[str, object]:
        """The process answers; whether it leads and what it did last."""
        facts: dict[str, object] = {"status": "healthy"}
        for service in services:
            facts.update(service.health())
        return facts

    @router.get("/ready", responses={503: {"description": "Not ready; `reasons` says why"}})
    async def ready(response: Response) -> dict[str, object]:
        """Whether it can do its work now, and if not, why."""
        reasons = _unready_reasons(services)
        if reasons:
            response.status_code = 503
        return {"ready": not reasons, "reasons": reasons}

    @router.get("/info")
    async def about() -> dict[str, object]:
        """What this process is."""
        return dict(info)

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Prometheus metrics."""
        return Response(await render_metrics(registry) + await render_metrics(own), media_type=CONTENT_TYPE_LATEST)

    return router


class _ReadinessCollector(Collector):
    """What `/ready` would answer, read when somebody scrapes."""

    def __init__(self, services: Sequence[HostedService]) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("lcm_ready", "1 while /ready says yes", value=not _unready_reasons(self._services))


def _unready_reasons(services: Sequence[HostedService]) -> list[str]:
    return [reason for service in services for reason in service.readiness()]


def make_process_app(
    services: Sequence[HostedService], info: Mapping[str, object], registry: CollectorRegistry = REGISTRY
) -> FastAPI:
    """An app with the open routes alone."""
    app = FastAPI(title=str(info.get("service", "lcm")), version=str(info.get("version", "")))
    app.include_router(process_routes(services, info, registry))
    return app
