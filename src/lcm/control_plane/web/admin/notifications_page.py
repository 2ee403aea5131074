"""The Notifications page: subscriptions, their last deliveries, and the form to create one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse
from pydantic import SecretStr, ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.services import get_services
from lcm.control_plane.web.auth import AdminUser, CurrentUser, is_fragment
from lcm.control_plane.web.forms import (
    FormState,
    comma_list,
    comma_tags,
    field_problems,
    form_field,
    form_key,
    problem_by_field,
    read_form,
)
from lcm.control_plane.web.rendering import DONE_EVENT, render_fragment, render_page, render_toast
from lcm.model.notification.alert import ALERT_RULES, AlertType
from lcm.model.notification.subscription import CreateSubscriptionRequest, EditSubscriptionRequest, TargetKind
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from lcm.control_plane.notifications.sender import NotificationSender

router = APIRouter(include_in_schema=False)
SubscriptionId = Annotated[str, Path(pattern=r"^[a-z0-9-]{1,64}$")]
LetterId = Annotated[str, Path(pattern=r"^[a-z0-9.-]{1,200}$")]
TARGETS = (
    (TargetKind.WEBHOOK, "Webhook"),
    (TargetKind.SLACK, "Slack"),
    (TargetKind.TEAMS, "Microsoft Teams"),
    (TargetKind.WEBEX, "Webex"),
    (TargetKind.EMAIL, "E-mail"),
)
TARGET_NAMES = {kind.value: name for kind, name in TARGETS}
ALERTS = tuple((kind.value, rule.title) for kind, rule in ALERT_RULES.items() if kind is not AlertType.TEST)
_SELECTOR_FIELDS = ("names", "templates", "regions", "teams", "tags")
_SELECTOR = "filter.selector."
_FORM_FIELDS = ("name", "target", "url", "recipients", "severity", *_SELECTOR_FIELDS)
_MAX_LETTERS = 20


@router.get("/notifications")
async def notifications_page(request: Request, user: CurrentUser) -> HTMLResponse:
    """The whole page, or only the list for a refresh by a script."""
    services = get_services(request)
    statuses = await services.subscriptions.statuses()
    letters = {
        each.subscription.id: await services.subscriptions.newest_letters(each.subscription.id, _MAX_LETTERS)
        for each in statuses
        if each.dead_letters
    }
    values: dict[str, Any] = {"statuses": statuses, "letters": letters, "target_names": TARGET_NAMES}
    if is_fragment(request):
        return render_fragment("admin/_notifications.html", user=user, **values)
    return await render_page(
        request, user, "admin/notifications.html", here="notifications", title="Notifications", **values
    )


@router.get("/notifications/new")
async def new_subscription_form(request: Request, user: AdminUser) -> HTMLResponse:
    """An empty form."""
    return _render_form(FormState({"target": TargetKind.WEBHOOK.value, "severity": "warning"}))


@router.post("/notifications/create")
async def create_subscription(request: Request, user: AdminUser) -> HTMLResponse:
    """Create a subscription. An invalid form is shown again, without the URL: it may be a credential."""
    fields = await read_form(request)
    values = {name: form_field(fields, name) for name in _FORM_FIELDS}
    types = [kind for kind, _ in ALERTS if kind in fields.get("types", [])]
    shown = {**values, "url": "", **{f"type-{kind}": "on" for kind in types}}
    requested: dict[str, Any] = {
        "name": values["name"],
        "target": values["target"],
        "recipients": [each for each in values["recipients"].replace(",", " ").split() if each],
        "filter": {
            "types": types,
            "severity": values["severity"],
            "selector": {
                **{name: comma_list(values[name]) for name in _SELECTOR_FIELDS},
                "tags": comma_tags(values["tags"]),
            },
        },
    }
    if values["url"]:
        requested["url"] = SecretStr(values["url"])
    try:
        request_body = CreateSubscriptionRequest.model_validate(requested)
        key = form_key(request, user.caller, fields)
        created = await get_services(request).subscriptions.create(user.caller.actor, request_body, key)
    except ValidationError as error:
        problems = {_form_field_of(name): text for name, text in field_problems(error).items()}
        return _render_form(FormState(shown, problems), status=422)
    except ProblemError as error:
        names = (*_FORM_FIELDS, *(f"{_SELECTOR}{name}" for name in _SELECTOR_FIELDS))
        problems = {_form_field_of(name): text for name, text in problem_by_field(error, names).items()}
        return _render_form(FormState(shown, problems), status=422)
    secret = created.signing_secret
    if secret is None:
        response = render_toast(f"Subscription {created.subscription.name} created", triggers=DONE_EVENT)
        response.headers["HX-Reswap"] = "none"
        return response
    return render_fragment(
        "admin/_signing_secret.html", subscription=created.subscription, secret=secret.get_secret_value()
    )


@router.post("/notifications/{subscription_id}/test")
async def send_test(request: Request, user: AdminUser, subscription_id: SubscriptionId) -> HTMLResponse:
    """Send a test notification and show what the target responded."""
    subscription = await get_services(request).subscriptions.get(subscription_id)
    result = await _sender(request).send_test(subscription, user.caller.actor)
    if result.delivered:
        return render_toast(f"{subscription.name}: delivered in {result.seconds:.1f} s. Answer: {result.answer}")
    return render_toast(f"{subscription.name}: not delivered. {result.answer}", kind="bad")


@router.post("/notifications/{subscription_id}/letters/{letter_id}/send")
async def send_letter(
    request: Request, user: AdminUser, subscription_id: SubscriptionId, letter_id: LetterId
) -> HTMLResponse:
    """Send a dead letter again."""
    subscription = await get_services(request).subscriptions.get(subscription_id)
    result = await _sender(request).send_letter(subscription, letter_id, user.caller.actor)
    if result.delivered:
        return render_toast(f"{subscription.name}: delivered", triggers=DONE_EVENT)
    return render_toast(f"{subscription.name}: not delivered. {result.answer}", kind="bad")


@router.post("/notifications/{subscription_id}/remove")
async def delete_subscription(request: Request, user: AdminUser, subscription_id: SubscriptionId) -> HTMLResponse:
    """Delete a subscription."""
    deleted = await get_services(request).subscriptions.delete(user.caller.actor, subscription_id)
    return render_toast(f"Subscription {deleted.name} deleted", triggers=DONE_EVENT)


@router.post("/notifications/{subscription_id}/{switch}")
async def toggle_subscription(
    request: Request,
    user: AdminUser,
    subscription_id: SubscriptionId,
    switch: Annotated[str, Path(pattern="^(enable|disable)$")],
) -> HTMLResponse:
    """Enable or disable a subscription."""
    edit = EditSubscriptionRequest(enabled=switch == "enable")
    edited = await get_services(request).subscriptions.edit(user.caller.actor, subscription_id, edit)
    effect = "alerts since it was disabled are sent now" if edited.enabled else "alerts wait until it is enabled"
    return render_toast(f"Subscription {edited.name} {switch}d: {effect}", triggers=DONE_EVENT)


@router.get("/notifications/{subscription_id}/confirm-disable")
async def confirm_disable(request: Request, user: AdminUser, subscription_id: SubscriptionId) -> HTMLResponse:
    """What disabling a subscription would do."""
    shown = (await get_services(request).subscriptions.get(subscription_id)).name
    effect = "It will send no notifications. Its alerts will wait until you enable it again."
    return render_fragment(
        "shared/_confirm_switch.html",
        action_url=f"/notifications/{subscription_id}/disable",
        verb="Disable",
        what=f"subscription {shown}",
        effect=effect,
    )


@router.get("/notifications/{subscription_id}/confirm-delete")
async def confirm_delete(request: Request, user: AdminUser, subscription_id: SubscriptionId) -> HTMLResponse:
    """What deleting a subscription would do."""
    status = await get_services(request).subscriptions.status(subscription_id)
    return render_fragment("admin/_confirm_delete_subscription.html", shown=status)


def _render_form(form: FormState, status: int = 200) -> HTMLResponse:
    targets = [(kind.value, name) for kind, name in TARGETS]
    return render_fragment("admin/_subscription_form.html", form=form, targets=targets, alerts=ALERTS, status=status)


def _form_field_of(name: str) -> str:
    """The field of the form for one of the request, such as `filter.selector.teams.0`."""
    return name.removeprefix(_SELECTOR).partition(".")[0]


def _sender(request: Request) -> NotificationSender:
    sender = get_services(request).sender
    if sender is None:
        raise ProblemError(ProblemCode.UNAVAILABLE, "this control plane sends no notifications")
    return sender
