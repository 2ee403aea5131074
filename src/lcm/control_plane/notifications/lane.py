"""The deliveries of one subscription, one after the other: a target that fails delays no other.

The journal is the outbox, and the state of a subscription has its cursor. The cursor is saved after a delivery, and in
a burst every half second, so a crash in between repeats deliveries, with the same ids. A digest is recorded before it
is sent: a repetition has the same alerts. Every write expects the revision that was read, so of two senders one notices
the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import structlog

from lcm.control_plane.notifications.digest import (
    MAX_DIGEST_ALERTS,
    MESSAGES_PER_WINDOW,
    PendingAlert,
    Wait,
    choose,
    fit_in_message,
)
from lcm.control_plane.notifications.metrics import NOTIFICATIONS
from lcm.control_plane.notifications.targets import DeliveryError
from lcm.control_plane.records.kinds import ALERT, DEAD_LETTERS, DELIVERY_STATES
from lcm.control_plane.store.port import Put, RevisionConflictError, StoreError
from lcm.core import clock
from lcm.core.backoff import Backoff
from lcm.model.notification.alert import Alert
from lcm.model.notification.subscription import DeadLetter, DeliveryAttempt, DeliveryOutcome, DeliveryState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from lcm.control_plane.notifications.digest import Send
    from lcm.control_plane.notifications.messages import Notification
    from lcm.control_plane.notifications.targets import Target
    from lcm.control_plane.store.port import Delete, Store
    from lcm.model.notification.subscription import Subscription

log = structlog.get_logger(__name__)

RETRY_FOR: Final = timedelta(hours=24)
MAX_RECENT: Final = 20
RETRY_BACKOFF: Final = Backoff(base=2.0, max_delay=600.0)
_MAX_PAUSE: Final = 3600.0  # no delay is longer, nor what a target may ask for
_STORE_BACKOFF: Final = Backoff(base=0.5, max_delay=15.0)
_PAGE: Final = 100
_UNREAD_AFTER_SKIPPED: Final = 500
_SAVE_SECONDS: Final = 0.5
_RECHECK_SECONDS: Final = 30.0


class NotSendingError(Exception):
    """Nothing may be sent any more: another control plane sends, or the subscription was deleted."""


class UnreadableStateError(Exception):
    """It is not known how far a subscription has come."""

    def __init__(self) -> None:
        super().__init__("the record of its deliveries cannot be read; delete the subscription and create it again")


@dataclass(slots=True)
class LoadedState:
    """The state of a subscription with the revision it was read with."""

    state: DeliveryState
    revision: int


async def load_state(store: Store, subscription_id: str) -> LoadedState | None:
    """How far a subscription has come; None if it was deleted. Raises `UnreadableStateError`."""
    stored = await store.get(DELIVERY_STATES, subscription_id)
    if stored is None:
        return None
    try:
        return LoadedState(DeliveryState.model_validate_json(stored.body), stored.revision)
    except ValueError:
        raise UnreadableStateError from None


async def end_failure(store: Store, subscription_id: str) -> None:
    """A target that has accepted what a person sent fails no more, unless a notification is being retried."""
    with suppress(StoreError, UnreadableStateError):  # it was sent, whatever is known of other deliveries
        loaded = await load_state(store, subscription_id)
        if loaded is not None and loaded.state.failing_since is not None and not loaded.state.attempts:
            body = loaded.state.model_copy(update={"failing_since": None}).model_dump_json().encode()
            await store.commit([Put(DELIVERY_STATES, subscription_id, body, loaded.revision)])


def dead_letter_put(letter: DeadLetter) -> Put:
    """The write of a new dead letter."""
    fields = {"subscription_id": letter.subscription_id, "at": letter.at.isoformat()}
    return Put(DEAD_LETTERS, letter.id, letter.model_dump_json().encode(), None, fields)


class SubscriptionLane:
    """Delivers the alerts of one subscription in the order of the journal."""

    def __init__(
        self,
        store: Store,
        subscription: Subscription,
        target: Target,
        *,
        digest_seconds: float,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        self.subscription = subscription
        self.problem = ""  # why nothing can be delivered, whatever the target responds
        self._store = store
        self._target = target
        self._digest_seconds = digest_seconds
        self._may_send = may_send
        self._woken = asyncio.Event()
        self._loaded: LoadedState | None = None
        self._pending: deque[PendingAlert] = deque()
        self._read_through: str | None = None
        self._skipped = 0
        self._store_failures = 0
        self._saved_at = 0.0
        self._resume_at = 0.0  # of the clock that no correction moves
        self._unsaved = False

    @property
    def failing_since(self) -> datetime | None:
        """Since when nothing was delivered; None if the last delivery succeeded."""
        return _failing_since(self._loaded.state) if self._loaded is not None else None

    @property
    def oldest_pending(self) -> datetime | None:
        """When the oldest alert that waits was raised or resolved."""
        return self._pending[0].alert.at if self._pending else None

    def wake(self) -> None:
        """There may be something to deliver."""
        self._woken.set()

    async def run(self) -> None:
        """Deliver until cancelled, or until this process may no longer send."""
        while self._may_send():
            self._woken.clear()
            try:
                delay = await self.deliver_next()
                self._store_failures = 0
            except NotSendingError:
                return
            except RevisionConflictError:
                self._forget()
                delay = 0.0
            except (StoreError, UnreadableStateError) as error:
                delay = _STORE_BACKOFF.delay(self._store_failures)
                self._store_failures += 1
                self._forget()
                self.problem = str(error) if isinstance(error, UnreadableStateError) else ""
            if delay != 0.0:
                await self._pause(delay)

    async def deliver_next(self) -> float | None:
        """Deliver what is due. Returns the seconds until there may be more; None: when woken."""
        loaded = await self._load()
        left = self._resume_at - clock.boottime()
        if left > 0:
            return left
        now = clock.now()
        is_storm = loaded.state.digest_through or loaded.state.window_count >= MESSAGES_PER_WINDOW
        await self._fill(MAX_DIGEST_ALERTS if is_storm else 1)
        if not self._pending:
            await self.flush()
            await self._save_skipped(loaded)
            if self.failing_since is None:
                return None
            # A test that a person sends may have ended it: the control plane that served the request recorded that.
            self._forget()
            return _RECHECK_SECONDS if _failing_since((await self._load()).state) is not None else None
        choice = choose(loaded.state, self._pending_list(), now, self._digest_seconds)
        if isinstance(choice, Wait):
            await self.flush()
            return choice.seconds
        if choice.is_digest and loaded.state.digest_through is None:
            loaded = await self._save(loaded, digest_through=choice.through)
        await self._deliver(loaded, choice)
        return 0.0

    async def _deliver(self, loaded: LoadedState, choice: Send) -> None:
        notification = choice.notification
        try:
            answer = await self._target.send(notification, self._check_may_send)
        except DeliveryError as error:
            await self._record_failure(loaded, choice, error)
            return
        except NotSendingError:
            raise
        except Exception as error:  # a fault of ours: shown and given up like any other, or nothing after it is sent
            log.exception("notification failed unexpectedly", subscription=self.subscription.name)
            await self._record_failure(loaded, choice, DeliveryError(f"it could not be sent: {type(error).__name__}"))
            return
        now, state = clock.now(), loaded.state
        delay = max(0.0, (now - notification.at).total_seconds())
        attempt = _attempt(notification, DeliveryOutcome.DELIVERED, answer, state.attempts + 1, now, delay)
        window: dict[str, Any] = {"window_count": state.window_count + 1}
        if choice.starts_window:
            count = MESSAGES_PER_WINDOW if choice.is_digest else 1
            window = {"window_started_at": now, "window_count": count}
        self._advance(choice.through, attempt, delivered=state.delivered + 1, **window)
        if asyncio.get_running_loop().time() - self._saved_at >= _SAVE_SECONDS:
            await self.flush()
        NOTIFICATIONS.labels(self.subscription.target.value, DeliveryOutcome.DELIVERED.value).inc()

    async def _record_failure(self, loaded: LoadedState, choice: Send, error: DeliveryError) -> None:
        now, state, notification = clock.now(), loaded.state, choice.notification
        since, attempts = state.first_failed_at or now, state.attempts + 1
        failing_since = _failing_since(state) or now
        expired = notification.alerts[0].at + RETRY_FOR <= clock.earliest_now()
        NOTIFICATIONS.labels(self.subscription.target.value, DeliveryOutcome.FAILED.value).inc()
        smaller = self._half_of(choice) if error.too_large else None
        if not expired and (smaller is not None or not error.rejected):
            delay = max(RETRY_BACKOFF.delay(state.attempts), error.retry_after)
            attempt = _attempt(notification, DeliveryOutcome.FAILED, str(error), attempts, now)
            await self._save(
                loaded,
                attempts=attempts,
                first_failed_at=since,
                failing_since=failing_since,
                next_attempt_at=now + timedelta(seconds=delay),
                failed=state.failed + 1,
                recent=_with_attempt(state.recent, attempt),
                digest_through=smaller or state.digest_through,
            )
            self._resume_after(delay)
            if attempts == 1:
                log.warning("notification failed; retrying", subscription=self.subscription.name, error=str(error))
            return
        given_up = await self._expired_with(choice) if expired else choice
        letter = DeadLetter(
            id=f"{self.subscription.id}.{given_up.notification.id}",
            subscription_id=self.subscription.id,
            notification_id=given_up.notification.id,
            summary=given_up.notification.summary,
            alerts=given_up.notification.alerts,
            answer=str(error),
            attempts=attempts,
            first_failed_at=since,
            at=now,
        )
        attempt = _attempt(given_up.notification, DeliveryOutcome.DEAD, str(error), attempts, now)
        counts = {"failed": state.failed + 1, "dead": state.dead + 1}
        after: dict[str, Any] = {**counts, "failing_since": failing_since}
        if expired:  # the target still fails: the next attempt waits as long as before
            delay = RETRY_BACKOFF.delay(state.attempts)
            after["first_failed_at"], after["attempts"] = since, attempts
            after["next_attempt_at"] = now + timedelta(seconds=delay)
            self._resume_after(delay)
        self._advance(given_up.through, attempt, **after)
        await self._save(self._loaded or loaded, dead_letter_put(letter))
        NOTIFICATIONS.labels(self.subscription.target.value, DeliveryOutcome.DEAD.value).inc()
        log.warning("notification was given up; it is a dead letter", subscription=self.subscription.name)

    def _half_of(self, choice: Send) -> str | None:
        """Where a digest ends that has half of these alerts; None if there is only one."""
        cursors = [each.cursor for each in self._pending if each.cursor <= choice.through]
        return cursors[len(cursors) // 2 - 1] if len(cursors) > 1 else None

    async def _expired_with(self, choice: Send) -> Send:
        """All alerts that have waited for too long, as one: each alone would wait for an attempt of its own."""
        if choice.is_digest:
            return choice
        await self._fill(MAX_DIGEST_ALERTS)
        before = clock.earliest_now() - RETRY_FOR
        expired: list[PendingAlert] = []
        for each in fit_in_message(list(self._pending)[:MAX_DIGEST_ALERTS]):
            if each.alert.at > before:
                break
            expired.append(each)
        if len(expired) < 2:
            return choice
        state = DeliveryState(subscription_id=self.subscription.id, digest_through=expired[-1].cursor)
        given_up = choose(state, expired, clock.now(), self._digest_seconds)
        assert not isinstance(given_up, Wait)
        return given_up

    def _advance(self, through: str, attempt: DeliveryAttempt, **update: Any) -> None:
        """Move the cursor behind a notification that needs no further attempt. It is not saved yet."""
        assert self._loaded is not None
        loaded = self._loaded
        done: dict[str, Any] = {
            "cursor": through,
            "attempts": 0,
            "first_failed_at": None,
            "failing_since": None,
            "next_attempt_at": None,
            "digest_through": None,
            "recent": _with_attempt(loaded.state.recent, attempt),
        }
        self._loaded = LoadedState(loaded.state.model_copy(update=done | update), loaded.revision)
        self._unsaved = True
        while self._pending and self._pending[0].cursor <= through:
            self._pending.popleft()
        self._skipped = 0

    async def flush(self) -> None:
        """Save the cursor if it has moved."""
        if self._unsaved and self._loaded is not None:
            await self._save(self._loaded)

    async def _save(self, loaded: LoadedState, *writes: Put | Delete, **update: Any) -> LoadedState:
        state = loaded.state.model_copy(update=update)
        body = state.model_dump_json().encode()
        await self._store.commit([Put(DELIVERY_STATES, state.subscription_id, body, loaded.revision), *writes])
        stored = await self._store.get(DELIVERY_STATES, state.subscription_id)
        if stored is None or stored.body != body:
            raise RevisionConflictError(DELIVERY_STATES.name, state.subscription_id, None)
        self._loaded = LoadedState(state, stored.revision)
        self._unsaved, self._saved_at = False, asyncio.get_running_loop().time()
        return self._loaded

    async def _save_skipped(self, loaded: LoadedState) -> None:
        """Once in a while, remember how far the journal was read: alerts for others need not be read again."""
        if self._skipped >= _UNREAD_AFTER_SKIPPED and self._read_through is not None:
            await self._save(loaded, cursor=self._read_through)
            self._skipped = 0

    async def _load(self) -> LoadedState:
        if self._loaded is None:
            self._loaded = await load_state(self._store, self.subscription.id)
            if self._loaded is None:
                raise NotSendingError
            self.problem = ""
            self._resume_after(_seconds_until(self._loaded.state.next_attempt_at))
            self._read_through = self._loaded.state.cursor
            self._pending.clear()
        return self._loaded

    def _resume_after(self, seconds: float) -> None:
        """Attempt nothing for so long. A clock that is set right meanwhile must not make that a day."""
        self._resume_at = clock.boottime() + min(seconds, _MAX_PAUSE)

    def _forget(self) -> None:
        self._loaded, self._unsaved = None, False

    async def _fill(self, wanted: int) -> None:
        """Read ahead until so many alerts wait, or all are read."""
        while len(self._pending) < wanted:
            page = await self._store.read_journal(after=self._read_through, topics=[ALERT], limit=_PAGE)
            for entry in page:
                alert = read_alert(entry.body)
                if alert is None:
                    log.error("an alert of the journal cannot be read; it is not delivered", cursor=entry.cursor)
                if alert is not None and self.subscription.filter.matches(alert):
                    self._pending.append(PendingAlert(entry.cursor, alert, len(entry.body)))
                else:
                    self._skipped += 1
            if page:
                self._read_through = page[-1].cursor
            if len(page) < _PAGE:
                return

    def _pending_list(self) -> Sequence[PendingAlert]:
        return list(self._pending)

    def _check_may_send(self) -> None:
        if not self._may_send():
            raise NotSendingError

    async def _pause(self, delay: float | None) -> None:
        try:
            async with asyncio.timeout(delay):
                await self._woken.wait()
        except TimeoutError:
            return


def _seconds_until(moment: datetime | None) -> float:
    return 0.0 if moment is None else max(0.0, (moment - clock.now()).total_seconds())


def _failing_since(state: DeliveryState) -> datetime | None:
    return state.failing_since or state.first_failed_at  # earlier versions have the second alone


def read_alert(body: bytes) -> Alert | None:
    """An alert of the journal; None if it cannot be read, for example one of a much newer version."""
    try:
        return Alert.model_validate_json(body)
    except ValueError:
        return None


def _attempt(
    notification: Notification,
    outcome: DeliveryOutcome,
    answer: str,
    attempts: int,
    at: datetime,
    delay: float | None = None,
) -> DeliveryAttempt:
    return DeliveryAttempt(
        notification_id=notification.id,
        summary=notification.summary,
        alerts=len(notification.alerts),
        outcome=outcome,
        answer=answer,
        attempts=attempts,
        at=at,
        delay_seconds=delay,
    )


def _with_attempt(recent: Sequence[DeliveryAttempt], attempt: DeliveryAttempt) -> tuple[DeliveryAttempt, ...]:
    """The newest first. Attempts of one notification are one entry."""
    others = [each for each in recent if each.notification_id != attempt.notification_id]
    return (attempt, *others)[:MAX_RECENT]
