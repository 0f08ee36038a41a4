"""The rules of Grafana's dashboard-linter, and what it does not ask for."""

from __future__ import annotations

import re
from typing import Any

import pytest

from collector.catalogue import BY_NAME
from tools import build_dashboards
from tools.dashboards import BAD, DOUBTFUL, GOOD
from tools.expressions import UnknownSeriesError, increase, latest, rate, select, weighted

from .files import DASHBOARDS, dashboards, panels
from .promql import as_prometheus, parse, series_in

UNITS = {"percentunit", "none", "short", "s", "reqps", "bytes", "currencyUSD"}
OVERVIEW = dashboards()[0]


def _titles(panel: dict[str, Any]) -> str:
    return str(panel["title"])


each_panel = pytest.mark.parametrize("panel", panels(), ids=_titles)


def test_the_files_are_what_the_builder_builds() -> None:
    assert {path: path.read_text(encoding="utf-8") for path in DASHBOARDS} == build_dashboards.built()


def test_the_check_names_a_dashboard_that_is_out_of_date_and_writing_mends_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_dashboards, "DASHBOARDS", tmp_path)
    (tmp_path / "semhealth-overview.json").write_text("{}")
    assert build_dashboards.main(["--check"]) == 1
    assert "semhealth-overview.json: out of date" in capsys.readouterr().err
    assert build_dashboards.main([]) == 0
    assert build_dashboards.main(["--check"]) == 0
    assert build_dashboards.main(["--wrong"]) == 2


def test_a_dashboard_has_a_stable_name_the_classic_schema_and_cannot_be_edited_in_place() -> None:
    assert OVERVIEW["uid"] == "semhealth-overview"
    assert len(OVERVIEW["uid"]) <= 40
    assert OVERVIEW["schemaVersion"] <= 41
    assert OVERVIEW["editable"] is False
    assert OVERVIEW["id"] is None
    assert "version" not in OVERVIEW


def test_variables_are_those_that_the_linter_asks_for_and_route_and_model() -> None:
    source, *others = OVERVIEW["templating"]["list"]
    assert (source["type"], source["name"], source["label"]) == ("datasource", "datasource", "Data source")
    assert [each["name"] for each in others] == ["job", "instance", "route", "model"]
    for each in others:
        assert each["label"] == each["name"]
        assert each["multi"]
        assert each["includeAll"]
        assert each["allValue"] == ".+"
        assert each["refresh"] == 2, "values must be asked again when the time range changes"
        assert each["datasource"]["uid"] == "${datasource}"
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", each["definition"])
        assert found is not None
        assert found[2] == each["name"]
        [series] = series_in(as_prometheus(found[1]))
        assert series.name in BY_NAME


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    numbers = [panel["id"] for panel in OVERVIEW["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in OVERVIEW["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_titles_are_told_apart() -> None:
    titles = [panel["title"] for panel in panels()]
    assert len(set(titles)) == len(titles)


@each_panel
def test_a_panel_says_what_it_shows_in_a_unit_from_the_chosen_source(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["targets"]
    letters = [target["refId"] for target in panel["targets"]]
    assert len(set(letters)) == len(letters)
    colours = {step["color"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]}
    assert colours <= {GOOD, DOUBTFUL, BAD}


@each_panel
def test_a_query_parses_follows_the_variables_and_the_scrape_interval(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        expression = target["expr"]
        parse(as_prometheus(expression))
        assert target["datasource"]["uid"] == "${datasource}"
        windows = re.findall(r"\[([^\]]+)\]", expression)
        assert set(windows) <= {"$__range" if panel["type"] == "table" else "$__rate_interval"}
        for selector in re.findall(r"\{([^}]*)\}", expression):
            assert 'job=~"$job"' in selector
            assert 'instance=~"$instance"' in selector
        assert target["instant"] is (panel["type"] in ("stat", "table")), "it shows now, not the last thing that was"
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        kept = {label for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(", ")}
        assert shown <= kept, "a legend names a label that the expression does not keep"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: rate("semantic_health_no_such_thing_total"),
        lambda: rate("semantic_health_tokens_total", "outcome"),
        lambda: rate("semantic_health_tokens_total", type="thoughts"),
        lambda: rate("semantic_health_model_load_ratio"),
        lambda: increase("semantic_health_context_relevance_score"),
        lambda: latest("max", "semantic_health_tokens_total"),
        lambda: weighted("semantic_health_model_load_ratio", "route"),
        lambda: select("semantic_health_tokens_total", worker="0"),
        lambda: select("semantic_health_context_relevance"),
    ],
)
def test_the_builder_refuses_what_the_catalogue_does_not_have(wrong: Any) -> None:
    with pytest.raises(UnknownSeriesError, match="semantic_health_"):
        wrong()
