"""The settings of controllers, in groups that their processes combine by inheritance."""

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
    """Where controllers find the control plane."""

    control_plane_api_url: ControlPlaneUrl = Field(
        default="http://localhost:8080", description="Where the API of the control plane is."
    )


class WorkerControllerSettings(Settings):
    """How patient the worker controller is, and how often it measures."""

    metrics_collect_interval: Seconds = Field(
        default=60.0, description="Seconds between two collections of a worker's figures."
    )
    provisioning_timeout: Seconds = Field(
        default=900.0,
        description="Seconds that a launched instance may take until it runs; then the worker has failed.",
    )
    starting_timeout: Seconds = Field(
        default=900.0, description="Seconds that an instance may take to start and get an address."
    )
    stuck_after: Seconds = Field(
        default=900.0, description="Seconds after which a worker that still stops or terminates is called stuck."
    )
    cml_ready_timeout: Seconds = Field(
        default=1800.0, description="Seconds that CML may take to become ready on a running worker."
    )
    drain_timeout: SecondsOrZero = Field(
        default=600.0, description="Seconds for which a draining worker waits for what runs on it."
    )
    license_release_timeout: SecondsOrZero = Field(
        default=120.0, description="Seconds for which termination waits until a licence is given back."
    )


class ResourceSchedulerSettings(Settings):
    """How far ahead workers are found for lablets, and how fast the fleet grows."""

    lablet_lead_time: SecondsOrZero = Field(
        default=900.0, description="Seconds before the start of a lablet at which a worker is looked for."
    )
    scale_up_cooldown_seconds: SecondsOrZero = Field(
        default=30.0, description="The least seconds between two rounds of requests for more workers."
    )


class LabletControllerSettings(Settings):
    """How patient the lablet controller is, and how often it looks for labs that no lablet has."""

    lablet_start_timeout: Seconds = Field(
        default=1800.0, description="Seconds that a lablet's lab may take until all its nodes have booted."
    )
    lablet_stop_timeout: Seconds = Field(
        default=900.0, description="Seconds after which a lablet whose lab is still being removed is called stuck."
    )
    lablet_worker_timeout: Seconds = Field(
        default=900.0, description="Seconds for which a lablet waits for a worker that is not ready."
    )
    lablet_sweep_interval: Seconds = Field(
        default=600.0, description="Seconds between two looks for labs on a worker that no lablet has."
    )


class CmlSettings(Settings):
    """How CML servers are reached, and how both sides prove who they are."""

    cml_default_username: AccountName = Field(
        default="admin", description="The account on CML servers whose workers have none of their own."
    )
    cml_default_password: SecretStr = Field(default=SecretStr(""), description="The password of that account.")
    cml_dedicated_account: bool = Field(
        default=False,
        description="Whether nobody else uses our account on CML, so that what it does is no sign of a person.",
    )
    cml_tls: Literal["pin", "ca", "insecure"] = Field(
        default="pin",
        description=(
            "How a CML server proves who it is: by the certificate that it showed first while this process runs, "
            "by one that a CA has signed, or not at all."
        ),
    )
    cml_ca_file: ReadableFile | None = Field(
        default=None,
        description="The certificates, in PEM form, of the CAs for CML_TLS=ca; if unset, those of this machine.",
    )
    cml_use_private_address: bool = Field(
        default=False, description="Whether CML servers are reached at their private addresses only."
    )
    cml_proxy_url: ProxyUrl | None = Field(
        default=None, description="A proxy through which CML servers are reached, by CONNECT; if unset, directly."
    )

    def conflicts(self) -> Iterator[SettingsConflict]:
        yield from super().conflicts()
        if self.cml_ca_file is not None and self.cml_tls != "ca":
            yield SettingsConflict("cml_tls", "cml_ca_file", rule="CML_CA_FILE counts only with CML_TLS=ca")


class CloudSettings(Settings):
    """Which cloud workers run in, and from which images they are launched."""

    cloud_provider: Literal["aws", "simulated"] = Field(
        default="aws", description="The cloud that workers run in: AWS, or a simulated one."
    )
    aws_endpoint_url: EndpointUrl | None = Field(
        default=None, description="Where AWS is asked, if not at its own addresses; a region may name another."
    )
    ami_name_pattern: ImageName = Field(
        default="cml-*", description="The name of the images to launch, for templates without a pattern of their own."
    )
    ami_owners: Annotated[tuple[ImageOwner, ...], Field(min_length=1)] = Field(
        default=("self",), description="The accounts whose images may be launched."
    )
