"""Which instances of a sweep may become workers, and as what. Another installation's instances are never touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter, ValidationError

from lcm.cloud.types import INSTALLATION_TAG, WORKER_TAG, InstanceState, Selection
from lcm.model.base import Name, Text
from lcm.model.worker.record import MOST_TAGS, Tags
from lcm.model.worker.requests import ImportWorker
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lcm.cloud.types import Instance
    from lcm.model.fleet.settings import DiscoverySettings
    from lcm.model.worker.record import Worker

DEFAULT_TAG: Final = "cml-managed=true"
IMPORTED_AS: Final = {InstanceState.RUNNING: WorkerStatus.RUNNING, InstanceState.STOPPED: WorkerStatus.STOPPED}
_ON_ITS_WAY: Final = (InstanceState.PENDING, InstanceState.STOPPING)
_NAME_TAG: Final = "Name"
_KEPT_FIRST: Final = ("cml-environment", "cml-region")
_LONGEST_VERSION: Final = 64
_ACCOUNT_DIGITS: Final = 12

_name: TypeAdapter[str] = TypeAdapter(Name)
_text: TypeAdapter[str] = TypeAdapter(Text)
_tags: TypeAdapter[dict[str, str]] = TypeAdapter(Tags)


@dataclass(frozen=True, slots=True)
class Criteria:
    """By what instances are found: a tag, with a value or any, or an image."""

    tag_key: str
    tag_value: str | None = None
    image_ids: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: DiscoverySettings | None, image_ids: Iterable[str] = ()) -> Criteria:
        """What the settings say; without any, what they say unless told otherwise."""
        told = (settings.worker_discovery_tag_filter or "").strip() if settings is not None else ""
        key, given, value = (told or DEFAULT_TAG).partition("=")
        return cls(key.strip(), value.strip() if given else None, frozenset(image_ids))

    @property
    def selection(self) -> Selection:
        """What a sweep must ask for to show these, and all of our own."""
        keys = (WORKER_TAG,) if not self.tag_key else (WORKER_TAG, self.tag_key)
        return Selection(tuple(dict.fromkeys(keys)), tuple(sorted(self.image_ids)))

    def match(self, instance: Instance) -> bool:
        """Whether the instance is one of these."""
        if instance.image_id in self.image_ids:
            return True
        value = instance.tags.get(self.tag_key)
        return value is not None and self.tag_value in (None, value)


def is_ours(instance: Instance, installation: str) -> bool:
    """Whether this installation launched it."""
    return instance.tags.get(INSTALLATION_TAG) == installation


def candidates(
    instances: Iterable[Instance], workers: Sequence[Worker], criteria: Criteria, installation: str
) -> list[Instance]:
    """Instances that fit and that no worker has, in the order of their ids; `workers` are all not TERMINATED."""
    taken = {worker.instance_id for worker in workers}
    alive = {worker.id for worker in workers}
    found = []
    for instance in instances:
        if instance.id in taken or not criteria.match(instance):
            continue
        if instance.state not in IMPORTED_AS and instance.state not in _ON_ITS_WAY:
            continue
        launched_by_lcm = WORKER_TAG in instance.tags or INSTALLATION_TAG in instance.tags
        # One whose own worker lives is that worker's to adopt, or a leak: a second worker would share it.
        if launched_by_lcm and (not is_ours(instance, installation) or instance.worker_id in alive):
            continue
        found.append(instance)
    return sorted(found, key=lambda instance: instance.id)


def import_of(
    instance: Instance, region: str, account_id: str, *, cml_version: str | None, previous_worker_id: str | None
) -> ImportWorker:
    """What the control plane is asked to record."""
    return ImportWorker(
        instance_id=instance.id,
        aws_region=region,
        aws_account_id=account_id if account_id.isdecimal() and len(account_id) == _ACCOUNT_DIGITS else None,
        name=fitting_name(instance.tags.get(_NAME_TAG)),
        instance_type=instance.instance_type,
        ami_id=instance.image_id,
        status=IMPORTED_AS[instance.state],
        public_ip=instance.public_ip,
        private_ip=instance.private_ip,
        tags=kept_tags(instance.tags),
        cml_version=_fitting_version(cml_version),
        previous_worker_id=previous_worker_id,
    )


def fitting_name(told: str | None) -> str | None:
    """The name, if a worker may have it."""
    try:
        return None if told is None else _name.validate_python(told)
    except ValidationError:
        return None


def kept_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The instance's own tags that a worker may have; those that people sort by come first if there are too many."""
    in_order = sorted(tags, key=lambda key: (key not in _KEPT_FIRST, key))
    fitting = {key: tags[key] for key in in_order if _fits(key, tags[key])}
    return dict(list(fitting.items())[:MOST_TAGS])


def _fits(key: str, value: str) -> bool:
    try:
        _tags.validate_python({key: value})
    except ValidationError:
        return False
    return True


def _fitting_version(told: str | None) -> str | None:
    """What a server calls its version; it is not trusted to be short or readable."""
    try:
        return None if told is None else _text.validate_python(told)[:_LONGEST_VERSION]
    except ValidationError:
        return None
