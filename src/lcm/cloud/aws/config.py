"""The configuration of regions: parses and validates the value of AWS_REGION_CONFIGS.

The value is the path of a YAML file or inline JSON: a mapping of region names to their configuration.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from lcm.cloud.types import MANAGED_BY_TAG

if TYPE_CHECKING:
    from collections.abc import Mapping

REGION_CONFIGS_VARIABLE = "AWS_REGION_CONFIGS"
DEFAULT_REGION_VARIABLE = "AWS_DEFAULT_REGION"

_RESERVED_TAG_PREFIXES = (MANAGED_BY_TAG.split(":", maxsplit=1)[0] + ":", "aws:")

RegionName = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-\d+$")]
SecurityGroupId = Annotated[str, StringConstraints(pattern=r"^sg-[0-9a-z]+$")]
SubnetId = Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-z]+$")]
RoleArn = Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$")]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+")]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=255)]
TagValue = Annotated[str, StringConstraints(max_length=256)]


class AwsConfigError(ValueError):
    """The configuration of regions is invalid; the message is one line and names the field."""


class RegionConfig(BaseModel):
    """The configuration of one region. Only its name is required."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    region: RegionName
    security_group_ids: tuple[SecurityGroupId, ...] = ()
    subnet_ids: tuple[SubnetId, ...] = ()
    key_name: ShortText | None = None
    default_tags: dict[ShortText, TagValue] = Field(default_factory=dict)
    role_arn: RoleArn | None = None
    external_id: ShortText | None = None
    endpoint_url: Url | None = None
    instance_profile: ShortText | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_subnet(cls, config: Any) -> Any:
        """`subnet_id` is shorthand for a list with one entry."""
        if not isinstance(config, dict) or "subnet_id" not in config:
            return config
        if "subnet_ids" in config:
            raise ValueError("subnet_id and subnet_ids are mutually exclusive")
        rest = {name: value for name, value in config.items() if name != "subnet_id"}
        return rest if config["subnet_id"] is None else {**rest, "subnet_ids": [config["subnet_id"]]}

    @model_validator(mode="after")
    def _belongs_together(self) -> RegionConfig:
        if self.external_id is not None and self.role_arn is None:
            raise ValueError("external_id requires role_arn")
        reserved = sorted(key for key in self.default_tags if key.startswith(_RESERVED_TAG_PREFIXES))
        if reserved:
            raise ValueError(f"default_tags must not set {reserved[0]!r}: this prefix is reserved")
        return self


@dataclass(frozen=True, slots=True)
class Tuning:
    """Timeouts, page sizes and concurrency of calls. The defaults are for AWS; tests use smaller values."""

    connect_timeout: float = 5.0
    read_timeout: float = 30.0
    read_attempts: int = 5
    # The total time of a read over all attempts: after it, its thread is free again.
    read_deadline: float = 60.0
    # Of each region: a region that does not respond keeps only its own threads busy.
    threads: int = 8
    # Parsing a page in a thread holds the GIL for about a third of a millisecond per instance.
    thread_page: int = 200
    process_page: int = 1000
    poller_above: int = 200
    gather_seconds: float = 0.2
    images_fresh_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class AwsConfig:
    """The configured regions, in order, and the tuning of calls."""

    regions: Mapping[str, RegionConfig]
    tuning: Tuning = field(default_factory=Tuning)

    @classmethod
    def load(cls, region_configs: str | None, default_region: str | None = None) -> AwsConfig:
        """Load the values of AWS_REGION_CONFIGS and AWS_DEFAULT_REGION; the second is used only without the first."""
        if region_configs and region_configs.strip():
            return cls(_parse_regions(region_configs.strip()))
        if default_region and default_region.strip():
            name = default_region.strip()
            return cls({name: _region_config(name, {}, DEFAULT_REGION_VARIABLE)})
        raise AwsConfigError(
            f"set {REGION_CONFIGS_VARIABLE} or {DEFAULT_REGION_VARIABLE} to configure at least one region"
        )


def _parse_regions(text: str) -> dict[str, RegionConfig]:
    content, source = (
        (_parse_json(text), REGION_CONFIGS_VARIABLE) if text.startswith(("{", "[")) else (_parse_file(text), text)
    )
    if isinstance(content, dict) and set(content) == {"aws_region_configs"}:
        content = content["aws_region_configs"]
    if not isinstance(content, dict) or not content:
        raise AwsConfigError(f"{source}: must be a mapping of region names to their configuration")
    return {str(name): _region_config(str(name), entry, source) for name, entry in content.items()}


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise AwsConfigError(f"{REGION_CONFIGS_VARIABLE}: not JSON: {error}") from error


def _parse_file(text: str) -> Any:
    try:
        return yaml.safe_load(Path(text).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise AwsConfigError(
            f"{REGION_CONFIGS_VARIABLE}={text}: must be JSON or a readable YAML file: {reason}"
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise AwsConfigError(f"{text}: not YAML{where}") from error


def _region_config(name: str, entry: Any, source: str) -> RegionConfig:
    if entry is None:
        entry = {}
    if not isinstance(entry, dict):
        raise AwsConfigError(f"{source}: {name}: must be a mapping, not {type(entry).__name__}")
    if entry.get("region", name) != name:
        raise AwsConfigError(f"{source}: {name}.region: must be {name!r}, like its key, not {entry['region']!r}")
    try:
        return RegionConfig.model_validate({**entry, "region": name})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join([name, *(str(part) for part in first["loc"])])
        reason = first["msg"].removeprefix("Value error, ")
        shown = "" if first["type"] in ("value_error", "extra_forbidden") else f", not {first['input']!r}"
        raise AwsConfigError(f"{source}: {place}: {reason}{shown}") from error
