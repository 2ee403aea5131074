"""Forms about a worker: what somebody typed, what is wrong with it, and what it asks for.

What was typed stays, all but secrets: those are never sent back to a page.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from lcm.control_plane.web.auth import form_field
from lcm.model.worker.requests import CreateWorkerRequest, LicenseRequest, UpdateWorkerRequest
from lcm.model.worker.status import DesiredStatus, LostInstancePolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.errors import ProblemError
    from lcm.model.worker.record import Worker

EMPTY_TAG_ROWS: Final = 2
_BOTH_OR_NEITHER = "give both the name and the password, or neither"
_WHOLE_FORM = ""
_FIELD_HINTS: Final = {
    "name": "letters, digits, dots, dashes and underscores, 63 at most; the first and the last are a letter or a digit",
    "template_name": "choose one of the templates",
    "aws_region": "choose one of the regions",
}


class InvalidFormError(Exception):
    """What was typed cannot be asked for. `problems` are by field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {words}" for name, words in problems.items()))
        self.problems = dict(problems)


@dataclass(frozen=True, slots=True)
class WorkerForm:
    """The fields of the form as they stand in it; `secrets` go nowhere but into the request."""

    name: str = ""
    template_name: str = ""
    aws_region: str = ""
    desired_status: str = DesiredStatus.RUNNING.value
    tags: tuple[tuple[str, str], ...] = ()
    idle_detection_enabled: bool = True
    lost_instance_policy: str = LostInstancePolicy.TERMINATE.value
    cml_username: str = ""
    forget_cml: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, form: dict[str, list[str]]) -> WorkerForm:
        """What was sent."""
        secrets = {
            "license_token": form_field(form, "license_token"),
            "cml_password": form.get("cml_password", [""])[-1],
        }
        pairs = zip(form.get("tag_key", []), form.get("tag_value", []), strict=False)
        return cls(
            name=form_field(form, "name"),
            template_name=form_field(form, "template_name"),
            aws_region=form_field(form, "aws_region"),
            desired_status=form_field(form, "desired_status") or DesiredStatus.RUNNING.value,
            tags=tuple((key, value) for key, value in pairs if key or value),
            idle_detection_enabled=bool(form_field(form, "idle_detection_enabled")),
            lost_instance_policy=form_field(form, "lost_instance_policy") or LostInstancePolicy.TERMINATE.value,
            cml_username=form_field(form, "cml_username"),
            forget_cml=bool(form_field(form, "forget_cml")),
            secrets={name: value for name, value in secrets.items() if value},
        )

    @classmethod
    def from_worker(cls, worker: Worker) -> WorkerForm:
        """The form as it is before anybody has typed."""
        return cls(
            name=worker.name,
            tags=tuple(worker.tags.items()),
            idle_detection_enabled=worker.idle_detection_enabled,
            lost_instance_policy=worker.lost_instance_policy.value,
        )

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """Tags with a few empty rows after them."""
        return (*self.tags, *((("", ""),) * EMPTY_TAG_ROWS))


def create_request(typed: WorkerForm) -> CreateWorkerRequest:
    """The new worker that is asked for."""
    given: dict[str, Any] = {
        "name": typed.name,
        "template_name": typed.template_name,
        "desired_status": typed.desired_status,
        "tags": _parse_tags(typed),
        "idle_detection_enabled": typed.idle_detection_enabled,
        "lost_instance_policy": typed.lost_instance_policy,
        **typed.secrets,
    }
    if typed.aws_region:
        given["aws_region"] = typed.aws_region
    if typed.cml_username:
        given["cml_username"] = typed.cml_username
    if ("cml_username" in given) != ("cml_password" in given):
        raise InvalidFormError({"cml_password" if typed.cml_username else "cml_username": _BOTH_OR_NEITHER})
    try:
        return CreateWorkerRequest.model_validate(given)
    except ValidationError as error:
        raise InvalidFormError(_field_problems(error)) from None


def patch_request(typed: WorkerForm, worker: Worker) -> UpdateWorkerRequest:
    """Only what differs from the worker as it is."""
    tags = _parse_tags(typed)
    wanted: dict[str, Any] = {
        "name": typed.name,
        "tags": tags,
        "idle_detection_enabled": typed.idle_detection_enabled,
        "lost_instance_policy": typed.lost_instance_policy,
    }
    given = {name: value for name, value in wanted.items() if value != getattr(worker, name)}
    if typed.forget_cml:
        given |= {"cml_username": None, "cml_password": None}
    else:
        given |= {"cml_username": typed.cml_username} if typed.cml_username else {}
        given |= {name: value for name, value in typed.secrets.items() if name == "cml_password"}
    try:
        return UpdateWorkerRequest.model_validate(given)
    except ValidationError as error:
        raise InvalidFormError(_field_problems(error)) from None


def license_request(operation: str, form: dict[str, list[str]]) -> LicenseRequest:
    """What is to be done with the licence."""
    given = {"operation": operation, "token": form_field(form, "token"), "reason": form_field(form, "reason")}
    try:
        return LicenseRequest.model_validate({name: value for name, value in given.items() if value})
    except ValidationError as error:
        raise InvalidFormError(_field_problems(error)) from None


def refused_fields(refusal: ProblemError, fields: tuple[str, ...]) -> dict[str, str]:
    """A refusal at the field that it begins with; else it is about the whole form."""
    name, joint, words = refusal.detail.partition(": ")
    return {name: words} if joint and name in fields else {_WHOLE_FORM: refusal.detail}


def form_fingerprint(worker: Worker) -> str:
    """Stands for what the form shows of a worker: other changes of it are not in the way of this one."""
    shown = [worker.name, sorted(worker.tags.items()), worker.idle_detection_enabled, worker.lost_instance_policy]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]


def _parse_tags(typed: WorkerForm) -> dict[str, str]:
    tags: dict[str, str] = {}
    for key, value in typed.tags:
        if not key:
            raise InvalidFormError({"tags": f"the value {value!r} has no name"})
        if key in tags:
            raise InvalidFormError({"tags": f"{key!r} is there twice"})
        tags[key] = value
    return tags


def _field_problems(error: ValidationError) -> dict[str, str]:
    problems: dict[str, str] = {}
    for found in error.errors(include_url=False, include_context=False, include_input=False):
        name = str(found["loc"][0]) if found["loc"] else _WHOLE_FORM
        problems.setdefault(name, _FIELD_HINTS.get(name) or str(found["msg"]).removeprefix("Value error, "))
    return problems
