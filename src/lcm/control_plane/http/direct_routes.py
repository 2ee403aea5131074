"""Calls the function of a route with arguments that are read by a plan made once, at the start.

FastAPI inspects the types of all parameters again for each request, which takes a third of the event loop's time for a
page. The plan has the same dependencies in the same order, and the framework's own validators. It serves valid requests
only: a request with any invalid part goes through the framework from its beginning, so that errors have one source.
Its dependencies may then run twice: they must have no effect beyond their request. Routes whose parameters are of other
kinds than those here are the framework's, too, and all routes with a FastAPI whose internals are not the known ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from inspect import iscoroutinefunction
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fastapi import Request
from fastapi.datastructures import DefaultPlaceholder
from fastapi.exceptions import ResponseValidationError
from fastapi.params import Body, Form
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from fastapi._compat import ModelField
    from fastapi.dependencies.models import Dependant
    from fastapi.routing import APIRoute
    from starlette.types import Message, Receive, Scope, Send

_JSON = "application/json"
_IMMUTABLE = (NoneType, str, int, bool)
_READ_FIELDS = {"path_params", "query_params", "header_params", "body_params", "dependencies", "call"}
_READ_FIELDS |= {"request_param_name", "use_cache"}
_OTHER_PARAMETERS = (
    "cookie_params",
    "websocket_param_name",
    "http_connection_param_name",
    "response_param_name",
    "background_tasks_param_name",
    "security_scopes_param_name",
    "own_oauth_scopes",
)
_WITHOUT_MEANING = {"name", "path", "scope", "parent_oauth_scopes"}
"""What a plan needs not know: `scope` is for generators, and without own scopes there are none of the parent's."""


class _NotPlannedError(Exception):
    """The framework serves this request, or all requests of this route."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One value in the path, the query, the headers or the cookies."""

    name: str
    alias: str
    is_list: bool
    is_required: bool
    default: Any
    field: ModelField

    @classmethod
    def of(cls, field: ModelField) -> _Parameter:
        info = field.field_info
        if info.validate_default or info.validation_alias not in (None, field.alias):
            raise _NotPlannedError
        is_required = info.is_required()
        default = None if is_required else field.default
        if not isinstance(default, _IMMUTABLE):
            raise _NotPlannedError
        return cls(field.name, field.alias, _is_list(info.annotation), is_required, default, field)

    def read(self, source: Any) -> Any:
        """The value, or the default if it was not sent."""
        value = source.getlist(self.alias) if self.is_list else source.get(self.alias)
        if value is None or (self.is_list and not value):
            if self.is_required:
                raise _NotPlannedError
            return self.default
        return _validated(self.field, value)


@dataclass(frozen=True, slots=True)
class _Call:
    """A dependency or the function of the route, and where its arguments are."""

    function: Callable[..., Awaitable[Any]]
    results: tuple[tuple[str, int], ...]
    """Names of arguments, each with the number of the earlier call that returns it."""
    request_name: str | None
    path: tuple[_Parameter, ...]
    query: tuple[_Parameter, ...]
    headers: tuple[_Parameter, ...]

    def arguments(self, request: Request, returned: Sequence[Any]) -> dict[str, Any]:
        """The arguments for a request; `returned` are the results of the earlier calls."""
        values: dict[str, Any] = {name: returned[number] for name, number in self.results}
        for parameter in self.path:
            values[parameter.name] = parameter.read(request.path_params)
        if self.query:
            has_query = bool(request.scope["query_string"])
            for parameter in self.query:
                if has_query or parameter.is_required:
                    values[parameter.name] = parameter.read(request.query_params)
                else:
                    values[parameter.name] = parameter.default
        for parameter in self.headers:
            values[parameter.name] = parameter.read(request.headers)
        if self.request_name is not None:
            values[self.request_name] = request
        return values


class DirectRoute:
    """An ASGI app that serves one route by its plan."""

    def __init__(self, route: APIRoute) -> None:
        """Make the plan, or raise an error."""
        _require_known_fields(route.dependant)
        self._route = route
        self._body = _body_parameter(route)
        calls: list[_Call] = []
        _add_calls(route.dependant, calls, {}, with_body=True)
        *self._dependencies, self._endpoint = calls
        self._answer = route.response_field
        if not isinstance(route.response_class, DefaultPlaceholder) or (
            self._answer is None and not _returns_response(self._endpoint.function)
        ):
            raise _NotPlannedError
        if self._answer is not None:
            self._validate, self._serialize = self._answer.validate, self._answer.serialize_json

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            # In the framework's order: the body, then dependencies, then the route's own parameters.
            body = None if self._body is None else await self._read_body(request)
            returned: list[Any] = []
            for call in self._dependencies:
                returned.append(await call.function(**call.arguments(request, returned)))
            arguments = self._endpoint.arguments(request, returned)
            if self._body is not None:
                arguments[self._body.name] = self._body.default if body is None else _validated(self._body, body.value)
        except _NotPlannedError:
            await self._route.handle(scope, await _replayed(request, receive), send)
            return
        response = self._response(await self._endpoint.function(**arguments))
        await response(scope, receive, send)

    async def _read_body(self, request: Request) -> _JsonBody | None:
        """The body; None if there is none and none is required."""
        assert self._body is not None
        try:
            raw = await request.body()
            if raw and request.headers.get("content-type") == _JSON:
                return _JsonBody(json.loads(raw))
        except Exception as error:
            raise _NotPlannedError from error
        if raw or self._body.field_info.is_required():
            raise _NotPlannedError
        return None

    def _response(self, result: Any) -> Response:
        if isinstance(result, Response):
            return result
        assert self._answer is not None, "the function returns a Response"
        value, errors = self._validate(result, loc=("response",))
        if errors:
            raise ResponseValidationError(errors=errors, body=result)
        route = self._route
        content = self._serialize(
            value,
            include=route.response_model_include,
            exclude=route.response_model_exclude,
            by_alias=route.response_model_by_alias,
            exclude_unset=route.response_model_exclude_unset,
            exclude_defaults=route.response_model_exclude_defaults,
            exclude_none=route.response_model_exclude_none,
        )
        return Response(content, route.status_code or 200, media_type=_JSON)


@dataclass(frozen=True, slots=True)
class _JsonBody:
    """What a body contains; its value may be null."""

    value: Any


def plan_route(route: APIRoute) -> DirectRoute | None:
    """The route with a plan; None if the framework serves it."""
    try:
        return DirectRoute(route)
    except Exception:  # noqa: BLE001 - internals of another version raise anything; the framework serves the route
        return None


def _require_known_fields(dependant: Dependant) -> None:
    """Another version may have further kinds of parameters."""
    if not {each.name for each in fields(dependant)} <= {*_READ_FIELDS, *_WITHOUT_MEANING, *_OTHER_PARAMETERS}:
        raise _NotPlannedError


def _add_calls(
    dependant: Dependant, calls: list[_Call], numbers: dict[Callable[..., Any], int], *, with_body: bool = False
) -> int:
    """Add a function after those that it depends on; its number. Each dependency is called once for a request."""
    function = dependant.call
    if function is None or not iscoroutinefunction(function):
        raise _NotPlannedError
    if not dependant.use_cache or (dependant.body_params and not with_body) or _has_other_parameters(dependant):
        raise _NotPlannedError
    if function in numbers:
        return numbers[function]
    results = [(needed.name, _add_calls(needed, calls, numbers)) for needed in dependant.dependencies]
    calls.append(
        _Call(
            function,
            tuple((name, number) for name, number in results if name is not None),
            dependant.request_param_name,
            tuple(map(_Parameter.of, dependant.path_params)),
            tuple(map(_Parameter.of, dependant.query_params)),
            tuple(map(_Parameter.of, dependant.header_params)),
        )
    )
    numbers[function] = len(calls) - 1
    return numbers[function]


def _has_other_parameters(dependant: Dependant) -> bool:
    return any(getattr(dependant, name) for name in _OTHER_PARAMETERS)


def _body_parameter(route: APIRoute) -> ModelField | None:
    """The model that is the whole JSON body; None if the route takes no body."""
    parameters = route.dependant.body_params
    if not parameters:
        return None
    info = parameters[0].field_info
    if (
        len(parameters) > 1
        or not isinstance(info, Body)
        or isinstance(info, Form)
        or info.embed
        or info.validate_default
        or not (info.is_required() or info.default is None)
    ):
        raise _NotPlannedError
    return parameters[0]


def _is_list(annotation: Any) -> bool:
    """Whether a parameter has a list of values. Others than scalars and lists of strings are the framework's."""
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = _only([part for part in get_args(annotation) if part is not NoneType])
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if annotation == list[str]:
        return True
    if get_origin(annotation) is not Literal and (
        not isinstance(annotation, type)
        or get_origin(annotation) is not None
        or issubclass(annotation, (BaseModel, list, tuple, set, frozenset, dict, bytes))
    ):
        raise _NotPlannedError
    return False


def _only(parts: list[Any]) -> list[Any]:
    if len(parts) != 1:
        raise _NotPlannedError
    return parts


def _returns_response(function: Callable[..., Any]) -> bool:
    returned = get_type_hints(function).get("return")
    return isinstance(returned, type) and issubclass(returned, Response)


def _validated(field: ModelField, value: Any) -> Any:
    valid, errors = field.validate(value)
    if errors:
        raise _NotPlannedError
    return valid


async def _replayed(request: Request, receive: Receive) -> Receive:
    """A `receive` that hands out the body again: it may have been read, and can be received only once."""
    try:
        waiting = [await request.body()]
    except ClientDisconnect:
        return receive  # the client is gone: the framework finds that too

    async def receive_again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return receive_again
