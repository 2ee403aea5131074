"""Requests that a hostile or broken client might send to every route: each must be answered, none with a 5xx.

`make nasty` sends 5,000 (COUNT=5000 FIRST=1); the suite sends a few hundred.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_from_bytes, unquote, urlencode

import structlog
from fastapi.routing import APIRoute

from lcm.control_plane.auth.session_cookies import session_cookie
from lcm.control_plane.auth.session_record import storage_key
from lcm.control_plane.http.deps import CSRF_HEADER
from lcm.model.access import Role
from tests.support.auth.scripted_provider import ScriptedProvider
from tests.support.virtual.control_plane import LEADER, TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fastapi.dependencies.models import Dependant

TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\x1b[2J",
    "\r\nSet-Cookie: a=b",
    "x" * 513,
    "x" * 5000,
    "9" * 4300,
    "-1",
    "0",
    "1e400",
    "NaN",
    "\N{ARABIC-INDIC DIGIT THREE}",
    "\N{SUPERSCRIPT TWO}",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00",
    "9999-12-31T23:59:59-14:00",
    "9999-12-31T23:59",
    "2026-13-45T99:99",
    "../../etc/passwd",
    "http://[",
    "//[",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "'\"`;--",
    "w-1," * 300,
    "a@b@c",
    "\N{RIGHT-TO-LEFT OVERRIDE}abc",
    "\N{REPLACEMENT CHARACTER}",
    "true",
    "null",
    "[]",
    "{}",
    "%",
    "%00",
    "$(reboot)",
    "\N{PILE OF POO}" * 70,
    "\N{LATIN SMALL LETTER SHARP S}" * 64,
    "0x10",
    "1_000",
    "+5",
    "1970-01-01T00:00:00+00:00",
    "24:00",
    "P99999Y",
    "eyJhbGciOiJub25lIn0.e30.",
    "lcm-session-" + "0" * 64,
    "http://127.0.0.1:1/",
    "a" * 64,
)
RAW_BYTES = (b"\x00", b"\xed\xa0\x80", b"\xff\xfe", b"%zz", b"%ed%a0%80", b"&&==;;", b"%" * 50, b"a=1&a=2&a=\xff")
JSON_VALUES: tuple[Any, ...] = (
    *TEXTS,
    "\ud800",
    "a\udfffb",
    None,
    True,
    -1,
    10**4000,
    1e308,
    [],
    {},
    [[]],
    {"a": 1},
    0.5,
    -(2**63) - 1,
    2**64,
    [None] * 200,
    {"a": {"b": {"c": {"d": []}}}},
    ["\0", -1, {}],
)
JSON_BODIES = (
    b"",
    b"{",
    b"null",
    b"[]",
    b'"\\ud800"',
    b"\xff\xfe",
    b"[" * 5000,
    b'{"a":' * 3000,
    b"9" * 5000,
    b'{"\\ud800": 1}',
    b"NaN",
    b"{}{}",
    b'{"name": "a", "name": {"name": []}}',
    b'{"a": 1' + b', "a": 1' * 5000 + b"}",
    b'{"name":' + b"[" * 900 + b"]" * 900 + b"}",
    b"\xef\xbb\xbf{}",
    '{"name": "x"}'.encode("utf-16"),
    b'{"name": -0, "version": 1e309}',
    b"{'name': 1}",
    b"\x00" * 64,
)
HEADERS: tuple[tuple[str, str], ...] = (
    ("HX-Request", "true"),
    ("HX-Request", "\xff"),
    ("HX-Current-URL", "http://["),
    ("HX-Current-URL", "http://lcm.test/" + "x" * 3000),
    ("Origin", "http://["),
    ("Origin", "null"),
    ("Origin", "\xff"),
    ("If-Match", "9" * 4300),
    ("If-Match", '"\xff"'),
    ("Last-Event-ID", "\0"),
    ("Last-Event-ID", "9" * 99),
    ("Idempotency-Key", "\xff" * 100),
    ("Idempotency-Key", ""),
    ("X-LCM-Leader-Term", "9" * 20),
    ("X-LCM-Leader-Term", "\xb2"),
    ("X-LCM-Time", "0001-01-01T00:00:00+23:59"),
    ("X-LCM-Earliest-Time", "9999-12-31T23:59:59-14:00"),
    ("Accept", "text/html"),
    ("Cookie", "lcm_session=" + "\xff" * 64),
    ("Content-Type", "multipart/form-data; boundary="),
    ("Content-Type", "application/json; charset=utf-99"),
    ("Content-Type", "\xff"),
    ("Content-Type", "text/plain"),
    ("Content-Type", "application/json; charset=utf-16"),
    ("Content-Type", "application/x-www-form-urlencoded; charset=\xff"),
    ("Content-Encoding", "gzip"),
    ("Range", "bytes=99999999999999999999-"),
    ("Accept-Language", "\xff" * 2000),
    ("X-Forwarded-For", "a" * 30000),
    ("If-None-Match", "9" * 20000),
    ("Cookie", "; ".join(f"a{number}=\xff" for number in range(300))),
    ("Cookie", "lcm_sign_in=v1.x." + "A" * 3000),
    ("X-LCM-CSRF", "\xff" * 5000),
    ("Last-Event-ID", "x" * 20000),
    ("Authorization", "Bearer \xff"),
    ("Authorization", "Basic Og=="),
    ("Host", "["),
    ("Accept-Encoding", "\xff"),
)
QUERY_NAMES = (
    *("q", "sort", "limit", "cursor", "status", "exclude_statuses", "aws_region", "template", "worker_id"),
    *("lablet_id", "topic", "since", "until", "actor", "actor_kind", "action", "subject", "newest_first", "next"),
    *("ids", "before", "hours", "like", "definition", "name", "region", "page", "problem", "owner", "starts_at"),
    *("ends_at", "time_to_live_minutes", "columns", "controller", "code", "group", "reason"),
)
FORM_NAMES = (
    *("name", "reason", "version", "targets", "typed", "lasting", "region", "template_name", "aws_region", "tags"),
    *("license_token", "cml_username", "cml_password", "token", "next", "code", "description", "topology", "ports"),
    *("cpu_cores", "memory_gb", "storage_gb", "nodes", "time_to_live_minutes", "definition", "owner", "starts_at"),
    *("ends_at", "lost_worker_policy", "instance_type", "ami_name_pattern", "max_nodes", "cost_per_hour_usd"),
    *("enabled", "key", "confirm", "worker_idle_timeout_minutes", "min_workers", "desired_status", "cml_version"),
)
TOPOLOGIES = (
    "&a [*a]",
    "a: &x 1\nnodes: [*x]",
    "nodes: [{id: n0}]",
    "\0",
    "nodes:\n" + "- {a: b}\n" * 50,
    "%YAML 9.9\n---\n",
    "a: &a [x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\nnodes: [*c]",
    "? " * 500 + "a",
    "nodes: " + "[" * 400 + "]" * 400,
    "!!python/object/apply:os.system ['true']",
    "nodes: [{id: n0}, {id: n0}]\nnodes: []",
    "<<: {a: 1}\n<<: [1, 2]",
    "lab: {version: 9999999999999999999999}\nnodes: 0x7fffffffffffffff",
    "nodes: [{id: 2026-13-45T00:00:00Z, label: .nan}]",
)


@dataclass(frozen=True, slots=True)
class Route:
    """A route of the app and one of its methods."""

    method: str
    path: str
    fields: tuple[str, ...]
    queries: tuple[str, ...] = ()

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/api/")


@dataclass(slots=True)
class NastyRequest:
    """One request, as it is on the wire."""

    method: str
    path: bytes
    query: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    def __str__(self) -> str:
        headers = [f"{name.decode()}: {value[:80]!r}" for name, value in self.headers if name not in _USUAL]
        return f"{self.method} {self.path[:120]!r} ?{self.query[:160]!r} {headers} {self.body[:200]!r}"


_USUAL = (b"authorization", b"cookie", b"content-length", b"host", CSRF_HEADER.lower().encode())


class Target:
    """A control plane with some records, and what it takes to be let in."""

    def __init__(self, plane: TestPlane, cookie: str, csrf: str, ids: dict[str, list[str]]) -> None:
        self._plane = plane
        self._cookie = cookie
        self._csrf = csrf
        self._ids = ids
        self.routes = list(_routes(plane))
        self.last_error: Exception | None = None

    async def send(self, request: NastyRequest) -> int:
        """The status of the response; 599 if there was none."""
        status, sent = 599, False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": request.body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "path": unquote(request.path.decode("ascii")),  # as uvicorn does
            "raw_path": request.path,
            "query_string": request.query,
            "root_path": "",
            "scheme": "http",
            "headers": request.headers,
            "client": ("192.0.2.1", 1),
            "server": ("lcm.test", 80),
        }
        try:
            async with asyncio.timeout(60):
                await self._plane.app(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - the server would respond 500 as well
            self.last_error = error
        return status

    def requests(self, count: int, seed: int) -> Iterator[NastyRequest]:
        """Requests to all routes in turn."""
        chance = random.Random(seed)
        for number in range(count):
            yield self._make(self.routes[number % len(self.routes)], chance)

    def _make(self, route: Route, chance: random.Random) -> NastyRequest:
        request = NastyRequest(route.method, self._path(route, chance))
        kind = chance.randrange(4)
        if kind == 0 or route.method == "GET":
            request.query = _query(route, chance)
        request.headers = self._headers(route, chance, nasty=kind == 1)
        if route.method not in ("GET", "HEAD"):
            self._fill(request, route, chance)
        return request

    def _path(self, route: Route, chance: random.Random) -> bytes:
        parts = []
        for part in route.path.split("/"):
            if not part.startswith("{"):
                parts.append(part.encode())
                continue
            name = part.strip("{}").partition(":")[0]
            known = self._ids.get(name, [])
            if known and chance.random() < 0.6:
                parts.append(chance.choice(known).encode())
            else:
                raw = chance.choice(TEXTS).encode()
                parts.append(quote_from_bytes(chance.choice([raw, *RAW_BYTES]), safe="").encode())
        return b"/".join(parts)

    def _headers(self, route: Route, chance: random.Random, *, nasty: bool) -> list[tuple[bytes, bytes]]:
        headers = {"host": "lcm.test"}
        if route.is_api:
            internal = route.path.startswith("/api/internal/")
            token = self._plane.tokens[Role.CONTROLLER if internal else Role.ADMIN]
            headers["authorization"] = f"Bearer {token}"
            headers |= {name.lower(): value for name, value in LEADER.items()} if internal else {}
        elif not route.path.startswith(("/sign-out", "/sign-in")):
            headers |= {"cookie": self._cookie, CSRF_HEADER.lower(): self._csrf}
        for name, value in chance.sample(HEADERS, chance.randint(1, 3)) if nasty else ():
            headers[name.lower()] = value
        if not route.is_api and chance.random() < 0.3:
            headers["hx-request"] = "true"
        return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]

    def _fill(self, request: NastyRequest, route: Route, chance: random.Random) -> None:
        content_type = "application/json" if route.is_api else "application/x-www-form-urlencoded"
        request.body = _json_body(route, chance) if route.is_api else _form_body(chance)
        names = [name for name, _ in request.headers]
        if b"content-type" not in names:
            request.headers.append((b"content-type", content_type.encode()))
        request.headers.append((b"content-length", str(len(request.body)).encode()))


def _query(route: Route, chance: random.Random) -> bytes:
    if chance.random() < 0.2:
        return chance.choice(RAW_BYTES)
    known = route.queries if route.queries and chance.random() < 0.7 else QUERY_NAMES
    names = chance.sample(known, chance.randint(1, min(len(known), 4)))
    return urlencode([(name, chance.choice(TEXTS)) for name in names]).encode()


def _form_body(chance: random.Random) -> bytes:
    shape = chance.random()
    if shape < 0.1:
        return chance.choice((*RAW_BYTES, b"a=1&" * 2500, b""))
    names = chance.sample(FORM_NAMES, chance.randint(1, 12))
    values = [(name, chance.choice(TOPOLOGIES if name == "topology" else TEXTS)) for name in names]
    return urlencode(values).encode()


def _json_body(route: Route, chance: random.Random) -> bytes:
    if chance.random() < 0.2:
        return chance.choice(JSON_BODIES)
    names = route.fields or FORM_NAMES
    chosen = chance.sample(names, chance.randint(1, min(len(names), 8)))
    return _dumps({name: chance.choice((*JSON_VALUES, *TOPOLOGIES)) for name in chosen})


def _dumps(value: dict[str, Any]) -> bytes:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(value).encode()
    finally:
        sys.set_int_max_str_digits(limit)


def _routes(plane: TestPlane) -> Iterator[Route]:
    for route in plane.app.routes:
        if isinstance(route, APIRoute):
            names = tuple(
                name
                for each in route.dependant.body_params
                for name in getattr(each.field_info.annotation, "model_fields", {})
            )
            queries = tuple(sorted(set(_query_names(route.dependant))))
            for method in sorted(route.methods or ()):
                yield Route(method, route.path, names, queries)


def _query_names(dependant: Dependant) -> Iterator[str]:
    yield from (each.alias for each in dependant.query_params)
    for needed in dependant.dependencies:
        yield from _query_names(needed)


async def open_target(plane: TestPlane) -> Target:
    """A target with a worker in each of some statuses, a definition and a lablet."""
    waiting, running = await plane.create("alpha"), await plane.running("beta")
    topology = "lab: {version: 0.2.2}\nnodes:\n- {id: n0, label: R1}\n"
    body = {"name": "lab", "version": "1", "topology": topology}
    assert (await plane.ask("POST", "/api/lablet-definitions", json=body)).status_code == 201
    lablet = (await plane.ask("POST", "/api/lablets", json={"definition": "lab"})).json()
    target = {"name": "ops", "target": "webhook", "url": "https://hooks.test/a"}
    plane.receivers.add("hooks.test")
    subscription = (await plane.ask("POST", "/api/subscriptions", role=Role.ADMIN, json=target)).json()["subscription"]
    office = {"name": "office", "zone": "UTC", "windows": ["mon-fri 08:00-18:00"], "selector": {"names": ["alpha"]}}
    schedule = (await plane.ask("POST", "/api/schedules", json=office)).json()
    gate = plane.services.authenticator
    caller = await gate.tokens.verify(plane.tokens[Role.ADMIN])
    session, other = await gate.sessions.begin(caller), await gate.sessions.begin(caller)
    ids = {
        "worker_id": [waiting["id"], running["id"]],
        "lablet_id": [lablet["id"]],
        "action": ["start", "stop", "hold", "drain"],
        "switch": ["enable", "disable"],
        "group": ["idle", "discovery", "scaling", "maintenance"],
        "operation": ["register", "deregister"],
        "version": ["1"],
        "name": ["lab", "small"],
        "definition_id": ["lab@1"],
        "subscription_id": [subscription["id"]],
        "schedule_id": [schedule["id"]],
        "session_id": [storage_key(other.id.reveal())],
    }
    cookie = session_cookie(session, secure=False).partition(";")[0]
    return Target(plane, cookie, session.csrf.reveal(), ids)


async def find_failures(count: int, seed: int) -> tuple[Counter[int], list[str]]:
    """The statuses of all responses, and the requests that were answered with a 5xx."""
    statuses: Counter[int] = Counter()
    failures: list[str] = []
    async with serving_plane(make_sign_in=ScriptedProvider().sign_in) as plane:
        target = await open_target(plane)
        for request in target.requests(count, seed):
            status = await target.send(request)
            statuses[status] += 1
            if status >= 500:
                failures.append(f"{status} {request}: {target.last_error!r}"[:700])
    return statuses, failures


def _drop_log(_logger: Any, _method: str, _event: Any) -> Any:
    raise structlog.DropEvent


def main(arguments: Sequence[str] | None = None) -> int:
    """Send many requests and print what failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    structlog.configure(processors=[_drop_log])
    statuses, failures = asyncio.run(find_failures(options.count, options.seed))
    for failure in failures:
        print(failure)
    print(f"{statuses.total()} requests: {dict(sorted(statuses.items()))}; {len(failures)} with a 5xx")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
