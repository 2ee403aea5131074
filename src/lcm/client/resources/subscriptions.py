"""Subscriptions to notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import DEFAULT_PAGE_SIZE, Resource, api_path, encode_body
from lcm.client.responses import ApiRequest
from lcm.model.base import Page
from lcm.model.notification.subscription import (
    CreatedSubscription,
    DeadLetter,
    DeliveryResult,
    RotatedSecret,
    Subscription,
    SubscriptionStatus,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.notification.subscription import CreateSubscriptionRequest, EditSubscriptionRequest

_PATH = "subscriptions"


class Subscriptions(Resource):
    """Which alerts are sent where, what was delivered, and what could not be."""

    def list(self, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[Subscription]:
        """All subscriptions by name."""
        return self._pages("subscriptions.list", api_path(_PATH), Page[Subscription], {}, page_size)

    async def create(self, body: CreateSubscriptionRequest) -> CreatedSubscription:
        """Create a subscription; the signing secret of a webhook is only in this response."""
        request = ApiRequest("subscriptions.create", "POST", api_path(_PATH), body=encode_body(body))
        return await self._send(request, CreatedSubscription)

    async def get(self, subscription_id: str) -> SubscriptionStatus:
        """A subscription with its last deliveries."""
        request = ApiRequest("subscriptions.get", "GET", api_path(_PATH, subscription_id))
        return await self._send(request, SubscriptionStatus)

    async def edit(self, subscription_id: str, body: EditSubscriptionRequest) -> Subscription:
        """Change the fields that are given."""
        path = api_path(_PATH, subscription_id)
        return await self._send(ApiRequest("subscriptions.edit", "PATCH", path, body=encode_body(body)), Subscription)

    async def delete(self, subscription_id: str) -> Subscription:
        """Delete a subscription with its dead letters."""
        request = ApiRequest("subscriptions.delete", "DELETE", api_path(_PATH, subscription_id))
        return await self._send(request, Subscription)

    async def send_test(self, subscription_id: str) -> DeliveryResult:
        """Send a test notification now."""
        path = api_path(_PATH, subscription_id, "test")
        return await self._send(ApiRequest("subscriptions.test", "POST", path), DeliveryResult)

    async def rotate_secret(self, subscription_id: str) -> RotatedSecret:
        """Replace the signing secret; the one before is used beside it for 24 hours."""
        path = api_path(_PATH, subscription_id, "rotate-secret")
        return await self._send(ApiRequest("subscriptions.rotate-secret", "POST", path), RotatedSecret)

    def dead_letters(self, subscription_id: str, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[DeadLetter]:
        """The notifications that could not be delivered, the newest first."""
        path = api_path(_PATH, subscription_id, "dead-letters")
        return self._pages("subscriptions.dead-letters", path, Page[DeadLetter], {}, page_size)

    async def send_dead_letter(self, subscription_id: str, letter_id: str) -> DeliveryResult:
        """Send a dead letter again, with its id."""
        path = api_path(_PATH, subscription_id, "dead-letters", letter_id, "send")
        return await self._send(ApiRequest("subscriptions.send-dead-letter", "POST", path), DeliveryResult)
