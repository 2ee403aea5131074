"""The settings of the control plane, in groups that its process combines by inheritance."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from lcm.settings.base import Settings, SettingsConflict
from lcm.settings.describe import Allowed, SettingAlias
from lcm.settings.types import NonBlankText, ReadableFile, Seconds, SecondsOrZero

Minutes = Annotated[float, Field(gt=0, le=525_600)]
MinutesOrZero = Annotated[float, Field(ge=0, le=525_600)]
Count = Annotated[int, Field(ge=0, le=100_000)]
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
InstallationId = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][a-z0-9-]{2,62}$"),
    Allowed("3 to 63 lower-case letters, digits and dashes, the first no dash"),
]


class StoreSettings(Settings):
    """Where records are kept, and how secrets among them are encrypted."""

    store_url: StoreUrl | None = Field(
        default=None, description="Where records are kept; if unset, a file in LCM_DATA_DIR."
    )
    lcm_secret_key: SecretStr | None = Field(
        default=None, description="The key that licence tokens and passwords are encrypted with."
    )
    lcm_secret_key_file: ReadableFile | None = Field(
        default=None,
        description="A file with such keys, one a line: the first encrypts, all decrypt; if unset, one is made.",
    )
    lcm_installation_id: InstallationId | None = Field(
        default=None,
        description="The id that instances are tagged with; kept in the store from the first start, made up if unset.",
    )
    metrics_retention_hours: Annotated[float, Field(gt=0, le=8760)] = Field(
        default=48.0, description="Hours for which figures of workers are kept."
    )
    journal_retention_days: Annotated[float, Field(ge=0, le=36_500)] = Field(
        default=90.0, description="Days for which audit and history are kept; 0 keeps them for ever."
    )
    event_retention_hours: Annotated[float, Field(ge=1, le=8760)] = Field(
        default=24.0, description="Hours for which the event stream can be resumed without reading everything again."
    )

    def conflicts(self) -> Iterator[SettingsConflict]:
        yield from super().conflicts()
        if self.lcm_secret_key is not None and self.lcm_secret_key_file is not None:
            yield SettingsConflict("lcm_secret_key", "lcm_secret_key_file", rule="only one of the two may be given")


class AuthSettings(Settings):
    """Who is let in."""

    lcm_bootstrap_token: SecretStr | None = Field(
        default=None, description="An admin token that is accepted from the first start."
    )
    oidc_issuer: HttpUrl | None = Field(default=None, description="Whose sign-ins are accepted besides tokens.")
    oidc_audience: NonBlankText | None = Field(default=None, description="For whom those sign-ins must have been made.")
    oidc_jwks_url: HttpUrl | None = Field(default=None, description="Where the issuer's public keys are.")
    oidc_role_claim: NonBlankText = Field(default="role", description="Which claim of a sign-in names the role.")

    def conflicts(self) -> Iterator[SettingsConflict]:
        yield from super().conflicts()
        given = [self.oidc_issuer, self.oidc_audience, self.oidc_jwks_url]
        if any(given) and not all(given):
            yield SettingsConflict(
                "oidc_issuer", "oidc_audience", "oidc_jwks_url", rule="must be given together, or none"
            )


class FleetDefaultSettings(Settings):
    """What counts as long as nobody has stored another value at run time."""

    worker_idle_timeout_minutes: Minutes = Field(
        default=60, description="Minutes without activity after which a worker counts as idle."
    )
    worker_auto_pause_enabled: bool = Field(default=True, description="Whether idle workers are stopped.")
    worker_auto_pause_snooze_minutes: MinutesOrZero = Field(
        default=60, description="Minutes after a resume during which a worker is not paused."
    )
    idle_detection_interval: Seconds = Field(
        default=300, description="The least seconds between two idle checks of one worker."
    )
    idle_action: Literal["pause", "drain"] = Field(
        default="pause", description="Who acts on an idle worker when both auto-pause and scale-down are on."
    )
    worker_discovery_enabled: Annotated[bool, SettingAlias("auto_import_enabled")] = Field(
        default=True, description="Whether instances that are not ours yet are looked for, and lost ones marked."
    )
    discovery_interval: Seconds = Field(default=300, description="Seconds between two discoveries.")
    worker_discovery_tag_filter: Annotated[str, Field(max_length=256)] | None = Field(
        default=None, description="The tag by which instances are found; if unset, cml-managed=true."
    )
    worker_discovery_ami_filter: Annotated[str, Field(max_length=128)] = Field(
        default="", description="A pattern of image names by which instances are found, instead of by tag."
    )
    terminate_leaked_instances: bool = Field(
        default=False, description="Whether instances of ours that no worker needs are ended."
    )
    breaker_enabled: bool = Field(
        default=True, description="Whether marking is suspended when too many workers seem to be lost at once."
    )
    drift_policy: Literal["restore", "accept"] = Field(
        default="restore", description="Whether a worker that was stopped from outside is started again."
    )
    scale_down_enabled: bool = Field(default=False, description="Whether idle workers are drained.")
    min_workers: Count = Field(default=0, description="How many running workers automation always leaves.")
    scale_down_cooldown_seconds: SecondsOrZero = Field(
        default=600, description="The least seconds between two scale-downs."
    )
    max_workers_per_region: Count = Field(
        default=10, description="How many workers of a region scale-up stops at; stopped ones count."
    )


class FleetSourceSettings(Settings):
    """What the fleet may be made of."""

    worker_templates_config_path: ReadableFile | None = Field(
        default=None, description="A YAML file with templates, taken over at each start; if unset, built-in ones."
    )
    scale_up_license_token: SecretStr | None = Field(
        default=None,
        description="The licence token of workers that scale-up launches; without one they take no licensed lab.",
    )


class LabletPortSettings(Settings):
    """Where lablets can be reached."""

    lablet_port_range: PortRange = Field(
        default="20000-29999", description="The ports of a worker that its lablets are given, the lowest free first."
    )
