"""Settings of controllers, in groups that their processes combine by inheritance."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from lcm.settings.base import Settings, SettingsConflict
from lcm.settings.describe import Allowed
from lcm.settings.types import ReadableFile, Seconds, SecondsOrZero

ControlPlaneUrl = Annotated[
    str,
    Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$"),
    Allowed("an address that starts with http:// or https:// and names no user"),
]
EndpointUrl = Annotated[
    str, Field(pattern=r"^https?://[^\s/]\S*$"), Allowed("an address that starts with http:// or https://")
]
ProxyUrl = Annotated[
    str, Field(pattern=r"^http://[^\s/?#]+/?$"), Allowed("http:// and the host and port of a proxy, nothing after it")
]
ImageName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9()\[\] ./'@_*?-]{1,128}$"),
    Allowed("the name of an image, of at most 128 characters, in which * and ? stand for others"),
]
ImageOwner = Annotated[
    str,
    Field(pattern=r"^(self|amazon|aws-marketplace|[0-9]{12})$"),
    Allowed("self, amazon, aws-marketplace or the 12 digits of an account"),
]
AccountName = Annotated[str, Field(pattern=r"^[^\s:]{1,64}$"), Allowed("text without spaces and colons")]


class ControlPlaneAddressSettings(Settings):
    """The address of the control plane, for controllers."""

    control_plane_api_url: ControlPlaneUrl = Field(
        default="http://localhost:8080", description="The URL of the control plane's API."
    )


class WorkerControllerSettings(Settings):
    """Timeouts and intervals of the worker controller."""

    metrics_collect_interval: Seconds = Field(
        default=60.0, description="Seconds between two collections of a worker's metrics."
    )
    cml_poller_processes: int = Field(
        default=0,
        ge=0,
        le=32,
        description=(
            "Processes that poll CML servers, each a part of them; with 0 the worker controller polls them itself."
        ),
    )
    cml_reader_url: ControlPlaneUrl | None = Field(
        default=None,
        description=(
            "The URL at which the other worker controllers reach this one. With it on each of them, all replicas read "
            "CML servers and CloudWatch metrics, each a part; without it, only the leader does."
        ),
    )
    provisioning_timeout: Seconds = Field(
        default=900.0,
        description="Seconds that a launched instance may take until it runs; after that the worker fails.",
    )
    starting_timeout: Seconds = Field(
        default=900.0, description="Seconds that an instance may take to start and get an address."
    )
    stuck_after: Seconds = Field(
        default=900.0,
        description="Seconds after which a worker that is still stopping or terminating is reported as stuck.",
    )
    cml_ready_timeout: Seconds = Field(
        default=1800.0, description="Seconds that CML may take to become ready on a running worker."
    )
    capacity_wait_limit: Seconds = Field(
        default=1800.0,
        description=(
            "Seconds that a worker may wait for EC2 capacity, for credentials or for its license; "
            "after that it is reported as stuck and does not count as capacity on its way."
        ),
    )
    telemetry_missing_after: Seconds = Field(
        default=21_600.0,
        description="Seconds after which a worker whose activity cannot be read is listed as a problem.",
    )
    drain_timeout: SecondsOrZero = Field(
        default=600.0, description="Seconds for which a draining worker waits for its labs."
    )
    license_release_timeout: SecondsOrZero = Field(
        default=120.0, description="Seconds for which termination waits until the license is deregistered."
    )


class ResourceSchedulerSettings(Settings):
    """The cooldown of scale-up."""

    scale_up_cooldown_seconds: SecondsOrZero = Field(
        default=30.0, description="The minimum seconds between two scale-ups."
    )


class LabletControllerSettings(Settings):
    """Timeouts and intervals of the lablet controller."""

    lablet_start_timeout: Seconds = Field(
        default=1800.0, description="Seconds that a lablet's lab may take until all its nodes have booted."
    )
    lablet_stop_timeout: Seconds = Field(
        default=900.0, description="Seconds after which a lablet whose lab is still being removed is reported as stuck."
    )
    lablet_worker_timeout: Seconds = Field(
        default=900.0, description="Seconds for which a lablet waits for a worker that is not ready."
    )
    lablet_sweep_interval: Seconds = Field(
        default=600.0, description="Seconds between two scans of a worker for orphaned labs."
    )


class CmlSettings(Settings):
    """Access to CML servers: account, TLS, address and proxy."""

    cml_default_username: AccountName = Field(
        default="admin", description="The account for CML servers whose workers have no account of their own."
    )
    cml_default_password: SecretStr = Field(default=SecretStr(""), description="The password of that account.")
    cml_dedicated_account: bool = Field(
        default=False,
        description="Whether only LCM uses this account, so that its activity does not count as use of a worker.",
    )
    cml_tls: Literal["pin", "ca", "insecure"] = Field(
        default="pin",
        description=(
            "How certificates of CML servers are verified: pin the one with which a server is first ready, "
            "require a CA signature, or not at all."
        ),
    )
    cml_ca_file: ReadableFile | None = Field(
        default=None,
        description="The CA certificates, in PEM form, for CML_TLS=ca; if unset, the system's.",
    )
    cml_use_private_address: bool = Field(
        default=False, description="Whether CML servers are reached at their private addresses only."
    )
    cml_proxy_url: ProxyUrl | None = Field(
        default=None, description="An HTTP proxy (CONNECT) for CML servers; if unset, connections are direct."
    )
    cml_max_idle_connections: int = Field(
        default=3000,
        ge=0,
        le=100_000,
        description=(
            "Connections to CML servers that are kept open between requests, by all poller processes together. "
            "Each takes about 50 KiB of memory; without one, a request begins with a TLS handshake."
        ),
    )

    def conflicts(self) -> Iterator[SettingsConflict]:
        yield from super().conflicts()
        if self.cml_ca_file is not None and self.cml_tls != "ca":
            yield SettingsConflict("cml_tls", "cml_ca_file", rule="CML_CA_FILE requires CML_TLS=ca")


class CloudSettings(Settings):
    """The cloud, and the images to launch."""

    cloud_provider: Literal["aws", "simulated"] = Field(
        default="aws", description="The cloud that workers run in: AWS, or a simulated one."
    )
    aws_endpoint_url: EndpointUrl | None = Field(
        default=None, description="An AWS endpoint instead of the default ones; a region may override it."
    )
    ami_name_pattern: ImageName = Field(
        default="cml-*", description="The name pattern of images to launch, for templates without their own pattern."
    )
    ami_owners: Annotated[tuple[ImageOwner, ...], Field(min_length=1)] = Field(
        default=("self",), description="The accounts whose images may be launched."
    )
