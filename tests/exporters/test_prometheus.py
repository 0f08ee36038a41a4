"""The one registry: what readings become, what is bounded, what vanishes, and that it always parses."""

from __future__ import annotations

import math
import statistics
import subprocess
import threading
from collections.abc import Callable
from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from collector.catalogue import BY_NAME, ERROR_KINDS, METRICS, OUTCOMES, UNOBSERVED_REASONS, label_names, label_rules
from collector.model import Reading
from exporters.prometheus import REMEMBERED, PrometheusExporter, clean_label
from exporters.series import LARGEST, SLICE_READINGS, Moment, Slice, Spread, Window, median

from .conftest import ManualClock

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
VALIDITY = "semantic_health_model_output_validity_rate"
RELEVANCE = "semantic_health_context_relevance_score"
CONTINUITY = "semantic_health_stream_continuity_index_seconds"
EXCHANGES = "semantic_health_exchanges_total"
DURATION = "semantic_health_operation_duration_seconds"
DROPPED = "semantic_health_readings_dropped_total"
OVERFLOW = "semantic_health_label_overflow_total"
RATE_LIMIT = ("semantic_health_rate_limit_limit", "semantic_health_rate_limit_remaining",
              "semantic_health_rate_limit_observed_timestamp_seconds")  # fmt: skip
RESET = "semantic_health_rate_limit_reset_timestamp_seconds"

Make = Callable[..., PrometheusExporter]


def refused(number: int) -> None:
    raise AssertionError(f"{number} readings were refused")


def value(exporter: PrometheusExporter, name: str, **labels: str) -> float | None:
    return exporter.registry.get_sample_value(name, labels)


def values_of(exporter: PrometheusExporter, label: str) -> set[str]:
    return {
        sample.labels[label]
        for family in exporter.registry.collect()
        for sample in family.samples
        if label in sample.labels
    }


def lines(exporter: PrometheusExporter) -> int:
    return sum(not line.startswith(b"#") for line in exporter.render()[0].splitlines())


def ended(model: str = "m", outcome: str = "completed", route: str = "r", amount: float = 1.0) -> Reading:
    return Reading(EXCHANGES, amount, (route, "openai", model, "chat", outcome))


# ---------------------------------------------------------------- kinds


def test_a_counter_adds_up(exporter: PrometheusExporter) -> None:
    for _ in range(3):
        exporter.record(ended(amount=2.0))
    assert (
        value(exporter, EXCHANGES, route="r", provider="openai", model="m", operation="chat", outcome="completed") == 6
    )


def test_a_histogram_counts_into_the_bounds_of_the_catalogue(exporter: PrometheusExporter) -> None:
    for seconds in (0.005, 0.3, 1_000.0):
        exporter.record(Reading(DURATION, seconds, ("r", "openai", "m", "chat")))
    labels = {"route": "r", "provider": "openai", "model": "m", "operation": "chat"}
    assert value(exporter, f"{DURATION}_bucket", le="0.005", **labels) == 1
    assert value(exporter, f"{DURATION}_bucket", le="0.32", **labels) == 2
    assert value(exporter, f"{DURATION}_bucket", le="+Inf", **labels) == 3
    assert value(exporter, f"{DURATION}_sum", **labels) == pytest.approx(1_000.305)


def test_a_gauge_keeps_its_last_value_and_may_be_negative(exporter: PrometheusExporter) -> None:
    for number in (5.0, -1.0):
        exporter.record(Reading("semantic_health_rate_limit_remaining", number, ("r", "openai", "requests", "minute")))
    assert value(exporter, "semantic_health_rate_limit_remaining",
                 route="r", provider="openai", scope="requests", window="minute") == -1.0  # fmt: skip


def test_a_count_that_no_exchange_brings_can_be_added(exporter: PrometheusExporter) -> None:
    exporter.add("semantic_health_forwarded_total", 7)
    exporter.add("semantic_health_unobserved_total", 2, ("queue_full",))
    assert value(exporter, "semantic_health_forwarded_total") == 7
    assert value(exporter, "semantic_health_unobserved_total", reason="queue_full") == 2


def test_metrics_with_a_route_carry_the_configured_labels_and_others_do_not(make_exporter: Make) -> None:
    exporter = make_exporter(("team", "app"))
    exporter.record(Reading(VALIDITY, 1.0, ("r", "m"), ("search", "web")))
    exporter.record(Reading(VALIDITY, 0.0, ("r", "m")))  # said by someone who knows no such labels
    exporter.add("semantic_health_refused_total", 1, ("no_route",))
    assert value(exporter, VALIDITY, route="r", model="m", team="search", app="web") == 1.0
    assert value(exporter, VALIDITY, route="r", model="m", team="unknown", app="unknown") == 0.0
    assert value(exporter, "semantic_health_refused_total", reason="no_route") == 1


def test_readings_of_one_exchange_are_taken_as_if_each_had_come_alone(make_exporter: Make) -> None:
    labels = ("r", "openai", "tokens", "minute")
    told = [
        ended(),
        Reading(DURATION, 0.3, ("r", "openai", "m", "chat")),
        Reading("semantic_health_rate_limit_remaining", -1.0, labels),
        Reading(VALIDITY, 2.0, ("r", "m")),  # no ratio
        Reading(VALIDITY, 1.0, ("r", "m")),
        Reading(EXCHANGES, float("nan"), ended().labels),
        Reading(EXCHANGES, 1.0, ("r",)),
        Reading("semantic_health_of_nothing", 1.0),
    ]
    together, alone = make_exporter(("team",)), make_exporter(("team",))
    for _ in range(3):
        together.record_all(iter(told), ("search",), "0" * 32)
        for reading in told:
            alone.record(msgspec.structs.replace(reading, extra=("search",)), "0" * 32)
    assert together.render(OPENMETRICS) == alone.render(OPENMETRICS)
    assert value(together, DROPPED, metric=VALIDITY) == 3
    where = dict(zip(label_names(BY_NAME[EXCHANGES]), ended().labels, strict=True))
    assert value(together, EXCHANGES, team="search", **where) == 3


def test_readings_of_one_exchange_are_of_one_moment(
    exporter: PrometheusExporter, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for name in ("monotonic", "wall"):
        was = getattr(clock, name)
        monkeypatch.setattr(clock, name, lambda name=name, was=was: (asked.append(name), was())[1])
    exporter.record_all(
        Reading(name, 5.0, ("r", "openai", scope, "minute")) for name in RATE_LIMIT for scope in ("requests", "tokens")
    )
    assert sorted(asked) == ["monotonic", "wall"]


@pytest.mark.parametrize("name", ["model", "reason", "le", "__name__", "a-b", "", "1a"])
def test_a_configured_label_with_an_impossible_name_is_refused(make_exporter: Make, name: str) -> None:
    if name == "reason":
        name = "route"
    with pytest.raises(ValueError, match="label"):
        make_exporter((name,))


def test_a_configured_label_cannot_come_twice(make_exporter: Make) -> None:
    with pytest.raises(ValueError, match="taken"):
        make_exporter(("team", "team"))


# ---------------------------------------------------------------- windows


def test_a_ratio_is_good_by_all_of_the_window_with_its_observations(
    exporter: PrometheusExporter, clock: ManualClock
) -> None:
    for number in (1.0, 1.0, 0.0, 1.0):
        exporter.record(Reading(VALIDITY, number, ("r", "m")))
        clock.pass_time(10)
    assert value(exporter, VALIDITY, route="r", model="m") == 0.75
    assert value(exporter, f"{VALIDITY}_observations", route="r", model="m") == 4


def test_a_window_that_is_empty_has_neither_value_nor_observations(
    exporter: PrometheusExporter, clock: ManualClock
) -> None:
    exporter.record(Reading(CONTINUITY, 0.02, ("r", "m")))
    clock.pass_time(290)
    assert value(exporter, CONTINUITY, route="r", model="m") == 0.02
    clock.pass_time(10)
    assert value(exporter, CONTINUITY, route="r", model="m") is None
    assert value(exporter, f"{CONTINUITY}_observations", route="r", model="m") is None
    exporter.record(Reading(CONTINUITY, 0.04, ("r", "m")))
    assert value(exporter, CONTINUITY, route="r", model="m") == 0.04


def test_old_readings_leave_a_window_that_goes_on(exporter: PrometheusExporter, clock: ManualClock) -> None:
    exporter.record(Reading(RELEVANCE, 0.1, ("r", "m")))
    clock.pass_time(200)
    exporter.record(Reading(RELEVANCE, 0.9, ("r", "m")))
    assert value(exporter, RELEVANCE, route="r", model="m") == 0.5
    clock.pass_time(150)
    assert value(exporter, RELEVANCE, route="r", model="m") == 0.9
    assert value(exporter, f"{RELEVANCE}_observations", route="r", model="m") == 1


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 1e6)), min_size=1, max_size=200))
def test_the_median_is_exact_over_the_window_while_all_readings_are_kept(steps: list[tuple[float, float]]) -> None:
    clock = ManualClock()
    window = Window(5.0, SLICE_READINGS, LARGEST, refused)
    told: list[tuple[float, float]] = []
    for step, number in steps:
        clock.pass_time(step)
        window.add(number, Moment(clock.monotonic(), clock.wall()))
        told.append((clock.monotonic(), number))
    now = clock.monotonic()
    inside = [number for at, number in told if at // 5.0 > now // 5.0 - 60]
    slices = window.slices(now)
    assert median(slices) == statistics.median(inside)
    assert sum(piece.count for piece in slices) == len(inside)


def test_a_busy_window_keeps_a_bounded_sample_and_counts_everything() -> None:
    window = Window(5.0, SLICE_READINGS, LARGEST, refused)
    for i in range(20_000):
        window.add(i / 20_000, Moment(1_000.0 + i * 0.01, 0.0))
    slices = window.slices(1_199.99)
    assert sum(piece.count for piece in slices) == 20_000
    assert all(len(piece.kept) <= SLICE_READINGS for piece in slices)
    assert len(slices) <= 60
    assert median(slices) == pytest.approx(0.5, abs=0.02)


def test_in_a_sampled_median_a_slice_weighs_as_many_readings_as_it_had() -> None:
    assert median([Slice(0, 300, 0.0, [1.0] * 100), Slice(1, 100, 0.0, [9.0] * 100)]) == 1.0
    assert median([Slice(0, 100, 0.0, [1.0] * 100), Slice(1, 300, 0.0, [9.0] * 100)]) == 9.0


def test_a_ratio_takes_nothing_above_one(exporter: PrometheusExporter) -> None:
    for number in (1.0, 1.5):
        exporter.record(Reading(VALIDITY, number, ("r", "m")))
    assert value(exporter, VALIDITY, route="r", model="m") == 1.0
    assert value(exporter, DROPPED, metric=VALIDITY) == 1


def test_a_window_that_is_no_time_is_refused(make_exporter: Make) -> None:
    with pytest.raises(ValueError, match="window"):
        make_exporter(window=0.0)


# ---------------------------------------------------------------- gauges that vanish


def test_a_gauge_vanishes_when_it_was_not_set_for_as_long_as_it_lives(
    exporter: PrometheusExporter, clock: ManualClock
) -> None:
    exporter.record(Reading("semantic_health_model_load_ratio", 0.4, ("r", "m")))
    exporter.record(Reading("semantic_health_build_info", 1.0, ("1",)))
    clock.pass_time(299)
    assert value(exporter, "semantic_health_model_load_ratio", route="r", model="m") == 0.4
    exporter.record(Reading("semantic_health_model_load_ratio", 0.5, ("r", "m")))
    clock.pass_time(299)
    assert value(exporter, "semantic_health_model_load_ratio", route="r", model="m") == 0.5
    clock.pass_time(1)
    assert value(exporter, "semantic_health_model_load_ratio", route="r", model="m") is None
    assert value(exporter, "semantic_health_build_info", version="1") == 1.0


@pytest.mark.parametrize("order", [1, -1])
def test_a_rate_limit_vanishes_when_it_is_full_again_and_no_other_with_it(
    exporter: PrometheusExporter, clock: ManualClock, order: int
) -> None:
    def state(scope: str, reset_after: float | None) -> None:
        readings = [Reading(name, 3.0, ("r", "openai", scope, "minute")) for name in RATE_LIMIT]
        if reset_after is not None:
            readings.append(Reading(RESET, clock.wall() + reset_after, ("r", "openai", scope, "minute")))
        for reading in readings[::order]:
            exporter.record(reading)

    def shown(scope: str) -> int:
        labels = {"route": "r", "provider": "openai", "scope": scope, "window": "minute"}
        return sum(value(exporter, name, **labels) is not None for name in (*RATE_LIMIT, RESET))

    state("requests", 20.0)
    state("tokens", 60.0)
    state("images", None)
    assert (shown("requests"), shown("tokens"), shown("images")) == (4, 4, 3)
    clock.pass_time(20)
    assert (shown("requests"), shown("tokens"), shown("images")) == (0, 4, 3)
    state("requests", None)  # stated anew, with no reset: the old one says nothing about it
    assert shown("requests") == 3
    state("requests", 20.0)
    assert shown("requests") == 4
    clock.pass_time(300)
    assert (shown("requests"), shown("tokens"), shown("images")) == (0, 0, 0)


# ---------------------------------------------------------------- counters that start at 0


def test_counters_of_closed_label_sets_start_at_zero(exporter: PrometheusExporter) -> None:
    for metric in METRICS:
        rules = label_rules(metric)
        if metric.kind == "counter" and all(rule.values is not None for rule in rules):
            for combination in product(*(rule.values or () for rule in rules)):
                labels = dict(zip(label_names(metric), combination, strict=True))
                assert value(exporter, metric.name, **labels) == 0, (metric.name, labels)
    assert {value(exporter, "semantic_health_unobserved_total", reason=r) for r in UNOBSERVED_REASONS} == {0}


def test_a_gauge_and_a_window_show_nothing_before_their_first_reading(exporter: PrometheusExporter) -> None:
    kinds = {"gauge", "window_ratio", "window_median"}
    names = {metric.name for metric in METRICS if metric.kind in kinds}
    assert not [s for f in exporter.registry.collect() if f.name in names for s in f.samples]


def test_with_a_models_first_exchange_every_outcome_and_error_of_it_starts_at_zero(
    exporter: PrometheusExporter,
) -> None:
    exporter.record(ended("gpt", "completed"))
    labels = {"route": "r", "provider": "openai", "model": "gpt"}
    outcomes = {o: value(exporter, EXCHANGES, operation="chat", outcome=o, **labels) for o in OUTCOMES}
    assert outcomes == {outcome: float(outcome == "completed") for outcome in OUTCOMES}
    for kind, source in product(ERROR_KINDS, ("upstream", "sidecar")):
        told = value(exporter, "semantic_health_errors_total", route="r", provider="openai", kind=kind, source=source)
        assert told == 0
    assert value(exporter, "semantic_health_anomalies_total", route="r", anomaly="usage_missing") == 0
    assert value(exporter, "semantic_health_tokens_total", route="r", model="gpt", type="output") == 0


def test_a_large_closed_set_starts_at_zero_in_its_last_label(exporter: PrometheusExporter) -> None:
    name = "semantic_health_output_validations_total"
    exporter.record(Reading(name, 1.0, ("r", "m", "json", "valid")))
    assert value(exporter, name, route="r", model="m", kind="json", result="not_json") == 0
    assert value(exporter, name, route="r", model="m", kind="contract", result="valid") is None


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize("metric", [DURATION, EXCHANGES, VALIDITY, CONTINUITY, "semantic_health_model_load_ratio"])
def test_what_is_no_finite_number_is_dropped_and_counted(exporter: PrometheusExporter, metric: str) -> None:
    labels = {DURATION: ("r", "openai", "m", "chat"), EXCHANGES: ("r", "openai", "m", "chat", "completed")}
    is_gauge = BY_NAME[metric].kind == "gauge"
    bad = [math.nan, math.inf, -math.inf, 10**400, *([] if is_gauge else [-0.2])]
    for warm in (False, True):
        if warm:
            exporter.record(Reading(metric, 1.0, labels.get(metric, ("r", "m"))))
        for number in bad:
            exporter.record(Reading(metric, number, labels.get(metric, ("r", "m"))))
    assert value(exporter, DROPPED, metric=metric) == 2 * len(bad)
    text = exporter.render()[0].decode()
    assert not any(line.endswith(("NaN", " +Inf", " -Inf")) for line in text.splitlines())


def test_a_reading_that_the_catalogue_does_not_know_is_dropped_and_counted(exporter: PrometheusExporter) -> None:
    exporter.record(Reading("semantic_health_nonsense", 1.0))
    exporter.record(Reading(VALIDITY, 1.0, ("r",)))
    assert value(exporter, DROPPED, metric="other") == 1
    assert value(exporter, DROPPED, metric=VALIDITY) == 1


def test_a_thousand_made_up_models_become_a_hundred_and_other(exporter: PrometheusExporter) -> None:
    for i in range(1_000):
        exporter.record(ended(f"junk-{i}"))
    models = values_of(exporter, "model")
    assert len(models) == 101
    assert "other" in models
    assert value(exporter, EXCHANGES, route="r", provider="openai", model="other", operation="chat",
                 outcome="completed") == 900  # fmt: skip
    assert value(exporter, OVERFLOW, metric=EXCHANGES) == 900


def test_a_model_that_is_kept_is_kept_in_every_metric(exporter: PrometheusExporter) -> None:
    for i in range(100):
        exporter.record(ended(f"m{i}"))
    exporter.record(Reading(VALIDITY, 1.0, ("r", "late")))
    exporter.record(Reading(VALIDITY, 1.0, ("r", "m99")))
    assert value(exporter, VALIDITY, route="r", model="other") == 1.0
    assert value(exporter, VALIDITY, route="r", model="m99") == 1.0


def test_a_word_outside_a_closed_set_becomes_other(exporter: PrometheusExporter) -> None:
    exporter.record(ended(outcome="exploded"))
    assert value(exporter, EXCHANGES, route="r", provider="openai", model="m", operation="chat", outcome="other") == 1
    assert value(exporter, OVERFLOW, metric=EXCHANGES) == 1


@pytest.mark.parametrize("max_series", [1_500, 2_500, 5_000])
def test_the_bound_on_series_holds_and_nothing_goes_uncounted(make_exporter: Make, max_series: int) -> None:
    exporter = make_exporter(("team",), max_series=max_series)
    for i in range(400):
        labels = (f"route{i % 20}", "openai", f"model{i % 90}", "chat")
        team = (f"team{i % 7}",)
        exporter.record(Reading(EXCHANGES, 1.0, (*labels, "completed"), team))
        exporter.record(Reading(DURATION, 1.0, labels, team))
        exporter.record(Reading(CONTINUITY, 1.0, (labels[0], labels[2]), team))
    assert lines(exporter) <= max_series
    by_name: dict[str, float] = {}
    for family in exporter.registry.collect():
        for sample in family.samples:
            by_name[sample.name] = by_name.get(sample.name, 0.0) + sample.value
    assert by_name[EXCHANGES] == 400
    assert by_name[f"{DURATION}_count"] == 400
    assert by_name[f"{CONTINUITY}_observations"] == 400
    assert by_name[OVERFLOW] > 0
    assert by_name[DROPPED] == 0


def test_memory_of_what_readings_said_does_not_grow_with_new_words(exporter: PrometheusExporter) -> None:
    for i in range(3_000):
        exporter.record(ended(f"{i}" + "x" * 200, route="r\x00" * (1 + i % 50)))
        exporter.meters((f"{i}", "openai", f"{i}" + "x" * 200, "chat"))["semantic_health_anomalies_total", "x"](1.0)
    assert sum(1 + len(meters) for meters in exporter._meters.values()) <= REMEMBERED * 5_000
    assert len(exporter._known["model"]) <= 100
    assert lines(exporter) <= 5_000


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_any_text_becomes_a_label_that_every_format_can_carry(text: str) -> None:
    cleaned = clean_label(text)
    assert 0 < len(cleaned.encode()) <= 128
    assert cleaned.isprintable()
    if text.isprintable() and 0 < len(text.encode("utf-8", "replace")) <= 128:
        assert cleaned == text


def test_a_long_label_is_cut_between_characters() -> None:
    assert clean_label("é" * 100) == "é" * 64
    assert clean_label("\ud800") == "invalid"
    assert clean_label("a\nb") == "invalid"
    assert clean_label("") == "unknown"


# ---------------------------------------------------------------- rendering

NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1)
WORDS = st.text(max_size=8) | st.sampled_from(["m", "other", 'a"b\\c', "\udfff", "json", "completed"])


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    metric = draw(st.sampled_from(METRICS))
    labels = tuple(draw(st.sampled_from(rule.values) | WORDS if rule.values else WORDS) for rule in label_rules(metric))
    return Reading(metric.name, draw(NUMBERS), labels, draw(st.sampled_from([(), ("search",), ("é",), ("a", "b")])))


@settings(deadline=None, max_examples=60)
@given(st.lists(readings(), max_size=40), st.floats(0, 400))
def test_any_readings_render_and_parse_in_both_formats(given_readings: list[Reading], later: float) -> None:
    clock = ManualClock()
    exporter = PrometheusExporter(("team",), 300.0, 5_000, clock)
    for reading in given_readings:
        exporter.record(reading)
    clock.pass_time(later)
    for accept, parse in (("", parse_text), (OPENMETRICS, parse_openmetrics)):
        body, _ = exporter.render(accept)
        samples = [sample for family in parse(body.decode()) for sample in family.samples]
        assert len({(s.name, tuple(sorted(s.labels.items()))) for s in samples}) == len(samples)
        assert not any(math.isnan(s.value) for s in samples)
        assert all(0 < len(v.encode()) <= 128 for s in samples for v in s.labels.values())
        assert not any(s.name.endswith("_created") for s in samples)


@pytest.mark.parametrize(
    ("accept", "starts"),
    [
        ("", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0"),
        ("application/openmetrics-text; version=one.two", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version", "application/openmetrics-text; version=1.0.0"),
    ],
)
def test_the_format_is_the_one_that_the_scrape_asks_for(exporter: PrometheusExporter, accept: str, starts: str) -> None:
    body, content_type = exporter.render(accept)
    assert content_type.startswith(starts)
    assert body.endswith(b"# EOF\n") == content_type.startswith("application/openmetrics")


def test_rendering_in_a_thread_goes_on_beside_recording(exporter: PrometheusExporter) -> None:
    faults: list[Exception] = []
    done = threading.Event()
    rendered = 0

    def render() -> None:
        nonlocal rendered
        try:
            while not done.is_set():
                list(parse_text(exporter.render()[0].decode()))
                rendered += 1
        except Exception as fault:  # noqa: BLE001 - shown by the assertion below
            faults.append(fault)

    thread = threading.Thread(target=render)
    thread.start()
    for i in range(5_000):
        exporter.record(ended(f"m{i % 60}", route=f"r{i % 3}"))
        exporter.record(Reading(CONTINUITY, 0.01, (f"r{i % 3}", f"m{i % 60}")))
        exporter.record(Reading("semantic_health_model_load_ratio", 0.5, ("r", f"m{i % 60}")))
    done.set()
    thread.join()
    assert not faults
    assert rendered > 0
    assert sum(s.value for f in exporter.registry.collect() for s in f.samples if s.name == EXCHANGES) == 5_000


def test_two_threads_lose_no_count(exporter: PrometheusExporter) -> None:
    def count() -> None:
        for i in range(5_000):
            exporter.record(ended(f"m{i % 40}"))

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(s.value for f in exporter.registry.collect() for s in f.samples if s.name == EXCHANGES) == 15_000


def test_promtool_has_nothing_to_say_about_the_metrics(make_exporter: Make, needs_binary: Callable[[str], str]) -> None:
    exporter = make_exporter(("team",))
    for metric in METRICS:
        labels = tuple(rule.values[0] if rule.values else "x" for rule in label_rules(metric))
        exporter.record(Reading(metric.name, 1.0, labels, ("search",)))
    body, _ = exporter.render()
    for metric in METRICS:
        assert f"\n{metric.name}".encode() in body, metric.name
    checked = subprocess.run(
        [needs_binary("promtool"), "check", "metrics"], input=body, capture_output=True, timeout=30, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


@given(st.lists(st.floats(0.0, 3.0), max_size=50))
def test_a_reading_lies_in_the_first_bucket_whose_bound_it_does_not_pass(values: list[float]) -> None:
    bounds = (0.5, 1.0, 2.0)
    spread = Spread(bounds, has_exemplars=False, refuse=refused)
    for value in values:
        spread.add(value, Moment(0.0, 0.0))
    counts, total = spread.read()
    below = [sum(value <= bound for value in values) for bound in bounds]
    assert counts == [*below, len(values)]
    assert total == pytest.approx(sum(values))
