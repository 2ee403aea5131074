"""Sends notifications: one lane per subscription, in the control plane that holds the lease."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.notifications.lane import SubscriptionLane, end_failure
from lcm.control_plane.notifications.messages import Links, Notification
from lcm.control_plane.notifications.smtp import EmailTarget
from lcm.control_plane.notifications.subscriptions import (
    PREVIOUS_SECRET,
    SIGNING_SECRET,
    UNREADABLE,
    URL,
    read_target_secrets,
)
from lcm.control_plane.notifications.targets import DeliveryError, HttpTarget
from lcm.control_plane.records.kinds import ALERT, AUDIT, DEAD_LETTERS, SUBSCRIPTIONS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.secrets.encryption import DecryptionError, Secret
from lcm.control_plane.store.port import Delete, StoreError
from lcm.core import clock
from lcm.core.backoff import Backoff
from lcm.core.hosting import HostedService, cancel_and_wait, keep_running, wait_for_event
from lcm.model.notification.alert import ALERT_RULES, Alert, AlertState, AlertSubject, AlertType, SubjectKind
from lcm.model.notification.subscription import DeadLetter, DeliveryResult, Subscription, TargetKind
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.journal.feed import JournalFeed
    from lcm.control_plane.notifications.lease import SenderLease
    from lcm.control_plane.notifications.smtp import SmtpConfig
    from lcm.control_plane.notifications.targets import Target
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import JournalEntry
    from lcm.http.transport import HttpTransport
    from lcm.model.audit import Actor

log = structlog.get_logger(__name__)

DEGRADED_AFTER: Final = timedelta(minutes=5)
"""How long a target may fail before the control plane is degraded."""
_BACKOFF: Final = Backoff(base=0.5, max_delay=10.0)
_SUBSCRIPTION_PREFIX: Final = "sub-"


@dataclass(frozen=True, slots=True)
class SenderConfig:
    """How notifications are sent."""

    links: Links = field(default_factory=Links)
    digest_seconds: float = 60.0
    smtp: SmtpConfig | None = None
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class SenderStatus:
    """The state of the sender of this process."""

    sending: bool
    subscriptions: int
    lag: float
    failing: tuple[str, ...]
    problem: str


class TargetFactory:
    """Makes the target of a subscription, with its secrets."""

    def __init__(self, context: ControlPlaneContext, transport: HttpTransport, config: SenderConfig) -> None:
        self._context = context
        self._transport = transport
        self.config = config

    async def make(self, subscription: Subscription) -> Target:
        """The target of a subscription; raises `DecryptionError`."""
        config = self.config
        if subscription.target is TargetKind.EMAIL:
            return EmailTarget(subscription.recipients, config.smtp, config.links)
        secrets = await read_target_secrets(self._context.store, self._context.secret_box, subscription.id)
        signing = [secrets[SIGNING_SECRET]] if SIGNING_SECRET in secrets else []
        until = subscription.previous_secret_until
        if until is not None and clock.now() < until and PREVIOUS_SECRET in secrets:
            signing.append(secrets[PREVIOUS_SECRET])
        url = secrets.get(URL, Secret(""))
        return HttpTarget(subscription.target, url, signing, self._transport, config.links, config.tls)


@dataclass(slots=True)
class _Lane:
    revision: int
    lane: SubscriptionLane
    task: asyncio.Task[None]
    valid_until: datetime | None


class NotificationSender(HostedService):
    """Runs a lane for each enabled subscription while this process holds the lease."""

    def __init__(
        self,
        context: ControlPlaneContext,
        feed: JournalFeed,
        lease: SenderLease,
        targets: TargetFactory,
        transport: HttpTransport,
    ) -> None:
        """`transport` is what the targets send through; it is closed with the sender."""
        super().__init__("notifications")
        self._transport = transport
        self._context = context
        self._store = context.store
        self._feed = feed
        self._lease = lease
        self._targets = targets
        self._lanes: dict[str, _Lane] = {}
        self._problems: dict[str, str] = {}  # subscriptions that cannot be sent, and why
        self._unreadable: dict[str, int] = {}  # by id: the revision that cannot be read
        self._changed = asyncio.Event()
        self._sending = False
        self._problem = ""
        self._stopping = False
        self._unsubscribe: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Send in the background: a store or a target that is down does not block the start."""
        self._unsubscribe = self._feed.subscribe(self)
        self._spawn(keep_running(self.name, self._run, _BACKOFF), "lanes")

    async def stop(self) -> None:
        """Stop sending and let another control plane send at once. What is under way may be repeated."""
        self._stopping = True
        self._changed.set()
        self._unsubscribe()
        await cancel_and_wait([*self._background])
        await self._stop_lanes(list(self._lanes))
        await self._transport.aclose()
        try:
            await self._lease.release()
        except StoreError as error:
            log.info("the lease of the sender was not released; it expires", error=str(error))

    def on_gap(self) -> None:
        """Entries may have been missed: read everything again."""
        self._changed.set()
        self._wake_lanes()

    async def on_entries(self, batch: Sequence[JournalEntry]) -> None:
        """Wake the lanes for alerts, and the sender for changed subscriptions."""
        if any(entry.topic == ALERT for entry in batch):
            self._wake_lanes()
        if any(entry.topic == AUDIT and entry.subject.startswith(_SUBSCRIPTION_PREFIX) for entry in batch):
            self._changed.set()

    def status(self) -> SenderStatus:
        """The state of the sender of this process."""
        now = clock.now()
        oldest = [each.lane.oldest_pending for each in self._lanes.values()]
        waiting = [now - since for since in oldest if since is not None]
        failing = {each.lane.subscription.name for each in self._lanes.values() if each.lane.failing_since is not None}
        return SenderStatus(
            sending=self._sending,
            subscriptions=len(self._lanes),
            lag=max((each.total_seconds() for each in waiting), default=0.0),
            failing=tuple(sorted(failing | self._all_problems().keys())),
            problem="; ".join(self.degradation()),
        )

    def degradation(self) -> list[str]:
        """Degraded while the sender cannot work, or while a target has failed for some time."""
        reasons = [f"notifications: {self._problem}"] if self._problem else []
        reasons += [f"notifications: {name}: {why}" for name, why in sorted(self._all_problems().items())]
        now = clock.now()
        for each in sorted(self._lanes.values(), key=lambda lane: lane.lane.subscription.name):
            since = each.lane.failing_since
            if since is not None and not timedelta() <= now - since < DEGRADED_AFTER:  # a clock may have been ahead
                name = each.lane.subscription.name
                reasons.append(f"notifications: {name} cannot be delivered since {since:%Y-%m-%d %H:%M} UTC")
        return reasons

    def _all_problems(self) -> dict[str, str]:
        lanes = {each.lane.subscription.name: each.lane.problem for each in self._lanes.values() if each.lane.problem}
        return {**self._problems, **lanes}

    async def send_test(self, subscription: Subscription, actor: Actor) -> DeliveryResult:
        """Send a test notification now and report what the target responded."""
        subject = AlertSubject(kind=SubjectKind.CONTROL_PLANE, id="test", name=subscription.name)
        alert = Alert(
            id=clock.new_id("ev"),
            type=AlertType.TEST,
            state=AlertState.RAISED,
            severity=ALERT_RULES[AlertType.TEST].severity,
            at=clock.now(),
            subject=subject,
            summary=f"Test of the subscription {subscription.name}",
            detail=f"{actor.name} requested it. Nothing is wrong.",
        )
        return await self._send_once(subscription, Notification(alert.id, (alert,)))

    async def send_letter(self, subscription: Subscription, letter_id: str, actor: Actor) -> DeliveryResult:
        """Send a dead letter again, with the same id. It is deleted once it is delivered."""
        stored = await self._store.get(DEAD_LETTERS, letter_id)
        letter = None if stored is None else read_or_skip(stored, DeadLetter, "dead letter")
        if letter is None or letter.subscription_id != subscription.id:
            raise ProblemError(ProblemCode.NOT_FOUND, f"there is no dead letter {letter_id} of {subscription.name}")
        result = await self._send_once(subscription, Notification(letter.notification_id, letter.alerts))
        if result.delivered:
            await self._context.unit_of_work.run(actor, lambda tx: _remove_letter(tx, letter))
        return result

    async def _send_once(self, subscription: Subscription, notification: Notification) -> DeliveryResult:
        began = clock.boottime()
        try:
            target = await self._targets.make(subscription)
            answer, delivered = await target.send(notification), True
        except (DeliveryError, DecryptionError) as error:
            answer, delivered = str(error), False
        if delivered:
            await end_failure(self._store, subscription.id)
            if subscription.id in self._lanes:
                self._lanes[subscription.id].lane.wake()
        return DeliveryResult(delivered=delivered, answer=answer, seconds=round(clock.boottime() - began, 3))

    async def _run(self) -> None:
        while not self._stopping:
            self._changed.clear()
            try:
                await self._tend()
                self._problem = ""
            except StoreError as error:
                self._problem = f"the store cannot be read: {error}"
                if not self._lease.is_held():
                    self._sending = False
                    await self._stop_lanes(list(self._lanes))
            await wait_for_event(self._changed, self._lease.interval)

    async def _tend(self) -> None:
        """Renew the lease, and run the lanes of the subscriptions as they are now."""
        wanted = await self._enabled()
        if not wanted and not self._lanes:
            self._sending = False
            self._problems = dict.fromkeys(self._unreadable, UNREADABLE)
            return
        self._sending = await self._lease.acquire()
        if not self._sending:
            await self._stop_lanes(list(self._lanes))
            self._problems.clear()
            return
        outdated = [
            lane_id
            for lane_id, each in self._lanes.items()
            if lane_id not in wanted or wanted[lane_id][1] != each.revision or each.task.done() or _is_expired(each)
        ]
        await self._stop_lanes(outdated)
        self._problems = dict.fromkeys(self._unreadable, UNREADABLE)
        for lane_id, (subscription, revision) in wanted.items():
            if lane_id not in self._lanes:
                await self._start_lane(subscription, revision)

    async def _enabled(self) -> dict[str, tuple[Subscription, int]]:
        """The subscriptions to deliver. One that cannot be read is named in `degradation`, and stops no other."""
        found: dict[str, tuple[Subscription, int]] = {}
        logged, self._unreadable = self._unreadable, {}
        async for stored in find_all(self._store, SUBSCRIPTIONS):
            is_known = logged.get(stored.id) == stored.revision
            subscription = None if is_known else read_or_skip(stored, Subscription, "subscription")
            if subscription is None:
                self._unreadable[stored.id] = stored.revision
            elif subscription.enabled and subscription.target.is_known:
                found[stored.id] = (subscription, stored.revision)
        return found

    async def _start_lane(self, subscription: Subscription, revision: int) -> None:
        try:
            target = await self._targets.make(subscription)
        except DecryptionError as error:
            self._problems[subscription.name] = str(error)
            return
        lane = SubscriptionLane(
            self._store,
            subscription,
            target,
            digest_seconds=self._targets.config.digest_seconds,
            may_send=self._lease.is_held,
        )
        task = self._spawn(keep_running(f"notifications of {subscription.name}", lane.run, _BACKOFF), subscription.id)
        until = subscription.previous_secret_until
        self._lanes[subscription.id] = _Lane(revision, lane, task, until if until and until > clock.now() else None)

    async def _stop_lanes(self, lane_ids: Sequence[str]) -> None:
        stopped = [self._lanes.pop(lane_id) for lane_id in lane_ids]
        await cancel_and_wait([each.task for each in stopped])
        for each in stopped:
            try:
                await each.lane.flush()
            except StoreError as error:  # another control plane sends, or the store is away: it will be repeated
                log.info(
                    "the last deliveries were not recorded", subscription=each.lane.subscription.name, why=str(error)
                )

    def _wake_lanes(self) -> None:
        for each in self._lanes.values():
            each.lane.wake()


def _is_expired(lane: _Lane) -> bool:
    """Whether the previous signing secret, which the lane's target uses, is no longer valid."""
    return lane.valid_until is not None and clock.now() >= lane.valid_until


async def _remove_letter(tx: Transaction, letter: DeadLetter) -> None:
    """Remove what was delivered, unless another person has sent it at the same time."""
    stored = await tx.store.get(DEAD_LETTERS, letter.id)
    if stored is None:
        return
    tx.stage(Delete(DEAD_LETTERS, letter.id, stored.revision))
    tx.audit("dead_letter_sent", letter.subscription_id, notification=letter.notification_id)
