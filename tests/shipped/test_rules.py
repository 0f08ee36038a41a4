"""Rules, their unit tests, and the runbooks they send people to."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from collector import catalogue
from collector.admin.server import FILTERS

from .files import ROOT, RULE_TESTS, RULES, RUNBOOKS, alerts, dashboards, read_yaml, recorded
from .promql import parse, series_in

SEVERITIES = {"critical", "warning", "info"}
KNOWN_VALUES = {"outcome": catalogue.OUTCOMES, "validity": catalogue.VALIDITY_RESULTS}
RECORD_NAME = re.compile(r"^(route|instance)(_[a-z]+)?:semantic_health_[a-z_]+:[a-z_]+[0-9]+[mhd]$")

WINDOWS = {  # of alerts that look further than 30 minutes
    "SemhealthObjectiveBurnsFast": [{"5m", "30m", "1h", "6h"}],
    "SemhealthObjectiveBurnsSlowly": [{"2h", "6h", "1d", "3d"}],
    "SemhealthObjectiveMissed": [{"5m", "1h"}],
    "SemhealthContextRelevanceFallen": [{"5m", "30m", "1d"}],
    "SemhealthGroundednessFallen": [{"5m", "30m", "1d"}],
}

each_alert = pytest.mark.parametrize(("name", "rule"), alerts().items())


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_the_rules(needs_binary: Callable[[str], str]) -> None:
    assert "SUCCESS" in run(needs_binary("promtool"), "check", "rules", str(RULES))


@pytest.mark.parametrize("path", RULE_TESTS, ids=lambda path: path.name)
def test_the_unit_tests_of_the_rules_pass(path: Path, needs_binary: Callable[[str], str]) -> None:
    assert "SUCCESS" in run(needs_binary("promtool"), "test", "rules", str(path))


@each_alert
def test_every_alert_is_tried_with_what_fires_it_and_with_what_does_not(name: str, rule: dict[str, Any]) -> None:
    tried = [
        bool(check["exp_alerts"])
        for path in RULE_TESTS
        for test in read_yaml(path)["tests"]
        for check in test["alert_rule_test"]
        if check["alertname"] == name
    ]
    assert True in tried
    assert False in tried or rule["expr"] == "vector(1)"


@each_alert
def test_an_alert_says_how_bad_what_why_and_where_to_read_on(name: str, rule: dict[str, Any]) -> None:
    assert name.startswith("Semhealth")
    assert rule["labels"]["severity"] in SEVERITIES
    said = rule["annotations"]
    assert set(said) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert said["summary"].endswith(".")
    assert "{{" not in said["summary"], "a summary is the same for every instance of an alert"
    assert said["description"].endswith(".")
    assert said["runbook_url"] == f"alerts/runbooks/{name}.md"
    assert (ROOT / said["runbook_url"]).is_file()
    dashboard = urlsplit(said["dashboard_url"])
    [shown] = [each for each in dashboards() if dashboard.path == f"/d/{each['uid']}"]
    variables = {f"var-{each['name']}" for each in shown["templating"]["list"]}
    assert {key for key, _ in parse_qsl(dashboard.query)} <= variables
    parse(rule["expr"])


@each_alert
def test_an_alert_about_a_share_has_two_windows_and_a_floor_of_traffic(name: str, rule: dict[str, Any]) -> None:
    read = {each.name for each in series_in(rule["expr"])}
    about_shares = [each for each in read if re.search(r":(ratio_|median|mean)", each)]
    if not about_shares:
        assert not re.search(r"_per_\w+:", rule["expr"])
        return
    windows = {re.sub(r".*[a-z](\d+[mhd])$", r"\1", each) for each in about_shares}
    assert windows in WINDOWS.get(name, [{"5m", "30m"}]), "one window tells that it matters, a shorter that it is so"
    floors = re.findall(r"(?:increase|count)(?:\d+[mhd]|\(.*\[30m\]\)) >= \d+", rule["expr"])
    assert floors, "no floor of traffic"
    assert rule["expr"].strip().rstrip(") ").endswith(floors[-1])


def test_recording_rules_are_named_by_level_metric_and_operation_and_all_are_used() -> None:
    used = {each.name for rule in alerts().values() for each in series_in(rule["expr"])}
    used |= {each.name for expression in recorded().values() for each in series_in(expression)}
    for name in recorded():
        assert RECORD_NAME.match(name), name
        assert name in used, f"{name} is recorded for nobody"


def test_every_runbook_belongs_to_an_alert_and_has_the_same_parts() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(alerts())
    for name, rule in alerts().items():
        page = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# {name}\n\n**Severity:** {rule['labels']['severity']}.")
        assert "## Meaning" in page
        assert "## Impact" in page
        assert "## What to do" in page
        if name != "SemhealthWatchdog":
            assert "## When it is false" in page


def test_the_records_that_runbooks_ask_for_can_be_asked_for() -> None:
    asked = [
        (path.stem, key, value)
        for path in RUNBOOKS.glob("*.md")
        for query in re.findall(r":9464/records\?([^' ]+)", path.read_text(encoding="utf-8"))
        for key, value in parse_qsl(query)
    ]
    assert len({name for name, _, _ in asked}) >= 7
    for name, key, value in asked:
        assert key in (*FILTERS, "limit"), f"{name}: {key}"
        assert value in KNOWN_VALUES.get(key, (value,)), f"{name}: {key}={value}"


def test_the_list_of_alerts_in_the_readme_is_complete_and_its_severities_right() -> None:
    page = (ROOT / "alerts" / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| (Semhealth\w+) \| (\w+) \|", page, re.MULTILINE))
    assert listed == {name: rule["labels"]["severity"] for name, rule in alerts().items()}
