"""Every setting rejects an invalid value in one line: variable, value, what is allowed. Generated from the models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lcm import settings
from lcm.settings import Settings, SettingsError, describe, load
from lcm.settings.describe import BOOL, CHOICE, LIST, NUMBER, PATH, ValueType

GROUPS = [group for group in vars(settings).values() if isinstance(group, type) and issubclass(group, Settings)]
FIELDS = [(group, name) for group in GROUPS for name in group.model_fields]
NAMES = [name for _, name in FIELDS]

# Text with a space, a newline and a colon is not a host, endpoint, prefix or name; 7, from a file, is not text.
WRONG_TEXT: list[Any] = ["a b:\nc", 7]
WRONG: dict[str, list[Any]] = {
    BOOL: ["perhaps", "2", ""],
    NUMBER: ["abc", "nan", "inf", "-inf", "1e999", "-1", True, [1]],
    CHOICE: ["zookeeper", 7],
    LIST: ["a b:\nc", "host", "a:1,,b:2", "ftp://a:1", "http://a:1/", "a:0", "a:65536", [], 7],
    PATH: ["/dev/null/none", 7],
}

# Settings that require each other.
_OIDC = {"oidc_issuer": "https://a", "oidc_audience": "lcm", "oidc_jwks_url": "https://a/keys"}
_OIDC_CLIENT = {"oidc_issuer": "https://a", "lcm_public_url": "https://b"}
COMPANIONS: dict[str, dict[str, str]] = {
    "etcd_user": {"etcd_password": "x"},
    "etcd_password": {"etcd_user": "root"},
    "smtp_host": {"smtp_from": "lcm@example.com"},
    "smtp_from": {"smtp_host": "mail.example.com"},
    "smtp_username": {"smtp_password": "x"},
    "smtp_password": {"smtp_username": "lcm"},
    "oidc_client_id": {**_OIDC, **_OIDC_CLIENT},
    "oidc_client_secret": {**_OIDC_CLIENT, "oidc_client_id": "lcm"},
    **{name: {other: text for other, text in _OIDC.items() if other != name} for name in _OIDC},
}


def wrong_values(kind: ValueType) -> list[Any]:
    return WRONG.get(kind.form, WRONG_TEXT)


def rejection(group: type[Settings], name: str, value: Any) -> str | None:
    try:
        load(group, env={}, overrides={name: value, **COMPANIONS.get(name, {})})
    except SettingsError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("group", "name"), FIELDS, ids=NAMES)
def test_wrong_value_names_variable_value_and_what_is_allowed(group: type[Settings], name: str) -> None:
    doc = next(doc for doc in describe(group) if doc.name == name)
    messages = [(value, rejection(group, name, value)) for value in wrong_values(group.value_types()[name])]
    rejected = [(value, message) for value, message in messages if message is not None]
    assert rejected, f"no wrong value is rejected by {name}"
    for value, message in rejected:
        line, *more = message.splitlines()
        assert not more
        assert line.startswith(f'{name.upper()}="')
        assert line.endswith(f" (flag): must be {doc.allowed}")
        if isinstance(value, str) and not doc.secret:
            assert value.replace("\n", "\\n") in line


@pytest.mark.parametrize(("group", "name"), FIELDS, ids=NAMES)
def test_wrong_value_in_the_environment(group: type[Settings], name: str) -> None:
    texts = [value for value in wrong_values(group.value_types()[name]) if isinstance(value, str) and value]
    rejected_texts = [text for text in texts if rejection(group, name, text)]
    free_text = {
        "watch_prefix",
        "etcd_password",
        "lcm_secret_key",
        "lcm_bootstrap_token",
        "oidc_client_secret",
        "lcm_controller_token",
        "scale_up_license_token",
        "aws_region_configs",
        "cml_default_password",
        "smtp_password",
    }
    assert bool(rejected_texts) == (name not in free_text)
    for text in rejected_texts:
        with pytest.raises(SettingsError) as caught:
            load(group, env={name.upper(): text})
        shown = text.replace("\n", "\\n")
        assert f'{name.upper()}="{shown}" (environment): must be ' in str(caught.value)


@pytest.mark.parametrize(("group", "name"), FIELDS, ids=NAMES)
def test_numbers_are_refused_right_outside_their_limits(group: type[Settings], name: str) -> None:
    limits = {
        limit: getattr(item, limit)
        for item in group.model_fields[name].metadata
        for limit in ("ge", "le", "gt", "lt")
        if hasattr(item, limit)
    }
    step = {"ge": -1, "gt": 0, "le": 1, "lt": 0}
    for limit, bound in limits.items():
        message = rejection(group, name, str(bound + step[limit]))
        assert message is not None
        assert str(int(bound)) in message
        assert rejection(group, name, str(bound + {"ge": 0, "gt": 1, "le": 0, "lt": -1}[limit])) is None


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("WORKER_CONTROLLER_PORT", "abc", "must be a whole number from 1 to 65535"),
        ("LEADER_LEASE_TTL", "0", "must be a whole number from 2 to 3600"),
        ("COORDINATION", "zookeeper", "must be one of etcd, memory"),
        ("RETRY_INTERVAL", "nan", "must be a number greater than 0"),
        ("WATCH_DEBOUNCE_SECONDS", "-0.1", "must be a number of at least 0"),
        ("WATCH_ENABLED", "perhaps", "must be true or false"),
        ("ETCD_ENDPOINTS", "a:1,b", "must be a comma-separated list of host:port, with https:// before each for TLS"),
        ("ETCD_HOST", "etcd:2379", "must be a host name or an IP address, without a port"),
        ("ETCD_CA_FILE", "/none/ca.pem", "must be an existing file that can be read"),
        (
            "ETCD_NAMESPACE",
            "/a/",
            'must be empty, or text without spaces that starts with "/" and does not end with "/"',
        ),
        ("ETCD_NAMESPACE", "/", 'must be empty, or text without spaces that starts with "/" and does not end with "/"'),
        ("METRIC_PREFIX", "1st", "must be a Prometheus name: letters, digits and underscores, the first no digit"),
    ],
)
def test_the_exact_line(variable: str, value: str, line: str) -> None:
    group = next(group for group, name in FIELDS if name == variable.lower())
    with pytest.raises(SettingsError) as caught:
        load(group, env={variable: value})
    assert str(caught.value) == f'{variable}="{value}" (environment): {line}'


@pytest.mark.parametrize("path", ["/", "/etc/passwd/ca.pem", "~nobody-of-that-name/ca.pem", "/" + "x" * 300])
def test_unreadable_files(path: str) -> None:
    with pytest.raises(SettingsError, match="must be an existing file that can be read"):
        load(settings.CoordinationSettings, env={"ETCD_CA_FILE": path})


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc/passwd/data", "~nobody-of-that-name", "/" + "x" * 300])
def test_invalid_folders(path: str) -> None:
    with pytest.raises(SettingsError, match="must be a folder, or a path where one can be created"):
        load(settings.DataSettings, env={"LCM_DATA_DIR": path})


def test_a_folder_may_be_there_or_not_yet(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "not" / "yet", Path("relative")):
        assert load(settings.DataSettings, env={"LCM_DATA_DIR": str(path)}).settings.lcm_data_dir == path


@pytest.mark.parametrize("host", ["a b", "-a", "a..b", "http://a", "::g", "[::1]", "a" * 254, "a\n"])
def test_invalid_hosts(host: str) -> None:
    with pytest.raises(SettingsError, match="must be a host name or an IP address"):
        load(settings.HttpSettings, env={"BIND_HOST": host})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "fe80::1%eth0", "etcd-0.etcd.svc.cluster.local.", "a_b"])
def test_valid_hosts(host: str) -> None:
    assert load(settings.HttpSettings, env={"BIND_HOST": host}).settings.bind_host == host


def test_all_problems_are_reported_at_once_one_per_line() -> None:
    class Both(settings.CoordinationSettings, settings.ReconcileSettings):
        pass

    env = {"ETCD_PORT": "x", "COORDINATION": "y", "ETCD_USER": "root", "BACKOFF_BASE": "90"}
    with pytest.raises(SettingsError) as caught:
        load(Both, env=env, overrides={"etcd_prot": 1})
    assert caught.value.problems == (
        "etcd_prot (flag): no such setting; did you mean etcd_port?",
        'COORDINATION="y" (environment): must be one of etcd, memory',
        'ETCD_PORT="x" (environment): must be a whole number from 1 to 65535',
        'MAX_BACKOFF="60.0" (default), BACKOFF_BASE="90" (environment): MAX_BACKOFF must be at least BACKOFF_BASE',
        'ETCD_USER="root" (environment), ETCD_PASSWORD (not set): must be given together, or neither',
    )
    assert str(caught.value).splitlines() == list(caught.value.problems)


def test_certificate_and_key_go_together(tmp_path: Path) -> None:
    cert = tmp_path / "cert.pem"
    cert.touch()
    with pytest.raises(SettingsError, match=r"ETCD_CERT_FILE=.*, ETCD_KEY_FILE \(not set\): must be given together"):
        load(settings.CoordinationSettings, env={"ETCD_CERT_FILE": str(cert)})
    both = {"ETCD_CERT_FILE": str(cert), "ETCD_KEY_FILE": str(cert)}
    assert load(settings.CoordinationSettings, env=both).settings.etcd_key_file == cert


def test_no_conflict_is_reported_for_an_invalid_setting() -> None:
    with pytest.raises(SettingsError) as caught:
        load(settings.ReconcileSettings, env={"MAX_BACKOFF": "abc", "BACKOFF_BASE": "90"})
    assert caught.value.problems == ('MAX_BACKOFF="abc" (environment): must be a number greater than 0',)


def test_a_secret_is_never_shown() -> None:
    env = {"ETCD_PASSWORD": "hunter2", "ETCD_PORT": "x"}
    with pytest.raises(SettingsError) as caught:
        load(settings.CoordinationSettings, env=env)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SettingsError) as caught:
        load(settings.CoordinationSettings, env={"ETCD_PASSWORD": "hunter2"})
    assert 'ETCD_PASSWORD="***" (environment)' in str(caught.value)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SettingsError) as caught:
        load(settings.CoordinationSettings, env={}, overrides={"etcd_password": 271828})
    assert str(caught.value) == 'ETCD_PASSWORD="***" (flag): must be text'
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    with pytest.raises(ValueError) as direct:
        settings.CoordinationSettings(etcd_password=271828)  # type: ignore[arg-type]
    assert "271828" not in str(direct.value)
    loaded = load(settings.CoordinationSettings, env={"ETCD_PASSWORD": "hunter2", "ETCD_USER": "root"})
    assert "hunter2" not in repr(loaded)


def test_a_password_inside_a_url_is_not_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        load(settings.CoordinationSettings, env={"ETCD_ENDPOINTS": "http://root:hunter2@a:2379"})
    assert 'ETCD_ENDPOINTS="http://***@a:2379" (environment)' in str(caught.value)


def test_a_long_value_is_cut() -> None:
    with pytest.raises(SettingsError) as caught:
        load(settings.LogSettings, env={"LOG_LEVEL": "x" * 5000})
    assert len(str(caught.value)) < 400


def test_unreadable_values_stay_on_one_line() -> None:
    with pytest.raises(SettingsError) as caught:
        load(settings.LogSettings, env={"LOG_LEVEL": "a\nb\x1b[31m\u2028\udcff"})
    assert str(caught.value).startswith(r'LOG_LEVEL="a\nb\x1b[31m\u2028\udcff" (environment)')
