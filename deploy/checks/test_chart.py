"""The Helm chart, linted and rendered by Helm and checked against the schemas of Kubernetes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from deploy.checks.conftest import CHART, DEPLOY, ChartRefusedError
from docs.settings_page import SERVICES
from lcm.settings import describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.checks.conftest import Chart

COMPONENTS = {
    "control-plane": ("controlPlane", 8080),
    "worker-controller": ("workerController", 8083),
    "resource-scheduler": ("resourceScheduler", 8081),
    "lablet-controller": ("labletController", 8082),
}
DIGEST = "sha256:" + "a" * 64
KUBERNETES_VERSIONS = ("1.25", "1.31", "1.37")
OPERATOR_KINDS = {"ServiceMonitor", "PrometheusRule"}
PLACEMENT: dict[str, Any] = {
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "labs"}],
    "affinity": {"nodeAffinity": {}},
    "service": {"annotations": {"internal": "true"}},
    "serviceAccount": {"annotations": {"role": "lcm"}},
}
EVERYTHING: dict[str, Any] = {
    "regions": {"eu-west-1": {"subnet_ids": ["subnet-1"], "default_tags": {"cost": 123456789012}}},
    "etcd": {"userSecret": "etcd-user", "tlsSecret": "etcd-tls"},
    "tls": {"secret": "lcm-tls"},
    "image": {"pullSecrets": ["pull"], "digest": DIGEST},
    "settings": {"LOG_LEVEL": "debug", "AMI_OWNERS": 123456789012},
    "caBundle": {"configMap": "private-ca"},
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "priorityClassName": "system-cluster-critical",
    "zoneSpread": "DoNotSchedule",
    "controlPlane": {
        "settings": {"MIN_WORKERS": 2},
        "extraEnv": [{"name": "FORWARDED_ALLOW_IPS", "value": "10.0.0.1"}],
        **PLACEMENT,
    },
    "workerController": {
        "settings": {"CML_TLS": "insecure", "LOG_LEVEL": "info"},
        "cmlAccountSecret": "cml",
        "awsCredentialsSecret": "aws",
        **PLACEMENT,
        "extraEnv": [{"name": "AWS_PROFILE", "value": "labs"}],
    },
    "resourceScheduler": {"settings": {"LABLET_LEAD_TIME": 60}, **PLACEMENT},
    "labletController": {"settings": {"CML_TLS": "insecure"}, "cmlAccountSecret": "cml", **PLACEMENT},
    "networkPolicy": {"apiFrom": [{"namespaceSelector": {}}], "controllerFrom": [{"namespaceSelector": {}}]},
    "ingress": {"enabled": True, "host": "lcm.example.com", "tlsSecret": "tls", "className": "nginx"},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
}
NASTY: dict[str, Any] = {
    "settings": {
        "AMI_OWNERS": 123456789012,
        "AMI_NAME_PATTERN": 'it\'s "CML" {{ 2.8 }} ünïcode: #1\n\\d',
        "WORKER_IDLE_TIMEOUT_MINUTES": 1.5,
        "STUCK_AFTER": 10000000,
        "LABLET_PORT_RANGE": "",
        "BREAKER_ENABLED": False,
        "MIN_WORKERS": 1,
        "LOG_LEVEL": "debug",
    },
    "controlPlane": {"settings": {"MIN_WORKERS": 0, "LOG_LEVEL": "info"}, "replicas": 1},
}
VALUES = pytest.mark.parametrize(
    "changes", [{}, EVERYTHING, NASTY, {"demo": True}], ids=["default", "everything", "nasty", "demo"]
)
REAL_VALUES = pytest.mark.parametrize("changes", [{}, EVERYTHING, NASTY], ids=["default", "everything", "nasty"])


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


def deployments(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = of_kind(objects, "Deployment")
    return {each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in found}


def container(deployment: dict[str, Any]) -> dict[str, Any]:
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(deployment: dict[str, Any]) -> dict[str, dict[str, Any]]:
    listed = container(deployment)["env"]
    names = [each["name"] for each in listed]
    assert sorted(set(names)) == sorted(names), "a name twice: helm upgrade would fail half-way"
    return {each["name"]: each for each in listed}


def settings_of(component: str) -> set[str]:
    docs = describe(SERVICES[component])
    return {name for doc in docs for name in (doc.variable, *doc.alias_variables)}


@VALUES
def test_helm_lints_it(chart: Chart, changes: dict[str, Any]) -> None:
    assert "0 chart(s) failed" in chart.helm("lint", changes, "--strict")


@VALUES
@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_object_follows_the_schema_of_kubernetes(chart: Chart, changes: dict[str, Any], version: str) -> None:
    objects = chart.render(changes)
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)
    for each in objects:
        if each["kind"] not in OPERATOR_KINDS:
            kubernetes_validate.validate(each, version, strict=True)


@REAL_VALUES
def test_every_service_runs_with_settings_that_it_has(chart: Chart, changes: dict[str, Any]) -> None:
    found = deployments(chart.render(changes))
    assert found.keys() == COMPONENTS.keys()
    shared = set(changes.get("settings", {}))
    for component, deployment in found.items():
        pod = container(deployment)
        assert pod["args"] == [component]
        assert pod["ports"] == [{"name": "http", "containerPort": COMPONENTS[component][1]}]
        assert pod["readinessProbe"]["httpGet"]["path"] == "/ready"
        assert pod["livenessProbe"]["httpGet"]["path"] == "/health"
        given = environment(deployment)
        assert given.keys() - shared - {"FORWARDED_ALLOW_IPS", "AWS_PROFILE"} <= settings_of(component)
        for name in given.keys() & set(SECRETS):
            assert "secretKeyRef" in given[name]["valueFrom"], name


def test_values_reach_the_services_exactly_as_written(chart: Chart) -> None:
    found = deployments(chart.render(NASTY))
    for component, deployment in found.items():
        values = {name: each.get("value") for name, each in environment(deployment).items()}
        assert values["AMI_OWNERS"] == "123456789012"
        assert values["AMI_NAME_PATTERN"] == NASTY["settings"]["AMI_NAME_PATTERN"]
        assert values["WORKER_IDLE_TIMEOUT_MINUTES"] == "1.5"
        assert values["STUCK_AFTER"] == "10000000"
        assert values["LABLET_PORT_RANGE"] == ""
        assert values["BREAKER_ENABLED"] == "false"
        own = component == "control-plane"
        assert (values["MIN_WORKERS"], values["LOG_LEVEL"]) == (("0", "info") if own else ("1", "debug"))


def test_extra_environment_takes_precedence_over_a_setting_and_a_secret(chart: Chart) -> None:
    extra = [{"name": "LOG_LEVEL", "value": "error"}, {"name": "STORE_URL", "value": "mongodb://plain"}]
    objects = chart.render({"settings": {"LOG_LEVEL": "debug"}, "controlPlane": {"extraEnv": extra}})
    given = environment(deployments(objects)["control-plane"])
    assert [given[each["name"]] for each in extra] == extra


def test_regions_reach_the_services_that_use_them_and_a_change_restarts_these(chart: Chart) -> None:
    objects = chart.render(EVERYTHING)
    (config_map,) = of_kind(objects, "ConfigMap")
    assert yaml.safe_load(config_map["data"]["regions.yaml"]) == EVERYTHING["regions"]
    changed = deployments(chart.render({**EVERYTHING, "regions": {"us-east-1": {"subnet_ids": []}}}))
    users = {
        name
        for name, before in deployments(objects).items()
        if before["spec"]["template"] != changed[name]["spec"]["template"]
    }
    assert users == {"control-plane", "worker-controller"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"settings": {"LOG_LEVLE": "debug"}}, "LOG_LEVLE"),
        ({"workerController": {"settings": {"STORE_ULR": "x"}}}, "STORE_ULR"),
        ({"controlPlane": {"replicas": "lots"}}, "replicas"),
        ({"controlPlane": {"replica": 2}}, "replica"),
        ({"imagee": {}}, "imagee"),
        ({"settings": {"AMI_OWNERS": 12345678901}}, "AMI_OWNERS"),
        ({"settings": {"STORE_URL": "mongodb://user:password@host"}}, "STORE_URL is a secret"),
        ({"settings": {"CONTROL_PLANE_PORT": 1}}, "CONTROL_PLANE_PORT"),
        ({"settings": {"ETCD_ENDPOINTS": ""}}, "settings.ETCD_ENDPOINTS is required"),
        ({"image": {"repository": ""}}, "image.repository is required"),
        ({"image": {"tag": "1.1.0", "digest": DIGEST}}, "image.tag and image.digest are both given"),
        ({"demo": True, "image": {"tag": "1.1.0", "digest": DIGEST}}, "image.tag and image.digest are both given"),
        (
            {"labletController": {"image": {"tag": "1.1.0", "digest": DIGEST}}},
            "labletController.image.tag and labletController.image.digest are both given",
        ),
        ({"ingress": {"enabled": True}}, "ingress.host is required"),
        ({"zoneSpread": "Never"}, "zoneSpread"),
        ({"terminationGracePeriodSeconds": 15}, "terminationGracePeriodSeconds must be at least 20"),
        ({"controlPlane": {"settings": {"SHUTDOWN_SECONDS": 60}}}, "terminationGracePeriodSeconds must be at least 75"),
        ({"workerController": {"settings": {"CML_READER_URL": "http://a:8083"}}}, "CML_READER_URL"),
        (
            {"controlPlane": {"extraEnv": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}},
            "controlPlane.extraEnv: A is there twice",
        ),
        ({"tls": {"secret": "tls"}, "workerController": {"allReplicasReadCml": True}}, "allReplicasReadCml: with tls"),
    ],
)
def test_a_mistake_in_the_values_is_refused_by_name(chart: Chart, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ChartRefusedError, match=named):
        chart.render(changes)


SECRETS = sorted(
    {doc.variable for name in COMPONENTS for doc in describe(SERVICES[name]) if doc.secret} | {"STORE_URL"}
)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_among_the_settings_is_refused(chart: Chart, name: str) -> None:
    """Everybody who may read a Deployment would read it there."""
    with pytest.raises(ChartRefusedError, match=f"{name} is a secret"):
        chart.render({"settings": {name: "x"}})


def test_every_secret_of_a_service_comes_from_a_secret(chart: Chart) -> None:
    for component, deployment in deployments(chart.render(EVERYTHING)).items():
        needed = {doc.variable for doc in describe(SERVICES[component]) if doc.secret} - {"LCM_SECRET_KEY"}
        for name in needed:
            assert "secretKeyRef" in environment(deployment).get(name, {}).get("valueFrom", {}), name


@REAL_VALUES
def test_what_belongs_together_fits(chart: Chart, changes: dict[str, Any]) -> None:
    objects = chart.render(changes)
    for component, deployment in deployments(objects).items():
        pod = deployment["spec"]["template"]
        labels, spec = pod["metadata"]["labels"], pod["spec"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert "app.kubernetes.io/version" not in labels, "every release of the chart would restart all pods"
        assert spec["securityContext"]["runAsNonRoot"] is True
        volumes = {volume["name"] for volume in spec["volumes"]}
        for each in (*spec["containers"], *spec.get("initContainers", ())):
            assert {mount["name"] for mount in each["volumeMounts"]} <= volumes
            assert each["securityContext"]["readOnlyRootFilesystem"] is True
            assert {"requests", "limits"} <= each["resources"].keys(), "a ResourceQuota would refuse the pod"
        for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
            (one,) = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == f"lcm-{component}"]
            selector = one["spec"].get("podSelector") or one["spec"]["selector"]
            assert selector.get("matchLabels", selector).items() <= labels.items()
        for each in environment(deployment).values():
            if each.get("value", "").startswith("/etc/lcm/"):
                mounts = [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]]
                assert each["value"].rpartition("/")[0] in mounts


def test_one_replica_can_be_evicted(chart: Chart) -> None:
    objects = chart.render({values: {"replicas": 1} for values, _ in COMPONENTS.values()})
    budgets = of_kind(objects, "PodDisruptionBudget")
    assert [each["spec"].get("maxUnavailable") for each in budgets] == [1] * 4
    assert not any("minAvailable" in each["spec"] for each in budgets)


def test_each_component_has_an_account_of_its_own_and_only_the_caller_of_aws_mounts_its_token(chart: Chart) -> None:
    objects = chart.render({"workerController": {"serviceAccount": {"annotations": {"role": "aws"}}}})
    pods = {name: each["spec"]["template"]["spec"] for name, each in deployments(objects).items()}
    accounts = {name: pod["serviceAccountName"] for name, pod in pods.items()}
    assert len(set(accounts.values())) == len(accounts)
    created = {
        each["metadata"]["name"]: each["metadata"].get("annotations") for each in of_kind(objects, "ServiceAccount")
    }
    assert created.keys() == set(accounts.values())
    assert [name for name, notes in created.items() if notes] == [accounts["worker-controller"]]
    assert [name for name, pod in pods.items() if pod["automountServiceAccountToken"]] == ["worker-controller"]


def test_pods_leave_their_service_before_they_stop(chart: Chart) -> None:
    for deployment in deployments(chart.render()).values():
        spec = deployment["spec"]["template"]["spec"]
        waits = int(container(deployment)["lifecycle"]["preStop"]["exec"]["command"][1])
        assert 0 < waits <= spec["terminationGracePeriodSeconds"] - 15
        keys = {each["topologyKey"] for each in spec["topologySpreadConstraints"]}
        assert keys == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}


@pytest.mark.parametrize("demo", [False, True], ids=["real", "demo"])
def test_every_pod_has_the_volumes_the_ca_and_the_priority_that_the_values_name(chart: Chart, demo: bool) -> None:
    pods = [
        each["spec"]["template"]["spec"] for each in of_kind(chart.render({**EVERYTHING, "demo": demo}), "Deployment")
    ]
    assert len(pods) == (1 if demo else len(COMPONENTS))
    for pod in pods:
        volumes = {each["name"]: each for each in pod["volumes"]}
        assert volumes["more"] == {"name": "more", "emptyDir": {}}
        assert volumes["ca"]["configMap"]["name"] == "private-ca"
        mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
        assert (mounts["more"], mounts["ca"]) == ("/more", "/etc/lcm/ca")
        assert pod["priorityClassName"] == "system-cluster-critical"
        if not demo:
            spread = {each["topologyKey"]: each["whenUnsatisfiable"] for each in pod["topologySpreadConstraints"]}
            assert spread["topology.kubernetes.io/zone"] == "DoNotSchedule"


def test_a_ca_may_be_in_a_secret(chart: Chart) -> None:
    (pod, *_) = deployments(chart.render({"caBundle": {"secret": "ca"}})).values()
    (volume,) = [each for each in pod["spec"]["template"]["spec"]["volumes"] if each["name"] == "ca"]
    assert volume["secret"]["secretName"] == "ca"


def test_a_kubernetes_that_is_too_old_is_refused(chart: Chart) -> None:
    assert chart.helm("template", {}, "--kube-version", "1.25.0")
    with pytest.raises(ChartRefusedError, match=r"kubeVersion: >=1\.25"):
        chart.helm("template", {}, "--kube-version", "1.24.9")


def test_prometheus_scrapes_every_service_only_if_asked(chart: Chart) -> None:
    assert not [each for each in chart.render() if each["kind"] in OPERATOR_KINDS]
    objects = chart.render(EVERYTHING)
    (monitor,) = of_kind(objects, "ServiceMonitor")
    assert [each["path"] for each in monitor["spec"]["endpoints"]] == ["/metrics"]
    selected = monitor["spec"]["selector"]["matchLabels"].items()
    services = of_kind(objects, "Service")
    assert len(services) == len(COMPONENTS)
    assert all(selected <= each["metadata"]["labels"].items() for each in services)
    ports = {port["name"] for each in services for port in each["spec"]["ports"]}
    assert {each["port"] for each in monitor["spec"]["endpoints"]} == ports


def test_control_planes_can_be_upgraded_before_the_controllers(chart: Chart) -> None:
    """The steps of docs/operations.md: a tag for control planes first, then for all."""
    old, new = {"image": {"tag": "1.0.0"}}, {"image": {"tag": "1.1.0"}}
    first = {**old, "controlPlane": {"image": {"tag": "1.1.0"}}}
    before, between, after = (deployments(chart.render(each)) for each in (old, first, new))
    assert [name for name in before if before[name] != between[name]] == ["control-plane"]
    assert sorted(name for name in before if between[name] != after[name]) == sorted(
        COMPONENTS.keys() - {"control-plane"}
    )


def test_a_digest_names_the_image_in_place_of_the_tag(chart: Chart) -> None:
    found = deployments(chart.render(EVERYTHING))
    assert {container(each)["image"] for each in found.values()} == {"registry.example.com/lcm@" + DIGEST}


def test_only_the_http_port_is_reachable_and_sources_can_be_restricted(chart: Chart) -> None:
    assert all(
        each["spec"]["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}]}]
        for each in of_kind(chart.render(), "NetworkPolicy")
    )
    policies = {each["metadata"]["name"]: each for each in of_kind(chart.render(EVERYTHING), "NetworkPolicy")}
    (rule,) = policies["lcm-control-plane"]["spec"]["ingress"]
    callers = {
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for peer in rule["from"]
        if "podSelector" in peer
    }
    assert callers == COMPONENTS.keys() - {"control-plane"}


def test_all_replicas_of_the_worker_controller_read_cml_if_asked(chart: Chart) -> None:
    asked = {"workerController": {"allReplicasReadCml": True}, "networkPolicy": EVERYTHING["networkPolicy"]}
    objects = chart.render(asked)
    found = {name: environment(each) for name, each in deployments(objects).items()}
    assert [name for name, given in found.items() if "CML_READER_URL" in given] == ["worker-controller"]
    names = list(found["worker-controller"])
    assert found["worker-controller"]["POD_IP"]["valueFrom"]["fieldRef"] == {"fieldPath": "status.podIP"}
    assert found["worker-controller"]["CML_READER_URL"]["value"] == "http://$(POD_IP):8083"
    assert names.index("POD_IP") < names.index("CML_READER_URL"), "Kubernetes replaces only what stands before"
    policies = {each["metadata"]["name"]: each for each in of_kind(objects, "NetworkPolicy")}
    for name in COMPONENTS.keys() - {"control-plane"}:
        (rule,) = policies[f"lcm-{name}"]["spec"]["ingress"]
        peers = [each["podSelector"]["matchLabels"] for each in rule["from"] if "podSelector" in each]
        selected = [each["app.kubernetes.io/component"] for each in peers]
        assert selected == (["worker-controller"] if name == "worker-controller" else []), name
    assert "CML_READER_URL" not in environment(deployments(chart.render())["worker-controller"])


@pytest.mark.parametrize("name", ["POD_IP", "CML_READER_URL", "WORKER_CONTROLLER_INSTANCE_ID"])
def test_extra_environment_takes_precedence_over_what_readers_of_cml_get(chart: Chart, name: str) -> None:
    extra = {"name": name, "value": "10.0.0.7"}
    objects = chart.render({"workerController": {"allReplicasReadCml": True, "extraEnv": [extra]}})
    given = environment(deployments(objects)["worker-controller"])
    assert given[name] == extra
    names = list(given)
    if name == "POD_IP":
        assert given["CML_READER_URL"]["value"] == "http://$(POD_IP):8083"
        assert names.index("POD_IP") < names.index("CML_READER_URL"), "Kubernetes replaces only what stands before"


def test_with_a_certificate_nothing_inside_the_cluster_is_sent_in_plain_text(chart: Chart) -> None:
    objects = chart.render(EVERYTHING)
    for name, deployment in deployments(objects).items():
        found = {variable: each.get("value") for variable, each in environment(deployment).items()}
        assert (found["TLS_CERT_FILE"], found["TLS_KEY_FILE"]) == ("/etc/lcm/tls/tls.crt", "/etc/lcm/tls/tls.key")
        if name != "control-plane":
            assert found["CONTROL_PLANE_API_URL"] == "https://lcm-control-plane:8080"
            assert found["LCM_CA_FILE"] == "/etc/lcm/tls/ca.crt"
        parts = container(deployment)
        assert {"name": "tls", "mountPath": "/etc/lcm/tls", "readOnly": True} in parts["volumeMounts"]
        probes = [parts[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert [each["scheme"] for each in probes] == ["HTTPS"] * 3
        (volume,) = [each for each in deployment["spec"]["template"]["spec"]["volumes"] if each["name"] == "tls"]
        assert volume["secret"] == {"secretName": "lcm-tls", "defaultMode": 0o440}
    (ingress,) = of_kind(objects, "Ingress")
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"
    (monitor,) = of_kind(objects, "ServiceMonitor")
    assert monitor["spec"]["endpoints"][0]["scheme"] == "https"
    plain = deployments(chart.render())["worker-controller"]
    assert environment(plain)["CONTROL_PLANE_API_URL"]["value"] == "http://lcm-control-plane:8080"
    assert container(plain)["livenessProbe"]["httpGet"]["scheme"] == "HTTP"


def test_the_event_stream_passes_the_ingress_unbuffered(chart: Chart) -> None:
    (ingress,) = of_kind(chart.render(EVERYTHING), "Ingress")
    notes = ingress["metadata"]["annotations"]
    assert notes["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert int(notes["nginx.ingress.kubernetes.io/proxy-read-timeout"]) >= 60
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"]["service"] == {"name": "lcm-control-plane", "port": {"name": "http"}}


def test_only_control_planes_behind_the_ingress_trust_its_headers(chart: Chart) -> None:
    ingress = {"enabled": True, "host": "lcm.example.com", "trustedProxies": "10.1.0.0/16"}
    found = deployments(chart.render({"ingress": ingress}))
    trusting = {name: environment(each).get("FORWARDED_ALLOW_IPS", {}).get("value") for name, each in found.items()}
    assert {name: value for name, value in trusting.items() if value} == {"control-plane": "10.1.0.0/16"}
    others = deployments(chart.render({"ingress": {**ingress, "enabled": False}}))
    assert not any("FORWARDED_ALLOW_IPS" in environment(each) for each in others.values())


def test_the_alerts_are_those_of_the_file(chart: Chart) -> None:
    (rule,) = of_kind(chart.render(EVERYTHING), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())


def test_alerts_lead_to_the_dashboard_and_the_docs_where_their_addresses_are_known(chart: Chart) -> None:
    urls = {"LCM_PUBLIC_URL": "https://lcm.example.com", "NOTIFY_DOCS_URL": "https://docs.example.com/lcm/"}
    rendered = chart.render({"prometheusRule": {"enabled": True}, "settings": urls})
    (rule,) = of_kind(rendered, "PrometheusRule")
    (plain,) = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())["groups"]
    for there, here in zip(rule["spec"]["groups"][0]["rules"], plain["rules"], strict=True):
        assert there["annotations"]["page"] == urls["LCM_PUBLIC_URL"] + here["annotations"]["page"]
        anchor = here["annotations"]["runbook"].removeprefix("docs/")
        assert there["annotations"]["runbook"] == urls["NOTIFY_DOCS_URL"] + anchor


def test_the_demo_is_one_pod_with_a_volume_and_a_token_of_its_own(chart: Chart) -> None:
    objects = chart.render({"demo": True, "settings": {"ETCD_ENDPOINTS": None}})
    (deployment,) = of_kind(objects, "Deployment")
    assert container(deployment)["args"] == ["up"]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    (claim,) = of_kind(objects, "PersistentVolumeClaim")
    (secret,) = of_kind(objects, "Secret")
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}} in volumes
    token = environment(deployment)["LCM_BOOTSTRAP_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert token == {"name": secret["metadata"]["name"], "key": "bootstrap-token"}
    assert len(secret["stringData"]["bootstrap-token"]) >= 32
    (service,) = of_kind(objects, "Service")
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_the_demo_can_have_a_secret_that_was_there_before(chart: Chart) -> None:
    """What renders the chart again and again cannot read the chart's own: it would replace the token each time."""
    objects = chart.render({"demo": True, "demoSecret": "mine"})
    assert not of_kind(objects, "Secret")
    (deployment,) = of_kind(objects, "Deployment")
    token = environment(deployment)["LCM_BOOTSTRAP_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert token == {"name": "mine", "key": "bootstrap-token"}
    assert chart.render({"demo": True, "demoSecret": "mine"}) == objects


def test_every_value_is_used() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    used = set(re.findall(r"(?:\.Values|\$values)\.([\w.]+)", text))
    own = set(re.findall(r"(?:\$own|\.own)\.([\w.]+)", text))
    components = {values for values, _ in COMPONENTS.values()}
    for path in leaves(yaml.safe_load((CHART / "values.yaml").read_text())):
        part, _, rest = path.partition(".")
        known = own if part in components else used
        name = rest if part in components else path
        assert any(name == each or name.startswith(f"{each}.") for each in known), path


def leaves(values: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{before}{name}.")
        else:
            yield before + name
