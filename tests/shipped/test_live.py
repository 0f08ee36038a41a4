"""The shipped files in a real Prometheus and a real Alertmanager, which scrape the real exporter.

Only times are shortened and addresses replaced; expressions, thresholds, routes and inhibitions are as shipped.
"""

from __future__ import annotations

import math
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import pytest
import yaml

from collector.app import SystemClock
from collector.catalogue import METRICS, Metric, label_rules
from collector.model import Reading
from exporters.prometheus import PrometheusExporter

from .files import ALERTMANAGER, PROMETHEUS, RULES, TEMPLATE, alerts, panel_expressions, read_yaml, recorded
from .promql import as_prometheus
from .servers import Receiver, Server, eventually, free_port, running

WINDOW = "8s"  # stands for $__rate_interval
PLAIN_VALUES = {  # what readings say of labels that are open
    "route": ("chat", "search"), "provider": ("openai",), "model": ("large",), "operation": ("chat",),
    "keyword": ("required",), "scope": ("tokens",), "window": ("minute",), "limiter": ("gateway",),
    "phase": ("prefill",), "slo": ("first_token",), "worker": ("0",), "version": ("0.1.0",),
    "metric": ("semantic_health_tokens_total",), "rule": ("retry_storm",),
    "header": ("x-ratelimit-mood",), "contract_rule": ("private",),
}  # fmt: skip


@dataclass(frozen=True)
class Stack:
    prometheus: Server
    alertmanager: Server
    receiver: Receiver


@pytest.fixture(scope="module")
def stack(needs_binary: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("stack")
    exporter = PrometheusExporter((), 300.0, 20_000, SystemClock())
    receiver = Receiver()
    stop = threading.Event()
    feeding = threading.Thread(target=feed, args=(exporter, stop), daemon=True)
    feeding.start()
    metrics = serve(exporter)
    routes = shortened_alertmanager(directory, receiver)
    try:
        port, cluster = free_port(), free_port()
        with (
            running(
                (needs_binary("prometheus-alertmanager"), f"--config.file={routes}",
                 f"--storage.path={directory / 'alertmanager'}", f"--web.listen-address=127.0.0.1:{port}",
                 f"--cluster.listen-address=127.0.0.1:{cluster}", "--cluster.settle-timeout=0s"),
                port, directory / "alertmanager.log",
            ) as alertmanager,
            prometheus(needs_binary("prometheus"), directory, metrics.server_address[1], alertmanager) as scraping,
        ):  # fmt: skip
            yield Stack(scraping, alertmanager, receiver)
    finally:
        stop.set()
        feeding.join(timeout=10)
        metrics.shutdown()
        metrics.server_close()
        receiver.close()


@pytest.fixture
def prometheus_server(stack: Stack) -> Server:
    """Prometheus once it has seen everything grow over a whole window."""
    eventually(
        lambda: stack.prometheus.query("min(count_over_time(up[60s])) > 24") != [],
        lambda: stack.prometheus.get("/api/v1/targets"),
    )
    return stack.prometheus


def feed(exporter: PrometheusExporter, stop: threading.Event) -> None:
    """Readings of every metric with every value of its closed labels, again and again."""
    for turn in count():
        for metric in METRICS:
            rules = label_rules(metric)
            choices = [rule.values or PLAIN_VALUES[rule.name] for rule in rules]
            for i in range(max((len(each) for each in choices), default=1)):
                labels = tuple(each[i % len(each)] for each in choices)
                exporter.record(Reading(metric.name, value_of(metric, turn), labels))
        if stop.wait(0.1):
            return


def value_of(metric: Metric, turn: int) -> float:
    if metric.name.endswith("_reset_timestamp_seconds"):
        return time.time() + 60.0
    if metric.name.endswith("_observed_timestamp_seconds"):
        return time.time()
    if metric.name == "semantic_health_rate_limit_limit":
        return 1000.0
    if metric.kind in {"counter", "window_ratio"} or metric.name.endswith(("_ready", "_info")):
        return 1.0
    return 0.1 + 0.1 * (turn % 8)


def serve(exporter: PrometheusExporter) -> ThreadingHTTPServer:
    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, content_type = exporter.render(self.headers.get("Accept", ""))
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def prometheus(binary: str, directory: Path, target: int, alertmanager: Server) -> AbstractContextManager[Server]:
    config = read_yaml(PROMETHEUS)
    config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"}
    config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [alertmanager.address]
    config["scrape_configs"] = [each for each in config["scrape_configs"] if each["job_name"] == "semhealth"]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{target}"]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    rules = read_yaml(RULES)
    for group in rules["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = "2s"
    (directory / "rules").mkdir()
    (directory / "rules" / RULES.name).write_text(yaml.safe_dump(rules))
    port = free_port()
    return running(
        (binary, f"--config.file={directory / 'prometheus.yml'}", f"--storage.tsdb.path={directory / 'data'}",
         f"--web.listen-address=127.0.0.1:{port}", "--rules.alert.resend-delay=1s"),
        port, directory / "prometheus.log",
    )  # fmt: skip


def shortened_alertmanager(directory: Path, receiver: Receiver) -> Path:
    text = ALERTMANAGER.read_text(encoding="utf-8").replace("127.0.0.1:9095", f"127.0.0.1:{receiver.port}")
    text = re.sub(r"(group_wait|group_interval): \w+", r"\1: 1s", text)
    shutil.copy(TEMPLATE, directory)
    path = directory / "alertmanager.yml"
    path.write_text(text)
    return path


# ---------------------------------------------------------------- tests


def test_every_rule_is_evaluated_without_an_error_and_every_recording_has_a_result(prometheus_server: Server) -> None:
    groups = prometheus_server.get("/api/v1/rules")["data"]["groups"]
    evaluated = [rule for group in groups for rule in group["rules"]]
    assert len(evaluated) == len(alerts()) + len(recorded())
    assert [(rule["name"], rule.get("lastError")) for rule in evaluated if rule["health"] != "ok"] == []
    for name in recorded():
        values = prometheus_server.query(name)
        assert values, name
        assert not any(math.isnan(value) for value in values), name


def test_every_panel_shows_numbers(prometheus_server: Server) -> None:
    # The exporter has no retired layer; test_live_panels.py brings one along.
    waiting = [(title, each) for title, each in panel_expressions() if "legacy_layer" not in each]

    def says_nothing(expression: str) -> bool:
        values = prometheus_server.query(as_prometheus(expression, WINDOW))
        return not any(math.isfinite(value) and value != 0.0 for value in values)

    def are_filled() -> bool:  # a limit that is being used up, say, is not so at every moment
        waiting[:] = [(title, each) for title, each in waiting if says_nothing(each)]
        return not waiting

    eventually(are_filled, lambda: waiting)


def test_alerts_reach_the_receivers_of_their_severity_with_what_is_needed_to_act(stack: Stack) -> None:
    receiver = stack.receiver
    eventually(
        lambda: (
            "SemhealthUpstreamErrors" in receiver.named("/pager")
            and "SemhealthUnobservedExchanges" in receiver.named("/tickets")
            and receiver.named("/dead-mans-switch") == {"SemhealthWatchdog"}
        ),
        lambda: receiver.alerts,
    )
    page = next(a for at, a in receiver.alerts if a["labels"]["alertname"] == "SemhealthUpstreamErrors")
    assert page["status"] == "firing"
    assert page["labels"]["route"] in page["annotations"]["description"]
    assert re.search(r"\d% of the exchanges with openai", page["annotations"]["description"])
    assert page["annotations"]["runbook_url"] == "alerts/runbooks/SemhealthUpstreamErrors.md"
    assert page["annotations"]["dashboard_url"] == f"/d/semhealth-overview?var-route={page['labels']['route']}"


def test_alerts_about_meaning_are_silent_while_the_upstream_fails_but_the_sidecars_own_are_not(stack: Stack) -> None:
    def suppressed() -> set[str]:
        return {
            alert["labels"]["alertname"]
            for alert in stack.alertmanager.get("/api/v2/alerts")
            if alert["status"]["inhibitedBy"]
        }

    expected = {
        "SemhealthValidityLow",
        "SemhealthContextRelevanceLow",
        "SemhealthAnswersTruncated",
        "SemhealthThrottled",
    }
    own = {
        "SemhealthUnobservedExchanges",
        "SemhealthSidecarDown",
        "SemhealthEmbedderNotReady",
        "SemhealthProcessRestarted",
    }
    eventually(lambda: suppressed() >= expected, suppressed)
    assert not suppressed() & own
