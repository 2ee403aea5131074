"""An HTTP server on loopback that responds like AWS, counts requests, and fails on demand.

Faults act here, below everything that is tested: a refusal is sent as AWS sends it, and a lost reply is a socket that
is cut after the call has been carried out.
"""

from __future__ import annotations

import io
import socket
import threading
import urllib.parse
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Application = Callable[[dict[str, Any], Any], Iterable[bytes]]

CHANGES = frozenset({"RunInstances", "StartInstances", "StopInstances", "TerminateInstances"})
THROTTLED = "RequestLimitExceeded"
EXPIRED = "RequestExpired"

_STATUS = {
    THROTTLED: 503,
    "InternalError": 500,
    "InsufficientInstanceCapacity": 500,
    "UnauthorizedOperation": 403,
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request that the server received."""

    operation: str
    form: Mapping[str, str]
    json: bool
    access_key: str = ""


@dataclass(slots=True)
class _Refusal:
    operation: str
    code: str
    times: int


class Hold:
    """Delays calls of an operation, before or after they are executed."""

    def __init__(self, operation: str, *, after: bool, times: int) -> None:
        self.operation = operation
        self.after = after
        self.arrived = 0
        self.done = False
        self._left = times
        self._released = threading.Event()

    def wants(self, operation: str, after: bool) -> bool:
        """Whether to hold this call; called under a lock."""
        if (operation, after) != (self.operation, self.after) or self._left == 0:
            return False
        self._left -= 1
        return True

    def wait(self) -> None:
        self.arrived += 1
        self._released.wait(600)

    def release(self) -> None:
        self._left = 0
        self._released.set()


class _Handler(WSGIRequestHandler):
    # One request per connection: a server that stops listening is then unreachable at once.
    protocol_version = "HTTP/1.0"

    def log_request(self, *_: Any) -> None:
        """Nothing."""

    def log_error(self, *_: Any) -> None:
        """Connections are cut on purpose."""


class AwsServer:
    """Serves an application, one thread at a time."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._one_at_a_time = threading.RLock()
        self._counting = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._refusals: list[_Refusal] = []
        self._losses = 0
        self._failing_page: int | None = None
        self._holds: list[Hold] = []
        self.forms: list[Mapping[str, str]] = []
        self.expired_keys: set[str] = set()  # access keys whose requests are refused, as after their expiry
        self._server: BaseWSGIServer | None = None
        self._thread: threading.Thread | None = None
        self._placeholder: socket.socket | None = None
        self.port = 0
        self._listen()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def calls(self) -> Counter[str]:
        with self._counting:
            return Counter(self._counts)

    # Faults

    def refuse(self, operation: str, code: str, times: int) -> None:
        with self._counting:
            self._refusals.append(_Refusal(operation, code, times))

    def lose_replies(self, times: int) -> None:
        with self._counting:
            self._losses = times

    def fail_page(self, number: int) -> None:
        self._failing_page = number

    def hold(self, operation: str, *, after: bool = False, times: int = -1) -> Hold:
        """Delay the next calls of the operation until they are released; by default all of them."""
        hold = Hold(operation, after=after, times=times)
        with self._counting:
            self._holds.append(hold)
        return hold

    def outage(self, on: bool) -> None:
        if on and self._server is not None:
            self._deafen()
            # Bound but not listening: connections are refused, and no other process gets the port.
            self._placeholder = _bound(self.port)
        elif not on and self._server is None:
            self._listen()

    def clear(self) -> None:
        with self._counting:
            self._refusals.clear()
            self._losses = 0
            self._failing_page = None
            holds, self._holds = self._holds, []
        for hold in holds:
            hold.release()
        self.outage(False)

    def close(self) -> None:
        self.clear()
        self._deafen()

    # Serving

    def _listen(self) -> None:
        bound = self._placeholder or _bound(self.port)
        self._placeholder = None
        self.port = bound.getsockname()[1]
        bound.listen(128)
        self._server = make_server(
            "127.0.0.1", self.port, self._serve, threaded=True, request_handler=_Handler, fd=bound.fileno()
        )
        bound.close()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def _deafen(self) -> None:
        if self._server is not None:
            assert self._thread is not None
            self._server.shutdown()
            self._thread.join()
            self._server = None

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = _read(environ)
        with self._counting:
            self._counts[request.operation] += 1
            self.forms.append(request.form)
            code = self._refusal(request)
        held = self._wait(request, after=False)
        if code is not None:
            return _refuse(request, code, start_response)
        with self._one_at_a_time:
            if self._is_lost(request):
                for _ in self._application(environ, _say_nothing):
                    pass
                return _cut(environ, start_response)
            answer = list(self._application(environ, start_response))
        for hold in held:
            hold.done = True
        self._wait(request, after=True)
        return answer

    def _wait(self, request: Request, *, after: bool) -> list[Hold]:
        with self._counting:
            holds = [hold for hold in self._holds if hold.wants(request.operation, after)]
        for hold in holds:
            hold.wait()
        return holds

    def _refusal(self, request: Request) -> str | None:
        if request.access_key in self.expired_keys:
            return EXPIRED
        for refusal in self._refusals:
            if refusal.operation == request.operation and refusal.times > 0:
                refusal.times -= 1
                return refusal.code
        if request.operation == "DescribeInstances" and self._failing_page == _page_number(request):
            return "InternalError"
        return None

    def _is_lost(self, request: Request) -> bool:
        with self._counting:
            if request.operation not in CHANGES or self._losses == 0:
                return False
            self._losses -= 1
            return True


def _bound(port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.bind(("127.0.0.1", port))
    return opened


def _read(environ: dict[str, Any]) -> Request:
    """EC2 and STS requests are forms; CloudWatch requests are JSON with a header."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    key = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition("/")[0]
    if target:
        return Request(target.rsplit(".", 1)[-1], {}, json=True, access_key=key)
    form = dict(urllib.parse.parse_qsl(body.decode()))
    return Request(form.get("Action", ""), form, json=False, access_key=key)


def _page_number(request: Request) -> int:
    """The token of a page ends with the number of the requested page."""
    number = request.form.get("NextToken", "1").rsplit(".", 1)[-1]
    return int(number) if number.isdigit() else 0


def _refuse(request: Request, code: str, start_response: Any) -> list[bytes]:
    if request.json:
        start_response("400 Refused", [("Content-Type", "application/x-amz-json-1.0")])
        return [b'{"__type": "%b", "message": "refused by the test"}' % code.encode()]
    error = f"<Error><Code>{escape(code)}</Code><Message>refused by the test</Message></Error>"
    if request.operation in ("AssumeRole", "GetCallerIdentity"):
        text = f"<ErrorResponse>{error}<RequestId>0</RequestId></ErrorResponse>"
    else:
        text = f"<Response><Errors>{error}</Errors><RequestID>0</RequestID></Response>"
    start_response(f"{_STATUS.get(code, 400)} Refused", [("Content-Type", "text/xml")])
    return [text.encode()]


def _cut(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Close the connection during the response."""
    with suppress(OSError):
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    start_response("200 OK", [("Content-Type", "text/xml")])
    return [b"lost"]


def _say_nothing(*_: Any) -> Callable[[bytes], None]:
    return lambda _: None
