"""The forms of a worker: what the user typed, the problems of its fields, and the request that it makes.

What was typed is kept when a form is invalid, except secrets: those are never sent back to a page.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from lcm.control_plane.web.forms import WHOLE_FORM, form_field
from lcm.model.validation import problems_of
from lcm.model.worker.requests import AdoptWorkerRequest, CreateWorkerRequest, LicenseRequest, UpdateWorkerRequest
from lcm.model.worker.status import DesiredStatus, LostInstancePolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.model.worker.record import Worker

EMPTY_TAG_ROWS: Final = 2
_BOTH_OR_NEITHER = "enter both the user name and the password, or neither"
_FIELD_HINTS: Final = {
    "template_name": "select a template",
    "aws_region": "select a region",
}


class InvalidFormError(Exception):
    """The form is invalid. `problems` are by field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in problems.items()))
        self.problems = dict(problems)


@dataclass(frozen=True, slots=True)
class WorkerForm:
    """The fields of the form. `secrets` are used for the request only."""

    name: str = ""
    template_name: str = ""
    aws_region: str = ""
    desired_status: str = DesiredStatus.RUNNING.value
    tags: tuple[tuple[str, str], ...] = ()
    idle_detection_enabled: bool = True
    lost_instance_policy: str = LostInstancePolicy.TERMINATE.value
    team: str = ""
    cml_username: str = ""
    forget_cml: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_form(cls, fields: dict[str, list[str]]) -> WorkerForm:
        """Parse a submitted form."""
        secrets = {
            "license_token": form_field(fields, "license_token"),
            "cml_password": fields.get("cml_password", [""])[-1],
        }
        pairs = zip(fields.get("tag_key", []), fields.get("tag_value", []), strict=False)
        return cls(
            name=form_field(fields, "name"),
            template_name=form_field(fields, "template_name"),
            aws_region=form_field(fields, "aws_region"),
            desired_status=form_field(fields, "desired_status") or DesiredStatus.RUNNING.value,
            tags=tuple((key, value) for key, value in pairs if key or value),
            idle_detection_enabled=bool(form_field(fields, "idle_detection_enabled")),
            lost_instance_policy=form_field(fields, "lost_instance_policy") or LostInstancePolicy.TERMINATE.value,
            team=form_field(fields, "team"),
            cml_username=form_field(fields, "cml_username"),
            forget_cml=bool(form_field(fields, "forget_cml")),
            secrets={name: value for name, value in secrets.items() if value},
        )

    @classmethod
    def from_worker(cls, worker: Worker) -> WorkerForm:
        """The form with the current values of a worker."""
        return cls(
            name=worker.name,
            tags=tuple(worker.tags.items()),
            idle_detection_enabled=worker.idle_detection_enabled,
            lost_instance_policy=worker.lost_instance_policy.value,
            team=worker.team,
        )

    @property
    def tag_rows(self) -> tuple[tuple[str, str], ...]:
        """The tags, followed by a few empty rows."""
        return (*self.tags, *((("", ""),) * EMPTY_TAG_ROWS))


def create_request(form: WorkerForm) -> CreateWorkerRequest:
    """The request to create a worker."""
    request: dict[str, Any] = {
        "name": form.name,
        "template_name": form.template_name,
        "desired_status": form.desired_status,
        "tags": _parse_tags(form),
        "idle_detection_enabled": form.idle_detection_enabled,
        "lost_instance_policy": form.lost_instance_policy,
        **form.secrets,
    }
    if form.aws_region:
        request["aws_region"] = form.aws_region
    if form.cml_username:
        request["cml_username"] = form.cml_username
    if ("cml_username" in request) != ("cml_password" in request):
        raise InvalidFormError({"cml_password" if form.cml_username else "cml_username": _BOTH_OR_NEITHER})
    try:
        return CreateWorkerRequest.model_validate(request)
    except ValidationError as error:
        raise InvalidFormError(_field_problems(error)) from None


def patch_request(form: WorkerForm, worker: Worker) -> UpdateWorkerRequest:
    """The request with only the fields that differ from the worker."""
    values: dict[str, Any] = {
        "name": form.name,
        "tags": _parse_tags(form),
        "idle_detection_enabled": form.idle_detection_enabled,
        "lost_instance_policy": form.lost_instance_policy,
    }
    request: dict[str, Any] = {name: value for name, value in values.items() if value != getattr(worker, name)}
    if form.team != worker.team:
        request["team"] = form.team or None
    if form.forget_cml:
        request |= {"cml_username": None, "cml_password": None}
    else:
        request |= {"cml_username": form.cml_username} if form.cml_username else {}
        request |= {name: value for name, value in form.secrets.items() if name == "cml_password"}
    try:
        return UpdateWorkerRequest.model_validate(request)
    except ValidationError as error:
        raise InvalidFormError(_field_problems(error)) from None


def license_request(operation: str, fields: dict[str, list[str]]) -> LicenseRequest:
    """The request for a license operation."""
    request = {"operation": operation, "token": form_field(fields, "token"), "reason": form_field(fields, "reason")}
    try:
        return LicenseRequest.model_validate({name: value for name, value in request.items() if value})
    except ValidationError as error:
        raise InvalidFormError(_field_problems(error)) from None


@dataclass(frozen=True, slots=True)
class AdoptForm:
    """What a person enters to adopt an imported worker."""

    template_name: str = ""
    schedulable: bool = True
    idle_detection_enabled: bool = False

    @classmethod
    def of(cls, worker: Worker) -> AdoptForm:
        """The form with the worker's own values."""
        return cls(worker.template_name or "", worker.schedulable, worker.idle_detection_enabled)

    @classmethod
    def read(cls, fields: dict[str, list[str]]) -> AdoptForm:
        """The form as it was sent."""
        checked = {name: bool(form_field(fields, name)) for name in ("schedulable", "idle_detection_enabled")}
        return cls(form_field(fields, "template_name"), **checked)


def adopt_request(form: AdoptForm, license_token: str) -> AdoptWorkerRequest:
    """The request of the form."""
    request: dict[str, object] = {
        "schedulable": form.schedulable,
        "idle_detection_enabled": form.idle_detection_enabled,
        "template_name": form.template_name or None,
        "license_token": license_token or None,
    }
    try:
        return AdoptWorkerRequest.model_validate(request)
    except ValidationError as error:
        raise InvalidFormError(_field_problems(error)) from None


def form_fingerprint(worker: Worker) -> str:
    """A digest of what the form shows: other changes of the worker do not conflict with this form."""
    options = [worker.idle_detection_enabled, worker.lost_instance_policy, worker.team]
    shown = [worker.name, sorted(worker.tags.items()), *options]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]


def _parse_tags(form: WorkerForm) -> dict[str, str]:
    tags: dict[str, str] = {}
    for key, value in form.tags:
        if not key:
            raise InvalidFormError({"tags": f"the value {value!r} has no name"})
        if key in tags:
            raise InvalidFormError({"tags": f"{key!r} is used twice"})
        tags[key] = value
    return tags


def _field_problems(error: ValidationError) -> dict[str, str]:
    problems: dict[str, str] = {}
    for path, text in problems_of(error):
        name = path[0] if path else WHOLE_FORM
        problems.setdefault(name, _FIELD_HINTS.get(name, text))
    return problems
