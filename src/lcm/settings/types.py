"""Value types that several settings share."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from lcm.settings.describe import Allowed

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\.?")
_ENDPOINT = re.compile(r"(?:https?://)?(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]{1,5})")
_LAST_PORT = 65535


def _host(value: str) -> str:
    if ":" in value:
        ipaddress.IPv6Address(value)
    elif not _HOST_NAME.fullmatch(value):
        raise ValueError("neither a host name nor an address")
    return value


def _endpoint(value: str) -> str:
    match = _ENDPOINT.fullmatch(value)
    if not match or not 1 <= int(match["port"]) <= _LAST_PORT:
        raise ValueError("not host:port")
    _host(match["six"] or match["host"])
    return value


def _expand_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError("no such home folder") from error


def _readable_file(path: Path) -> Path:
    try:
        if not path.is_file():
            raise ValueError("not a file")
        with path.open("rb"):
            return path
    except OSError as error:
        raise ValueError("cannot be read") from error


def _ca_file(path: Path) -> Path:
    import ssl  # most commands need no TLS

    try:
        if not path.is_file():
            raise ValueError("not a file")
        ssl.create_default_context(cafile=path)
    except OSError as error:  # that of OpenSSL is one too
        raise ValueError("not a file of certificates") from error
    return path


def _folder(path: Path) -> Path:
    try:
        nearest = next(place for place in (path, *path.parents) if place.exists())
        if not nearest.is_dir():
            raise ValueError("not a folder")
    except OSError as error:
        raise ValueError("cannot be read") from error
    return path


Port = Annotated[int, Field(ge=1, le=_LAST_PORT)]
Seconds = Annotated[float, Field(gt=0)]
SecondsOrZero = Annotated[float, Field(ge=0)]
Host = Annotated[str, AfterValidator(_host), Allowed("a host name or an IP address, without a port")]
Endpoint = Annotated[str, AfterValidator(_endpoint), Allowed("host:port, with https:// before it for TLS")]
ReadableFile = Annotated[
    Path, AfterValidator(_expand_home), AfterValidator(_readable_file), Allowed("an existing file that can be read")
]
CaFile = Annotated[
    Path, AfterValidator(_expand_home), AfterValidator(_ca_file), Allowed("a readable file of CA certificates as PEM")
]
Folder = Annotated[
    Path, AfterValidator(_expand_home), AfterValidator(_folder), Allowed("a folder, or a path where one can be created")
]
NonBlankText = Annotated[str, Field(pattern=r"^\S+$"), Allowed("text without spaces")]
KeyPrefix = Annotated[
    str, Field(pattern=r"^/\S*[^/\s]$"), Allowed('text without spaces that starts with "/" and does not end with "/"')
]
KeyPrefixOrEmpty = Annotated[
    str,
    Field(pattern=r"^(/\S*[^/\s])?$"),
    Allowed('empty, or text without spaces that starts with "/" and does not end with "/"'),
]
MetricName = Annotated[
    str,
    Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$"),
    Allowed("a Prometheus name: letters, digits and underscores, the first no digit"),
]
