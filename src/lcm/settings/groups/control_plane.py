"""Settings of the control plane, in groups that its process combines by inheritance."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, Strict, create_model

from lcm.model.access import Role
from lcm.model.fleet.settings import DiscoverySettings, IdleSettings, MaintenanceSettings, ScalingSettings
from lcm.model.lablet.lifetime import DEFAULT_MAX_LIFETIME
from lcm.model.lablet.ports import DEFAULT_PORTS
from lcm.model.lablet.scheduling.planner import DEFAULT_LEAD_TIME
from lcm.model.worker.cost import DEFAULT_STORAGE_PRICE
from lcm.settings.base import Settings, SettingsConflict
from lcm.settings.describe import Allowed, SettingAlias
from lcm.settings.types import Host, NonBlankText, Port, ReadableFile, SecondsOrZero

StoreUrl = Annotated[
    str,
    Field(pattern=r"^(sqlite:///.+|mongodb(\+srv)?://.+)$"),
    Allowed("sqlite:/// and a path, or mongodb:// and the address of a replica set"),
]


def _port_range(value: str) -> str:
    first, _, last = value.partition("-")
    if not 1 <= int(first) <= int(last) <= _LAST_PORT:
        raise ValueError("not two ports, the lower one first")
    return value


_LAST_PORT = 65535
PortRange = Annotated[
    str,
    Field(pattern=r"^[0-9]{1,5}-[0-9]{1,5}$"),
    AfterValidator(_port_range),
    Allowed("two ports, the lower one first, with a dash between them, such as 20000-29999"),
]
HttpUrl = Annotated[
    str,
    Field(pattern=r"^(https://|http://(127\.|localhost|\[::1\]))\S+$"),
    Allowed("an address that starts with https://, or with http:// on this machine"),
]
PublicUrl = Annotated[
    str,
    Field(pattern=r"^(https://[^\s/?#]+|http://(127\.[0-9.]+|localhost|\[::1\])(:[0-9]{1,5})?)/?$"),
    Allowed("https:// and a host, or http:// on this machine, without a path"),
]
Scope = Annotated[str, Field(pattern=r"^[!#-\[\]-~]+$")]


def _role_map(value: object) -> object:
    """A mapping of a file becomes the text that the environment would have."""
    return json.dumps(value) if isinstance(value, dict) else value


def _check_role_map(value: str) -> str:
    parse_role_map(value)
    return value


def parse_role_map(text: str) -> dict[str, Role]:
    """The role of each group for the whole fleet; raises ValueError. No group gives the controller role."""
    return {group: role for group, (role, team) in _parse_rules(text).items() if team is None}


def parse_team_map(text: str) -> dict[str, tuple[Role, str]]:
    """The groups that have a role in one team: the role, and the name or id of the team."""
    return {group: (role, team) for group, (role, team) in _parse_rules(text).items() if team is not None}


def _parse_rules(text: str) -> dict[str, tuple[Role, str | None]]:
    found = json.loads(text) if text else {}
    if not isinstance(found, dict):
        raise ValueError("not a mapping of groups to roles")  # noqa: TRY004 - settings report only ValueError
    return {group: _parse_rule(rule) for group, rule in found.items()}


def _parse_rule(rule: object) -> tuple[Role, str | None]:
    """A role, or an object with role and team."""
    named: dict[str, Any] = rule if isinstance(rule, dict) else {"role": rule}
    role, team = Role(named.get("role", "")), named.get("team")
    valid_team = isinstance(team, str) and bool(team.strip()) if role.in_team else team is None
    if role is Role.CONTROLLER or not valid_team or named.keys() - {"role", "team"}:
        raise ValueError("not a role of people, or not one in a team")
    return role, team


RoleMap = Annotated[
    str,
    BeforeValidator(_role_map),
    AfterValidator(_check_role_map),
    Allowed(
        'a JSON object of groups and roles (viewer, operator, admin), such as {"lab-admins": "admin"}, or roles in'
        ' teams, such as {"students": {"role": "learner", "team": "networks-1"}}'
    ),
]
InstallationId = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][a-z0-9-]{2,62}$"),
    Allowed("3 to 63 lower-case letters, digits and dashes, the first no dash"),
]


class StoreSettings(Settings):
    """The store, secret keys and retention."""

    store_url: StoreUrl | None = Field(
        default=None, description="The URL of the store; if unset, a file in LCM_DATA_DIR."
    )
    lcm_secret_key: SecretStr | None = Field(
        default=None, description="The key that encrypts license tokens and passwords."
    )
    lcm_secret_key_file: ReadableFile | None = Field(
        default=None,
        description="A file with such keys, one per line: the first encrypts, all decrypt; if unset, one is generated.",
    )
    lcm_installation_id: InstallationId | None = Field(
        default=None,
        description="The id that instances are tagged with; saved in the store at the first start, generated if unset.",
    )
    metrics_retention_hours: Annotated[float, Field(gt=0, le=8760)] = Field(
        default=48.0, description="Hours for which metrics of workers are kept."
    )
    journal_retention_days: Annotated[float, Field(ge=0, le=36_500)] = Field(
        default=90.0, description="Days for which audit and history are kept; 0 keeps them forever."
    )
    lablet_retention_days: Annotated[float, Field(ge=0, le=36_500)] = Field(
        default=30.0, description="Days for which lablets are kept after their end; 0 keeps them forever."
    )
    event_retention_hours: Annotated[float, Field(ge=1, le=8760)] = Field(
        default=24.0, description="Hours for which the event stream can be resumed without reading everything again."
    )

    def conflicts(self) -> Iterator[SettingsConflict]:
        yield from super().conflicts()
        if self.lcm_secret_key is not None and self.lcm_secret_key_file is not None:
            yield SettingsConflict("lcm_secret_key", "lcm_secret_key_file", rule="only one of the two may be given")


class AuthSettings(Settings):
    """Authentication."""

    lcm_bootstrap_token: SecretStr | None = Field(
        default=None, description="An admin token that is valid from the first start."
    )
    oidc_issuer: HttpUrl | None = Field(
        default=None, description="The OIDC issuer: people sign in there, and its tokens are accepted."
    )
    oidc_client_id: NonBlankText | None = Field(
        default=None, description="The client id of LCM at the issuer; if set, people can sign in with it."
    )
    oidc_client_secret: SecretStr | None = Field(
        default=None, description="The client secret of LCM at the issuer, if it gave one."
    )
    lcm_public_url: PublicUrl | None = Field(
        default=None,
        description="The address of LCM in browsers; sign-ins return there, and links in notifications lead there.",
    )
    oidc_scopes: Annotated[tuple[Scope, ...], Allowed("a comma-separated list of scopes")] = Field(
        default=("profile", "email", "offline_access"),
        description="What LCM asks the issuer for besides openid; scopes it does not publish are left out.",
    )
    oidc_audience: NonBlankText | None = Field(
        default=None, description="The audience that JWTs must have; if unset, LCM accepts no JWTs as bearer tokens."
    )
    oidc_jwks_url: HttpUrl | None = Field(
        default=None, description="The URL of the issuer's public keys (JWKS); if unset, the one that it publishes."
    )
    oidc_role_claim: NonBlankText = Field(
        default="role", description="The claim of OIDC tokens that contains the role or the groups."
    )
    oidc_role_map: RoleMap = Field(
        default="",
        description="The role of each group, for the fleet or in a team; if empty, the claim itself holds viewer,"
        " operator or admin.",
    )

    def conflicts(self) -> Iterator[SettingsConflict]:
        yield from super().conflicts()
        given = [self.oidc_issuer, self.oidc_audience, self.oidc_jwks_url]
        if self.oidc_client_id is None:
            if any(given) and not all(given):
                yield SettingsConflict(
                    "oidc_issuer",
                    "oidc_audience",
                    "oidc_jwks_url",
                    rule="must be given together, or none; or set OIDC_CLIENT_ID, for people to sign in",
                )
            if self.oidc_client_secret is not None:
                yield SettingsConflict("oidc_client_secret", "oidc_client_id", rule="the secret needs the client id")
        elif self.oidc_issuer is None or self.lcm_public_url is None:
            yield SettingsConflict(
                "oidc_client_id", "oidc_issuer", "lcm_public_url", rule="the client id needs the other two"
            )


_FLEET_ALIASES = {"worker_discovery_enabled": SettingAlias("auto_import_enabled")}


def _fleet_fields() -> dict[str, Any]:
    """All fields of `FleetSettings`, without the checks for JSON types: the environment has only text."""
    fields: dict[str, Any] = {}
    for group in (IdleSettings, DiscoverySettings, ScalingSettings, MaintenanceSettings):
        for name, info in group.model_fields.items():
            marks = [mark for mark in info.metadata if not isinstance(mark, Strict | BeforeValidator)]
            if name in _FLEET_ALIASES:
                marks.append(_FLEET_ALIASES[name])
            kind: Any = Annotated[info.annotation, *marks] if marks else info.annotation
            fields[name] = (kind, Field(default=info.default, description=info.description))
    return fields


if TYPE_CHECKING:

    class FleetDefaultSettings(Settings):
        """Defaults of fleet settings, which values stored at run time override."""

else:
    FleetDefaultSettings = create_model(
        "FleetDefaultSettings",
        __base__=Settings,
        __module__=__name__,
        __doc__="Defaults of fleet settings, which values stored at run time override.",
        **_fleet_fields(),
    )


class FleetSourceSettings(Settings):
    """Templates, prices, and the license for scale-up."""

    worker_templates_config_path: ReadableFile | None = Field(
        default=None, description="A YAML file with templates, imported at each start; if unset, the built-in ones."
    )
    scale_up_license_token: SecretStr | None = Field(
        default=None,
        description="License token of workers that scale-up launches; without it, licensed labs get no new worker.",
    )
    storage_price_per_gb_month_usd: Annotated[float, Field(ge=0, le=100)] = Field(
        default=DEFAULT_STORAGE_PRICE,
        description="The price of disk space, in dollars per GB and month; disks of stopped workers cost money too.",
    )


class NotificationSettings(Settings):
    """Notifications: where they may go, digests, links, and the mail server."""

    notify_allowed_hosts: Annotated[
        tuple[NonBlankText, ...],
        Allowed("a comma-separated list of host names, patterns such as *.example.com, addresses or networks"),
    ] = Field(
        default=(),
        description="The only hosts that notifications may go to, also at private addresses; empty: all public ones.",
    )
    notify_digest_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=60.0,
        description="Seconds after which alerts beyond the first ten go as one digest; 0: each is sent on its own.",
    )
    notify_docs_url: HttpUrl | None = Field(
        default=None,
        description="The address of the folder docs, for links in notifications; if unset, they name the file.",
    )
    smtp_host: Host | None = Field(default=None, description="The mail server for notifications by e-mail.")
    smtp_port: Port = Field(default=587, description="The port of the mail server.")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        default="starttls", description="How the connection to the mail server is secured."
    )
    smtp_from: NonBlankText | None = Field(default=None, description="The sender of notifications by e-mail.")
    smtp_username: NonBlankText | None = Field(default=None, description="The account at the mail server.")
    smtp_password: SecretStr | None = Field(default=None, description="The password of SMTP_USERNAME.")

    def conflicts(self) -> Iterator[SettingsConflict]:
        yield from super().conflicts()
        if (self.smtp_host is None) != (self.smtp_from is None):
            yield SettingsConflict("smtp_host", "smtp_from", rule="must be given together, or none")
        if (self.smtp_username is None) != (self.smtp_password is None):
            yield SettingsConflict("smtp_username", "smtp_password", rule="must be given together, or none")
        if self.smtp_username is not None and self.smtp_security == "none":
            yield SettingsConflict("smtp_username", "smtp_security", rule="a password is never sent in clear")


class LabletLimitSettings(Settings):
    """Limits of lablets."""

    lablet_max_lifetime_hours: Annotated[float, Field(ge=0, le=87_600)] = Field(
        default=DEFAULT_MAX_LIFETIME.total_seconds() / 3600,
        description="The latest end that an extension can give a lablet, in hours after it first ran; 0: no limit.",
    )


class LabletPlanningSettings(Settings):
    """How lablets are planned, by the scheduler and in the plans that the control plane shows."""

    lablet_port_range: PortRange = Field(
        default=f"{DEFAULT_PORTS.first}-{DEFAULT_PORTS.last}",
        description="The port range on a worker for its lablets; the lowest free ports are used first.",
    )
    lablet_lead_time: SecondsOrZero = Field(
        default=DEFAULT_LEAD_TIME,
        description="Seconds before the start of a lablet at which its placement begins.",
    )
