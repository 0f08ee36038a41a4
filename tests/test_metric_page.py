"""Tests of collector.metric_page."""

from __future__ import annotations

from collector.catalogue import LABELS, METRICS, label_names
from collector.metric_page import metrics_markdown


def test_every_metric_and_each_of_its_labels_is_on_the_page() -> None:
    lines = {line.split("|")[1].strip(): line for line in metrics_markdown().splitlines() if line.startswith("| `")}
    for metric in METRICS:
        line = lines[f"`{metric.name}`"]
        assert metric.help in line
        assert all(f"`{name}`" in line for name in label_names(metric))


def test_a_gauge_over_a_window_is_listed_with_its_observations() -> None:
    page = metrics_markdown()
    for metric in METRICS:
        assert (f"`{metric.name}_observations`" in page) == metric.kind.startswith("window_")


def test_closed_labels_list_their_values() -> None:
    page = metrics_markdown()
    for label in LABELS.values():
        if label.values is not None and any(name.endswith(label.name) for m in METRICS for name in m.labels):
            assert all(f"`{value}`" in page for value in label.values)


def test_rows_of_a_table_have_the_same_number_of_cells() -> None:
    counts: set[int] = set()
    for line in metrics_markdown().splitlines():
        if line.startswith("|"):
            counts.add(line.count("|"))
    assert counts == {5}
