"""Subscriptions: created, changed, rotated and deleted by admins. Their secrets are stored apart, encrypted."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pydantic import SecretStr, TypeAdapter, ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.notifications.lane import UnreadableStateError, load_state, read_alert
from lcm.control_plane.notifications.signing import new_signing_secret
from lcm.control_plane.records.idempotency import find_response, store_response
from lcm.control_plane.records.kinds import (
    ALERT,
    DEAD_LETTERS,
    DELIVERY_STATES,
    SUBSCRIPTION_SECRETS,
    SUBSCRIPTIONS,
    find_all,
)
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.secrets.encryption import DecryptionError, Secret, SecretLocation
from lcm.control_plane.store.port import Delete, Put, Sort, Where
from lcm.control_plane.teams.selection import find_team_ids, read_team_names
from lcm.core import clock
from lcm.model.base import Page
from lcm.model.notification.subscription import (
    CreatedSubscription,
    DeadLetter,
    DeadLetterSummary,
    DeliveryState,
    RotatedSecret,
    Subscription,
    SubscriptionStatus,
    TargetKind,
)
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.secrets.encryption import SecretBox
    from lcm.control_plane.store.port import JournalEntry, Store, StoredDocument
    from lcm.model.audit import Actor
    from lcm.model.notification.subscription import AlertFilter, CreateSubscriptionRequest, EditSubscriptionRequest

URL: Final = "url"
SIGNING_SECRET: Final = "signing_secret"  # noqa: S105 - the name of a field
PREVIOUS_SECRET: Final = "previous_signing_secret"  # noqa: S105 - the name of a field
PREVIOUS_SECRET_FOR: Final = timedelta(hours=24)
MAX_SUBSCRIPTIONS: Final = 200
DEAD_LETTER_RETENTION: Final = timedelta(days=30)
UNREADABLE: Final = "its record cannot be read; delete it with DELETE /api/subscriptions/ID and create it again"
_MAX_PENDING_COUNTED: Final = 1000
_MAX_PENDING_LISTED: Final = 100
_CIPHERTEXTS: Final = TypeAdapter(dict[str, str])


def public_address(url: str) -> str:
    """What may be shown of a URL: the rest may be a credential."""
    parsed = urlsplit(url)
    return f"{parsed.scheme}://{parsed.netloc}/…"


class SubscriptionService:
    """Reads and changes subscriptions."""

    def __init__(self, context: ControlPlaneContext) -> None:
        self._context = context
        self._store = context.store

    async def create(
        self, actor: Actor, request: CreateSubscriptionRequest, key: IdempotencyKey | None = None
    ) -> CreatedSubscription:
        """Create a subscription. It delivers the alerts that come after it.

        A repetition, whose first answer was lost, gets the same answer, also the signing secret.
        """
        if request.target_problem is not None:
            raise ProblemError(ProblemCode.INVALID, request.target_problem)
        secret = new_signing_secret() if request.target is TargetKind.WEBHOOK else None

        async def attempt(tx: Transaction) -> CreatedSubscription:
            made = await find_response(tx.store, key)
            if made is not None:
                return await self._made_before(tx.store, Subscription.model_validate_json(made))
            if sum(count for _, count, _ in await tx.store.count_by(SUBSCRIPTIONS, ["name"])) >= MAX_SUBSCRIPTIONS:
                detail = f"there are {MAX_SUBSCRIPTIONS} subscriptions, which is the limit; delete one"
                raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
            url = None if request.url is None else request.url.get_secret_value()
            subscription = Subscription(
                id=clock.new_id("sub"),
                name=request.name,
                target=request.target,
                address=", ".join(request.recipients) if url is None else public_address(url),
                recipients=request.recipients,
                filter=await _with_team_ids(tx.store, request.filter),
                enabled=request.enabled,
                created_at=tx.now,
                updated_at=tx.now,
            )
            newest = await tx.store.read_journal(newest_first=True, limit=1)
            state = DeliveryState(subscription_id=subscription.id, cursor=newest[0].cursor if newest else None)
            tx.stage(subscription_put(subscription, None))
            tx.stage(Put(DELIVERY_STATES, subscription.id, state.model_dump_json().encode(), None))
            self._stage_secrets(tx, subscription.id, {URL: url, SIGNING_SECRET: secret})
            tx.audit("subscription_created", subscription.id, name=subscription.name, target=subscription.target.value)
            store_response(tx, key, subscription.model_dump_json().encode())
            return CreatedSubscription(
                subscription=subscription, signing_secret=None if secret is None else SecretStr(secret)
            )

        return await self._context.unit_of_work.run(actor, attempt)

    async def _made_before(self, store: Store, subscription: Subscription) -> CreatedSubscription:
        secret = (await read_target_secrets(store, self._context.secret_box, subscription.id)).get(SIGNING_SECRET)
        return CreatedSubscription(
            subscription=subscription, signing_secret=None if secret is None else SecretStr(secret.reveal())
        )

    async def get(self, subscription_id: str) -> Subscription:
        """One subscription."""
        return (await _read(self._store, subscription_id))[0]

    async def edit(self, actor: Actor, subscription_id: str, request: EditSubscriptionRequest) -> Subscription:
        """Change the fields that are given."""

        async def attempt(tx: Transaction) -> Subscription:
            before, revision = await _read(tx.store, subscription_id)
            after = _edited(before, request)
            if request.filter is not None:
                selected = before.filter.selector.teams
                after = after.model_copy(update={"filter": await _with_team_ids(tx.store, request.filter, selected)})
            if after == before and request.url is None:
                return before
            after = after.model_copy(update={"updated_at": tx.now})
            tx.stage(subscription_put(after, revision))
            if request.url is not None:
                await self._change_secrets(tx, subscription_id, {URL: request.url.get_secret_value()})
            tx.audit("subscription_edited", subscription_id, name=after.name, fields=sorted(request.model_fields_set))
            return after

        return await self._context.unit_of_work.run(actor, attempt)

    async def rotate(self, actor: Actor, subscription_id: str) -> RotatedSecret:
        """A new signing secret. Messages are signed with both for a day, so that no receiver misses one."""
        secret = new_signing_secret()

        async def attempt(tx: Transaction) -> RotatedSecret:
            before, revision = await _read(tx.store, subscription_id)
            if before.target is not TargetKind.WEBHOOK:
                raise ProblemError(ProblemCode.INVALID, f"a {before.target} target has no signing secret")
            until = tx.now + PREVIOUS_SECRET_FOR
            present = (await read_target_secrets(tx.store, self._context.secret_box, subscription_id))[SIGNING_SECRET]
            await self._change_secrets(tx, subscription_id, {SIGNING_SECRET: secret, PREVIOUS_SECRET: present.reveal()})
            after = before.model_copy(update={"previous_secret_until": until, "updated_at": tx.now})
            tx.stage(subscription_put(after, revision))
            tx.audit("subscription_secret_rotated", subscription_id, name=before.name)
            return RotatedSecret(signing_secret=SecretStr(secret), previous_secret_until=until)

        return await self._context.unit_of_work.run(actor, attempt)

    async def delete(self, actor: Actor, subscription_id: str) -> Subscription:
        """Delete a subscription with its secrets, its deliveries and its dead letters, also if it cannot be read."""

        async def attempt(tx: Transaction) -> Subscription:
            found = await _get_stored(tx.store, subscription_id)
            before = read_or_skip(found, Subscription, "subscription") or _unreadable(subscription_id, tx.now)
            tx.stage(Delete(SUBSCRIPTIONS, subscription_id, found.revision))
            for kind in (SUBSCRIPTION_SECRETS, DELIVERY_STATES):
                stored = await tx.store.get(kind, subscription_id)
                if stored is not None:
                    tx.stage(Delete(kind, subscription_id, stored.revision))
            tx.audit("subscription_deleted", subscription_id, name=before.name)
            return before

        deleted = await self._context.unit_of_work.run(actor, attempt)
        async for letter in find_all(self._store, DEAD_LETTERS, _letters_of(subscription_id)):
            await self._store.commit([Delete(DEAD_LETTERS, letter.id, letter.revision)])
        return deleted

    async def status(self, subscription_id: str) -> SubscriptionStatus:
        """A subscription with its last deliveries."""
        return await self._status(await self.get(subscription_id), _MAX_PENDING_COUNTED)

    async def statuses(self) -> list[SubscriptionStatus]:
        """All subscriptions by name, with their last deliveries. It is for a page that asks often: less is counted."""
        page = await self._store.find(SUBSCRIPTIONS, sort=Sort("name"), limit=MAX_SUBSCRIPTIONS)
        found = [read_or_skip(stored, Subscription, "subscription") for stored in page.items]
        return [await self._status(each, _MAX_PENDING_LISTED) for each in found if each is not None]

    async def _status(self, subscription: Subscription, max_pending: int) -> SubscriptionStatus:
        problem, state = "", DeliveryState(subscription_id=subscription.id)
        waiting: Sequence[JournalEntry] = ()
        try:
            loaded = await load_state(self._store, subscription.id)
            state = loaded.state if loaded is not None else state
            waiting = await self._store.read_journal(after=state.cursor, topics=[ALERT], limit=max_pending)
        except UnreadableStateError as error:
            problem = str(error)
        counted = await self._store.count_by(DEAD_LETTERS, ["subscription_id"], _letters_of(subscription.id))
        alerts = [alert for entry in waiting if (alert := read_alert(entry.body)) is not None]
        return SubscriptionStatus(
            subscription=subscription,
            problem=problem,
            pending=sum(map(subscription.filter.matches, alerts)),
            more_pending=len(waiting) == max_pending,
            failing_since=state.failing_since or state.first_failed_at,
            next_attempt_at=state.next_attempt_at,
            delivered=state.delivered,
            dead_letters=sum(count for _, count, _ in counted),
            recent=state.recent,
            team_names=await read_team_names(self._store, subscription.filter.selector.teams),
        )

    async def dead_letters(self, subscription_id: str, *, limit: int, cursor: str | None) -> Page[DeadLetter]:
        """The notifications that could not be delivered, the newest first."""
        await self.get(subscription_id)
        page = await self._store.find(
            DEAD_LETTERS, _letters_of(subscription_id), sort=Sort("at", descending=True), after=cursor, limit=limit
        )
        letters = [read_or_skip(stored, DeadLetter, "dead letter") for stored in page.items]
        return Page(items=tuple(each for each in letters if each is not None), next_cursor=page.next_cursor)

    async def newest_letters(self, subscription_id: str, limit: int) -> list[DeadLetterSummary]:
        """The newest notifications that could not be delivered, without their alerts."""
        sort = Sort("at", descending=True)
        page = await self._store.find(DEAD_LETTERS, _letters_of(subscription_id), sort=sort, limit=limit)
        found = [read_or_skip(stored, DeadLetterSummary, "dead letter") for stored in page.items]
        return [letter for letter in found if letter is not None]

    def _stage_secrets(self, tx: Transaction, subscription_id: str, secrets: Mapping[str, str | None]) -> None:
        body = _encrypted(self._context.secret_box, subscription_id, secrets, {})
        tx.stage(Put(SUBSCRIPTION_SECRETS, subscription_id, body, None))

    async def _change_secrets(self, tx: Transaction, subscription_id: str, secrets: Mapping[str, str | None]) -> None:
        stored = await tx.store.get(SUBSCRIPTION_SECRETS, subscription_id)
        before = {} if stored is None else json.loads(stored.body)
        body = _encrypted(self._context.secret_box, subscription_id, secrets, before)
        tx.stage(Put(SUBSCRIPTION_SECRETS, subscription_id, body, None if stored is None else stored.revision))


def subscription_put(subscription: Subscription, revision: int | None) -> Put:
    """The write of a subscription."""
    body = subscription.model_dump_json().encode()
    return Put(
        SUBSCRIPTIONS,
        subscription.id,
        body,
        revision,
        {"name": subscription.name},
        {"name": subscription.name},
    )


async def read_target_secrets(store: Store, box: SecretBox, subscription_id: str) -> dict[str, Secret]:
    """The URL and the signing secrets of a subscription; raises `DecryptionError`."""
    stored = await store.get(SUBSCRIPTION_SECRETS, subscription_id)
    try:
        ciphertexts = {} if stored is None else _CIPHERTEXTS.validate_json(stored.body)
    except ValidationError:
        raise DecryptionError("its URL and signing secrets cannot be read; create the subscription again") from None
    return {name: box.decrypt(text, _location(subscription_id, name)) for name, text in ciphertexts.items()}


async def delete_expired_letters(store: Store) -> int:
    """Delete the dead letters that nobody has sent again; returns the number."""
    before = (clock.earliest_now() - DEAD_LETTER_RETENTION).isoformat()
    deleted = 0
    async for letter in find_all(store, DEAD_LETTERS, Where(below={"at": before})):
        await store.commit([Delete(DEAD_LETTERS, letter.id, letter.revision)])
        deleted += 1
    return deleted


async def _read(store: Store, subscription_id: str) -> tuple[Subscription, int]:
    stored = await _get_stored(store, subscription_id)
    try:
        return Subscription.model_validate_json(stored.body), stored.revision
    except ValidationError:
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, f"{subscription_id}: {UNREADABLE}") from None


async def _get_stored(store: Store, subscription_id: str) -> StoredDocument:
    stored = await store.get(SUBSCRIPTIONS, subscription_id)
    if stored is None:
        raise ProblemError(ProblemCode.NOT_FOUND, f"there is no subscription {subscription_id}")
    return stored


def _unreadable(subscription_id: str, now: datetime) -> Subscription:
    """What is known of a subscription that cannot be read, for the response to its deletion."""
    return Subscription(
        id=subscription_id,
        name=subscription_id,
        target=TargetKind.carry("unknown"),
        address="",
        enabled=False,
        created_at=now,
        updated_at=now,
    )


async def _with_team_ids(store: Store, wanted: AlertFilter, selected: Sequence[str] = ()) -> AlertFilter:
    """The filter with the ids of its teams, whose names may change; of those `selected` before, some may be gone."""
    teams = await find_team_ids(store, wanted.selector.teams, "filter.selector.teams", selected=selected)
    return wanted.model_copy(update={"selector": wanted.selector.model_copy(update={"teams": teams})})


def _edited(before: Subscription, request: EditSubscriptionRequest) -> Subscription:
    is_email = before.target is TargetKind.EMAIL
    if is_email and request.url is not None:
        raise ProblemError(ProblemCode.INVALID, "url: an email target has recipients, and no url")
    if not is_email and request.recipients is not None:
        raise ProblemError(ProblemCode.INVALID, f"recipients: a {before.target} target has a url, and no recipients")
    changes = {
        name: getattr(request, name)
        for name in ("name", "recipients", "filter", "enabled")
        if getattr(request, name) is not None
    }
    if request.recipients is not None:
        changes["address"] = ", ".join(request.recipients)
    if request.url is not None:
        changes["address"] = public_address(request.url.get_secret_value())
    return before.model_copy(update=changes)


def _encrypted(
    box: SecretBox, subscription_id: str, secrets: Mapping[str, str | None], before: Mapping[str, str]
) -> bytes:
    after = dict(before)
    for name, text in secrets.items():
        if text is not None:
            after[name] = box.encrypt(Secret(text), _location(subscription_id, name))
    return json.dumps(after, sort_keys=True).encode()


def _location(subscription_id: str, name: str) -> SecretLocation:
    return SecretLocation(SUBSCRIPTION_SECRETS.name, subscription_id, name)


def _letters_of(subscription_id: str) -> Where:
    return Where(any_of={"subscription_id": [subscription_id]})
