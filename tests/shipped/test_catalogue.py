"""Dashboards and rules name what the catalogue has, and between them they show all of it."""

from __future__ import annotations

import pytest

from collector.catalogue import METRICS, VALIDITY_CHECKED, label_names, label_rules
from collector.metric_page import metrics_markdown
from tools.expressions import TARGET_LABELS, labels_of, metric_of

from .files import ROOT, annotation_expressions, panel_expressions, recorded, rules
from .promql import APPEARED, RANGED, as_prometheus, labels_grouped, series_in

# Names that Prometheus itself makes, and labels that targets or configurations may bring.
PROMETHEUS_OWN = {"up", ""}  # no name: a pattern of names, of a retired layer's ghosts
FOREIGN_LABELS = {*TARGET_LABELS, "pod", "le", "__name__"}

EXPRESSIONS = [
    *((f"panel {title}", as_prometheus(expression)) for title, expression in panel_expressions()),
    *((f"annotation {name}", as_prometheus(expression)) for name, expression in annotation_expressions()),
    *((rule.get("alert") or rule["record"], rule["expr"]) for rule in rules()),
]


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_every_series_is_of_the_catalogue_and_every_label_one_of_its(where: str, expression: str) -> None:
    for each in series_in(expression):
        if each.name in PROMETHEUS_OWN or each.name in recorded():
            continue
        metric = metric_of(each.name)
        closed = {name: rule.values for name, rule in zip(label_names(metric), label_rules(metric), strict=True)}
        for label, values in each.values:
            assert label in labels_of(each.name), f"{where}: {each.name} has no label {label}"
            known = closed.get(label)
            assert known is None or set(values) <= set(known), f"{where}: {label} is never one of {values}"


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_every_label_that_is_grouped_by_is_a_label_of_what_is_grouped(where: str, expression: str) -> None:
    for labels, names in labels_grouped(expression):
        known = set(FOREIGN_LABELS)
        for name in names - PROMETHEUS_OWN:
            known |= _labels_behind(name)
        assert labels <= known, f"{where}: {labels - known} are labels of none of {names}"


def _labels_behind(name: str) -> set[str]:
    if name in recorded():
        return set().union(*(_labels_behind(each.name) for each in series_in(recorded()[name])))
    return set(labels_of(name))


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_counters_are_read_as_rates_and_gauges_never_are(where: str, expression: str) -> None:
    for each in series_in(expression):
        if each.name in PROMETHEUS_OWN or each.name in recorded():
            continue
        if f"unless last_over_time({each.name}" in expression and each.function in (None, "last_over_time"):
            continue  # a series that is new counts from its first count on
        counts = metric_of(each.name).kind in {"counter", "histogram"}
        assert each.function in {*RANGED, APPEARED} if counts else each.function not in RANGED, (
            f"{where}: {each.function}({each.name})"
        )


def test_every_metric_is_shown_in_a_panel_or_used_by_a_rule() -> None:
    used = {each.name for _, expression in EXPRESSIONS for each in series_in(expression)} - PROMETHEUS_OWN
    shown = {metric_of(name).name for name in used - recorded().keys()}
    assert {metric.name for metric in METRICS} - shown == set()


def test_rules_about_validity_count_as_checked_what_the_catalogue_does() -> None:
    named = [
        set(values)
        for expression in recorded().values()
        for each in series_in(expression)
        if each.name == "semantic_health_output_validations_total"
        for label, values in each.values
        if label == "result"
    ]
    assert len(named) >= 4
    for values in named:
        assert values in (set(VALIDITY_CHECKED), set(VALIDITY_CHECKED) - {"valid"})


def test_the_page_of_metrics_is_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == metrics_markdown(), "out of date: run semhealth metrics > docs/metrics.md"
