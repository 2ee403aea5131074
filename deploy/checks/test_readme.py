"""deploy/README.md, followed literally: Helm accepts its commands, and its secrets are those that the pods need."""

from __future__ import annotations

import base64
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.checks.conftest import DEPLOY, program

ROOT = DEPLOY.parent
README = (DEPLOY / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
COMMANDS = [
    line
    for block in BLOCKS
    for line in re.sub(r"\\\n\s*", " ", block).splitlines()
    if line.startswith(("helm", "kubectl"))
]
PAGES = [path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *DEPLOY.glob("**/*.md")) if path.is_file()]


def values() -> str:
    (block,) = [each for each in BLOCKS if each.startswith("image: ")]
    return str(block)


def render(command: str, folder: Path) -> list[dict[str, Any]]:
    """What a command of the page would install. `helm template` takes the arguments of install and upgrade."""
    folder.mkdir(exist_ok=True)
    (folder / "mine.yaml").write_text(values(), encoding="utf-8")
    words = shlex.split(re.sub("(?<= )deploy/helm/lcm", str(DEPLOY / "helm" / "lcm"), command))
    run = subprocess.run(
        [program("helm"), "template", *words[2:]],
        cwd=folder,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return [each for each in yaml.safe_load_all(run.stdout) if each]


def pods(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Deployment"]


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("helm")])
def test_helm_accepts_every_command(tmp_path: Path, command: str) -> None:
    for pod in pods(render(command, tmp_path)):
        for each in pod["containers"]:
            registry, _, name = each["image"].rpartition("/")
            assert "." in registry, f"{name} without a registry is searched on the public one"


def test_the_pods_find_every_secret_that_they_need(tmp_path: Path) -> None:
    (install,) = [each for each in COMMANDS if each.startswith("helm install") and "mine.yaml" in each]
    created = dict(created_secret(each) for each in COMMANDS if each.startswith("kubectl create secret"))
    needed: dict[str, set[str]] = {}
    for pod in pods(render(install, tmp_path)):
        for name, key in needed_keys(pod):
            needed.setdefault(name, set()).add(key)
    assert needed.keys() == created.keys()
    assert [name for name in needed if not needed[name] <= created[name]] == []


def created_secret(command: str) -> tuple[str, set[str]]:
    words = shlex.split(command)
    keys = re.findall(r"--from-(?:literal|file)=([^=\s]+)", command)
    return words[4], set(keys)


def needed_keys(pod: dict[str, Any]) -> list[tuple[str, str]]:
    """Names of secrets and of their keys without which the pod does not start."""
    found = []
    (container,) = pod["containers"]
    for each in container["env"]:
        reference = each.get("valueFrom", {}).get("secretKeyRef")
        if reference and not reference.get("optional"):
            found.append((reference["name"], reference["key"]))
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    for volume in pod["volumes"]:
        if "secret" in volume:
            name = volume["secret"]["secretName"]
            keys = [each["key"] for each in volume["secret"].get("items", ())]
            if volume["name"] in mounts:
                folder = f"{mounts[volume['name']]}/"
                files = [each.get("value", "") for each in container["env"]]
                keys += [each.removeprefix(folder) for each in files if each.startswith(folder)]
            found += [(name, key) for key in keys]
    return found


def chart_with_notes(folder: Path) -> Path:
    """The chart with what Helm prints after an installation as an object: `helm template` leaves it out."""
    made = Path(shutil.copytree(DEPLOY / "helm" / "lcm", folder / "chart"))
    (made / "templates" / "NOTES.txt").rename(made / "files" / "notes.txt")
    notes = {"apiVersion": "v1", "kind": "Notes", "text": '{{ tpl (.Files.Get "files/notes.txt") . | b64enc }}'}
    (made / "templates" / "notes.yaml").write_text(yaml.safe_dump(notes), encoding="utf-8")
    return made


def installed(command: str, folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """What Helm prints after an installation, and its objects."""
    objects = render(command.replace("deploy/helm/lcm", str(chart_with_notes(folder))), folder)
    (notes,) = [base64.b64decode(each["text"]).decode() for each in objects if each["kind"] == "Notes"]
    return notes, objects


@pytest.mark.parametrize(
    "command", [each for each in COMMANDS if each.startswith("helm install")], ids=["demo", "real"]
)
def test_helm_prints_how_to_sign_in_with_the_token(tmp_path: Path, command: str) -> None:
    notes, objects = installed(command, tmp_path)
    shown = r"get secret (\S+) -o go-template='{{ index .data \"bootstrap-token\" \| base64decode }}'"
    (secret,) = re.findall(shown, notes)
    created = dict(created_secret(each) for each in COMMANDS if each.startswith("kubectl create secret"))
    own = {each["metadata"]["name"]: set(each["stringData"]) for each in objects if each["kind"] == "Secret"}
    assert "bootstrap-token" in (created | own)[secret]
    (service,) = re.findall(r"port-forward service/(\S+)", notes)
    assert service in {each["metadata"]["name"] for each in objects if each["kind"] == "Service"}
    assert "lcm login http://127.0.0.1:8080" in notes


def test_helm_prints_how_to_sign_in_where_a_certificate_is_verified(tmp_path: Path) -> None:
    (install,) = [each for each in COMMANDS if each.startswith("helm install") and "mine.yaml" in each]
    notes, objects = installed(f"{install} --set tls.secret=lcm-tls", tmp_path)
    name = "lcm-control-plane"
    assert name in {each["metadata"]["name"] for each in objects if each["kind"] == "Service"}
    assert f"127.0.0.1 {name}" in notes, "the certificate is for this name"
    shown = """get secret lcm-tls -o go-template='{{ index .data "ca.crt" | base64decode }}' > lcm-ca.crt"""
    assert shown in notes
    assert f"LCM_CA_FILE=lcm-ca.crt lcm login https://{name}:8080" in notes
    assert "https://127.0.0.1" not in notes
    assert "LCM_CA_FILE" not in installed(install, tmp_path / "plain")[0]


def test_helm_prints_the_address_of_an_ingress_with_a_certificate(tmp_path: Path) -> None:
    (install,) = [each for each in COMMANDS if each.startswith("helm install") and "mine.yaml" in each]
    ingress = "--set ingress.enabled=true,ingress.host=lcm.example.com"
    notes, _ = installed(f"{install} {ingress},ingress.tlsSecret=tls --set tls.secret=lcm-tls", tmp_path)
    assert notes.endswith("lcm login https://lcm.example.com\n")
    assert "port-forward" not in notes
    plain, _ = installed(f"{install} {ingress}", tmp_path / "plain")
    assert "lcm login http://127.0.0.1:8080" in plain, "a token is not sent through the network without TLS"


@pytest.mark.parametrize("value", ["image.tag=", "image.digest=sha256:"])
def test_an_upgrade_changes_the_control_planes_first_and_waits_for_them(tmp_path: Path, value: str) -> None:
    ((first, waits, second),) = [
        block.splitlines() for block in BLOCKS if block.startswith("helm upgrade") and f" {value}NEW" in block
    ]
    assert waits == "kubectl rollout status deployment/lcm-control-plane"
    (install,) = [each for each in COMMANDS if each.startswith("helm install") and "mine.yaml" in each]
    images = [
        {
            pod["containers"][0]["name"]: pod["containers"][0]["image"].rpartition(":")[2]
            for pod in pods(render(each, tmp_path))
        }
        for each in (f"{install} --set {value}OLD", first, second)
    ]
    controllers = images[0].keys() - {"control-plane"}
    assert [each["control-plane"] for each in images] == ["OLD", "NEW", "NEW"]
    assert [{each[name] for name in controllers} for each in images] == [{"OLD"}, {"OLD"}, {"NEW"}]


def test_operations_names_what_the_chart_and_the_units_have(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    (install,) = [each for each in COMMANDS if each.startswith("helm install") and "mine.yaml" in each]
    found = [each["metadata"] for each in render(install, tmp_path) if each["kind"] == "Deployment"]
    named = set(re.findall(r"kubectl [^\n]*?deployment[/ ](lcm[\w-]*)", page))
    assert named == {"lcm-control-plane", "lcm-worker-controller"}
    assert named <= {each["name"] for each in found}
    (selector,) = set(re.findall(r"kubectl scale deployment -l (\S+)=lcm ", page))
    # After a restore: nothing runs, then one control plane, then as many as the values say.
    assert re.findall(r"kubectl scale deployment[^\n]*--replicas=(\d+)", page) == ["0", "1"]
    after = page.partition("--replicas=1\n")[2].splitlines()[0]
    words = shlex.split(after)
    assert (words[:4], "--reuse-values" in words) == (["helm", "upgrade", "lcm", "deploy/helm/lcm"], True)
    assert all(each["labels"][selector] == "lcm" for each in found)
    files = {path.name for path in (DEPLOY / "systemd").iterdir()}
    assert set(re.findall(r"/etc/lcm/([\w-]+\.env)", page)) <= files


def test_no_page_installs_a_stranger() -> None:
    """`lcm` on PyPI is another project."""
    commands = [
        command
        for page in PAGES
        for command in re.findall(r"\bpipx? install ([^`\n]+)", page.read_text(encoding="utf-8"))
    ]
    assert commands
    projects = {name for command in commands for word in command.split() if (name := project_in(word))}
    assert projects <= {tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]}


def project_in(word: str) -> str:
    """The project that a word of `pip install` names; empty for an option, a file or a folder."""
    bare = word.strip("'\"")
    named = re.fullmatch(r"([A-Za-z0-9][\w-]*)(?:\[[\w,]*\])?(?:[=<>~!].*)?", bare)
    return named[1] if named else ""


def test_no_message_installs_a_stranger() -> None:
    named = [
        (path.name, found)
        for path in (ROOT / "src").rglob("*.py")
        for found in re.findall(r"install (?:'|\")?(lcm[\w-]*)", path.read_text(encoding="utf-8"))
    ]
    assert named
    assert {found for _, found in named} == {"lcm-fleet"}, named
