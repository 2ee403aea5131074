"""Signing in at a real identity provider, and sessions whose person it confirmed a while ago."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lcm.control_plane.auth.session_record import SESSIONS, StoredSession, put_session
from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.port import RevisionConflictError
from lcm.core import clock

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.web.pages import PageWatch


def allow_provider(watch: PageWatch, *patterns: str) -> None:
    """The provider is another host, and it has no icon."""
    watch.allow(r"another host: http://(localhost|127\.0\.0\.1):")
    watch.allow(r"status of 404 .*favicon")
    for pattern in patterns:
        watch.allow(pattern)


def answer(page: Page, account: str) -> None:
    """Sign in at the provider."""
    page.get_by_label("Account").fill(account)
    page.get_by_role("button", name="Continue").click()


def make_old(store_url: str, minutes: float, *, access_expired: bool = False) -> None:
    """Let the provider's last confirmation of every session be this many minutes ago, or its access token expire."""

    async def rewrite_one(store: MongoStore, key: str) -> None:
        while (stored := await store.get(SESSIONS, key)) is not None:
            session = StoredSession.model_validate_json(stored.body)
            if session.grant is None:
                return  # of a token
            changes: dict[str, Any] = {"checked_at": clock.now() - timedelta(minutes=minutes), "silent_until": None}
            changes |= {"access_expires_at": clock.now()} if access_expired else {}
            old = session.model_copy(update={"grant": session.grant.model_copy(update=changes)})
            with suppress(RevisionConflictError):  # a control plane has just written it
                await store.commit([put_session(key, old, stored.revision)])
                return

    async def rewrite() -> None:
        store = MongoStore(store_url, urlsplit(store_url).path.strip("/"))
        await store.open([SESSIONS])
        try:
            for listed in (await store.find(SESSIONS, limit=100)).items:
                await rewrite_one(store, listed.id)
        finally:
            await store.close()

    with ThreadPoolExecutor(1) as aside:  # Playwright has an event loop in this thread
        aside.submit(asyncio.run, rewrite()).result()
