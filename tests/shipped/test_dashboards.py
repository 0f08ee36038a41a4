"""The rules of Grafana's dashboard-linter, and what it does not ask for."""

from __future__ import annotations

import re
from typing import Any

import pytest

from collector.catalogue import BY_NAME
from tools import build_dashboards
from tools.dashboards.grafana import BAD, DOUBTFUL, GOOD, PALETTE
from tools.expressions import (
    UnknownSeriesError,
    appeared,
    events,
    exhaustion,
    has_exemplars,
    increase,
    latest,
    rate,
    select,
    weighted,
)

from .files import DASHBOARDS, annotation_expressions, dashboards, panels
from .promql import as_prometheus, parse, series_in

UNITS = {"percentunit", "none", "short", "s", "reqps", "bytes", "currencyUSD"}
NAMES = {
    "semhealth-overview", "semhealth-semantic", "semhealth-streams", "semhealth-upstream", "semhealth-limits",
    "semhealth-sidecar",
}  # fmt: skip
OVERVIEW = next(each for each in dashboards() if each["uid"] == "semhealth-overview")


def _titles(panel: dict[str, Any]) -> str:
    return str(panel["title"])


each_dashboard = pytest.mark.parametrize("dashboard", dashboards(), ids=lambda each: str(each["uid"]))
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


def test_there_are_six_and_each_file_is_named_after_what_links_know_it_by() -> None:
    assert {each["uid"] for each in dashboards()} == NAMES
    assert [path.stem for path in DASHBOARDS] == [each["uid"] for each in dashboards()]
    assert len({each["title"] for each in dashboards()}) == len(NAMES)


@each_dashboard
def test_a_dashboard_has_a_stable_name_the_classic_schema_and_cannot_be_edited_in_place(
    dashboard: dict[str, Any],
) -> None:
    assert len(dashboard["uid"]) <= 40
    assert dashboard["schemaVersion"] <= 41
    assert dashboard["editable"] is False
    assert dashboard.get("id") is None
    assert "version" not in dashboard
    assert dashboard["description"].endswith((".", "?"))
    assert dashboard["refresh"] == "30s"


@each_dashboard
def test_a_dashboard_links_to_the_others_and_takes_time_and_variables_along(dashboard: dict[str, Any]) -> None:
    [link] = dashboard["links"]
    assert link["type"] == "dashboards"
    assert link["includeVars"]
    assert link["keepTime"]
    assert all(set(link["tags"]) <= set(each["tags"]) for each in dashboards())


@each_dashboard
def test_variables_are_those_that_the_linter_asks_for_and_route_and_model(dashboard: dict[str, Any]) -> None:
    source, *others = dashboard["templating"]["list"]
    assert (source["type"], source["name"], source["label"]) == ("datasource", "datasource", "Data source")
    all_of_them = ["job", "instance", "route", "model"]
    # The sidecar's own metrics have no route.
    wanted = all_of_them[:2] if dashboard["uid"] == "semhealth-sidecar" else all_of_them
    assert [each["name"] for each in others] == wanted
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


@each_dashboard
def test_no_panel_follows_a_variable_that_its_dashboard_does_not_have(dashboard: dict[str, Any]) -> None:
    known = {each["name"] for each in dashboard["templating"]["list"]}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            followed = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval", "__range"}
            assert followed <= known, panel["title"]


@each_dashboard
def test_panels_have_numbers_of_their_own_and_do_not_overlap(dashboard: dict[str, Any]) -> None:
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_overview_has_a_row_a_route_that_answers_six_questions() -> None:
    first, *rest = OVERVIEW["panels"]
    assert (first["type"], first["repeat"], first["title"]) == ("row", "route", "$route")
    after = next(i for i, panel in enumerate(rest) if panel["type"] == "row")
    asked = [panel["title"] for panel in rest[:after]]
    assert asked == ["Valid", "Relevant", "Smooth", "Fast", "Within quota", "On budget"]
    for panel in rest[:after]:
        for target in panel["targets"]:
            assert "by (route" in target["expr"]
            assert 'route=~"$route"' in target["expr"]


@pytest.mark.parametrize(("name", "expression"), annotation_expressions())
def test_an_annotation_parses_and_follows_the_variables(name: str, expression: str) -> None:
    parse(as_prometheus(expression))
    for selector in re.findall(r"\{([^}]*)\}", expression):
        assert 'job=~"$job"' in selector, name
        assert 'route=~"$route"' in selector, name


def test_model_changes_are_marked_on_every_dashboard_about_models() -> None:
    marked = {each["uid"] for each in dashboards() if each["annotations"]["list"]}
    assert marked == NAMES - {"semhealth-sidecar"}


@each_panel
def test_exemplars_are_asked_for_where_a_metric_has_them(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        drawn = panel["type"] in ("timeseries", "heatmap")
        assert target["exemplar"] is (drawn and has_exemplars(target["expr"])), panel["title"]


def test_exemplars_lead_from_each_kind_of_headline_to_traces() -> None:
    asked = " ".join(target["expr"] for panel in panels() for target in panel["targets"] if target["exemplar"])
    for name in ("context_relevance", "stream_gap_stddev_seconds", "operation_duration_seconds"):
        assert f"semantic_health_{name}_bucket" in asked
    assert "semantic_health_output_validations_total" in asked


@each_panel
def test_fixed_colours_are_those_that_colour_blind_people_can_tell_apart(panel: dict[str, Any]) -> None:
    for override in panel["fieldConfig"]["overrides"]:
        for each in override["properties"]:
            if each["id"] == "color":
                assert each["value"]["fixedColor"] in PALETTE
            elif each["id"] == "custom.hideFrom":
                assert override["matcher"]["options"]["reducer"] == "allIsZero"
                assert not each["value"]["viz"], "zeros are drawn; only their names are left out"
            else:
                assert (each["id"], each["value"]["fill"] != "solid") == ("custom.lineStyle", True)


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
        lambda: events("semantic_health_findings_total", rule="no_such_rule"),
        lambda: exhaustion("semantic_health_tokens_total", "route"),
        lambda: appeared("semantic_health_model_load_ratio", "route", "model"),
    ],
)
def test_the_builder_refuses_what_the_catalogue_does_not_have(wrong: Any) -> None:
    with pytest.raises(UnknownSeriesError, match="semantic_health_"):
        wrong()
