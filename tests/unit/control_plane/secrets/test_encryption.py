"""Secrets at rest: only the right key decrypts them, only at their location, and nothing shows them by accident."""

from __future__ import annotations

import base64
import copy
import io
import json
import pickle
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pydantic_core
import pytest
import structlog
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel

from lcm.control_plane.secrets.encryption import DecryptionError, Secret, SecretBox, SecretLocation
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.core.logs import configure_logging

if TYPE_CHECKING:
    from collections.abc import Callable

CANARY = "canary-7f3a91"
PLACE = SecretLocation("worker", "wc-1", "license_token")


def box(*keys: str) -> SecretBox:
    return SecretBox([parse_key(key, "a test") for key in keys])


class TestBox:
    def test_there_and_back(self) -> None:
        opened = box(generate_key())
        for text in (CANARY, "", "grün 🔑", "x" * 100_000):
            ciphertext = opened.encrypt(Secret(text), PLACE)
            assert opened.decrypt(ciphertext, PLACE).reveal() == text

    def test_the_same_secret_never_looks_the_same(self) -> None:
        opened = box(generate_key())
        ciphertexts = {opened.encrypt(Secret(CANARY), PLACE) for _ in range(100)}
        assert len(ciphertexts) == 100
        assert not any(CANARY in ciphertext for ciphertext in ciphertexts)

    @pytest.mark.parametrize(
        "other",
        [
            SecretLocation("worker", "wc-2", "license_token"),
            SecretLocation("worker", "wc-1", "cml_password"),
            SecretLocation("template", "wc-1", "license_token"),
            SecretLocation("worker", "wc-1license", "_token"),
            SecretLocation('worker", "wc-1', "license_token", ""),
        ],
    )
    def test_it_opens_in_its_place_only(self, other: SecretLocation) -> None:
        opened = box(generate_key())
        ciphertext = opened.encrypt(Secret(CANARY), PLACE)
        with pytest.raises(DecryptionError, match="altered or moved") as failed:
            opened.decrypt(ciphertext, other)
        assert str(other) in str(failed.value)

    def test_every_altered_bit_is_noticed(self) -> None:
        opened = box(generate_key())
        head, key_id, encoded = opened.encrypt(Secret(CANARY), PLACE).split(".")
        sealed = base64.urlsafe_b64decode(encoded)
        for bit in range(len(sealed) * 8):
            altered = bytearray(sealed)
            altered[bit // 8] ^= 1 << bit % 8
            with pytest.raises(DecryptionError, match="altered"):
                opened.decrypt(f"{head}.{key_id}.{base64.urlsafe_b64encode(altered).decode()}", PLACE)

    def test_a_ciphertext_cannot_be_passed_off_as_another_key_s(self) -> None:
        one, other = generate_key(), generate_key()
        ciphertext = box(one).encrypt(Secret(CANARY), PLACE)
        with pytest.raises(DecryptionError, match="altered"):
            box(one, other).decrypt(ciphertext.replace(box(one).key_id, box(other).key_id), PLACE)

    @pytest.mark.parametrize("text", ["", CANARY, "lcm1", "lcm1..", "lcm1.k.", "lcm2.k.AAAA", "lcm1.k.é", "a.b.c.d"])
    def test_what_is_no_ciphertext(self, text: str) -> None:
        with pytest.raises(DecryptionError, match="license_token of worker wc-1 is not a ciphertext") as failed:
            box(generate_key()).decrypt(text, PLACE)
        assert CANARY not in str(failed.value)

    def test_a_wrong_key_is_named_with_the_remedy_and_without_the_secret(self) -> None:
        old, new = generate_key(), generate_key()
        ciphertext = box(old).encrypt(Secret(CANARY), PLACE)
        with pytest.raises(DecryptionError) as failed:
            box(new).decrypt(ciphertext, PLACE)
        said = str(failed.value)
        assert box(old).key_id in said
        assert box(new).key_id in said
        assert "Add that key to LCM_SECRET_KEY_FILE" in said
        assert not any(hidden in said for hidden in (CANARY, old, new))

    def test_rotation(self) -> None:
        old, new = generate_key(), generate_key()
        ciphertext = box(old).encrypt(Secret(CANARY), PLACE)
        assert not box(old).needs_rotation(ciphertext)
        both = box(new, old)
        assert both.needs_rotation(ciphertext)
        assert both.decrypt(ciphertext, PLACE).reveal() == CANARY
        rotated = both.rotate(ciphertext, PLACE)
        assert not both.needs_rotation(rotated)
        assert box(new).decrypt(rotated, PLACE).reveal() == CANARY
        with pytest.raises(DecryptionError):
            box(old).decrypt(rotated, PLACE)

    def test_without_a_key_there_is_no_box(self) -> None:
        with pytest.raises(ValueError, match="at least one key"):
            SecretBox([])


class Record(BaseModel):
    name: str
    secret: Secret


@dataclass
class Plain:
    secret: Secret


class TestSecret:
    def test_it_shows_itself_only_when_asked(self) -> None:
        secret = Secret(CANARY)
        assert secret.reveal() == CANARY
        record = Record(name="x", secret=secret)
        shown = [
            repr(secret),
            str(secret),
            f"{secret} {secret!r} {secret!s} {secret!a} {secret:>40}",
            "%s %r" % (secret, secret),  # noqa: UP031 - the form is what is tested
            "{0} {0!r}".format(secret),  # noqa: UP032 - the form is what is tested
            repr([secret]),
            repr(record),
            str(record.model_dump()),
            repr(Plain(secret)),
            repr(asdict(Plain(secret))),
            json.dumps({"secret": secret}, default=str),
            str(dir(secret)),
        ]
        assert not any(CANARY in text for text in shown)

    def test_nothing_serialises_it(self) -> None:
        secret = Secret(CANARY)
        record = Record(name="x", secret=secret)
        attempts: dict[str, Callable[[], object]] = {
            "json": lambda: json.dumps(secret),
            "pickle": lambda: pickle.dumps(secret),
            "pydantic json": record.model_dump_json,
            "pydantic json mode": lambda: record.model_dump(mode="json"),
            "pydantic core": lambda: pydantic_core.to_json(secret),
            "fastapi": lambda: jsonable_encoder(secret),
            "fastapi model": lambda: jsonable_encoder(record),
            "vars": lambda: vars(secret),
            "hash": lambda: hash(secret),
        }
        for name, attempt in attempts.items():
            with pytest.raises((TypeError, ValueError)) as failed:
                attempt()
            assert CANARY not in str(failed.value), name

    @pytest.mark.parametrize("fmt", ["json", "console"])
    @pytest.mark.usefixtures("logging_as_it_was")
    def test_logs_mask_it(self, fmt: str) -> None:
        stream = io.StringIO()
        configure_logging("info", fmt, stream)
        structlog.get_logger("t").info("made", value=Secret(CANARY), deep={"a": [Secret(CANARY)]})
        assert "made" in stream.getvalue()
        assert CANARY not in stream.getvalue()

    def test_a_model_takes_only_a_secret_and_does_not_repeat_what_it_refused(self) -> None:
        with pytest.raises(TypeError, match="must be a Secret") as failed:
            Record(name="x", secret=CANARY)  # type: ignore[arg-type]
        assert CANARY not in str(failed.value)

    def test_equality_and_copies(self) -> None:
        secret = Secret(CANARY)
        assert secret == Secret(CANARY)
        assert secret != Secret("other")
        assert secret != CANARY
        assert copy.deepcopy([secret, copy.copy(secret)]) == [secret, secret]
