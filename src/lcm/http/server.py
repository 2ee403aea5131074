"""The HTTP server of a process, with its health, readiness, info and metrics endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from typing import TYPE_CHECKING

import uvicorn
from fastapi import APIRouter, FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from lcm.core import clock
from lcm.core.hosting import HostedService, cancel_and_wait
from lcm.core.singleflight import Singleflight
from lcm.http.exposition import render_metrics
from lcm.http.listener import RELOAD_SECONDS, ListenerOptions
from lcm.http.protocol import HttpProtocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from lcm.http.listener import ServerCertificate

_BACKLOG = 2048  # connections that wait to be accepted, as many as uvicorn allows


class PortInUseError(Exception):
    """Another process already uses the port."""


class HttpServer(HostedService):
    """Serves an app on one port."""

    def __init__(
        self, app: FastAPI, host: str, port: int, *, port_setting: str, options: ListenerOptions | None = None
    ) -> None:
        super().__init__("http")
        self._options = options or ListenerOptions()
        self.shutdown_seconds = self._options.shutdown_seconds
        self.app = app
        self._host = host
        self._port = port
        self._port_setting = port_setting
        self._socket: socket.socket | None = None
        self._server: _UvicornServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        port = self._port if self._socket is None else self._socket.getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        scheme = "http" if self._options.certificate is None else "https"
        return f"{scheme}://{host}:{port}"

    async def start(self) -> None:
        """Listen; returns when connections are accepted. A port in use is reported before anything else happens."""
        self._socket = self._bind()
        config = uvicorn.Config(
            self.app,
            http=HttpProtocol,
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            # X-Forwarded-For and X-Forwarded-Proto count only from proxies that are named: not even from this machine.
            forwarded_allow_ips=os.environ.get("FORWARDED_ALLOW_IPS", ""),
            timeout_graceful_shutdown=math.ceil(self.shutdown_seconds),
        )
        if self._options.certificate is not None:
            config.load()
            config.ssl = self._options.certificate.context
        self._server = _UvicornServer(config)
        self._serving = self._spawn(self._server.serve(sockets=[self._socket]), "serve")
        listening = asyncio.create_task(self._server.listening.wait())
        try:
            await asyncio.wait([self._serving, listening], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait([listening])
        if self._serving.done():
            await self._serving  # raises its error
            raise RuntimeError("the HTTP server ended before it could listen")
        if self._options.certificate is not None:
            self._reloading = self._spawn(self._reload(self._options.certificate), "reload certificate")

    async def stop(self) -> None:
        """Accept no more connections, let running requests finish for `shutdown_seconds`, then close."""
        if self._reloading is not None:
            await cancel_and_wait([self._reloading])
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait([self._serving])
        if self._socket is not None:
            self._socket.close()

    async def _reload(self, certificate: ServerCertificate) -> None:
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            certificate.reload_if_changed()

    def _bind(self) -> socket.socket:
        found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, _, protocol, _, address = found[0]
        # The protocol must be named: only then does asyncio set TCP_NODELAY. Otherwise the body of a short response
        # waits for the client's acknowledgment of the headers, up to 40 ms.
        listening = socket.socket(family, socket.SOCK_STREAM, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
            # Two processes can bind a port on which neither listens yet; only one of them can listen.
            listening.listen(_BACKLOG)
        except OSError as error:
            listening.close()
            hint = f"stop the process that listens there, or set {self._port_setting} or BIND_HOST"
            raise PortInUseError(f"cannot listen on {self._host}:{self._port}: {error.strerror}; {hint}") from None
        listening.setblocking(False)
        return listening


class _UvicornServer(uvicorn.Server):
    """uvicorn without its signal handlers: `Host` handles signals. `listening` is set once it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def process_routes(
    services: Sequence[HostedService],
    info: Mapping[str, object],
    registry: CollectorRegistry = REGISTRY,
    before_scrape: Callable[[], Awaitable[None]] | None = None,
) -> APIRouter:
    """The routes that need no token: health, readiness, info and metrics.

    `before_scrape` reads what a collector reports and cannot read itself, because collectors do not wait.
    """
    router = APIRouter(tags=["process"])
    # Only for this server: where several share a process and a registry, each reports its own readiness.
    own = CollectorRegistry()
    own.register(_ProcessCollector(services))
    scrapes: Singleflight[str, bytes] = Singleflight()

    async def scrape() -> bytes:
        """One scrape at a time: those that come meanwhile share it."""
        if before_scrape is not None:
            await before_scrape()
        return await render_metrics(registry) + await render_metrics(own)

    @router.get("/health")
    async def health() -> dict[str, object]:
        """The process is alive; whether it leads and when it last finished a pass."""
        body: dict[str, object] = {"status": "healthy"}
        for service in services:
            body.update(service.health())
        return body

    @router.get("/ready", responses={503: {"description": "Not ready; see `reasons`"}})
    async def ready(response: Response) -> dict[str, object]:
        """Whether the process is ready, if not, why, and what is degraded although it is ready."""
        reasons = _unready_reasons(services)
        if reasons:
            response.status_code = 503
        return {"ready": not reasons, "reasons": reasons, "degraded": _degradations(services)}

    @router.get("/info")
    async def about() -> dict[str, object]:
        """Name, version and configuration of this process."""
        return dict(info)

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Prometheus metrics."""
        return Response(await scrapes.run("all", scrape, "metrics"), media_type=CONTENT_TYPE_LATEST)

    return router


class _ProcessCollector(Collector):
    """The result of `/ready` and the tasks of the process, evaluated at scrape time."""

    def __init__(self, services: Sequence[HostedService]) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("lcm_ready", "1 while /ready says yes", value=not _unready_reasons(self._services))
        degraded = bool(_degradations(self._services))
        yield GaugeMetricFamily("lcm_degraded", "1 while /ready names something degraded", value=degraded)
        yield GaugeMetricFamily("lcm_asyncio_tasks", "Tasks of the event loop", value=_count_tasks())
        unsettled = bool(clock.problem())
        yield GaugeMetricFamily("lcm_clock_unsettled", "1 while clocks disagree or have jumped", value=unsettled)


def _count_tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0  # registered or collected outside the event loop


def _unready_reasons(services: Sequence[HostedService]) -> list[str]:
    return [reason for service in services for reason in service.readiness()]


def _degradations(services: Sequence[HostedService]) -> list[str]:
    return list(dict.fromkeys(text for service in services for text in service.degradation()))


def make_process_app(
    services: Sequence[HostedService], info: Mapping[str, object], registry: CollectorRegistry = REGISTRY
) -> FastAPI:
    """An app with only the routes that need no token."""
    app = FastAPI(title=str(info.get("service", "lcm")), version=str(info.get("version", "")))
    app.include_router(process_routes(services, info, registry))
    return app
