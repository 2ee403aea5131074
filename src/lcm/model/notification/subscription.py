"""Subscriptions: which alerts go where, what was delivered, and what could not be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from lcm.model.base import (
    CARRIED,
    CaseInsensitiveEnum,
    LenientModel,
    Record,
    ResourceName,
    RevealedSecret,
    SingleLineText,
    StrictBool,
    StrictModel,
    UtcDatetime,
)
from lcm.model.notification.alert import Alert, AlertSubject, AlertType, Severity
from lcm.model.validation import text_like

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SECRET_TEXT = 2000
MAX_LISTED = 100


class TargetKind(CaseInsensitiveEnum):
    """How notifications are sent."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    TEAMS = "teams"
    WEBEX = "webex"
    EMAIL = "email"


EmailAddress = Annotated[
    str,
    text_like(
        r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$",
        "an e-mail address such as oncall@example.com",
    ),
]
_Name = Annotated[SingleLineText, Field(min_length=1, max_length=256)]


def _check_url(url: SecretStr) -> SecretStr:
    """The error never contains the URL: it may be a credential."""
    text = url.get_secret_value()
    if not text.isascii() or any(letter <= " " or letter == "\x7f" for letter in text):
        raise ValueError("must be a URL without spaces and with other characters encoded")
    try:
        parsed = urlsplit(text)
        port = parsed.port
    except ValueError:
        raise ValueError("must be an https URL") from None
    if parsed.scheme not in ("https", "http") or not parsed.hostname or port == 0:
        raise ValueError("must be an https URL")
    if parsed.username is not None or parsed.password is not None:
        raise ValueError("must not contain a user name or password")
    return url


TargetUrl = Annotated[SecretStr, Field(max_length=MAX_SECRET_TEXT), AfterValidator(_check_url)]


class SubjectSelector(Record):
    """Which subjects alerts must be about: all given conditions must match. An empty selector matches every subject."""

    names: Annotated[tuple[_Name, ...], Field(max_length=MAX_LISTED)] = ()
    templates: Annotated[tuple[_Name, ...], Field(max_length=MAX_LISTED)] = ()
    regions: Annotated[tuple[_Name, ...], Field(max_length=MAX_LISTED)] = ()
    teams: Annotated[tuple[_Name, ...], Field(max_length=MAX_LISTED)] = Field(
        default=(),
        description="Lablets and bookings of these teams, and workers dedicated to them. Give names; ids are stored.",
    )
    tags: Annotated[dict[_Name, Annotated[SingleLineText, Field(max_length=256)]], Field(max_length=MAX_LISTED)] = (
        Field(default_factory=dict)
    )

    def matches(self, subject: AlertSubject) -> bool:
        """Whether this is such a subject."""
        return (
            (not self.names or subject.name in self.names)
            and (not self.templates or subject.template_name in self.templates)
            and (not self.regions or subject.aws_region in self.regions)
            and (not self.teams or subject.team in self.teams)
            and all(subject.tags.get(name) == value for name, value in self.tags.items())
        )

    def describe(self, team_names: Mapping[str, str]) -> str:
        """The conditions in words; empty for none. A team without a name is shown by its id."""
        teams = tuple(team_names.get(each, each) for each in self.teams)
        listed = (("name", self.names), ("template", self.templates), ("region", self.regions), ("team", teams))
        parts = [f"{word} {' or '.join(values)}" for word, values in listed if values]
        return ", ".join([*parts, *(f"tag {name}={value}" for name, value in sorted(self.tags.items()))])


class AlertFilter(Record):
    """Which alerts a subscription delivers: by type (none: all), severity (at least) and subject."""

    types: Annotated[tuple[Annotated[AlertType, CARRIED], ...], Field(max_length=MAX_LISTED)] = ()
    severity: Annotated[Severity, CARRIED] = Field(
        default=Severity.WARNING, description="The lowest severity that is delivered."
    )
    selector: SubjectSelector = SubjectSelector()

    def matches(self, alert: Alert) -> bool:
        """Whether this alert is delivered. One of a newer version, of unknown severity, is."""
        if self.types and alert.type not in self.types:
            return False
        if self.severity is Severity.CRITICAL and alert.severity is Severity.WARNING:
            return False
        if alert.counterpart is not None and self.selector.matches(alert.counterpart):
            return False
        return self.selector.matches(alert.subject)

    def describe(self, team_names: Mapping[str, str]) -> str:
        """Which alerts these are, in words."""
        critical = "critical " if self.severity is Severity.CRITICAL else ""
        types = ", ".join(each.value.replace("_", " ") for each in self.types)
        subjects = self.selector.describe(team_names)
        what = f"{critical}alerts: {types}" if types else f"all {critical}alerts"
        return f"{what}; only of {subjects}" if subjects else what


def _reject_unknown(value: AlertFilter) -> AlertFilter:
    """A record may have fields and words of a newer version; a request may not."""
    unknown = [*(value.model_extra or {}), *(f"selector.{name}" for name in value.selector.model_extra or {})]
    if unknown:
        raise ValueError(f"{unknown[0]} is not a known field")
    words = [*value.types, value.severity]
    for word in (each for each in words if not each.is_known):
        raise ValueError(f"{word} is unknown; types are {', '.join(AlertType)}; severities are {', '.join(Severity)}")
    return value


RequestedFilter = Annotated[AlertFilter, AfterValidator(_reject_unknown)]


class CreateSubscriptionRequest(StrictModel):
    """Create a subscription. `url` is required unless the target is e-mail, which needs `recipients`."""

    name: ResourceName
    target: TargetKind
    url: TargetUrl | None = Field(default=None, description="Write-only. Where notifications are sent.")
    recipients: Annotated[tuple[EmailAddress, ...], Field(max_length=50)] = ()
    filter: RequestedFilter = AlertFilter()
    enabled: StrictBool = Field(default=True, description="If false, alerts wait; they are sent once it is enabled.")

    @property
    def target_problem(self) -> str | None:
        """What does not fit the kind of target, with the field that has to change; None if all fits."""
        if self.target is TargetKind.EMAIL:
            fits = self.url is None and bool(self.recipients)
            return None if fits else "recipients: an email target needs recipients, and no url"
        fits = self.url is not None and not self.recipients
        return None if fits else f"url: a {self.target} target needs a url, and no recipients"


class EditSubscriptionRequest(StrictModel):
    """Change a subscription; fields that are left out stay as they are."""

    name: ResourceName | None = None
    url: TargetUrl | None = None
    recipients: Annotated[tuple[EmailAddress, ...], Field(min_length=1, max_length=50)] | None = None
    filter: RequestedFilter | None = None
    enabled: StrictBool | None = Field(
        default=None, description="If false, alerts wait; they are sent once it is enabled."
    )


class Subscription(Record):
    """Which alerts go to a target. URL and signing secrets are stored apart, encrypted, and never shown."""

    id: str
    name: ResourceName
    target: Annotated[TargetKind, CARRIED]
    address: str = Field(description="Where notifications go: the scheme and host of the URL, or the recipients.")
    recipients: tuple[str, ...] = ()
    filter: AlertFilter = AlertFilter()
    enabled: bool = True
    created_at: UtcDatetime
    updated_at: UtcDatetime
    previous_secret_until: UtcDatetime | None = Field(
        default=None, description="Until when messages are also signed with the signing secret before the present one."
    )


class CreatedSubscription(LenientModel):
    """A new subscription. The signing secret of a webhook is returned only once."""

    subscription: Subscription
    signing_secret: RevealedSecret | None = None


class RotatedSecret(LenientModel):
    """A new signing secret, returned only once. The one before is used beside it until the given time."""

    signing_secret: RevealedSecret
    previous_secret_until: UtcDatetime


class DeliveryOutcome(CaseInsensitiveEnum):
    """What became of a notification."""

    DELIVERED = "delivered"
    FAILED = "failed"
    DEAD = "dead"


class DeliveryAttempt(Record):
    """The last attempt to deliver a notification."""

    notification_id: str
    summary: str
    alerts: int = Field(default=1, description="How many alerts it carries; more than one is a digest.")
    outcome: Annotated[DeliveryOutcome, CARRIED]
    answer: str = Field(default="", description="What the target responded, or why it could not be reached.")
    attempts: int = 1
    at: UtcDatetime
    delay_seconds: float | None = Field(default=None, description="From the alert to its delivery.")


class DeliveryState(Record):
    """How far a subscription has come in the journal, and what it tries now."""

    subscription_id: str
    cursor: str | None = None
    attempts: int = 0
    first_failed_at: UtcDatetime | None = None
    failing_since: UtcDatetime | None = Field(
        default=None, description="The first failure after the last delivery, also of a notification that was given up."
    )
    next_attempt_at: UtcDatetime | None = None
    window_started_at: UtcDatetime | None = None
    window_count: int = 0
    digest_through: str | None = None
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    recent: tuple[DeliveryAttempt, ...] = ()


class DeadLetter(Record):
    """A notification that could not be delivered. It is kept until it is sent again or expires."""

    id: str
    subscription_id: str
    notification_id: str
    summary: str
    alerts: tuple[Alert, ...]
    answer: str
    attempts: int
    first_failed_at: UtcDatetime
    at: UtcDatetime


class DeadLetterSummary(LenientModel):
    """A dead letter for a list of many: without its alerts, which may be a thousand."""

    id: str
    notification_id: str
    summary: str
    answer: str
    at: UtcDatetime


class SubscriptionStatus(LenientModel):
    """A subscription with its deliveries."""

    subscription: Subscription
    problem: str = Field(default="", description="Why nothing can be delivered, whatever its target responds.")
    pending: int = Field(default=0, description="Alerts that wait for delivery; counted up to 1,000.")
    more_pending: bool = Field(default=False, description="Whether there may be more than were counted.")
    failing_since: UtcDatetime | None = Field(
        default=None, description="The first failure after the last delivery. A test that is delivered ends it too."
    )
    next_attempt_at: UtcDatetime | None = None
    delivered: int = 0
    dead_letters: int = 0
    recent: tuple[DeliveryAttempt, ...] = ()
    team_names: dict[str, str] = Field(
        default_factory=dict, description="The names of the teams in its filter, by id; none for one that is gone."
    )


class DeliveryResult(LenientModel):
    """The result of one delivery that a person requested."""

    delivered: bool
    answer: str
    seconds: float
