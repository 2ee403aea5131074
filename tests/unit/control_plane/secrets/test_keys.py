"""Keys for secrets: valid formats, how key files are created, and which are rejected."""

from __future__ import annotations

import base64
import os
import stat
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.secrets.encryption import Secret, SecretBox, SecretLocation
from lcm.control_plane.secrets.keys import (
    SecretKeyError,
    ensure_key_file,
    generate_key,
    load_keys,
    parse_key,
    read_key_file,
)

if TYPE_CHECKING:
    from pathlib import Path

PASSPHRASE = "correct horse battery staple and more"
PLACE = SecretLocation("worker", "wc-1", "license_token")


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_generated_key_is_random_and_can_be_parsed() -> None:
    assert len({generate_key() for _ in range(100)}) == 100
    key = parse_key(generate_key(), "a test")
    assert len(key.material) == 32
    assert key.material.hex() not in repr(key)
    assert repr(key.material) not in repr(key)


def test_different_encodings_of_one_key_are_the_same_key() -> None:
    material = bytes(range(224, 256))
    plain = base64.b64encode(material).decode()
    forms = [plain, plain.rstrip("="), base64.urlsafe_b64encode(material).decode(), f"  {plain}\n"]
    assert {parse_key(form, "a test").id for form in forms} == {parse_key(plain, "a test").id}
    assert parse_key(plain, "a test").material == material


def test_a_passphrase_always_derives_the_same_key() -> None:
    one, again, other = (parse_key(text, "a test") for text in (PASSPHRASE, PASSPHRASE, PASSPHRASE + "!"))
    assert one == again
    assert one.id != other.id
    assert len(one.material) == 32
    ciphertext = SecretBox([one]).encrypt(Secret("x"), PLACE)
    assert SecretBox([again]).decrypt(ciphertext, PLACE).reveal() == "x"


@pytest.mark.parametrize("text", ["", "short", "x" * 31, base64.b64encode(b"x" * 16).decode()])
def test_a_short_key_is_rejected_without_showing_it(text: str) -> None:
    with pytest.raises(SecretKeyError) as caught:
        load_keys(text, None)
    message = str(caught.value)
    assert message.startswith(
        f"LCM_SECRET_KEY: the key has {len(text)} characters; it must be 32 random bytes in base64"
    )
    assert "passphrase of at least 32 characters" in message
    assert not text or text not in message


def test_at_most_one_source_may_be_set(tmp_path: Path) -> None:
    assert list(load_keys(None, None)) == []
    assert len(load_keys(generate_key(), None)) == 1
    file = private(tmp_path / "keys", generate_key())
    assert len(load_keys(None, file)) == 1
    with pytest.raises(SecretKeyError, match="only one may be set"):
        load_keys(generate_key(), file)


def test_a_file_has_one_key_per_line_and_the_first_encrypts(tmp_path: Path) -> None:
    new, old = generate_key(), generate_key()
    keys = read_key_file(private(tmp_path / "keys", f"# rotated in May\n{new}\n\n  {old}  \n{PASSPHRASE}\r\n"))
    assert [key.id for key in keys] == [parse_key(text, "").id for text in (new, old, PASSPHRASE)]
    assert SecretBox(keys).key_id == keys[0].id


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o610])
def test_a_file_that_others_can_access_is_rejected(tmp_path: Path, mode: int) -> None:
    file = private(tmp_path / "keys", generate_key())
    file.chmod(mode)
    with pytest.raises(SecretKeyError, match=f"mode {mode:04o}.*chmod 600 {file}"):
        read_key_file(file)


def test_unusable_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(SecretKeyError, match="cannot be read: No such file"):
        read_key_file(tmp_path / "none")
    with pytest.raises(SecretKeyError, match="cannot be read: Is a directory"):
        read_key_file(tmp_path)
    with pytest.raises(SecretKeyError, match="contains no key"):
        read_key_file(private(tmp_path / "empty", "\n# nothing\n"))
    with pytest.raises(SecretKeyError, match="keys, line 2: the key has 7 characters") as caught:
        read_key_file(private(tmp_path / "keys", f"{generate_key()}\nhunter2\n"))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SecretKeyError, match="more than 65536 bytes"):
        read_key_file(private(tmp_path / "large", "x" * 100_000))
    binary = private(tmp_path / "binary", "")
    binary.write_bytes(b"\xff\xfe" * 40)
    with pytest.raises(SecretKeyError, match="is not text"):
        read_key_file(binary)


def test_a_key_file_is_created_for_its_owner_only_and_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "data" / "secret.key"
    before = os.umask(0)
    try:
        assert ensure_key_file(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    content = file.read_text()
    assert len(read_key_file(file)) == 1
    assert not ensure_key_file(file)
    assert file.read_text() == content
    assert list(file.parent.iterdir()) == [file]


def test_a_key_file_that_cannot_be_created(tmp_path: Path) -> None:
    private(tmp_path / "file", "")
    with pytest.raises(SecretKeyError, match="cannot be created: Not a directory"):
        ensure_key_file(tmp_path / "file" / "deeper" / "secret.key")


def test_of_two_concurrent_creations_one_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret.key"
    link = os.link

    def late(source: Path, target: Path) -> None:
        private(file, "the other's key\n")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert not ensure_key_file(file)
    assert file.read_text() == "the other's key\n"
    assert list(tmp_path.iterdir()) == [file]
