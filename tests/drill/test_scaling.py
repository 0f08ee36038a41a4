"""Durations of rules are shortened, and nothing else of them changes."""

from __future__ import annotations

from typing import Any

import pytest
from promql_parser import MatrixSelector, SubqueryExpr, VectorSelector, parse, walk

from collector.drill.scaling import (
    longest_window,
    scaled,
    scaled_alertmanager,
    scaled_expression,
    scaled_rules,
    scaled_seconds,
    seconds_of,
    told_at,
)

from ..shipped.files import ALERTMANAGER, RULES, read_yaml, rules  # noqa: TID252 - the root is not on the path


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("rate(x[5m])", "rate(x[6000ms])"),
        ("x offset 5m", "x offset 6000ms"),
        ("x offset -5m", "x offset -6000ms"),
        ("max_over_time(rate(x[5m])[1h:5m])", "max_over_time(rate(x[6000ms])[16212ms:6000ms])"),
        ("max_over_time(x[5m:])", "max_over_time(x[6000ms:])"),
        ('x{a="[5m] offset 5m"} > 5', 'x{a="[5m] offset 5m"} > 5'),
        ("x5m:ratio_rate5m > 300", "x5m:ratio_rate5m > 300"),
        ("x # [5m]", "x # [5m]"),
    ],
)
def test_durations_stand_in_brackets_and_after_offset_alone(before: str, after: str) -> None:
    assert scaled_expression(before) == after


def test_longer_durations_stay_longer_and_none_is_too_short_to_be_seen() -> None:
    ordered = ["15s", "30s", "1m", "2m", "5m", "10m", "30m", "1h", "2h", "6h", "1d", "3d"]
    lasting = [scaled_seconds(seconds_of(each)) for each in ordered]
    assert lasting == sorted(set(lasting))
    assert lasting[0] >= 1.0
    assert 2 * lasting[-1] <= 185.0  # the quiet run of a drill fills it twice
    assert scaled_seconds(0.0) == 0.0


@pytest.mark.parametrize("text", ["", "5", "m5", "5 m", "-5m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        scaled(text)


def _parts(expression: str) -> tuple[list[str], list[float]]:
    """What an expression is made of but its durations, as the parser of Prometheus' language sees it; and those."""
    shape: list[str] = []
    lasting: list[float] = []

    def visit(node: Any) -> None:
        shape.append(type(node).__name__)
        match node:
            case VectorSelector():
                shape.append(f"{node.name} {[(m.name, str(m.op), m.value) for m in node.matchers.matchers]}")
                if node.offset is not None:
                    lasting.append(node.offset.total_seconds())
            case MatrixSelector():
                lasting.append(node.range.total_seconds())
                visit(node.vector_selector)
            case SubqueryExpr():
                lasting.append(node.range.total_seconds())
        for name in ("op", "val", "func"):
            if hasattr(node, name):
                said = getattr(node, name)
                shape.append(str(getattr(said, "name", said)))

    walk(parse(expression), visit)
    return shape, lasting


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_shipped_rule_keeps_all_but_its_durations(rule: dict[str, Any]) -> None:
    before, after = _parts(rule["expr"]), _parts(scaled_expression(rule["expr"]))
    assert before[0] == after[0]
    assert after[1] == pytest.approx([scaled_seconds(each) for each in before[1]], abs=0.001)


def test_scaled_rules_differ_in_times_alone() -> None:
    made = [rule for group in scaled_rules(read_yaml(RULES))["groups"] for rule in group["rules"]]
    assert len(made) == len(rules())
    for before, after in zip(rules(), made, strict=True):
        assert before.keys() == after.keys()
        for key in before.keys() - {"expr", "for", "keep_firing_for"}:
            assert before[key] == after[key]
    assert longest_window(read_yaml(RULES)) == pytest.approx(scaled_seconds(3 * 86400.0))


def test_alertmanager_keeps_its_routes_and_inhibitions_and_tells_one_receiver() -> None:
    before = read_yaml(ALERTMANAGER)
    after = told_at(scaled_alertmanager(before), "http://127.0.0.1:1")
    assert after["inhibit_rules"] == before["inhibit_rules"]
    assert [each["name"] for each in after["receivers"]] == [each["name"] for each in before["receivers"]]
    assert {key for each in after["receivers"] for key in each} == {"name", "webhook_configs"}
    matchers = [(route["matchers"], route["receiver"]) for route in before["route"]["routes"]]
    assert [(route["matchers"], route["receiver"]) for route in after["route"]["routes"]] == matchers
