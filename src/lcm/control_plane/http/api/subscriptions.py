"""Routes for subscriptions to notifications."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.deps import Admin, Viewer
from lcm.control_plane.http.errors import error_responses
from lcm.control_plane.http.pagination import Cursor, DeadLetterPage, Limit, SubscriptionPage, raw_page
from lcm.control_plane.notifications.sender import NotificationSender
from lcm.control_plane.records.kinds import SUBSCRIPTIONS
from lcm.control_plane.services import get_services
from lcm.control_plane.store.port import Sort
from lcm.model.notification.subscription import (
    CreatedSubscription,
    CreateSubscriptionRequest,
    DeliveryResult,
    EditSubscriptionRequest,
    RotatedSecret,
    Subscription,
    SubscriptionStatus,
)
from lcm.model.problems import ProblemCode

router = APIRouter(prefix="/api/subscriptions", tags=["notifications"], responses=error_responses(401, 403, 422, 429))

SubscriptionId = Annotated[str, Path(pattern=r"^[a-z0-9-]{1,64}$", description="The id, such as sub-3f9k2m1xq0ab.")]
LetterId = Annotated[str, Path(pattern=r"^[a-z0-9.-]{1,200}$", description="The id of the dead letter.")]


@router.get("", response_model=SubscriptionPage)
async def list_subscriptions(request: Request, caller: Viewer, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """List subscriptions by name. URLs and signing secrets are never shown."""
    store = get_services(request).context.store
    return raw_page(await store.find(SUBSCRIPTIONS, sort=Sort("name"), after=cursor, limit=limit))


@router.post("", status_code=201, responses=error_responses(409))
async def create_subscription(request: Request, caller: Admin, body: CreateSubscriptionRequest) -> CreatedSubscription:
    """Create a subscription. Only this response contains the signing secret of a webhook."""
    return await get_services(request).subscriptions.create(caller.actor, body)


@router.get("/{subscription_id}", responses=error_responses(404))
async def get_subscription(request: Request, caller: Viewer, subscription_id: SubscriptionId) -> SubscriptionStatus:
    """Get a subscription with its last deliveries."""
    return await get_services(request).subscriptions.status(subscription_id)


@router.patch("/{subscription_id}", responses=error_responses(404, 409))
async def edit_subscription(
    request: Request, caller: Admin, subscription_id: SubscriptionId, body: EditSubscriptionRequest
) -> Subscription:
    """Change a subscription."""
    return await get_services(request).subscriptions.edit(caller.actor, subscription_id, body)


@router.delete("/{subscription_id}", responses=error_responses(404))
async def delete_subscription(request: Request, caller: Admin, subscription_id: SubscriptionId) -> Subscription:
    """Delete a subscription with its dead letters."""
    return await get_services(request).subscriptions.delete(caller.actor, subscription_id)


@router.post("/{subscription_id}/test", responses=error_responses(404))
async def send_test_notification(request: Request, caller: Admin, subscription_id: SubscriptionId) -> DeliveryResult:
    """Send a test notification now, and report what the target responded."""
    services = get_services(request)
    subscription = await services.subscriptions.get(subscription_id)
    return await _sender(request).send_test(subscription, caller.actor)


@router.post("/{subscription_id}/rotate-secret", responses=error_responses(404))
async def rotate_signing_secret(request: Request, caller: Admin, subscription_id: SubscriptionId) -> RotatedSecret:
    """Replace the signing secret of a webhook. Messages are signed with both secrets for 24 hours."""
    return await get_services(request).subscriptions.rotate(caller.actor, subscription_id)


@router.get("/{subscription_id}/dead-letters", responses=error_responses(404))
async def list_dead_letters(
    request: Request, caller: Viewer, subscription_id: SubscriptionId, limit: Limit = 100, cursor: Cursor = None
) -> DeadLetterPage:
    """List the notifications that could not be delivered, the newest first."""
    page = await get_services(request).subscriptions.dead_letters(subscription_id, limit=limit, cursor=cursor)
    return DeadLetterPage(items=page.items, next_cursor=page.next_cursor)


@router.post("/{subscription_id}/dead-letters/{letter_id}/send", responses=error_responses(404))
async def send_dead_letter(
    request: Request, caller: Admin, subscription_id: SubscriptionId, letter_id: LetterId
) -> DeliveryResult:
    """Send a dead letter again, with its id. It is removed once it is delivered."""
    subscription = await get_services(request).subscriptions.get(subscription_id)
    return await _sender(request).send_letter(subscription, letter_id, caller.actor)


def _sender(request: Request) -> NotificationSender:
    sender = get_services(request).sender
    if sender is None:
        raise ProblemError(ProblemCode.UNAVAILABLE, "this control plane sends no notifications")
    return sender
