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
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_from_bytes, unquote, urlencode

import structlog
from fastapi.routing import APIRoute

from lcm.control_plane.auth.session_cookies import seat_cookie, session_cookie
from lcm.control_plane.auth.session_record import storage_key
from lcm.control_plane.http.deps import CSRF_HEADER
from lcm.control_plane.http.openapi import load_examples
from lcm.control_plane.records.kinds import DEAD_LETTERS
from lcm.control_plane.store.port import Put
from lcm.core import clock
from lcm.model.access import Role
from tests.support.auth.scripted_provider import ScriptedProvider
from tests.support.virtual.control_plane import LEADER, TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fastapi.dependencies.models import Dependant
    from starlette.types import ASGIApp

    from lcm.control_plane.auth.seats.sessions import SeatSession

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
    *("ends_at", "time_to_live_minutes", "columns", "controller", "code", "group", "reason", "after", "from", "to"),
    *("range", "release_license", "remove", "team", "worker", "week", "zone", "view", "labs", "hour", "day", "minutes"),
)
VALID_FORM = {
    "name": "class-a",
    "reason": "exam",
    "version": "1",
    "typed": "alpha",
    "lasting": "on",
    "region": "eu-west-1",
    "template_name": "small",
    "aws_region": "eu-west-1",
    "tags": "course=ccna",
    "definition": "lab@1",
    "owner": "ann",
    "description": "First year",
    "time_to_live_minutes": "60",
    "enabled": "on",
    "confirm": "on",
    "url": "https://a.b/c",
    "seats": "2",
    "start": "2030-01-31T09:00",
    "zone": "Europe/Brussels",
    "occurrence": "first",
    "repeat_weeks": "2",
    "duration_minutes": "60",
    "team": "networks-1",
    "learners": "ann@example.org\nben@example.org",
    "minutes": "30",
    "instructors": "eve@example.org",
    "instructor_groups": "teachers",
    "learner_groups": "course-a",
    "max_seats": "9",
    "max_lablets": "3",
    "max_lifetime_minutes": "240",
    "windows": "mon-fri 08:00-18:00",
    "names": "alpha",
    "exceptions": "2026-12-24..2027-01-02 closed",
    "templates": "small",
    "teams": "networks-1",
    "outside": "stop",
    "hours": "4",
    "types": "worker_failed",
    "target": "webhook",
    "recipients": "a@example.org",
    "subject": "x",
    "desired_status": "STOPPED",
    "lost_instance_policy": "relaunch",
    "role": "learner",
    "severity": "warning",
    "max_nodes": "5",
    "cpu_cores": "2",
    "memory_gb": "4",
    "storage_gb": "20",
    "cost_per_hour_usd": "0.5",
    "starts_at": "2030-01-31T09:00",
    "ends_at": "2030-01-31T10:00",
    "expires_at": "2030-01-31T10:00",
    "idle_detection_enabled": "on",
    "leak_license": "",
    "action": "stop",
    "old": "1",
    "seen": "1",
}
"""What all forms together ask for. Most accept it, so that one spoiled value reaches what is behind the others."""

FORM_NAMES = (
    *VALID_FORM,
    *("team_id", "schedule_id", "subscription_id", "link_id", "members", "limits", "role", "group", "email", "code"),
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
    example: Any = None  # a body that the route accepts

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


@dataclass(slots=True)
class Answer:
    """What an app sent."""

    status: int = 599
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""


_USUAL = (b"authorization", b"cookie", b"content-length", b"host", CSRF_HEADER.lower().encode())


class Target:
    """A control plane with some records, and what it takes to be let in."""

    def __init__(
        self, plane: TestPlane, cookie: str, csrf: str, ids: dict[str, list[str]], seats: Sequence[SeatSession] = ()
    ) -> None:
        """`seats` are sessions of browsers that opened a seat link."""
        self._plane = plane
        self._cookie = cookie
        self._csrf = csrf
        self.ids = ids
        self._seats = seats
        self.routes = list(_routes(plane))
        self.last_error: Exception | None = None

    async def send(self, request: NastyRequest) -> int:
        """The status of the response; 599 if there was none."""
        return (await self.exchange(self._plane.app, request)).status

    async def exchange(self, app: ASGIApp, request: NastyRequest) -> Answer:
        """The response of an app; its status is 599 if there was none."""
        answer, sent = Answer(), False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": request.body, "more_body": False}

        async def send(message: Any) -> None:
            answer.status = message.get("status", answer.status)
            answer.headers += message.get("headers", ())
            answer.body += message.get("body", b"")

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
                await app(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - the server would respond 500 as well
            self.last_error = error
        return answer

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
            known = self.ids.get(name, [])
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
        elif route.path.startswith(("/my", "/seat")) and chance.random() < 0.5:
            seat = chance.choice(self._seats)
            cookie = seat_cookie(seat, secure=False).partition(";")[0]
            headers |= {"cookie": cookie, CSRF_HEADER.lower(): seat.csrf.reveal()}
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
    if not route.is_api and chance.random() < 0.3:
        return _spoiled_form(chance)
    known = route.queries if route.queries and chance.random() < 0.7 else QUERY_NAMES
    names = chance.sample(known, chance.randint(1, min(len(known), 4)))
    return urlencode([(name, chance.choice(TEXTS)) for name in names]).encode()


def _spoiled_form(chance: random.Random) -> bytes:
    """A form that most routes accept, but for one to three of its fields."""
    form = dict(VALID_FORM)
    for name in chance.sample(sorted(form), chance.randint(0, 3)):
        form[name] = chance.choice(TEXTS)
    return urlencode(form).encode()


def _form_body(chance: random.Random) -> bytes:
    shape = chance.random()
    if shape > 0.5:
        return _spoiled_form(chance)
    if shape < 0.1:
        return chance.choice((*RAW_BYTES, b"a=1&" * 2500, b""))
    names = chance.sample(FORM_NAMES, chance.randint(1, 12))
    values = [(name, chance.choice(TOPOLOGIES if name == "topology" else TEXTS)) for name in names]
    return urlencode(values).encode()


def _json_body(route: Route, chance: random.Random) -> bytes:
    if chance.random() < 0.2:
        return chance.choice(JSON_BODIES)
    if route.example is not None and chance.random() < 0.5:
        body = json.loads(json.dumps(route.example))
        for _ in range(chance.randint(0, 2)):
            _spoil(body, chance)
        return _dumps(body)
    names = route.fields or FORM_NAMES
    chosen = chance.sample(names, chance.randint(1, min(len(names), 8)))
    return _dumps({name: chance.choice((*JSON_VALUES, *TOPOLOGIES)) for name in chosen})


def _spoil(value: Any, chance: random.Random) -> None:
    """Replace something, at any depth."""
    places: list[Any] = list(value if isinstance(value, dict) else range(len(value)))
    if not places:
        return
    place = chance.choice(places)
    if isinstance(value[place], dict | list) and chance.random() < 0.7:
        _spoil(value[place], chance)
    else:
        value[place] = chance.choice(JSON_VALUES)


def _dumps(value: dict[str, Any]) -> bytes:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(value).encode()
    finally:
        sys.set_int_max_str_digits(limit)


def _routes(plane: TestPlane) -> Iterator[Route]:
    # Those with a definition name the one that is there.
    examples = {
        name: {**example, "definition": "lab@1"} if "definition" in example else example
        for name, example in load_examples().items()
    }
    for route in plane.app.routes:
        if isinstance(route, APIRoute):
            models: list[Any] = [each.field_info.annotation for each in route.dependant.body_params]
            names = tuple(name for model in models for name in getattr(model, "model_fields", {}))
            known = [example for model in models if (example := examples.get(getattr(model, "__name__", "")))]
            queries = tuple(sorted(set(_query_names(route.dependant))))
            for method in sorted(route.methods or ()):
                yield Route(method, route.path, names, queries, known[0] if known else None)


def _query_names(dependant: Dependant) -> Iterator[str]:
    yield from (each.alias for each in dependant.query_params)
    for needed in dependant.dependencies:
        yield from _query_names(needed)


async def open_target(plane: TestPlane) -> Target:
    """A target with one record at least of what a path can name."""
    waiting, running = await plane.create("alpha"), await plane.running("beta")
    topology = "lab: {version: 0.2.2}\nnodes:\n- {id: n0, label: R1}\n"
    body = {"name": "lab", "version": "1", "topology": topology}
    assert (await plane.ask("POST", "/api/lablet-definitions", json=body)).status_code == 201
    lablet, seat = [(await plane.ask("POST", "/api/lablets", json={"definition": "lab"})).json() for _ in range(2)]
    links = [await _seat_link(plane, each) for each in (lablet, seat, seat)]
    group = {"name": "networks-1", "members": [{"role": "learner", "group": "course-a"}]}
    team = (await plane.ask("POST", "/api/teams", role=Role.ADMIN, json=group)).json()
    starts = (clock.now() + timedelta(days=2)).strftime("%Y-%m-%dT%H:%M")
    wanted = {"name": "monday", "definition": "lab", "seats": 1, "start": starts, "zone": "UTC", "duration_minutes": 60}
    booked = await plane.ask("POST", "/api/bookings", json={**wanted, "repeat_weeks": 2})
    assert booked.status_code == 201, booked.text
    booking = booked.json()
    target = {"name": "ops", "target": "webhook", "url": "https://hooks.test/a"}
    plane.receivers.add("hooks.test")
    subscription = (await plane.ask("POST", "/api/subscriptions", role=Role.ADMIN, json=target)).json()["subscription"]
    office = {"name": "office", "zone": "UTC", "windows": ["mon-fri 08:00-18:00"], "selector": {"names": ["alpha"]}}
    schedule = (await plane.ask("POST", "/api/schedules", json=office)).json()
    letter = {**load_examples()["DeadLetterPage"]["items"][0], "subscription_id": subscription["id"]}
    found_by = {"subscription_id": subscription["id"], "at": letter["at"]}
    letter_put = Put(DEAD_LETTERS, letter["id"], json.dumps(letter).encode(), None, found_by)
    await plane.services.context.store.commit([letter_put])
    info, _ = await plane.services.authenticator.tokens.create("ci", Role.VIEWER, created_by="test")
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
        "team": [team["id"], team["name"]],
        "team_id": [team["id"]],
        "booking_id": [booking["id"]],
        "number": ["1", "2"],
        "link_id": [link_id for link_id, _ in links],
        "letter_id": [letter["id"]],
        "token_id": [info.id],
        "controller": ["worker", "scheduler", "lablet"],
        "path": ["app.css"],
    }
    cookie = session_cookie(session, secure=False).partition(";")[0]
    seats = [await plane.services.seat_sessions.open(code, "192.0.2.1") for _, code in links]
    return Target(plane, cookie, session.csrf.reveal(), ids, seats)


async def _seat_link(plane: TestPlane, lablet: dict[str, Any]) -> tuple[str, str]:
    """The id and the code of a new link."""
    created = (await plane.ask("POST", f"/api/lablets/{lablet['id']}/seat-links", json={})).json()
    return created["link"]["id"], created["path"].partition("#")[2]


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
