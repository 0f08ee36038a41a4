"""Container, Compose, Prometheus and Kubernetes files fit the code and one another."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.cli import _parser
from collector.config import Settings, parse_address
from collector.config_file import VARIABLES
from collector.simulator.faults import FAULT_NAMES

from .files import COMPOSE, PROMETHEUS, ROOT, RULES, read_yaml
from .test_rules import run

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
KUBERNETES = ROOT / "deploy" / "kubernetes"
SERVICES: dict[str, dict[str, Any]] = read_yaml(COMPOSE)["services"]
PROVISIONING = ROOT / "dashboards" / "provisioning"
OURS = {"semhealth", "simulator", "traffic"}


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
    assert target == f"semhealth:{parse_address(Settings().admin)[1]}"
    assert 'up{job="semhealth"}' in RULES.read_text(encoding="utf-8")
    [endpoint] = read_yaml(KUBERNETES / "podmonitor.yaml")["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "semhealth"}]


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


@pytest.mark.parametrize("path", sorted(KUBERNETES.glob("*.yaml")), ids=lambda path: path.name)
def test_a_kubernetes_file_holds_one_object_with_kind_and_name(path: Path) -> None:
    [document] = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    assert document["apiVersion"]
    assert document["kind"]
    assert document["metadata"]["name"]
