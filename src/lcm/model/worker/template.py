"""Worker templates, the capacity of a worker, and the part of it that lablets use."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, ValidationInfo, field_validator

from lcm.model.base import WHOLE_NUMBER, Record, ResourceName, SingleLineText, StrictBool
from lcm.model.validation import text_like


class Capacity(Record):
    """What a worker offers to lablets."""

    cpu_cores: Annotated[int, Field(ge=1, le=1024, title="CPU cores"), WHOLE_NUMBER]
    memory_gb: Annotated[float, Field(gt=0, le=65536, strict=True, title="Memory, GB")]
    storage_gb: Annotated[float, Field(gt=0, le=1_000_000, strict=True, title="Disk, GB")]
    max_nodes: Annotated[int, Field(ge=1, le=10_000, title="Maximum nodes"), WHOLE_NUMBER]


def is_metal(instance_type: str) -> bool:
    """Whether instances of this type are bare metal, which offers KVM by itself."""
    return instance_type.partition(".")[2].startswith("metal")


_NOT_GIVEN: Final[Any] = object()


class WorkerTemplate(Record):
    """A template from which workers are created. The web form is generated from its fields."""

    name: ResourceName = Field(title="Name", description="Workers refer to it; cannot be changed later.")
    description: Annotated[SingleLineText, Field(max_length=500)] = Field(default="", title="Description")
    instance_type: Annotated[
        str, text_like(r"^[a-z0-9-]+\.[a-z0-9-]+$", "an instance type such as t3.medium", max_length=64)
    ] = Field(title="Instance type", description="An EC2 instance type, such as t3.medium.")
    ami_name_pattern: Annotated[SingleLineText, Field(max_length=128)] | None = Field(
        default=None, title="Image name pattern (optional)", description="If empty, the default pattern is used."
    )
    capacity: Capacity
    cost_per_hour_usd: Annotated[float, Field(ge=0, le=10_000, strict=True)] = Field(title="Cost, $ an hour")
    nested_virtualization: StrictBool = Field(
        default=False,
        title="Nested virtualization",
        description="EC2 gives its virtual instances KVM, which only types such as c8i, m8i and r8i support.",
    )
    requires_kvm: StrictBool = Field(
        default_factory=lambda: _NOT_GIVEN,
        validate_default=True,
        title="Requires KVM",
        description="A worker whose CML reports that it has no KVM is not ready. "
        "By default true with nested virtualization and for metal types, else false.",
    )
    enabled: StrictBool = Field(default=True, title="Workers can be created from it")

    @field_validator("nested_virtualization")
    @classmethod
    def _check_nested(cls, nested: bool, info: ValidationInfo) -> bool:
        if nested and is_metal(info.data.get("instance_type", "")):
            raise ValueError("must be false for a metal type, which has KVM without it")
        return nested

    @field_validator("requires_kvm", mode="before")
    @classmethod
    def _default_requires_kvm(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not _NOT_GIVEN:
            return value
        return info.data.get("nested_virtualization", False) or is_metal(info.data.get("instance_type", ""))


def _template(
    name: str, instance_type: str, capacity: tuple[int, float, float, int], cost: float, *, nested: bool = False
) -> WorkerTemplate:
    cpu, memory, storage, nodes = capacity
    size = Capacity(cpu_cores=cpu, memory_gb=memory, storage_gb=storage, max_nodes=nodes)
    text = f"{cpu} CPU, {memory:g} GB memory, {storage:g} GB disk, up to {nodes} nodes"
    return WorkerTemplate(
        name=name,
        description=text,
        instance_type=instance_type,
        capacity=size,
        cost_per_hour_usd=cost,
        nested_virtualization=nested,
    )


DEFAULT_TEMPLATES = (
    _template("micro", "t3.micro", (2, 1, 20, 2), 0.0104),
    _template("small", "t3.small", (2, 2, 50, 5), 0.0208),
    _template("medium", "t3.medium", (2, 4, 100, 15), 0.0416),
    _template("large", "t3.large", (2, 8, 200, 30), 0.0832),
    _template("nested-medium", "m8i.2xlarge", (8, 32, 200, 35), 0.42336, nested=True),
    _template("nested-large", "m8i.8xlarge", (32, 128, 700, 135), 1.69344, nested=True),
    _template("metal", "m5zn.metal", (48, 192, 1000, 200), 3.9641),
)


class Allocation(Record):
    """What lablets use of a worker. It changes with the worker's version, in the commit that reserves."""

    cpu_cores: float = 0
    memory_gb: float = 0
    storage_gb: float = 0
    nodes: int = 0
    lablets: int = 0
    ports: tuple[int, ...] = ()
