"""Alerts tried with real faults, a real Prometheus and a real Alertmanager."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bench import paging
from collector.cli import main
from collector.drill.drill import Outcome, Quiet, Report, chosen, table
from collector.drill.faults import FAULTS
from collector.drill.stage import LEGACY_NAMES, DrillError, binaries
from collector.simulator.faults import FAULT_NAMES

from ..shipped.files import ALERTMANAGER, PROMETHEUS, RULES, alerts, read_yaml  # noqa: TID252 - the root is not on the path


def test_every_alert_has_a_fault_and_every_fault_an_alert() -> None:
    assert set(FAULTS) == set(alerts())


def test_the_faults_of_the_api_are_such_as_it_has() -> None:
    assert {each["fault"] for fault in FAULTS.values() for each in fault.api} <= set(FAULT_NAMES)
    for name, fault in FAULTS.items():
        assert fault.api or fault.asks or fault.act, f"{name}: nothing goes wrong"


def test_ghosts_are_named_as_the_shipped_configuration_does() -> None:
    [shipped] = [each for each in read_yaml(PROMETHEUS)["scrape_configs"] if each["job_name"] == "legacy-layer"]
    assert shipped["metric_relabel_configs"] == LEGACY_NAMES


def test_all_alerts_are_tried_where_none_is_named_and_an_unknown_one_is_refused() -> None:
    assert chosen(()) == tuple(FAULTS)
    assert chosen(("SemhealthWatchdog",)) == ("SemhealthWatchdog",)
    with pytest.raises(DrillError, match="no alert is called 'SemhealthMood'"):
        chosen(("SemhealthMood",))


def test_a_drill_without_its_programs_says_what_to_install(monkeypatch, capsys) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DrillError, match="prometheus and alertmanager not found on PATH; install them"):
        binaries()
    assert main(["drill", "SemhealthWatchdog"]) == 1
    assert capsys.readouterr().err.startswith("semhealth: prometheus and alertmanager not found")


def test_a_report_is_good_only_where_all_arrived_and_quiet_was_quiet() -> None:
    arrived, lost = Outcome(True, True, 4.2, ()), Outcome(True, False, None, ("SemhealthThrottled",))
    assert Report({"A": arrived}, Quiet(190.0, ())).is_good
    assert not Report({"A": arrived, "B": lost}, Quiet(190.0, ())).is_good
    assert not Report({"A": arrived}, Quiet(190.0, ("SemhealthThrottled",))).is_good
    said = table(Report({"A": arrived, "B": lost}, Quiet(190.0, ())))
    assert "4.2" in said
    assert "NO" in said
    assert "nothing fired" in said


def test_paging_is_measured_with_nothing_shortened() -> None:
    times = paging.as_shipped()
    stated = read_yaml(PROMETHEUS)["global"]
    assert (times.scrape, times.evaluation) == (stated["scrape_interval"], stated["evaluation_interval"])
    assert times.rules(read_yaml(RULES)) == read_yaml(RULES)
    assert times.routes(read_yaml(ALERTMANAGER)) == read_yaml(ALERTMANAGER)
    assert paging.critical() == [name for name, rule in alerts().items() if rule["labels"]["severity"] == "critical"]
    # 5 minutes with three bad tenths are 90 s of a fault, and 30 minutes with a tenth must not be there before.
    assert 90.0 / (times.warm + 90.0) < 0.1


def test_a_page_that_is_late_or_never_came_is_said_so() -> None:
    soon, late, never = (Outcome(True, took is not None, took, ()) for took in (101.4, 181.0, None))
    said = paging.table(Report({"Never": never, "Late": late, "Soon": soon}, Quiet(0.0, ()))).splitlines()
    assert said[2:] == ["| Soon | 101 | yes |", "| Late | 181 | NO |", "| Never | never | NO |"]


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_drill_of_a_few_alerts(needs_binary: Callable[[str], str], capsys, monkeypatch) -> None:
    for name in ("prometheus", "prometheus-alertmanager"):
        needs_binary(name)
    monkeypatch.setenv("SEMHEALTH_ADMIN_TOKEN", "of-another-sidecar")  # with it, the scrapes would be refused
    monkeypatch.setenv("SEMHEALTH_WORKERS", "no number")
    names = ["SemhealthValidityLow", "SemhealthUpstreamErrors", "SemhealthProcessRestarted", "SemhealthWatchdog"]
    assert main(["drill", "--json", "--quiet", "8", *names]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said) == {"alerts", "quiet"}
    assert set(said["alerts"]) == set(names)
    assert said["quiet"]["others"] == []
    for each in said["alerts"].values():
        assert set(each) == {"fired", "delivered", "seconds", "others"}
        assert each["fired"] is each["delivered"] is True
        assert 0 <= each["seconds"] < 60
    assert said["alerts"]["SemhealthValidityLow"]["others"] == []
