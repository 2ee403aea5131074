"""Log lines, as they come out."""

from __future__ import annotations

import io
import json
import logging
import warnings
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import structlog

from lcm.core import clock
from lcm.core.logs import configure_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class StoppedClock(clock.SystemClock):
    def now(self) -> datetime:
        return datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=timezone(timedelta(hours=1)))


pytestmark = pytest.mark.usefixtures("logging_as_it_was")


@pytest.fixture
def out() -> io.StringIO:
    # Other tests of this process may have served with uvicorn, which changes its loggers.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.disabled, logger.propagate, logger.handlers = False, True, []
        logger.setLevel(logging.NOTSET)
    return io.StringIO()


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return [json.loads(line, parse_constant=no_constant) for line in out.getvalue().splitlines()]


def fail(text: str) -> None:
    raise ValueError(text)


def test_json_line(out: io.StringIO) -> None:
    configure_logging("info", "json", out)
    with clock.use(StoppedClock()):
        structlog.get_logger("lcm.core.controller.leader_election").info("leader elected", term=5, key="/workers/1")
    (line,) = lines(out)
    assert list(line.items()) == [
        ("ts", "2026-01-02T02:04:05.678Z"),
        ("level", "info"),
        ("logger", "lcm.core.controller.leader_election"),
        ("event", "leader elected"),
        ("term", 5),
        ("key", "/workers/1"),
    ]


def test_standard_library_goes_the_same_way(out: io.StringIO) -> None:
    configure_logging("info", "json", out)
    with clock.use(StoppedClock()):
        logging.getLogger("uvicorn.error").warning("on %s", "8080", extra={"color_message": "\x1b[1mon", "port": 8080})
    (line,) = lines(out)
    expected = {"level": "warning", "logger": "uvicorn.error", "event": "on 8080", "port": 8080}
    assert line == {"ts": "2026-01-02T02:04:05.678Z"} | expected


def test_uvicorn_loses_handlers_of_its_own(out: io.StringIO) -> None:
    own = io.StringIO()
    uvicorn = logging.getLogger("uvicorn")
    uvicorn.addHandler(logging.StreamHandler(own))
    uvicorn.propagate = False
    configure_logging("info", "json", out)
    logging.getLogger("uvicorn.access").info("GET /")
    uvicorn.info("started")
    assert own.getvalue() == ""
    assert [line["event"] for line in lines(out)] == ["GET /", "started"]


def test_exceptions_are_one_field_on_one_line(out: io.StringIO) -> None:
    configure_logging("info", "json", out)
    try:
        fail("first\nsecond")
    except ValueError:
        structlog.get_logger("a").exception("ours", worker="w-1")
        logging.getLogger("grpc").exception("theirs")
    ours, theirs = lines(out)
    assert (ours["event"], ours["level"], ours["worker"]) == ("ours", "error", "w-1")
    assert theirs["event"] == "theirs"
    for line in (ours, theirs):
        assert line["exception"].startswith("Traceback")
        assert line["exception"].endswith("ValueError: first\nsecond")
        assert "exc_info" not in line


def test_anything_can_be_logged(out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    loop: dict[str, Any] = {}
    loop["again"] = loop
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own cannot show a broken value
    configure_logging("info", "json", out)
    structlog.get_logger("a").info(
        "odd\u2028\udcff",
        nan=float("nan"),
        broken=Broken(),
        loop=loop,
        at=datetime(2026, 1, 2, tzinfo=UTC),
        raw=b"\xff",
        many={"b", "a"},
        keyed={(1, 2): None},
        level="mine",
    )
    (line,) = lines(out)
    assert line["nan"] == "nan"
    assert line["broken"] == "<Broken that cannot be shown: RuntimeError>"
    assert line["at"] == "2026-01-02T00:00:00+00:00"
    assert line["many"] == ["a", "b"]
    assert line["keyed"] == {"(1, 2)": None}
    assert (line["level"], line["level_"]) == ("info", "mine")


@pytest.mark.parametrize(
    "key",
    ["password", "ETCD_PASSWORD", "api_token", "client-secret", "Authorization", "apiKey", "private_key", "x-api-key"],
)
@pytest.mark.parametrize("fmt", ["json", "console"])
def test_secrets_are_masked(out: io.StringIO, fmt: str, key: str) -> None:
    configure_logging("info", fmt, out)
    structlog.get_logger("a").info(
        "x",
        **{key: "hunter2"},
        nested={"deep": [{key: "hunter2"}]},
        headers=[(key, "hunter2"), (key.encode(), b"hunter2")],
    )
    logging.getLogger("a").info("y", extra={key: "hunter2"})
    assert "hunter2" not in out.getvalue()
    assert out.getvalue().count("***") == 5


def test_what_is_no_secret_is_not_masked(out: io.StringIO) -> None:
    configure_logging("info", "json", out)
    values = {"key": "/workers/1", "keys": 3, "etcd_key_file": "/k.pem", "password_set": True, "token": None}
    structlog.get_logger("a").info("x", **values)
    assert lines(out)[0].items() >= values.items()


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_level(out: io.StringIO, level: str) -> None:
    configure_logging(level, "json", out)
    names = ["debug", "info", "warning", "error"]
    for name in names:
        getattr(structlog.get_logger("ours"), name)("x")
        getattr(logging.getLogger("theirs"), name)("x")
    assert [line["level"] for line in lines(out)] == [n for n in names[names.index(level) :] for _ in range(2)]


def test_configured_again_it_replaces_itself_also_for_loggers_in_use(out: io.StringIO) -> None:
    log = structlog.get_logger("a")
    configure_logging("error", "json", out)
    log.info("dropped")
    again = io.StringIO()
    configure_logging("debug", "json", again)
    log.debug("kept")
    assert out.getvalue() == ""
    assert [line["event"] for line in lines(again)] == ["kept"]


def test_warnings_are_logged(out: io.StringIO) -> None:
    configure_logging("info", "json", out)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old ways", stacklevel=1)
    (line,) = lines(out)
    assert line["logger"] == "py.warnings"
    assert "old ways" in line["event"]


def test_console_line(out: io.StringIO) -> None:
    configure_logging("info", "console", out)
    with clock.use(StoppedClock()):
        structlog.get_logger("lcm.x").info("leader elected", term=5)
    (line,) = out.getvalue().splitlines()
    assert line.split() == ["2026-01-02T02:04:05.678Z", "[info", "]", "leader", "elected", "[lcm.x]", "term=5"]


def test_console_has_no_escape_codes_and_no_forged_lines(out: io.StringIO) -> None:
    configure_logging("info", "console", out)
    structlog.get_logger("a").info("x\n2026 forged", value="\x1b[31mred", deep=["\x1b[31m"])
    assert "\x1b" not in out.getvalue()
    assert len(out.getvalue().splitlines()) == 1


def test_console_shows_a_traceback(out: io.StringIO) -> None:
    configure_logging("info", "console", out)
    try:
        fail("bad \x1b[31m")
    except ValueError:
        structlog.get_logger("a").exception("failed")
    assert "\nTraceback (most recent call last):\n" in out.getvalue()
    assert r"ValueError: bad \x1b[31m" in out.getvalue()


@pytest.mark.parametrize(
    ("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)]
)
def test_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch, env: dict[str, str], coloured: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    out = Terminal()
    configure_logging("info", "auto", out)
    structlog.get_logger("a").info("x")
    assert ("\x1b[" in out.getvalue()) is coloured
    assert not out.getvalue().startswith("{")


def test_auto_is_json_where_there_is_no_terminal(out: io.StringIO) -> None:
    configure_logging("info", "auto", out)
    structlog.get_logger("a").info("x")
    assert lines(out)[0]["event"] == "x"


def test_standard_error_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    structlog.get_logger("a").info("x")
    assert json.loads(capsys.readouterr().err)["event"] == "x"


@pytest.mark.parametrize(("level", "fmt"), [("loud", "json"), ("info", "xml")])
def test_unknown_level_or_format(level: str, fmt: str) -> None:
    with pytest.raises(ValueError, match="must be one of"):
        configure_logging(level, fmt)
