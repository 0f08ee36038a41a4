"""Every panel shows something when a real sidecar sees the demonstration's traffic with every fault switched on."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tools.draw_dashboards import Tally, page
from tools.scene import Scene, playing

from .files import ROOT, annotation_expressions, dashboards

SECONDS = 36.0


@pytest.fixture(scope="module")
def scene(needs_binary: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    needs_binary("prometheus")
    with playing(tmp_path_factory.mktemp("scene"), SECONDS) as played:
        yield played


def says_something(values: Iterable[float]) -> bool:
    return any(math.isfinite(value) and value != 0.0 for value in values)


@pytest.mark.slow
@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda each: str(each["uid"]))
def test_every_panel_shows_numbers(dashboard: dict[str, Any], scene: Scene) -> None:
    silent = []
    for panel in dashboard["panels"]:
        values: list[float] = []
        targets = panel.get("targets", [])
        for target in targets:
            if target["instant"]:
                values += [value for _, value in scene.now(target["expr"])]
            else:
                values += [value for _, points in scene.range(target["expr"]) for _, value in points]
        if targets and not says_something(values):
            silent.append((panel["title"], values[:5]))
    assert silent == []


@pytest.mark.slow
def test_annotations_are_answered(scene: Scene) -> None:
    for _, expression in annotation_expressions():
        scene.range(expression)  # it raises where Prometheus refuses it


@pytest.mark.slow
def test_the_row_of_a_route_answers_its_six_questions_from_that_route_alone(scene: Scene) -> None:
    [overview] = [each for each in dashboards() if each["uid"] == "semhealth-overview"]
    row = [panel for panel in overview["panels"][1:7] if panel["type"] == "stat"]
    assert len(row) == 6
    for panel in row:
        for target in panel["targets"]:
            found = scene.now(scene.filled(target["expr"], route="chat"))
            assert [labels for labels, _ in found] == [{"route": "chat"}], panel["title"]
            several = {labels["route"] for labels, _ in scene.now(target["expr"])}
            # Only this route states a budget.
            assert several == {"chat"} if panel["title"] == "On budget" else several >= {"chat", "search"}


@pytest.mark.slow
def test_exemplars_of_real_exchanges_can_be_asked_for(scene: Scene) -> None:
    found = scene.exemplars("semantic_health_operation_duration_seconds_bucket")
    assert found
    assert all(len(each) == 32 for each in found), "trace ids are 32 hexadecimal digits"


@pytest.mark.slow
@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda each: str(each["uid"]))
def test_a_picture_shows_every_panel_and_counts_those_with_numbers(dashboard: dict[str, Any], scene: Scene) -> None:
    tally = Tally()
    drawn, height = page(dashboard, scene, tally)
    titles = [panel["title"] for panel in dashboard["panels"] if panel["type"] != "row"]
    assert all(f"<b>{html.escape(title)}</b>" in drawn for title in titles)
    assert tally.panels == len(titles)
    # The first route's row may show a remaining share of 0.
    assert tally.panels_with_numbers >= len(titles) - 1
    assert height > 26 * max(panel["gridPos"]["y"] for panel in dashboard["panels"])


def test_the_docs_show_a_picture_of_every_dashboard_and_say_what_it_is_not() -> None:
    page_of_docs = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    for dashboard in dashboards():
        picture = ROOT / "docs" / "img" / f"{dashboard['uid']}.png"
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < 600_000
        assert f"](img/{picture.name})" in page_of_docs
    assert "have not been opened in a Grafana" in page_of_docs
