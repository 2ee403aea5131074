"""The sender of notifications, put together from the settings."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from lcm.control_plane.notifications.addresses import AllowedHosts, NameLookups
from lcm.control_plane.notifications.lease import AlwaysHeld, StoreLease
from lcm.control_plane.notifications.messages import Links
from lcm.control_plane.notifications.sender import NotificationSender, SenderConfig, TargetFactory
from lcm.control_plane.notifications.smtp import SmtpConfig
from lcm.control_plane.store.sqlite.store import SqliteStore
from lcm.core import clock
from lcm.http.network import NetworkTransport

if TYPE_CHECKING:
    from pathlib import Path

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.journal.feed import JournalFeed
    from lcm.settings import NotificationSettings

_IDLE_SECONDS = 30.0
_MAX_IDLE = 20


def make_sender(
    settings: NotificationSettings,
    public_url: str | None,
    ca_file: Path | None,
    context: ControlPlaneContext,
    feed: JournalFeed,
) -> NotificationSender:
    """The sender. Hosts inside the network may have certificates of a private CA, those outside of a public one."""
    tls = ssl.create_default_context()
    if ca_file is not None:
        tls.load_verify_locations(cafile=ca_file)
    docs = settings.notify_docs_url or "docs"
    lookups = NameLookups()
    config = SenderConfig(
        links=Links(public_url or "", docs),
        digest_seconds=settings.notify_digest_seconds,
        smtp=_smtp_config(settings, tls, lookups),
        tls=tls,
    )
    allowed = AllowedHosts(settings.notify_allowed_hosts, lookups.resolve)
    transport = NetworkTransport(idle_seconds=_IDLE_SECONDS, max_idle=_MAX_IDLE, resolve=allowed.resolve)
    # A SQLite file belongs to one process, which therefore sends.
    exclusive = isinstance(context.store, SqliteStore)
    lease = AlwaysHeld() if exclusive else StoreLease(context.store, clock.new_id("cp"))
    return NotificationSender(context, feed, lease, TargetFactory(context, transport, config), transport)


def _smtp_config(settings: NotificationSettings, tls: ssl.SSLContext, lookups: NameLookups) -> SmtpConfig | None:
    if settings.smtp_host is None or settings.smtp_from is None:
        return None
    return SmtpConfig(
        host=settings.smtp_host,
        port=settings.smtp_port,
        sender=settings.smtp_from,
        security=settings.smtp_security,
        username=settings.smtp_username,
        password=settings.smtp_password,
        tls=tls,
        resolve=lookups.resolve,
    )
