"""What the standard variables say, and what is said of those that are not followed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk import environment_variables
from opentelemetry.sdk.trace import sampling
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from collector.model import TraceParent
from exporters.otel_environment import FOLLOWED, SIGNALS, Destination, Environment

BASE = "OTEL_EXPORTER_OTLP"
HTTP = "http/protobuf"
LOGGER = "exporters.otel_environment"


@pytest.mark.parametrize(
    ("variables", "given_endpoint", "expected"),
    [
        ({}, None, [None, None, None]),
        ({f"{BASE}_ENDPOINT": "http://a:1"}, None, ["http://a:1/v1/metrics", "http://a:1/v1/traces", "http://a:1/v1/logs"]),
        ({f"{BASE}_ENDPOINT": "http://a:1/x/"}, None, [f"http://a:1/x/v1/{signal}" for signal in SIGNALS]),
        ({f"{BASE}_TRACES_ENDPOINT": "http://a:1/t"}, None, [None, "http://a:1/t", None]),
        (
            {f"{BASE}_ENDPOINT": "http://a:1", f"{BASE}_LOGS_ENDPOINT": "http://b:2/"},
            None,
            ["http://a:1/v1/metrics", "http://a:1/v1/traces", "http://b:2/"],
        ),
        ({f"{BASE}_LOGS_ENDPOINT": "http://b:2"}, "http://c:3", [f"http://c:3/v1/{signal}" for signal in SIGNALS]),
        ({}, "http://c:3/v1/metrics", [f"http://c:3/v1/{signal}" for signal in SIGNALS]),
        ({"OTEL_SDK_DISABLED": " True "}, "http://c:3", [None, None, None]),
        ({"OTEL_TRACES_EXPORTER": "none"}, "http://c:3", ["http://c:3/v1/metrics", None, "http://c:3/v1/logs"]),
        ({"OTEL_METRICS_EXPORTER": "none,otlp"}, "http://c:3", [f"http://c:3/v1/{signal}" for signal in SIGNALS]),
        ({f"{BASE}_ENDPOINT": "collector"}, None, [None, None, None]),
        ({f"{BASE}_ENDPOINT": "http://["}, None, [None, None, None]),
        ({f"{BASE}_ENDPOINT": "a:4317", f"{BASE}_PROTOCOL": "grpc"}, None, ["a:4317"] * 3),
    ],
)  # fmt: skip
def test_each_signal_goes_where_it_is_sent(
    variables: dict[str, str], given_endpoint: str | None, expected: list[str | None]
) -> None:
    environment = Environment(variables)
    found = [environment.destination(signal, given_endpoint) for signal in SIGNALS]
    assert [one.endpoint if one is not None else None for one in found] == expected


def test_a_signals_own_variables_win_over_the_general_ones() -> None:
    environment = Environment(
        {
            f"{BASE}_ENDPOINT": "http://a:1", f"{BASE}_PROTOCOL": "grpc", f"{BASE}_TIMEOUT": "7",
            f"{BASE}_TRACES_PROTOCOL": HTTP, f"{BASE}_TRACES_TIMEOUT": "3000",
        }
    )  # fmt: skip
    assert environment.destination("traces") == Destination("http://a:1/v1/traces", HTTP, 3.0)
    assert environment.destination("logs") == Destination("http://a:1", "grpc", 7.0)
    assert environment.destination("logs", None, HTTP, 2.0) == Destination("http://a:1/v1/logs", HTTP, 2.0)


@pytest.mark.parametrize(("said", "seconds"), [("5", 5.0), ("10000", 10.0), ("0.5", 0.5)])
def test_a_timeout_is_understood_in_seconds_and_in_milliseconds(said: str, seconds: float) -> None:
    found = Environment({f"{BASE}_TIMEOUT": said}).destination("metrics", "http://a:1")
    assert found is not None
    assert found.timeout == seconds


def test_variables_that_make_no_sense_are_said_once_and_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    environment = Environment(
        {
            "OTEL_METRIC_EXPORT_INTERVAL": "soon", f"{BASE}_TIMEOUT": "-1", f"{BASE}_PROTOCOL": "pigeon",
            "OTEL_TRACES_SAMPLER": "sometimes", "OTEL_LOGS_EXPORTER": "console",
        }
    )  # fmt: skip
    assert environment.interval() == 60.0
    for signal in SIGNALS:
        assert environment.destination(signal, "http://a:1") == Destination(f"http://a:1/v1/{signal}", HTTP, 10.0)
    assert environment.sampler()(1, None)
    said = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert len(said) == 5
    assert not [line for line in said if "soon" in line or "pigeon" in line or "sometimes" in line]


# ---------------------------------------------------------------- the sampler

PARENTS = [None, TraceParent("a" * 32, "b" * 16, True), TraceParent("a" * 32, "b" * 16, False)]


@pytest.mark.parametrize("parent", PARENTS)
@pytest.mark.parametrize("ratio", ["0", "0.25", "1"])
@pytest.mark.parametrize(
    "name",
    ["always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off",
     "parentbased_traceidratio"],
)  # fmt: skip
def test_the_sampler_decides_as_the_sdks_own(
    name: str, ratio: str, parent: TraceParent | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": ratio}
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    theirs = sampling._get_from_env_or_default()
    is_sampled = Environment(variables).sampler()
    context = None
    if parent is not None:
        flags = TraceFlags(TraceFlags.SAMPLED if parent.is_sampled else TraceFlags.DEFAULT)
        context = set_span_in_context(NonRecordingSpan(SpanContext(1, 2, is_remote=True, trace_flags=flags)))
    draw = random.Random(6)  # noqa: S311 - a fixed draw
    for trace_id in (1, (1 << 128) - 1, *(draw.getrandbits(128) for _ in range(300))):
        expected = theirs.should_sample(context, trace_id, "chat").decision.is_sampled()
        assert is_sampled(trace_id, parent) == expected


@pytest.mark.parametrize("argument", ["", "2", "-0.1", "nan", "many"])
def test_a_share_that_is_none_samples_everything(argument: str) -> None:
    variables = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": argument}
    assert Environment(variables).sampler()((1 << 128) - 1, None)


@given(st.floats(0.0, 1.0), st.integers(0, (1 << 128) - 1))
def test_a_larger_share_samples_all_that_a_smaller_one_does(share: float, trace_id: int) -> None:
    def sampled(ratio: float) -> bool:
        variables = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": repr(ratio)}
        return Environment(variables).sampler()(trace_id, None)

    assert sampled(share) <= sampled(min(1.0, share * 1.5))


# ---------------------------------------------------------------- all others


def test_other_variables_are_named_once_without_their_values(caplog: pytest.LogCaptureFixture) -> None:
    variables = {
        "OTEL_BSP_MAX_QUEUE_SIZE": "canary", "OTEL_PROPAGATORS": "canary", f"{BASE}_HEADERS": "a=canary",
        "OTEL_SERVICE_NAME": "canary", "PATH": "canary",
    }  # fmt: skip
    Environment(variables).warn_of_others()
    [line] = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert "OTEL_BSP_MAX_QUEUE_SIZE, OTEL_PROPAGATORS" in line
    assert "canary" not in line
    assert "SERVICE_NAME" not in line


def test_a_flood_of_other_variables_is_one_bounded_line(caplog: pytest.LogCaptureFixture) -> None:
    Environment({f"OTEL_X{number:03}": "" for number in range(500)}).warn_of_others()
    [line] = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert line.endswith("and 480 more")
    assert len(line) < 400


def test_nothing_is_said_where_all_are_followed(caplog: pytest.LogCaptureFixture) -> None:
    names = ["ENDPOINT", "HEADERS", "PROTOCOL", "TIMEOUT", "COMPRESSION", "CERTIFICATE"]
    general = {f"{BASE}_{name}": "x" for name in names}
    own = {f"{BASE}_{signal.upper()}_{name}": "x" for signal in SIGNALS for name in names}
    Environment({**general, **own, "OTEL_RESOURCE_ATTRIBUTES": "a=b"}).warn_of_others()
    assert not [record for record in caplog.records if record.name == LOGGER]


def test_what_is_followed_are_variables_that_the_sdk_knows() -> None:
    known = {value for name, value in vars(environment_variables).items() if name.startswith("OTEL_")}
    followed = {name for name in known if FOLLOWED.fullmatch(name)}
    assert {f"{BASE}_{signal.upper()}_CERTIFICATE" for signal in SIGNALS} <= followed
    assert {"OTEL_TRACES_SAMPLER_ARG", "OTEL_METRIC_EXPORT_INTERVAL", "OTEL_SERVICE_NAME"} <= followed
    assert not [name for name in followed if "BSP" in name or "BLRP" in name or "LIMIT" in name]
