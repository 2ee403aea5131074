"""Files in deploy/ parse, and the metrics, settings and chapters that they name exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lcm.cloud.aws.config import AwsConfig
from lcm.settings import Settings, describe
from lcm.wiring.control_plane import ControlPlaneProcessSettings
from lcm.wiring.lablet_controller import LabletControllerProcessSettings
from lcm.wiring.resource_scheduler import ResourceSchedulerProcessSettings
from lcm.wiring.worker_controller import WorkerControllerProcessSettings
from tests.support.deploy.helm import Chart
from tests.support.servers.metric_registries import platform_metrics, sample_names

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "lcm"
SERVICES: dict[str, type[Settings]] = {
    "control-plane": ControlPlaneProcessSettings,
    "worker-controller": WorkerControllerProcessSettings,
    "resource-scheduler": ResourceSchedulerProcessSettings,
    "lablet-controller": LabletControllerProcessSettings,
}
PORTS = {"control-plane": 8080, "resource-scheduler": 8081, "lablet-controller": 8082, "worker-controller": 8083}
OF_CONTROLLERS = ("workerController", "resourceScheduler", "labletController")
"""The part of the chart's values that a template reads as `.own`."""

# Labels that Prometheus adds to every scraped series.
SCRAPED = {"instance", "job", "le"}
WORDS = {"or", "and", "unless", "by"}
HOST = re.compile(r"^[^/]*[.:][^/]*/|^localhost/")
PLACED: dict[str, Any] = {
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "labs"}],
    "affinity": {"nodeAffinity": {}},
    "service": {"annotations": {"internal": "true"}},
}
EVERYTHING: dict[str, Any] = {
    "regions": {"eu-west-1": {"subnet_ids": ["subnet-1"]}},
    "etcd": {"userSecret": "etcd-user"},
    "image": {"pullSecrets": ["pull"], "tag": "9.9.9"},
    "serviceAccount": {"name": "own", "annotations": {"role": "lcm"}},
    "settings": {"LOG_LEVEL": "debug"},
    "controlPlane": {
        "settings": {"MIN_WORKERS": 2},
        "extraEnv": [{"name": "FORWARDED_ALLOW_IPS", "value": "10.0.0.1"}],
        **PLACED,
    },
    "workerController": {
        "settings": {"CML_TLS": "insecure"},
        "cmlAccountSecret": "cml",
        "awsCredentialsSecret": "aws",
        **PLACED,
        "extraEnv": [{"name": "AWS_PROFILE", "value": "labs"}],
    },
    "resourceScheduler": {"settings": {"LABLET_LEAD_TIME": 60}, **PLACED},
    "labletController": {"settings": {"CML_TLS": "insecure"}, "cmlAccountSecret": "cml", **PLACED},
    "networkPolicy": {
        "enabled": True,
        "apiFrom": [{"namespaceSelector": {}}],
        "controllerFrom": [{"namespaceSelector": {}}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
}


# Queries


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return found


def queries() -> list[str]:
    panels = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    return [*(rule["expr"] for rule in rules()), *panels]


def metrics_in(query: str) -> set[str]:
    """Names that are neither functions, keywords, nor parts of label lists and strings."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|without)\s*\([^)]*\)', " ", query)
    return {name for name in re.findall(r"\b[a-zA-Z_]\w*\b(?!\s*\()", bare) if name not in WORDS}


def labels_in(query: str) -> set[str]:
    bare = re.sub(r'"[^"]*"', '""', query)
    grouped = ",".join(re.findall(r"\bby\s*\(([^)]*)\)", bare)).split(",")
    matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", " ".join(re.findall(r"\{([^}]*)\}", bare)))
    return {label.strip() for label in (*grouped, *matched) if label.strip()}


@pytest.mark.parametrize("query", queries())
def test_a_query_names_only_metrics_and_labels_that_exist(query: str) -> None:
    named = metrics_in(query)
    assert named
    assert named <= sample_names(platform_metrics())
    families = [name for name in platform_metrics() if any(each.startswith(name) for each in named)]
    known = {label for name in families for label in platform_metrics()[name]["labels"]}
    assert labels_in(query) <= known | SCRAPED
    assert query.count("(") == query.count(")")
    assert query.count("{") == query.count("}")


def test_every_alert_says_what_happened_and_where_to_read_on() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    chapters = {slug(title) for title in re.findall(r"^#+ (.+)$", page, flags=re.MULTILINE)}
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        notes = rule["annotations"]
        assert notes["summary"]
        assert notes["description"].endswith(".")
        path, _, anchor = notes["runbook"].partition("#")
        assert (path, anchor in chapters) == ("docs/operations.md", True), notes["runbook"]


def test_every_link_to_a_chapter_of_the_handbooks_leads_to_one() -> None:
    pages = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}
    pages["README.md"] = (DEPLOY / "README.md").read_text()
    chapters = {
        name: {slug(title) for title in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}
        for name, text in pages.items()
    }
    for name in ("operations.md", "guide.md", "metrics.md", "settings.md"):
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", pages[name]):
            assert anchor in chapters[Path(target).name if target else name], f"{name}: {target}#{anchor}"


def slug(title: str) -> str:
    """A heading's anchor."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_the_dashboard_can_be_drawn() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["targets"]
            assert panel["datasource"]["uid"] == "${datasource}"


# Processes


def variables_of(service: str) -> set[str]:
    docs = describe(SERVICES[service])
    return {name for doc in docs for name in (doc.variable, *doc.alias_variables)}


def secret_variables() -> set[str]:
    return {doc.variable for model in SERVICES.values() for doc in describe(model) if doc.secret} | {"STORE_URL"}


def test_compose_has_the_whole_set_up_and_only_real_settings() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert {name for name in services if name.startswith("etcd")} == {"etcd1", "etcd2", "etcd3"}
    assert {name for name in services if re.fullmatch(r"mongo\d", name)} == {"mongo1", "mongo2", "mongo3"}
    ours = {name: service for name, service in services.items() if service["image"].startswith("lcm:")}
    twice = ("lablet-controller", "resource-scheduler", "worker-controller")
    assert sorted(ours) == ["control-plane", *(f"{name}-{number}" for name in twice for number in (1, 2))]
    published = [port for service in ours.values() for port in service["ports"]]
    assert len({port.split(":")[1] for port in published}) == len(published)
    for service in ours.values():
        (command,) = service["command"]
        assert [port.split(":")[-1] for port in service["ports"]] == [str(PORTS[command])]
        assert f":{PORTS[command]}/ready" in service["healthcheck"]["test"][-1]
        assert set(service["environment"]) <= variables_of(command)
        given = {name: value for name, value in service["environment"].items() if name in secret_variables()}
        given.pop("STORE_URL", None)  # no password within this network
        assert all(str(value).startswith("${") for value in given.values()), given
    for service in services.values():
        assert not HOST.match(service["image"]), service["image"]


def test_the_image_is_built_from_locks_and_runs_unprivileged() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert not [name for name in re.findall(r"^(?:ARG PYTHON=|FROM )(\S+)", text, re.MULTILINE) if HOST.match(name)]
    assert "--require-hashes -r requirements/deploy.txt" in text
    assert "--no-deps --no-build-isolation ." in text
    assert re.search(r"^USER (\d+)", text, re.MULTILINE)
    (block,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    set_there = set(re.findall(r"(\w+)=", block))
    of_python = {"PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}
    assert set_there - of_python <= set.intersection(*(variables_of(name) for name in SERVICES))
    (exposed,) = re.findall(r"^EXPOSE (.+)$", text, re.MULTILINE)
    assert sorted(exposed.split()) == sorted(str(port) for port in PORTS.values())
    for needed in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / part).exists() for part in needed.split())


def test_the_lock_of_the_image_is_that_of_the_tests_with_both_extras() -> None:
    locked, tested = (pins(name) for name in ("deploy", "dev"))
    assert locked.items() <= tested.items()
    assert {"boto3", "pymongo", "hatchling"} <= locked.keys()
    assert not {"pytest", "moto", "mypy"} & locked.keys()


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==([^ ;]+)", text, re.MULTILINE))


def test_the_example_of_regions_is_one() -> None:
    config = AwsConfig.load(str(DEPLOY / "regions.example.yaml"))
    assert list(config.regions) == ["eu-central-1", "us-east-1"]
    role = config.regions["eu-central-1"].role_arn
    assert role is not None
    assert "role/lcm-controller-" in role


# Helm


@pytest.fixture(scope="module")
def chart() -> Chart:
    return Chart(CHART)


def deployments(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = [each for each in objects if each["kind"] == "Deployment"]
    return {each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in found}


@pytest.mark.parametrize("changes", [{}, EVERYTHING], ids=["default", "everything"])
def test_the_chart_runs_all_services_with_real_settings(chart: Chart, changes: dict[str, Any]) -> None:
    found = deployments(chart.render(**changes))
    assert found.keys() == SERVICES.keys()
    for component, deployment in found.items():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["args"] == [component]
        assert container["ports"] == [{"name": "http", "containerPort": PORTS[component]}]
        assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
        assert container["livenessProbe"]["httpGet"]["path"] == "/health"
        names = [each["name"] for each in container["env"]]
        assert len(set(names)) == len(names)
        no_settings = {"FORWARDED_ALLOW_IPS", "AWS_PROFILE"} if changes else set()
        assert set(names) - no_settings <= variables_of(component)
        for each in container["env"]:
            if each["name"] in secret_variables():
                assert "secretKeyRef" in each["valueFrom"], each["name"]
            assert isinstance(each.get("value", ""), str), each["name"]


@pytest.mark.parametrize("changes", [{}, EVERYTHING], ids=["default", "everything"])
def test_what_belongs_together_in_the_chart_fits(chart: Chart, changes: dict[str, Any]) -> None:
    objects = chart.render(**changes)
    for component, deployment in deployments(objects).items():
        pod = deployment["spec"]["template"]
        labels, spec = pod["metadata"]["labels"], pod["spec"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert spec["securityContext"]["runAsNonRoot"] is True
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
        (service,) = [
            each for each in objects if each["kind"] == "Service" and each["metadata"]["name"].endswith(f"-{component}")
        ]
        assert service["spec"]["selector"].items() <= labels.items()
        (budget,) = [
            each
            for each in objects
            if each["kind"] == "PodDisruptionBudget" and each["metadata"]["name"].endswith(f"-{component}")
        ]
        assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
        for each in spec["containers"][0]["env"]:
            if each.get("value", "").startswith("/etc/lcm/"):
                mounts = [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]]
                assert str(Path(each["value"]).parent) in mounts


def test_optional_parts_of_the_chart_are_off_by_default(chart: Chart) -> None:
    usual = {each["kind"] for each in chart.render()}
    assert usual == {"Deployment", "Service", "ServiceAccount", "PodDisruptionBudget"}
    assert {each["kind"] for each in chart.render(**EVERYTHING)} - usual == {
        "ConfigMap",
        "NetworkPolicy",
        "ServiceMonitor",
    }
    assert "lcm login" in chart.notes()


def test_regions_reach_the_services_that_use_them(chart: Chart) -> None:
    objects = chart.render(**EVERYTHING)
    (config_map,) = [each for each in objects if each["kind"] == "ConfigMap"]
    assert yaml.safe_load(config_map["data"]["regions.yaml"]) == EVERYTHING["regions"]
    for component, deployment in deployments(objects).items():
        names = {each["name"] for each in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert ("AWS_REGION_CONFIGS" in names) is (component in ("control-plane", "worker-controller"))


def test_only_services_that_call_aws_get_the_service_account_token(chart: Chart) -> None:
    found = deployments(chart.render()).items()
    pods = {name: deployment["spec"]["template"]["spec"] for name, deployment in found}
    assert [name for name, pod in pods.items() if pod["automountServiceAccountToken"]] == ["worker-controller"]


def test_every_service_has_a_network_policy_and_all_controllers_reach_the_control_plane(chart: Chart) -> None:
    policies = [each for each in chart.render(**EVERYTHING) if each["kind"] == "NetworkPolicy"]
    component = "app.kubernetes.io/component"
    by_name = {each["spec"]["podSelector"]["matchLabels"][component]: each["spec"]["ingress"] for each in policies}
    assert by_name.keys() == SERVICES.keys()
    [allowed] = by_name["control-plane"]
    let_in = {each["podSelector"]["matchLabels"][component] for each in allowed["from"] if "podSelector" in each}
    assert let_in == SERVICES.keys() - {"control-plane"}


def test_every_value_of_the_chart_is_used_and_every_used_one_has_a_default(chart: Chart) -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    used = set(re.findall(r"\.Values\.([\w.]+)", text)) - set(OF_CONTROLLERS)
    used |= {f"{name}.{path}" for name in OF_CONTROLLERS for path in re.findall(r"\.own\.([\w.]+)", text)}
    for path in used:
        value: Any = chart.values
        for step in path.split("."):
            value = value[step]
    for path in leaves(chart.values):
        assert any(path == each or path.startswith(f"{each}.") for each in used), path


def leaves(values: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{before}{name}.")
        else:
            yield before + name


def test_the_chart_and_the_package_have_one_version() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert about["appVersion"] == version
    assert f"image: lcm:{version}\n" in (DEPLOY / "compose.yaml").read_text()
