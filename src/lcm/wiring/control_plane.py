"""The control plane process: store, coordination, app and background services."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog
import yaml
from prometheus_client import REGISTRY, disable_created_metrics

from lcm.control_plane.app import make_app
from lcm.control_plane.auth.oidc.command_line import CommandLineSignIns
from lcm.control_plane.auth.oidc.renewal import SessionRenewal
from lcm.control_plane.auth.rate_limit import SignInRateLimiter
from lcm.control_plane.auth.security_log import SecurityLog, SecurityLogWriter
from lcm.control_plane.auth.session_record import SESSIONS
from lcm.control_plane.auth.sessions import SessionService
from lcm.control_plane.auth.sign_in_links import SignInLinks
from lcm.control_plane.auth.teams import TeamDirectory
from lcm.control_plane.auth.tokens import TOKENS, TokenService, load_static_tokens
from lcm.control_plane.bookings.metrics import BookingCollector
from lcm.control_plane.calendar.zone_rules import check_zone_rules
from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.fleet.history import FleetHistoryRecorder
from lcm.control_plane.fleet.system import (
    ControlPlaneCollector,
    ControlPlaneProcess,
    FleetCostCollector,
    ensure_installation,
)
from lcm.control_plane.fleet.templates import seed_templates
from lcm.control_plane.http.deps import Authenticator
from lcm.control_plane.journal.feed import JournalFeed
from lcm.control_plane.journal.mirror import Mirror
from lcm.control_plane.journal.mirror_keys import LABLET_MIRROR, WORKER_MIRROR
from lcm.control_plane.journal.retention import MaintenanceService, RetentionPolicy, delete_expired_entries
from lcm.control_plane.journal.sse import EventStream
from lcm.control_plane.lablets.retention import remove_ended_lablets
from lcm.control_plane.notifications.metrics import NotificationCollector
from lcm.control_plane.notifications.subscriptions import delete_expired_letters
from lcm.control_plane.notifications.system_alerts import SystemAlerts
from lcm.control_plane.records.backfill import backfill_fields
from lcm.control_plane.records.idempotency import delete_expired_responses
from lcm.control_plane.records.kinds import ALL_KINDS
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import ensure_key_file, load_keys
from lcm.control_plane.secrets.worker_secrets import withdraw_ended
from lcm.control_plane.services import Services
from lcm.control_plane.store.mongo_address import database_name, tls_options
from lcm.control_plane.store.port import StoreError
from lcm.control_plane.store.sqlite.store import SqliteStore
from lcm.control_plane.store.write_probe import WriteProbe
from lcm.core import clock
from lcm.core.hosting import Host, HostedService, cancel_and_wait
from lcm.core.version import installed_version
from lcm.http.server import HttpServer, process_routes
from lcm.model.audit import Actor, ActorKind
from lcm.model.fleet.settings import FleetSettings
from lcm.model.lablet.ports import parse_port_range
from lcm.model.lablet.scheduling.planner import PlanningConfig
from lcm.settings import (
    AuthSettings,
    ControllerTokenSettings,
    DataSettings,
    FleetDefaultSettings,
    FleetSourceSettings,
    HttpSettings,
    LabletLimitSettings,
    LabletPlanningSettings,
    LogSettings,
    NotificationSettings,
    PrivateCaSettings,
    RegionSettings,
    StoreSettings,
)
from lcm.settings.groups.control_plane import parse_team_map
from lcm.wiring.connections import (
    CoordinationConnection,
    EtcdRequiredSettings,
    StartedNotification,
    connect_coordination,
)
from lcm.wiring.identity_provider import make_oidc, oidc_network
from lcm.wiring.listener import make_http_server
from lcm.wiring.notifications import make_sender

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.control_plane.store.port import Store
    from lcm.core.coordination import Coordination
    from lcm.http.transport import HttpTransport
    from lcm.wiring.connections import OnStarted

log = structlog.get_logger(__name__)

STARTUP_ACTOR = Actor(kind=ActorKind.SYSTEM, name="start-up")


class ControlPlaneComponentSettings(
    StoreSettings,
    AuthSettings,
    FleetDefaultSettings,
    FleetSourceSettings,
    LabletLimitSettings,
    LabletPlanningSettings,
    NotificationSettings,
    RegionSettings,
    ControllerTokenSettings,
    HttpSettings,
    LogSettings,
    PrivateCaSettings,
    DataSettings,
):
    """Settings of a control plane, in any process."""


class ControlPlaneProcessSettings(EtcdRequiredSettings, ControlPlaneComponentSettings):
    """Settings of a control plane in its own process."""


class RegionConfigError(Exception):
    """AWS_REGION_CONFIGS cannot be read; the message gives the reason."""


def region_names(settings: RegionSettings) -> tuple[str, ...]:
    """The regions for workers, the default first. Only the names in the configuration are used here."""
    if settings.aws_region_configs is None:
        return (settings.aws_default_region,)
    text = settings.aws_region_configs.strip()
    try:
        content: Any = yaml.safe_load(text if text.startswith("{") else Path(text).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise RegionConfigError(f"AWS_REGION_CONFIGS cannot be read: {str(error).splitlines()[0]}") from None
    entries = content.get("aws_region_configs", content) if isinstance(content, dict) else None
    if not isinstance(entries, dict) or not entries:
        raise RegionConfigError("AWS_REGION_CONFIGS must be a mapping of region names to their configuration")
    names = [str(name) for name in entries]
    first = settings.aws_default_region
    return (first, *(name for name in names if name != first)) if first in names else tuple(names)


def fleet_defaults(settings: FleetDefaultSettings) -> FleetSettings:
    """The defaults of fleet settings, which stored values override."""
    groups = {
        group: {name: getattr(settings, name) for name in FleetSettings.model_fields[group].annotation.model_fields}  # type: ignore[union-attr]
        for group in FleetSettings.model_fields
    }
    return FleetSettings.model_validate(groups)


def open_store(settings: ControlPlaneComponentSettings) -> Store:
    """The store from the settings; by default a file in the data folder."""
    url = settings.store_url or f"sqlite:///{settings.lcm_data_dir / 'lcm.db'}"
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        path.parent.mkdir(parents=True, exist_ok=True)
        return SqliteStore(path)
    try:
        from lcm.control_plane.store.mongo.store import MongoStore
    except ModuleNotFoundError:
        raise StoreError("STORE_URL names MongoDB, whose driver is missing: install lcm-fleet[mongo]") from None

    return MongoStore(url, database_name(url), options=tls_options(url, settings.lcm_ca_file))


def describe_store(settings: ControlPlaneComponentSettings) -> str:
    """A description of the store, without credentials."""
    url = settings.store_url
    if url is None or url.startswith("sqlite:///"):
        return f"SQLite, {Path(url.removeprefix('sqlite:///')).name if url else 'lcm.db'}"
    hosts = urlsplit(url).netloc.rpartition("@")[2]
    return f"MongoDB, database {database_name(url)} at {hosts}"


def make_secret_box(settings: ControlPlaneComponentSettings) -> SecretBox:
    """The keys for secrets at rest; if none is configured, a key file is created in the data folder."""
    key = None if settings.lcm_secret_key is None else settings.lcm_secret_key.get_secret_value()
    path = settings.lcm_secret_key_file
    if key is None and path is None:
        path = settings.lcm_data_dir / "secret.key"
        settings.lcm_data_dir.mkdir(parents=True, exist_ok=True)
        if ensure_key_file(path):
            log.warning("created a key for secrets; back it up separately from the store", path=str(path))
    return SecretBox(load_keys(key, path))


class _StoreService(HostedService):
    """Opens the store first and closes it last; ready while the store takes writes."""

    def __init__(
        self, store: Store, parts: Services, settings: ControlPlaneComponentSettings, about: dict[str, object]
    ) -> None:
        """`about` gets the installation id once it is known."""
        super().__init__("store")
        self._store = store
        self._parts = parts
        self._settings = settings
        self._about = about
        self._probe = WriteProbe(store.check)

    async def start(self) -> None:
        """Open the store, upgrade the schema, determine the installation id, and import templates."""
        await self._store.open([*ALL_KINDS, TOKENS, SESSIONS])
        try:
            await self._settle()
        except BaseException:
            await self._store.close()
            raise
        self._spawn(self._probe.run(), "probe")

    async def _settle(self) -> None:
        """Check the installation first: a start that is rejected for it has changed nothing."""
        run, settings = self._parts.context.unit_of_work.run, self._settings
        settled = await run(STARTUP_ACTOR, lambda tx: ensure_installation(tx, settings.lcm_installation_id))
        self._about["installation_id"] = settled.installation_id
        await backfill_fields(self._store, settings.storage_price_per_gb_month_usd)
        await run(STARTUP_ACTOR, lambda tx: seed_templates(tx, settings.worker_templates_config_path))

    async def stop(self) -> None:
        """Finish pending work and close."""
        await cancel_and_wait(list(self._background))
        await self._parts.authenticator.tokens.close()
        await self._parts.authenticator.sessions.close()
        if self._parts.authenticator.sign_in is not None:
            await self._parts.authenticator.sign_in.close()
        await self._store.close()

    def readiness(self) -> list[str]:
        """Why the store takes no writes."""
        problem = self._probe.problem()
        return [f"store: {problem}"] if problem else []


def make_maintenance(settings: StoreSettings, store: Store, parts: Services) -> MaintenanceService:
    """Periodic removal of expired records."""
    days, hours = settings.journal_retention_days, settings.event_retention_hours
    retention = RetentionPolicy(timedelta(days=days) if days else None, timedelta(hours=hours))
    return MaintenanceService(
        {
            "metrics": parts.metrics.downsample,
            "sessions": parts.authenticator.sessions.sweep,
            "sign-in links": parts.authenticator.links.sweep,
            "seat links": parts.seat_sessions.sweep,
            "idempotent responses": lambda: delete_expired_responses(store, clock.earliest_now()),
            "journal": lambda: delete_expired_entries(store, retention),
            "secrets of ended workers": lambda: withdraw_ended(parts.context.unit_of_work),
            "dead letters": lambda: delete_expired_letters(store),
            "time zones": lambda: check_zone_rules(parts.context, clock.now()),
            "lablets": lambda: remove_ended_lablets(parts.context.unit_of_work, settings.lablet_retention_days),
        }
    )


def _make_authenticator(
    settings: ControlPlaneComponentSettings,
    store: Store,
    box: SecretBox,
    http: HttpTransport,
    on_commit: Callable[[], None],
) -> Authenticator:
    bootstrap, controller = settings.lcm_bootstrap_token, settings.lcm_controller_token
    configured = load_static_tokens(
        None if bootstrap is None else bootstrap.get_secret_value(),
        None if controller is None else controller.get_secret_value(),
    )
    tokens = TokenService(store, configured)
    teams = TeamDirectory(store, parse_team_map(settings.oidc_role_map))
    verifier, sign_in = make_oidc(settings, settings.lcm_ca_file, box, http, teams)
    renewal = None if sign_in is None else SessionRenewal(store, box, sign_in)
    sessions = SessionService(store, tokens, box, renewal)
    return Authenticator(
        tokens,
        sessions,
        SignInRateLimiter(),
        SignInLinks(store),
        SecurityLog(store, on_commit),
        verifier,
        sign_in,
        None if sign_in is None else CommandLineSignIns(sign_in, sessions, box),
        teams=teams,
    )


@dataclass(frozen=True, slots=True)
class ControlPlaneAssembly:
    """An assembled control plane. Start coordination first, then `services` in this order."""

    parts: Services
    services: Sequence[HostedService]
    server: HttpServer
    about: dict[str, object]


def make_control_plane(
    settings: ControlPlaneComponentSettings, coordination: Coordination, http: HttpTransport
) -> ControlPlaneAssembly:
    """Assemble a control plane for any process. `http` calls the identity provider."""
    store = open_store(settings)
    feed = JournalFeed(store)
    plane = ControlPlaneContext(
        store,
        UnitOfWork(store, feed.wake, storage_price=settings.storage_price_per_gb_month_usd),
        make_secret_box(settings),
        region_names(settings),
        fleet_defaults(settings),
        PlanningConfig(parse_port_range(settings.lablet_port_range), settings.lablet_lead_time),
        settings.scale_up_license_token,
        timedelta(hours=settings.lablet_max_lifetime_hours) if settings.lablet_max_lifetime_hours else None,
    )
    gate = _make_authenticator(settings, store, plane.secret_box, http, feed.wake)
    mirrors = [Mirror(store, coordination, feed, mirrored) for mirrored in (WORKER_MIRROR, LABLET_MIRROR)]
    stream = EventStream(store, feed)
    about: dict[str, object] = {
        "service": "control-plane",
        "version": installed_version(),
        "coordination": coordination.description,
        "regions": list(plane.regions),
    }
    sender = make_sender(settings, settings.lcm_public_url, settings.lcm_ca_file, plane, feed)
    process = ControlPlaneProcess(about, describe_store(settings), mirrors, sender)
    parts = Services.create(
        plane, gate, stream, metrics_retention_hours=settings.metrics_retention_hours, process=process, sender=sender
    )
    opened = _StoreService(store, parts, settings, about)
    REGISTRY.register(ControlPlaneCollector(mirrors, stream))
    REGISTRY.register(NotificationCollector(sender))
    costs = FleetCostCollector(parts.fleet.summary)
    REGISTRY.register(costs)
    bookings = BookingCollector(store)
    REGISTRY.register(bookings)

    async def before_scrape() -> None:
        await asyncio.gather(costs.refresh(), bookings.refresh())

    app = make_app(parts, installed_version())
    app.include_router(process_routes([opened, feed, *mirrors, stream, sender], about, before_scrape=before_scrape))
    server = make_http_server(app, settings, settings.control_plane_port, "CONTROL_PLANE_PORT")
    services = [opened, feed, SecurityLogWriter(gate.security_log), *mirrors, server, stream, sender]
    services.append(SystemAlerts(plane, parts.system, mirrors, sender, opened.readiness))
    services += [make_maintenance(settings, store, parts), FleetHistoryRecorder(parts.fleet_history)]
    return ControlPlaneAssembly(parts, services, server, about)


async def serve_control_plane(settings: ControlPlaneProcessSettings, started: OnStarted) -> int:
    """Run the control plane until it is stopped; returns the exit code."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    coordination = connect_coordination(settings)
    async with aclosing(oidc_network(settings)) as http:
        assembly = make_control_plane(settings, coordination, http)
        notification = StartedNotification(lambda: started(assembly.server.url, assembly.about))
        return await Host([CoordinationConnection(coordination), *assembly.services, notification]).run()
