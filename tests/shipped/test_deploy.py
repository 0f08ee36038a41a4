"""Container, Compose, Prometheus and Kubernetes files fit the code and one another."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.cli import _parser
from collector.config import Settings, parse_address
from collector.config_file import VARIABLES
from collector.simulator.faults import FAULT_NAMES
from tools import build_prometheus_rule

from .files import COMPOSE, DASHBOARDS, KUBERNETES, PROMETHEUS, ROOT, RULES, read_yaml
from .test_rules import run

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
COLLECTOR = ROOT / "deploy" / "otel-collector.yml"
SERVICES: dict[str, dict[str, Any]] = read_yaml(COMPOSE)["services"]
PROVISIONING = ROOT / "dashboards" / "provisioning"
OURS = {"semhealth", "simulator", "traffic"}
ADMIN_PORT = parse_address(Settings().admin)[1]


def test_promtool_takes_the_prometheus_configuration_with_its_rules(
    needs_binary: Callable[[str], str], tmp_path: Path
) -> None:
    shutil.copy(PROMETHEUS, tmp_path)
    (tmp_path / "rules").mkdir()
    shutil.copytree(RULES.parent, tmp_path / "rules", dirs_exist_ok=True)  # as Compose mounts it
    said = run(needs_binary("promtool"), "check", "config", str(tmp_path / PROMETHEUS.name))
    assert "1 rule files found" in said


def test_prometheus_scrapes_the_sidecar_under_the_job_that_rules_and_dashboard_know() -> None:
    jobs = {each["job_name"]: each for each in read_yaml(PROMETHEUS)["scrape_configs"]}
    [target] = jobs["semhealth"]["static_configs"][0]["targets"]
    assert target == f"semhealth:{ADMIN_PORT}"
    assert 'up{job="semhealth"}' in RULES.read_text(encoding="utf-8")
    [endpoint] = read_yaml(KUBERNETES / "podmonitor.yaml")["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "semhealth"}]


def test_prometheus_scrapes_only_what_the_stack_starts_and_sends_alerts_to_its_alertmanager() -> None:
    settings = read_yaml(PROMETHEUS)
    targets = [
        target
        for job in settings["scrape_configs"]
        for targets in job["static_configs"]
        for target in targets["targets"]
    ]
    hosts = {target.split(":")[0] for target in targets}
    assert hosts == {"semhealth", "localhost", "alertmanager", "otel-collector"}
    assert hosts - {"localhost"} <= SERVICES.keys()
    assert "localhost:9090" in targets
    [alertmanager] = settings["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    assert alertmanager in targets
    assert f"127.0.0.1:{alertmanager.split(':')[1]}:9093" in SERVICES["alertmanager"]["ports"]


@pytest.mark.parametrize(
    ("reported", "called"),
    [
        ("semantic_validity", "legacy_layer_semantic_validity"),
        ("layer_semantic_validity", "legacy_layer_semantic_validity"),
        ("legacy_layer_semantic_validity", "legacy_layer_semantic_validity"),
    ],
)
def test_what_a_retired_layer_reports_is_called_so_once(reported: str, called: str) -> None:
    jobs = {each["job_name"]: each for each in read_yaml(PROMETHEUS)["scrape_configs"]}
    [rule] = jobs["legacy-layer"]["metric_relabel_configs"]
    assert rule["source_labels"] == [rule["target_label"]] == ["__name__"]
    renamed = re.fullmatch(rule["regex"], reported)  # Prometheus anchors the expression, too
    assert renamed is not None
    assert renamed.expand(rule["replacement"].replace("$", "\\")) == called


# ---------------------------------------------------------------- the image


def test_the_image_is_built_from_files_that_exist_and_that_reach_the_builder() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (?!--)(.+)$", text, re.MULTILINE) for name in line.split()[:-1]]
    assert len(copied) >= 8
    let_in = re.findall(r"^!(.+)$", (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert sorted(copied) == sorted(let_in)
    for name in copied:
        assert (ROOT / name).exists(), name


def test_the_image_runs_as_nobody_in_particular_and_says_when_it_is_well() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    [user] = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
    assert int(user) > 0
    assert re.search(r'^HEALTHCHECK .*CMD \["semhealth", "health"\]$', text, re.MULTILINE)
    assert text.rstrip().endswith('ENTRYPOINT ["semhealth"]\nCMD ["run"]')
    assert _parser().parse_args(["run"]).command == "run"
    assert _parser().parse_args(["health"]).command == "health"


def test_the_extras_of_the_image_exist_and_reach_pip() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    [extras] = re.findall(r"^ARG EXTRAS=(.*)$", text, re.MULTILINE)
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= offered.keys()
    build, image = text.split("FROM python", 2)[1:]
    assert "${EXTRAS:+[$EXTRAS]}" in build
    assert "ARG" not in image, "what is given to pip stays in the stage that is thrown away"


# ---------------------------------------------------------------- Compose


def test_docker_compose_takes_the_file(needs_binary: Callable[[str], str]) -> None:
    run(needs_binary("docker-compose"), "--file", str(COMPOSE), "--profile", "demo", "config", "--quiet")


def test_the_simulation_is_started_only_when_it_is_asked_for() -> None:
    assert {name for name, service in SERVICES.items() if "profiles" in service} == {"simulator", "traffic"}
    for service in SERVICES.values():
        assert "profiles" in service or "simulator" not in service.get("depends_on", {})


def test_ports_are_published_on_loopback_only_and_images_are_pinned() -> None:
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name}: {port}"
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]) or name in OURS
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"] is True
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"])


def test_every_service_says_how_it_is_asked_for_its_health_or_cannot() -> None:
    asked = {name: service.get("healthcheck") for name, service in SERVICES.items()}
    assert asked.pop("semhealth") is None  # that of its image
    cannot = {name for name, check in asked.items() if check == {"disable": True}}
    assert cannot == {"traffic", "otel-collector"}
    for name in asked.keys() - cannot:
        port = re.search(r"(?:127\.0\.0\.1:|'127\.0\.0\.1', )(\d+)", str(asked[name]["test"]))
        assert port is not None, name
        assert any(published.endswith(f":{port.group(1)}") for published in SERVICES[name]["ports"])


def test_grafana_has_no_password_to_guess() -> None:
    settings = SERVICES["grafana"]["environment"]
    assert settings["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert settings["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert not [key for key in settings if "PASSWORD" in key]


def test_what_is_mounted_exists_and_is_read_only() -> None:
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source, *rest = volume.split(":")
            if source.startswith("./"):
                assert (ROOT / source).exists(), f"{name}: {source}"
                assert rest[-1] == "ro"


def test_grafana_finds_what_is_provisioned_where_it_is_mounted() -> None:
    mounted = {target: ROOT / source for source, target, *_ in (v.split(":") for v in SERVICES["grafana"]["volumes"])}
    [provider] = read_yaml(PROVISIONING / "dashboards" / "semhealth.yml")["providers"]
    folder = mounted[provider["options"]["path"]]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (folder / Path(home).name).is_file()
    assert mounted["/etc/grafana/provisioning"] == PROVISIONING
    for source in read_yaml(PROVISIONING / "datasources" / "prometheus.yml")["datasources"]:
        host, port = re.fullmatch(r"http://(\w+):(\d+)", source["url"]).groups()  # type: ignore[union-attr]
        assert any(published.endswith(f":{port}") for published in SERVICES[host]["ports"])
    text = (PROVISIONING / "datasources" / "prometheus.yml").read_text(encoding="utf-8")
    # Grafana fills in $NAME; $$ is a dollar.
    named = set(re.findall(r"(?<!\$)\$(\w+)", text))
    assert named == {"SEMHEALTH_TRACE_URL"} & SERVICES["grafana"]["environment"].keys()
    assert "--enable-feature=exemplar-storage" in SERVICES["prometheus"]["command"]
    interval = read_yaml(PROVISIONING / "datasources" / "prometheus.yml")["datasources"][0]["jsonData"]["timeInterval"]
    assert interval == read_yaml(PROMETHEUS)["global"]["scrape_interval"]


def test_the_sidecar_is_told_only_what_it_understands() -> None:
    environment = SERVICES["semhealth"]["environment"]
    assert set(environment) <= set(VARIABLES)
    for key in ("SEMHEALTH_LISTEN", "SEMHEALTH_ADMIN"):
        parse_address(environment[key])
    faults = re.findall(r"--fault=(\w+)=([\d.]+)", " ".join(SERVICES["simulator"]["command"]))
    assert faults
    assert {name for name, _ in faults} <= set(FAULT_NAMES)


# ---------------------------------------------------------------- the OpenTelemetry Collector


def test_the_pipelines_of_the_collector_name_what_is_defined_and_all_of_it() -> None:
    settings = read_yaml(COLLECTOR)
    service = settings["service"]
    for kind in ("receivers", "processors", "exporters"):
        named = {name for pipeline in service["pipelines"].values() for name in pipeline[kind]}
        assert named == settings[kind].keys(), kind
    assert set(service["extensions"]) == settings["extensions"].keys()
    assert set(service["pipelines"]) == set(Settings().exporters.otlp.signals)
    for pipeline in service["pipelines"].values():
        assert pipeline["processors"][0] == "memory_limiter"


def test_the_sidecar_prometheus_and_the_published_ports_reach_the_collector() -> None:
    settings = read_yaml(COLLECTOR)
    protocols = settings["receivers"]["otlp"]["protocols"]
    ports = {name: parse_address(protocols[name]["endpoint"]) for name in protocols}
    ports["health"] = parse_address(settings["extensions"]["health_check"]["endpoint"])
    assert {host for host, _ in ports.values()} == {"0.0.0.0"}
    published = {f"127.0.0.1:{port}:{port}" for _, port in ports.values()}
    assert set(SERVICES["otel-collector"]["ports"]) == published
    endpoint = SERVICES["semhealth"]["environment"]["SEMHEALTH_OTLP_ENDPOINT"]
    assert endpoint == f"${{SEMHEALTH_OTLP_ENDPOINT:-http://otel-collector:{ports['http'][1]}}}"
    [reader] = settings["service"]["telemetry"]["metrics"]["readers"]
    own = reader["pull"]["exporter"]["prometheus"]
    jobs = {each["job_name"]: each for each in read_yaml(PROMETHEUS)["scrape_configs"]}
    assert own["host"] == "0.0.0.0"
    assert jobs["otel-collector"]["static_configs"][0]["targets"] == [f"otel-collector:{own['port']}"]


def test_the_collector_is_started_with_the_file_that_is_mounted() -> None:
    service = SERVICES["otel-collector"]
    [volume] = service["volumes"]
    source, target, mode = volume.split(":")
    assert (ROOT / source).resolve() == COLLECTOR
    assert mode == "ro"
    assert service["command"] == [f"--config={target}"]


@pytest.mark.parametrize("name", ["simulator", "traffic"])
def test_the_modules_of_the_demonstration_take_their_arguments(name: str) -> None:
    python, *module = SERVICES[name]["entrypoint"]
    assert python == "python"
    known = run(sys.executable, *module, "--help")
    for argument in SERVICES[name]["command"]:
        assert argument.split("=")[0] in known


# ---------------------------------------------------------------- Kubernetes


def test_the_sidecar_of_a_pod_starts_first_and_is_probed_where_the_proxy_answers() -> None:
    deployment = read_yaml(KUBERNETES / "deployment.yaml")
    pod = deployment["spec"]["template"]["spec"]
    [sidecar] = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    given = _parser().parse_args([part for argument in sidecar["args"] for part in argument.split("=", 1)])
    ports = {port["name"]: port["containerPort"] for port in sidecar["ports"]}
    assert parse_address(given.listen)[0] == "127.0.0.1"
    assert parse_address(given.health)[1] == ports["sh-health"]
    assert parse_address(given.admin)[1] == ports["sh-admin"]
    assert sidecar["startupProbe"]["httpGet"] == {"path": "/-/readyz", "port": "sh-health"}
    assert sidecar["readinessProbe"]["httpGet"] == {"path": "/-/readyz", "port": "sh-health"}
    assert sidecar["livenessProbe"]["httpGet"] == {"path": "/-/healthz", "port": "sh-health"}
    assert pod["terminationGracePeriodSeconds"] > Settings().proxy.drain_timeout
    [service] = pod["containers"]
    [base] = service["env"]
    assert base["value"] == f"http://{given.listen}/v1"


def test_port_names_are_such_as_kubernetes_takes_and_selectors_find_the_pod() -> None:
    template = read_yaml(KUBERNETES / "deployment.yaml")["spec"]["template"]
    ports = {port["name"]: port["containerPort"] for port in template["spec"]["initContainers"][0]["ports"]}
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?", name) for name in ports)
    monitor = read_yaml(KUBERNETES / "podmonitor.yaml")["spec"]
    policy = read_yaml(KUBERNETES / "networkpolicy.yaml")["spec"]
    for selector in (monitor["selector"], policy["podSelector"]):
        assert selector["matchLabels"].items() <= template["metadata"]["labels"].items()
    [endpoint] = monitor["podMetricsEndpoints"]
    assert endpoint["port"] in ports
    [for_prometheus] = [rule for rule in policy["ingress"] if "from" in rule]
    assert [port["port"] for port in for_prometheus["ports"]] == [ports["sh-admin"]]


def test_the_prometheus_rule_holds_the_rules_and_is_current() -> None:
    made = read_yaml(build_prometheus_rule.OBJECT)
    assert made["spec"] == read_yaml(RULES)
    assert build_prometheus_rule.main(["--check"]) == 0


def test_a_prometheus_rule_that_is_out_of_date_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "prometheusrule.yaml"
    old.write_text("spec: {}\n", encoding="utf-8")
    monkeypatch.setattr(build_prometheus_rule, "OBJECT", old)
    assert build_prometheus_rule.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().err
    assert old.read_text(encoding="utf-8") == "spec: {}\n"
    assert build_prometheus_rule.main([]) == 0
    assert read_yaml(old)["spec"] == read_yaml(RULES)


def test_every_dashboard_gets_a_config_map_that_grafana_and_kubectl_take() -> None:
    settings = read_yaml(ROOT / "dashboards" / "kustomization.yaml")
    maps = {each["name"]: each["files"] for each in settings["configMapGenerator"]}
    assert maps == {path.stem: [path.name] for path in DASHBOARDS}
    assert settings["generatorOptions"]["labels"] == {"grafana_dashboard": "1"}
    for path in DASHBOARDS:
        # `kubectl apply` keeps the whole object in an annotation, and annotations have 256 KiB in all.
        assert path.stat().st_size < 200_000


@pytest.mark.parametrize("path", sorted(KUBERNETES.glob("*.yaml")), ids=lambda path: path.name)
def test_a_kubernetes_file_holds_one_object_with_kind_and_name(path: Path) -> None:
    [document] = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    assert document["apiVersion"]
    assert document["kind"]
    assert document["metadata"]["name"]
