"""What the upstream says of itself: phases, load, caches, places and ids."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Headers, TraceParent, UpstreamFacts
from collector.signals.upstream import (
    MAX_PHASES,
    ORCA_NAMES,
    as_the_provider_said,
    client_request_id,
    is_deprecated,
    load_is_unreadable,
    orca,
    served_model,
    server_timing,
    trace_id,
    trace_parent,
    upstream_facts,
)


def facts(*lines: tuple[str, str], request: Headers | None = None) -> UpstreamFacts:
    return upstream_facts(request if request is not None else Headers(), Headers(lines))


def test_a_trace_detail_gives_phases_and_the_hit_ratio_of_the_cache() -> None:
    detail = {
        "queue_time_ms": 12,
        "prefill_time_ms": 80.5,
        "decode_time_ms": 400,
        "kv_cache_hit_rate": 0.85,
        "more": {},
    }
    told = facts(("x-trace-detail", json.dumps(detail)))
    assert told.phases == {"queue": 0.012, "prefill": 0.0805, "decode": 0.4}
    assert told.kv_cache_hit_ratio == 0.85


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "x" * 20_000, '{"queue_time_ms":"12"}', '{"queue_time_ms":-1}', '{"queue_time_ms":NaN}',
     '{"queue_time_ms":1e300,"kv_cache_hit_rate":85}', '{"queue_time_ms":true}', "[" * 10_000],
)  # fmt: skip
def test_a_trace_detail_that_is_junk_says_nothing(text: str) -> None:
    assert facts(("x-trace-detail", text)) == UpstreamFacts()


def test_timing_headers_are_phases_in_seconds() -> None:
    told = facts(
        ("openai-processing-ms", "412"), ("x-envoy-upstream-service-time", "400"), ("x-queue-time", "3"),
        ("x-kong-proxy-latency", "junk"), ("x-total-time", "99999999999999"),
    )  # fmt: skip
    assert told.processing == 0.412
    assert told.phases == {"upstream_service": 0.4, "queue": 0.003}


def test_server_timing_keeps_its_names_beside_the_others() -> None:
    told = facts(("x-queue-time", "3"), ("server-timing", 'Queue;dur=9, cfL4;desc="a, b;dur=7";dur=1.5, miss'))
    assert told.phases == {"queue": 0.003, "cfl4": 0.0015}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a;dur=1", [("a", 0.001)]), ('a;desc="x";dur="2"', [("a", 0.002)]), ("a ; dur = 3 ;x=1", [("a", 0.003)]),
        ("a;DUR=4", [("a", 0.004)]), ("a;dur=1;dur=2", [("a", 0.001)]), ("a", []), ("a;dur=", []), ("a;dur=-1", []),
        ("a b;dur=5", []), (";dur=5", []), ('a;desc=";dur=5"', []), ("a;duration=5", []), ("", []),
        ("a;dur=1,,b;dur=2", [("a", 0.001), ("b", 0.002)]),
    ],
)  # fmt: skip
def test_server_timing_entries_have_a_name_and_a_duration(value: str, expected: list[tuple[str, float]]) -> None:
    assert server_timing([value]) == expected


def test_a_flood_of_phases_is_bounded() -> None:
    assert len(facts(*(("server-timing", f"p{n};dur=1") for n in range(500))).phases) == MAX_PHASES


@pytest.mark.parametrize("text", [
    "TEXT named_metrics.kv_cache_usage_perc=0.42, named_metrics.num_requests_waiting=3.0",
    "named_metrics.kv_cache_usage_perc=4.2e-1,num_requests_waiting=3",
    "text kv_cache_usage_perc:0.42,num_requests_waiting:3,unknown=1,cpu_utilization=nan",
    'JSON {"named_metrics": {"kv_cache_usage_perc": 0.42, "num_requests_waiting": 3}, "cpu_utilization": "x"}',
    '{"kv-cache-usage-perc": 0.42, "num_requests_waiting": 3, "mem_utilization": 1e308, "eps": Infinity}',
])  # fmt: skip
def test_a_load_report_is_text_or_json_with_or_without_its_prefix(text: str) -> None:
    assert orca(text) == {"kv_cache_usage_perc": 0.42, "num_requests_waiting": 3.0}
    assert not load_is_unreadable(Headers((("endpoint-load-metrics", text),)))


@pytest.mark.parametrize("text", ["FOO x", "BIN AAAA", "JSON {", "", "TEXT", "x" * 20_000, "JSON " + "[" * 5000, "a=b"])
def test_what_is_no_load_report_says_nothing_and_is_said(text: str) -> None:
    assert orca(text) == {}
    assert load_is_unreadable(Headers((("endpoint-load-metrics", text),)))


@pytest.mark.parametrize(
    ("text", "load", "unreadable"),
    [("0.75", 0.75, False), ("0", 0.0, False), ("1.7", None, True), ("high", None, True)],
)
def test_a_model_load_is_a_ratio(text: str, load: float | None, unreadable: bool) -> None:
    assert facts(("x-model-load", text)).model_load == load
    assert load_is_unreadable(Headers((("x-model-load", text),))) is unreadable
    assert not load_is_unreadable(Headers())


@pytest.mark.parametrize(
    ("report", "load"),
    [
        ("TEXT application_utilization=0.75", 0.75),
        ('JSON {"application_utilization": 1.4, "cpu_utilization": 0.1}', 1.0),
        ("TEXT cpu_utilization=0.9", None),
        ("TEXT application_utilization=NaN", None),
    ],
)
def test_without_a_model_load_the_application_of_a_load_report_counts(report: str, load: float | None) -> None:
    assert facts(("endpoint-load-metrics", report)).model_load == load
    assert facts(("endpoint-load-metrics", report), ("x-model-load", "0.25")).model_load == 0.25


@pytest.mark.parametrize(
    ("text", "hit"), [("true", True), ("HIT", True), ("1", True), ("false", False), ("miss", False), ("?", None)]
)
def test_a_cache_hit_is_a_flag(text: str, hit: bool | None) -> None:
    assert facts(("x-cache-hit", text)).cache_hit is hit


def test_places_and_ids_are_bounded_words() -> None:
    request = Headers((("x-data-residency", "eu"), ("x-client-request-id", "c-1")))
    told = facts(
        ("x-ms-region", "West Europe"), ("x-request-id", "<REQUEST_ID>"), ("request-id", "req_1"), request=request
    )
    assert (told.region, told.residency_requested, told.request_id) == ("West Europe", "eu", "req_1")
    assert client_request_id(request) == "c-1"
    assert facts(("x-region", "x" * 41), request=Headers((("x-data-residency", "a/b"),))) == UpstreamFacts()


def test_a_served_model_may_stand_in_a_header() -> None:
    assert served_model(Headers((("openai-model", " m-1 "),))) == "m-1"
    assert served_model(Headers((("x-trace-detail", '{"model_name":"m-2"}'),))) == "m-2"
    assert served_model(Headers((("openai-model", "x" * 200), ("x-trace-detail", '{"model_name":3}')))) is None


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", True), (f"01-{'a' * 32}-{'b' * 16}-01-more", True),
        (f"ff-{'a' * 32}-{'b' * 16}-01", False), (f"00-{'0' * 32}-{'b' * 16}-01", False),
        (f"00-{'a' * 32}-{'0' * 16}-01", False), (f"00-{'A' * 32}-{'b' * 16}-01", False), ("", False),
    ],
)  # fmt: skip
def test_a_trace_id_comes_out_of_a_valid_traceparent_only(text: str, valid: bool) -> None:
    assert trace_id(Headers((("traceparent", text),))) == ("a" * 32 if valid else None)


@pytest.mark.parametrize(
    ("flags", "is_sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)]
)
def test_a_trace_parent_tells_whether_the_client_samples(flags: str, is_sampled: bool) -> None:
    lines = (("traceparent", f"00-{'a' * 32}-{'b' * 16}-{flags}"), ("tracestate", "x=1"), ("tracestate", "y=2"))
    assert trace_parent(Headers(lines)) == TraceParent("a" * 32, "b" * 16, is_sampled, "x=1,y=2")


def test_a_trace_state_that_is_too_long_is_left_out() -> None:
    lines = (("traceparent", f"00-{'a' * 32}-{'b' * 16}-01"), ("tracestate", "x" * 513))
    assert trace_parent(Headers(lines)) == TraceParent("a" * 32, "b" * 16, True, "")


def test_fireworks_counts_in_seconds_where_there_is_a_fraction() -> None:
    told = facts(
        ("fireworks-server-time-to-first-token", "0.25"), ("fireworks-server-processing-time", "1.5"),
        ("fireworks-prefill-duration", "0.125"), ("fireworks-prefill-queue-duration", "0.0"),
        ("fireworks-generation-queue-duration", "0"),
    )  # fmt: skip
    assert told.phases == {"first_token": 0.25, "total": 1.5, "prefill": 0.125, "queue": 0.0, "decode_queue": 0.0}


def test_a_bare_number_of_fireworks_could_be_two_units_and_is_neither() -> None:
    assert facts(("fireworks-server-time-to-first-token", "150"), ("fireworks-prefill-duration", "soon")).phases == {}


def test_gateways_state_their_share_in_milliseconds() -> None:
    told = facts(
        ("x-litellm-response-duration-ms", "1250.5"), ("x-litellm-overhead-duration-ms", "12.5"),
        ("x-kong-upstream-latency", "96"), ("x-kong-proxy-latency", "20"), ("x-kong-response-latency", "18"),
    )  # fmt: skip
    assert told.phases == pytest.approx({
        "litellm_response": 1.2505, "litellm_overhead": 0.0125, "kong_upstream": 0.096, "kong_proxy": 0.02,
        "kong_response": 0.018,
    })  # fmt: skip


def test_text_generation_inference_counts_in_milliseconds() -> None:
    told = facts(
        ("x-total-time", "6237"), ("x-validation-time", "0"), ("x-queue-time", "22"), ("x-inference-time", "6214"),
        ("x-time-per-token", "12"), ("x-compute-time", "6237"),
    )  # fmt: skip
    assert told.phases == {"total": 6.237, "validation": 0.0, "queue": 0.022, "inference": 6.214, "per_token": 0.012}


def test_what_litellm_passes_on_is_read_as_the_provider_said_it() -> None:
    given = Headers((
        ("llm_provider-retry-after", "7"), ("llm_provider-x-request-id", "inner"), ("x-request-id", "outer"),
    ))  # fmt: skip
    read = as_the_provider_said(given)
    assert (read.first("retry-after"), read.first("x-request-id")) == ("7", "outer")
    assert read.all("x-request-id") == ["outer", "inner"]
    plain = Headers((("x-request-id", "outer"),))
    assert as_the_provider_said(plain) is plain


@pytest.mark.parametrize(
    ("text", "load"),
    [("42.5%", 0.425), ("0%", 0.0), ("100%", 1.0), ("130%", 1.0), (" 7% ", 0.07), ("5000%", None), ("0.4", None),
     ("-1%", None), ("%", None), ("high", None)],
)  # fmt: skip
def test_the_utilization_of_an_azure_deployment_is_its_load(text: str, load: float | None) -> None:
    told = facts(("azure-openai-deployment-utilization", text))
    assert told.model_load == (None if load is None else pytest.approx(load))
    assert facts(("azure-openai-deployment-utilization", text), ("x-model-load", "0.5")).model_load == 0.5


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("deprecation", "@1688169599", True), ("deprecation", "true", True),
        ("deprecation", "Sun, 11 Nov 2018 23:59:59 GMT", True), ("deprecation", "false", False),
        ("deprecation", "", False), ("sunset", "Sat, 31 Dec 2018 23:59:59 GMT", True), ("sunset", "soon", False),
        ("x-api-warning", "model 'm' is deprecated and will be removed September 15", True),
        ("x-api-warning", "You have not yet added your payment method", False),
        ("warning", '299 - "This endpoint reaches its end of life"', True), ("warning", "110 - stale", False),
        ("x-other", "deprecated", False),
    ],
)  # fmt: skip
def test_a_deprecation_is_a_date_a_flag_or_a_warning_in_words(name: str, value: str, expected: bool) -> None:
    assert is_deprecated(Headers(((name, value),))) is expected


@pytest.mark.parametrize("name", ["x-ms-region", "x-groq-region", "x-ppl-region", "x-region", "x-served-region"])
def test_the_region_that_served_stands_beside_the_one_asked_for(name: str) -> None:
    told = facts((name, "me-central-1"), request=Headers((("x-data-residency", "eu"),)))
    assert (told.residency_requested, told.region) == ("eu", "me-central-1")


NAMES = st.sampled_from([
    "x-trace-detail", "x-model-load", "server-timing", "endpoint-load-metrics", "x-queue-time", "openai-processing-ms",
    "fireworks-prefill-duration", "azure-openai-deployment-utilization", "deprecation", "sunset", "x-api-warning",
    "llm_provider-x-queue-time", "endpoint-load-metrics-bin",
    "x-cache-hit", "x-region", "x-request-id", "openai-model", "traceparent",
])  # fmt: skip
JUNK: st.SearchStrategy[Any] = st.dictionaries(
    st.sampled_from([*sorted(ORCA_NAMES), "queue_time_ms", "kv_cache_hit_rate", "named_metrics", "model_name"]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just({"eps": math.nan}),
).map(json.dumps)
VALUES = st.text(max_size=40) | st.floats().map(str) | JUNK | st.lists(
    st.sampled_from([";", "dur=", "1", '"', ",", " ", "=", "a", "nan", "1e999", ":"]), max_size=12
).map("".join)  # fmt: skip


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6))
def test_any_headers_give_finite_facts(lines: list[tuple[str, str]]) -> None:
    headers = as_the_provider_said(Headers(tuple(lines)))
    assert isinstance(is_deprecated(headers), bool)
    told = upstream_facts(headers, headers)
    for value in (
        *told.phases.values(),
        *told.load.values(),
        told.processing,
        told.model_load,
        told.kv_cache_hit_ratio,
    ):
        assert value is None or (math.isfinite(value) and value >= 0)
    assert set(told.load) <= ORCA_NAMES
    assert len(served_model(headers) or "") <= 128
    assert isinstance(load_is_unreadable(headers), bool)
    trace_id(headers)
    client_request_id(headers)
