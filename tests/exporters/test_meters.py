"""Meters: what they take shows as the same readings one by one do, whatever the numbers and labels, in any order."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from collector.catalogue import BY_NAME, METRICS, Metric, label_names, label_rules
from collector.labels import PLACE, reading_of
from collector.model import Place, Reading
from exporters import prometheus
from exporters.prometheus import PrometheusExporter
from exporters.series import Total

from .conftest import ManualClock

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
EXCHANGES = "semantic_health_exchanges_total"
TOKENS = "semantic_health_tokens_total"
DURATION = "semantic_health_operation_duration_seconds"
DROPPED = "semantic_health_readings_dropped_total"
HERE = ("r", "openai", "m", "chat")
TRACE = "0af7651916cd43dd8448eb211c80319c"

WORDS = st.sampled_from(["m", "other", "é", "x" * 200, "", "a\nb", "completed"])
PLACES = st.tuples(st.sampled_from("ab"), st.just("openai"), WORDS, st.just("chat"))
NUMBERS = st.floats(0.0, 5.0) | st.sampled_from([0.1, 0.2, 1.0, math.nan, math.inf, -1.0, 1e308])
Key = str | tuple[str, ...]


def free_labels(metric: Metric) -> list[int]:
    return [i for i, name in enumerate(label_names(metric)) if name not in PLACE]


@st.composite
def keys(draw: st.DrawFn) -> Key:
    metric = draw(st.sampled_from(METRICS))
    rules = [label_rules(metric)[i] for i in free_labels(metric)]
    said = [draw(st.sampled_from(rule.values[:3]) | WORDS if rule.values else WORDS) for rule in rules]
    wrong = draw(st.sampled_from([[], [], [], [], [], [], ["too many"]]))
    return (metric.name, *said, *wrong) if said or wrong else metric.name


MOMENTS = st.lists(
    st.tuples(
        PLACES, st.sampled_from([(), ("search",), ("é",), ("a\nb",), ("a", "b")]), st.none() | st.just(TRACE),
        st.lists(st.tuples(st.sampled_from(range(6)), NUMBERS), max_size=6), st.floats(0.0, 100.0), st.booleans(),
    ),
    max_size=12,
)  # fmt: skip


@settings(deadline=None, max_examples=60, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(keys(), min_size=6, max_size=6), MOMENTS, st.sampled_from([300, 900, 5000]))
def test_what_meters_take_shows_as_readings_do(pool: list[Key], moments: list[tuple], max_series: int) -> None:  # type: ignore[type-arg]
    clock = ManualClock()
    metered, alone = (PrometheusExporter(("team",), 300.0, max_series, clock) for _ in range(2))
    for place, extra, trace_id, told, seconds, is_looked_at in moments:
        clock.pass_time(seconds)
        meters = metered.meters(place, extra, trace_id)
        for number, value in told:
            meters[pool[number]](value)
            alone._meters.clear()  # nothing is known again
            alone.record_all([reading_of(place, pool[number], value)], extra, trace_id)
        if is_looked_at:
            metered.render(OPENMETRICS)
    for accept in ("", OPENMETRICS):  # lines in any order: refusals are counted when they are summed up
        (left, kind), (right, same) = metered.render(accept), alone.render(accept)
        assert (sorted(left.splitlines()), kind) == (sorted(right.splitlines()), same)


def test_labels_that_the_place_tells_are_not_said() -> None:
    assert reading_of(HERE, (EXCHANGES, "completed"), 1.0) == Reading(EXCHANGES, 1.0, (*HERE, "completed"))
    assert reading_of(HERE, (TOKENS, "input"), 3.0) == Reading(TOKENS, 3.0, ("r", "m", "input"))
    assert reading_of(HERE, DURATION, 3.0) == Reading(DURATION, 3.0, HERE)
    assert reading_of(None, (TOKENS, "r", "m", "input"), 3.0) == Reading(TOKENS, 3.0, ("r", "m", "input"))


@pytest.mark.parametrize("metric", [metric.name for metric in METRICS])
def test_too_few_and_too_many_labels_are_no_reading(exporter: PrometheusExporter, metric: str) -> None:
    free = len(free_labels(BY_NAME[metric]))
    for said in range(9):
        if said != free:
            exporter.meters(HERE)[(metric, *(["x"] * said))](1.0)
    assert exporter.registry.get_sample_value(DROPPED, {"metric": metric}) == 8


@given(st.lists(st.floats(0.0, 1e3), min_size=1, max_size=50), st.lists(st.integers(0, 50), max_size=5))
def test_a_sum_does_not_depend_on_when_somebody_looked(values: list[float], looks: list[int]) -> None:
    exporter = PrometheusExporter((), 300.0, 5000, ManualClock())
    expected = 0.0
    for number, value in enumerate(values):
        expected += value
        exporter.meters(HERE)[DURATION](value)
        if number in looks:
            exporter.render()
    labels = dict(zip(PLACE, HERE, strict=True))
    assert exporter.registry.get_sample_value(f"{DURATION}_sum", labels) == expected


def test_what_waits_is_bounded(exporter: PrometheusExporter) -> None:
    most = 0
    for _ in range(3 * prometheus.WAITING):
        exporter.meters(HERE)[DURATION](0.5)
        most = max(most, *(len(each.waiting) for each in exporter._sums))
    assert 2 <= most <= prometheus.WAITING


def test_meters_that_were_forgotten_go_on(exporter: PrometheusExporter) -> None:
    for number in range(prometheus.REMEMBERED * 5000 + 3):
        exporter.meters((f"{number}", "openai", "m", "chat"))
    meters: Place = HERE
    for _ in range(3):
        exporter.meters(meters)[DURATION](0.5)
        exporter._meters.clear()
    assert exporter.registry.get_sample_value(f"{DURATION}_count", dict(zip(PLACE, HERE, strict=True))) == 3.0


class Interrupted(list[float]):
    """Gets a value whenever it has just been copied, as from another thread."""

    def copy(self) -> list[float]:
        copied = super().copy()
        self.append(4.0)
        return copied


def test_a_value_that_comes_while_others_are_summed_up_stays() -> None:
    total = Total(has_exemplars=False, refuse=lambda number: None)
    total.waiting = Interrupted([1.0])
    for expected in (1.0, 5.0, 9.0):
        total.settle()
        assert total.value == expected


@pytest.fixture
def hurried_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurried_threads")
def test_looking_beside_meters_loses_nothing(exporter: PrometheusExporter) -> None:
    done = threading.Event()
    looks = 0

    def look() -> None:
        nonlocal looks
        while not done.is_set():
            exporter._settle()
            looks += 1
            if looks % 100 == 0:
                exporter.render()

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(40_000):
        meters = exporter.meters(HERE)
        meters[EXCHANGES, "completed"](1.0)
        meters[DURATION](0.25)
    done.set()
    thread.join()
    assert looks > 10
    samples = [sample for family in exporter.registry.collect() for sample in family.samples]
    assert sum(sample.value for sample in samples if sample.name == EXCHANGES) == 40_000
    assert sum(sample.value for sample in samples if sample.name == f"{DURATION}_count") == 40_000
    assert sum(sample.value for sample in samples if sample.name == f"{DURATION}_sum") == 10_000.0
