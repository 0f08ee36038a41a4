"""What does the upstream say of itself: its load, its phases, its caches, its place and its ids?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from collector.model import Headers, UpstreamFacts
from collector.signals.values import finite, identifier, number, ratio

MAX_PHASES = 24
MAX_TRACE_DETAIL = 16_384  # characters
MAX_LOAD_REPORT = 16_384  # characters
MAX_LOAD_VALUES = 500

REQUEST_IDS = (
    "x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "x-ms-request-id", "x-generation-id",
    "x-goog-request-id", "mistral-correlation-id", "x-ds-trace-id", "inference-id", "x-debug-trace-id",
    "x-global-transaction-id", "cf-ray",
)  # fmt: skip
CLIENT_IDS = ("x-client-request-id", "x-request-id", "x-ms-client-request-id")
REGIONS = ("x-ms-region", "x-groq-region", "x-ppl-region", "x-region", "x-served-region")

# Header → phase and the seconds in its unit.
PHASE_HEADERS: dict[str, tuple[str, float]] = {
    "x-envoy-upstream-service-time": ("upstream_service", 1e-3),
    "x-kong-upstream-latency": ("kong_upstream", 1e-3),
    "x-kong-proxy-latency": ("kong_proxy", 1e-3),
    "x-amzn-bedrock-invocation-latency": ("total", 1e-3),
    "x-metrics-ttft-ms": ("first_token", 1e-3),
    "x-metrics-mean-itl-ms": ("per_token", 1e-3),
    "x-metrics-e2e-ms": ("total", 1e-3),
    "x-queue-time": ("queue", 1e-3),
    "x-validation-time": ("validation", 1e-3),
    "x-inference-time": ("inference", 1e-3),
    "x-time-per-token": ("per_token", 1e-3),
    "x-total-time": ("total", 1e-3),
    "cmp-upstream-response-duration": ("upstream_service", 1e-3),
    "ms-azureml-model-time": ("inference", 1e-3),
}
# X-Trace-Detail (R5), in milliseconds.
TRACE_PHASES = {
    "queue_time_ms": "queue",
    "prefill_time_ms": "prefill",
    "decode_time_ms": "decode",
    "load_time_ms": "load",
    "model_load_time_ms": "load",
    "total_time_ms": "total",
}
TRACE_HIT_RATIOS = ("kv_cache_hit_rate", "kv_cache_hit_ratio")

# Names of ORCA load reports that mean something here; any other name is left out (xds OrcaLoadReport, vLLM, Triton).
ORCA_NAMES = frozenset({
    "cpu_utilization", "mem_utilization", "application_utilization", "eps", "rps_fractional", "kv_cache_usage_perc",
    "num_requests_waiting", "num_requests_running", "kv_cache_utilization", "gpu_utilization",
    "max_token_capacity",
})  # fmt: skip

MAX_PHASE = 1e6  # seconds; what says more is no duration
MAX_TIMING = 4096  # characters of a Server-Timing line

_ENTRY = re.compile(r'(?:[^,"]|"[^"]*")+')
_PARAMETER = re.compile(r';\s*([A-Za-z0-9_-]+)\s*(?:=\s*("[^"]*"|[^;"]*))?')
_NAME = re.compile(r"\s*([A-Za-z0-9!#$%&'*+.^_`|~-]{1,64})\s*(?:;|$)")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_REAL = re.compile(r"[0-9]{1,18}(\.[0-9]{0,18})?([eE][+-]?[0-9]{1,3})?")


def upstream_facts(request: Headers, response: Headers) -> UpstreamFacts:
    """Everything the headers of one response say of the upstream. Junk is left out."""
    phases: dict[str, float] = {}
    detail = _trace_detail(response.first("x-trace-detail"))
    for name, phase in TRACE_PHASES.items():
        millis = finite(detail.get(name))
        if millis is not None and millis / 1000.0 < MAX_PHASE:
            phases.setdefault(phase, millis / 1000.0)
    for name, (phase, unit) in PHASE_HEADERS.items():
        value = number(response.first(name))
        if value is not None and value * unit < MAX_PHASE:
            phases.setdefault(phase, value * unit)
    for name, seconds in server_timing(response.all("server-timing")):
        if len(phases) < MAX_PHASES:
            phases.setdefault(name, seconds)
    processing = number(response.first("openai-processing-ms"))
    if processing is not None and processing / 1000.0 >= MAX_PHASE:
        processing = None
    hit = next((finite(detail[name]) for name in TRACE_HIT_RATIOS if name in detail), None)
    return UpstreamFacts(
        request_id=_first_id(response, REQUEST_IDS),
        region=_first_place(response),
        residency_requested=_place(request.first("x-data-residency")),
        model_load=ratio(response.first("x-model-load")),
        kv_cache_hit_ratio=hit if hit is not None and hit <= 1.0 else None,
        cache_hit=_flag(response.first("x-cache-hit")),
        phases=phases,
        load=orca(response.first("endpoint-load-metrics")),
        processing=processing / 1000.0 if processing is not None else None,
    )


def served_model(response: Headers) -> str | None:
    """The model that headers name, for bodies that name none."""
    detail = _trace_detail(response.first("x-trace-detail"))
    told = detail.get("model_name")
    traced = told if isinstance(told, str) else None
    names = (response.first("openai-model"), response.first("x-ms-served-model"), traced)
    return next((name.strip() for name in names if name and 0 < len(name.strip()) <= 128), None)


def client_request_id(request: Headers) -> str | None:
    return _first_id(request, CLIENT_IDS)


def trace_id(request: Headers) -> str | None:
    """The trace id of a valid W3C `traceparent`."""
    match = _TRACEPARENT.fullmatch(request.first("traceparent") or "")
    if match is None or set(match[1]) == {"0"} or set(match[2]) == {"0"}:
        return None
    return match[1]


def server_timing(values: Iterable[str]) -> list[tuple[str, float]]:
    """Names (lower-cased) and seconds of `Server-Timing` entries with a `dur`; entries without one are left out."""
    found = []
    for value in values:
        for entry in _ENTRY.findall(value[:MAX_TIMING]):
            name = _NAME.match(entry)
            told = [told for key, told in _PARAMETER.findall(entry) if key.lower() == "dur"]
            millis = number(told[0].strip().strip('"')) if name is not None and told else None
            if name is not None and millis is not None and millis / 1000.0 < MAX_PHASE:
                found.append((name[1].lower(), millis / 1000.0))
    return found


def load_is_unreadable(response: Headers) -> bool:
    """Whether a header that states the load holds nothing that can be read."""
    load, report = response.first("x-model-load"), response.first("endpoint-load-metrics")
    return (load is not None and ratio(load) is None) or (report is not None and _load_pairs(report) is None)


def orca(text: str | None) -> dict[str, float]:
    """An ORCA load report as TEXT or JSON, with or without its prefix; allow-listed names and finite numbers only."""
    found: dict[str, float] = {}
    for name, value in (_load_pairs(text) if text is not None else None) or ():
        plain = finite(value)
        key = name.replace("-", "_")
        if key in ORCA_NAMES and plain is not None and plain < 1e15:
            found[key] = plain
    return found


def _load_pairs(text: str) -> list[tuple[str, object]] | None:
    """Names and values of a load report, unchecked; None where it is none."""
    body = text.strip()
    prefix, _, rest = body.partition(" ")
    if prefix.upper() in ("TEXT", "JSON"):
        body = rest.strip()
    if len(body) > MAX_LOAD_REPORT:
        return None
    pairs: list[tuple[str, object]] = []
    if body.startswith("{"):
        try:
            told = json.loads(body)
        except (ValueError, RecursionError):
            return None
        for name, value in told.items():
            if name in ("named_metrics", "utilization") and isinstance(value, dict):
                pairs += value.items()
            else:
                pairs.append((name, value))
        return pairs
    for item in body.split(",")[:MAX_LOAD_VALUES]:
        name, separator, value = item.partition("=")
        if not separator:
            name, separator, value = item.partition(":")
        if separator and _REAL.fullmatch(value.strip()):
            pairs.append((name.strip().removeprefix("named_metrics.").removeprefix("utilization."), float(value)))
    return pairs or None


def _trace_detail(text: str | None) -> dict[str, object]:
    if text is None or len(text) > MAX_TRACE_DETAIL:
        return {}
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _first_id(headers: Headers, names: Iterable[str]) -> str | None:
    return next((found for found in (identifier(headers.first(name)) for name in names) if found), None)


def _first_place(headers: Headers) -> str | None:
    return next((found for found in (_place(headers.first(name)) for name in REGIONS) if found), None)


def _place(text: str | None) -> str | None:
    text = (text or "").strip()
    return text if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,39}", text) else None


def _flag(text: str | None) -> bool | None:
    match (text or "").strip().lower():
        case "true" | "1" | "hit" | "yes":
            return True
        case "false" | "0" | "miss" | "no":
            return False
    return None
