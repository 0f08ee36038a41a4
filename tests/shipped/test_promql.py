"""The reader that the other tests stand on sees what is in an expression."""

from __future__ import annotations

from .promql import Series, as_prometheus, labels_grouped, series_in

RATIO = 'sum by (route) (rate(a_total{x="1", y=~"p|q", z=~".+"}[5m])) / on (job) group_left (team) (b > 0)'


def test_every_selector_is_found_with_its_function_and_its_plain_values() -> None:
    assert series_in(RATIO) == [
        Series("a_total", (("x", ("1",)), ("y", ("p", "q")), ("z", ())), "rate"),
        Series("b", (), None),
    ]


def test_a_function_over_instants_is_not_the_range_function_of_what_is_inside() -> None:
    assert [each.function for each in series_in("histogram_quantile(0.5, a) + max_over_time(b[5m:1m])")] == [
        None,
        "max_over_time",
    ]


def test_what_was_not_there_before_is_told_from_what_is_read_as_it_stands() -> None:
    expression = "sum((a_total unless a_total offset 5m) or increase(a_total[5m])) + b_total unless c_total"
    assert [(each.name, each.function) for each in series_in(expression)] == [
        ("a_total", "unless"), ("a_total", "unless"), ("a_total", "increase"), ("b_total", None), ("c_total", None),
    ]  # fmt: skip


def test_labels_are_found_wherever_an_expression_groups_or_matches_by_them() -> None:
    assert labels_grouped(RATIO) == [({"job", "team"}, {"a_total", "b"}), ({"route"}, {"a_total"})]


def test_dashboard_variables_become_what_prometheus_understands() -> None:
    assert as_prometheus('rate(a{job=~"$job", route=~"${route}"}[$__rate_interval])', "4s") == (
        'rate(a{job=~".+", route=~".+"}[4s])'
    )
