"""Keys for secrets at rest, from `LCM_SECRET_KEY` or `LCM_SECRET_KEY_FILE`.

A key is 32 random bytes in base64, as `generate_key` returns, or a passphrase of at least 32 characters. A file has one
key per line; the first encrypts, all decrypt. To rotate: add a new first line, restart, re-encrypt, remove the old one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KEY_FORMAT = "32 random bytes in base64 (44 characters) or a passphrase of at least 32 characters"

_KEY_BYTES = 32
_MIN_PASSPHRASE_LENGTH = 32
_MAX_FILE_BYTES = 64 * 1024
_GROUP_AND_OTHERS = 0o077


class SecretKeyError(ValueError):
    """A key cannot be used. The message says which and what to do, and never contains a key."""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key, and the id by which ciphertexts refer to it."""

    id: str
    material: bytes = field(repr=False)


def generate_key() -> str:
    """A new random key, in the format of the file and the variable."""
    return base64.urlsafe_b64encode(clock.rng().randbytes(_KEY_BYTES)).decode()


def parse_key(text: str, source: str) -> SecretKey:
    """The key in a line or variable; `source` names its origin in error messages."""
    text = text.strip()
    material = _decode_random_key(text)
    if material is None:
        if len(text) < _MIN_PASSPHRASE_LENGTH:
            raise SecretKeyError(f"{source}: the key has {len(text)} characters; it must be {KEY_FORMAT}")
        material = _derive_key(text)
    return SecretKey(hashlib.sha256(b"lcm secret key id" + material).hexdigest()[:12], material)


def load_keys(secret_key: str | None, key_file: Path | None) -> Sequence[SecretKey]:
    """The configured keys, the encrypting one first; none if neither setting is set."""
    if secret_key is not None and key_file is not None:
        raise SecretKeyError(
            "LCM_SECRET_KEY and LCM_SECRET_KEY_FILE: only one may be set; a file can contain both keys"
        )
    if secret_key is not None:
        return [parse_key(secret_key, "LCM_SECRET_KEY")]
    if key_file is not None:
        return read_key_file(key_file)
    return []


def read_key_file(path: Path) -> Sequence[SecretKey]:
    """The keys of a file; rejected if others than its owner can access it. Empty lines and # comments are ignored."""
    try:
        # The mode is read from the open file, so the file cannot be swapped in between.
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SecretKeyError(f"LCM_SECRET_KEY_FILE {path} cannot be read: {error.strerror}") from error
    if mode & _GROUP_AND_OTHERS:
        raise SecretKeyError(
            f"LCM_SECRET_KEY_FILE {path} can be accessed by others (mode {mode:04o}). Run: chmod 600 {path}"
        )
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise SecretKeyError(f"LCM_SECRET_KEY_FILE {path} is not text; each line must be {KEY_FORMAT}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise SecretKeyError(
            f"LCM_SECRET_KEY_FILE {path} has more than {_MAX_FILE_BYTES} bytes; it must have one key per line"
        )
    keys = [
        parse_key(line, f"LCM_SECRET_KEY_FILE {path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not keys:
        raise SecretKeyError(f"LCM_SECRET_KEY_FILE {path} contains no key; each line must be {KEY_FORMAT}")
    return keys


def ensure_key_file(path: Path) -> bool:
    """Create a file with a new key that only its owner can access; returns False if the file exists already."""
    if path.exists():
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _create_key_file(path)
    except OSError as error:
        raise SecretKeyError(f"LCM_SECRET_KEY_FILE {path} cannot be created: {error.strerror}") from error


def _create_key_file(path: Path) -> bool:
    draft = path.with_name(f".{path.name}.{clock.new_id('new')}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(generate_key() + "\n")
            file.flush()
            os.fsync(file.fileno())
        # A link, unlike a rename, never replaces: if two processes start at once, both read the same complete key.
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    _sync_directory(path.parent)
    return True


def _sync_directory(folder: Path) -> None:
    """Without this, a power failure could lose the key but keep what it encrypted."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _decode_random_key(text: str) -> bytes | None:
    standard = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        material = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None
    return material if len(material) == _KEY_BYTES else None


def _derive_key(passphrase: str) -> bytes:
    """The salt is fixed because there is no place to store one; the cost of scrypt and the length must be enough."""
    return hashlib.scrypt(
        passphrase.encode(), salt=b"lcm secret key 1", n=2**15, r=8, p=1, maxmem=64 * 1024 * 1024, dklen=_KEY_BYTES
    )
