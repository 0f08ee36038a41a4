"""What does the upstream say of itself: its load, its phases, its caches, its place and its ids?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

from collector.model import Headers, Names, TraceParent, UpstreamFacts
from collector.signals.load_report import read_report
from collector.signals.values import finite, identifier, moment, number, ratio

MAX_PHASES = 24
MAX_TRACE_DETAIL = 16_384  # characters
MAX_UTILIZATION = 1000.0  # percent; what says more is no share

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
    "x-kong-response-latency": ("kong_response", 1e-3),
    "x-litellm-response-duration-ms": ("litellm_response", 1e-3),
    "x-litellm-overhead-duration-ms": ("litellm_overhead", 1e-3),
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
# Fireworks (docs, "performance metrics") names no unit, and its users read both: `0.25` as seconds, `150` as
# milliseconds. So a number with a fraction is seconds, and a bare one is not known, but 0.
FIREWORKS_PHASES = {
    "fireworks-server-time-to-first-token": "first_token",
    "fireworks-server-processing-time": "total",
    "fireworks-prefill-duration": "prefill",
    "fireworks-prefill-queue-duration": "queue",
    "fireworks-generation-queue-duration": "decode_queue",
}
WARNINGS = frozenset({"deprecation", "sunset", "x-api-warning", "warning"})
LITELLM_PREFIX = "llm_provider-"  # before the names of the provider's own headers, where LiteLLM is in between

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

PROCESSING = "openai-processing-ms"
RESIDENCY = "x-data-residency"  # of a request
REPORTS = ("endpoint-load-metrics", "endpoint-load-metrics-bin")

MODEL_HEADERS = frozenset({"openai-model", "x-ms-served-model", "x-trace-detail"})
# Names of which a head has one where it says more of the upstream than ids, places and one time.
TELLING = frozenset({
    "x-trace-detail", "server-timing", "x-cache-hit", "x-model-load", "azure-openai-deployment-utilization", *REPORTS,
    *PHASE_HEADERS, *FIREWORKS_PHASES,
})  # fmt: skip

MAX_PHASE = 1e6  # seconds; what says more is no duration
MAX_TIMING = 4096  # characters of a Server-Timing line
MAX_WARNING = 512  # characters of a warning
MAX_STATE = 512  # characters of `tracestate`, as W3C Trace Context asks to carry; a longer one is left out

_ENTRY = re.compile(r'(?:[^,"]|"[^"]*")+')
_PARAMETER = re.compile(r';\s*([A-Za-z0-9_-]+)\s*(?:=\s*("[^"]*"|[^;"]*))?')
_NAME = re.compile(r"\s*([A-Za-z0-9!#$%&'*+.^_`|~-]{1,64})\s*(?:;|$)")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,39}")
_DEPRECATION = re.compile(r"@[0-9]{1,12}|[Tt]rue")
_GOES_AWAY = re.compile(r"deprecat|sunset|retire|will be removed|end[ -]of[ -]life", re.IGNORECASE)


def upstream_facts(request: Headers, response: Headers) -> UpstreamFacts:
    """Everything the headers of one response say of the upstream. Junk is left out."""
    places, said = _places(response.shared), response.first
    if not places.tells_more:  # as most heads do not
        return UpstreamFacts(
            request_id=_first_id(response, places.ids) if places.ids else None,
            region=_first_place(response, places.regions) if places.regions else None,
            residency_requested=_place(request.first(RESIDENCY)) if RESIDENCY in request.shared.places else None,
            phases={},
            load={},
            processing=_processing(said(PROCESSING)) if places.processes else None,
        )
    phases: dict[str, float] = {}
    detail = _trace_detail(said("x-trace-detail"))
    for name, phase in TRACE_PHASES.items() if detail else ():
        millis = finite(detail.get(name))
        if millis is not None and millis / 1000.0 < MAX_PHASE:
            phases.setdefault(phase, millis / 1000.0)
    if not PHASE_HEADERS.keys().isdisjoint(response.shared.places):
        for name, (phase, unit) in PHASE_HEADERS.items():
            value = number(said(name))
            if value is not None and value * unit < MAX_PHASE:
                phases.setdefault(phase, value * unit)
    if not FIREWORKS_PHASES.keys().isdisjoint(response.shared.places):
        for name, phase in FIREWORKS_PHASES.items():
            told = said(name)
            value = number(told)
            if value is not None and told is not None and value < MAX_PHASE and ("." in told or value == 0.0):
                phases.setdefault(phase, value)
    for name, seconds in server_timing(response.all("server-timing")):
        if len(phases) < MAX_PHASES:
            phases.setdefault(name, seconds)
    load = _load(response)
    hit = next((finite(detail[name]) for name in TRACE_HIT_RATIOS if name in detail), None) if detail else None
    return UpstreamFacts(
        request_id=_first_id(response, places.ids),
        region=_first_place(response, places.regions),
        residency_requested=_place(request.first(RESIDENCY)),
        model_load=_model_load(response, load),
        kv_cache_hit_ratio=hit if hit is not None and hit <= 1.0 else None,
        cache_hit=_flag(said("x-cache-hit")),
        phases=phases,
        load=load,
        processing=_processing(said(PROCESSING)),
    )


class _Places(Struct, frozen=True, gc=False):
    """Which names of a head tell of ids and regions, in the order in which they are asked; and what else it tells."""

    ids: tuple[str, ...]
    regions: tuple[str, ...]
    processes: bool
    tells_more: bool


@lru_cache(maxsize=512)
def _places(names: Names) -> _Places:
    told = names.places
    return _Places(
        tuple(name for name in REQUEST_IDS if name in told),
        tuple(name for name in REGIONS if name in told),
        PROCESSING in told,
        not TELLING.isdisjoint(told),
    )


def _processing(text: str | None) -> float | None:
    millis = number(text)
    return millis / 1000.0 if millis is not None and millis / 1000.0 < MAX_PHASE else None


def as_the_provider_said(response: Headers) -> Headers:
    """The headers with those that LiteLLM passes on under a prefix also under their own names, after all others."""
    if not passes_on(response.shared):
        return response
    told = [
        (name.removeprefix(LITELLM_PREFIX), value) for name, value in response.lines if name.startswith(LITELLM_PREFIX)
    ]
    return Headers((*response.lines, *told))


def passes_on(names: Names) -> bool:
    """Whether LiteLLM passes on what the provider said."""
    return any(name.startswith(LITELLM_PREFIX) for name in names.all)


def is_deprecated(response: Headers) -> bool:
    """Whether the answer warns that what was asked for will go away.

    `Deprecation` (RFC 9745, and the flag `true` of its drafts), `Sunset` (RFC 8594), or a warning in words that say so;
    other warnings, of payment for instance, are none.
    """
    if WARNINGS.isdisjoint(response.shared.places):
        return False
    since = (response.first("deprecation") or "").strip()
    sunset = (response.first("sunset") or "").strip()
    if _DEPRECATION.fullmatch(since) or moment(since) is not None or moment(sunset) is not None:
        return True
    words = (value[:MAX_WARNING] for name in ("x-api-warning", "warning") for value in response.all(name))
    return any(_GOES_AWAY.search(value) for value in words)


def served_model(response: Headers) -> str | None:
    """The model that headers name, for bodies that name none."""
    if MODEL_HEADERS.isdisjoint(response.shared.places):
        return None
    detail = _trace_detail(response.first("x-trace-detail"))
    told = detail.get("model_name")
    traced = told if isinstance(told, str) else None
    names = (response.first("openai-model"), response.first("x-ms-served-model"), traced)
    return next((name.strip() for name in names if name and 0 < len(name.strip()) <= 128), None)


def client_request_id(request: Headers) -> str | None:
    return _first_id(request, CLIENT_IDS)


def trace_id(request: Headers) -> str | None:
    """The trace id of a valid W3C `traceparent`."""
    parent = trace_parent(request)
    return parent.trace_id if parent is not None else None


def trace_parent(request: Headers) -> TraceParent | None:
    """What a valid W3C `traceparent` says, with the `tracestate` beside it."""
    told = request.first("traceparent")
    match = _TRACEPARENT.fullmatch(told) if told is not None else None
    if match is None or set(match[1]) == {"0"} or set(match[2]) == {"0"}:
        return None
    state = ",".join(request.all("tracestate"))
    return TraceParent(match[1], match[2], bool(int(match[3], 16) & 1), state if len(state) <= MAX_STATE else "")


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
    if TELLING.isdisjoint(response.shared.places):
        return False
    load = response.first("x-model-load")
    reports = [text for name in REPORTS if (text := response.first(name)) is not None]
    return (load is not None and ratio(load) is None) or any(read_report(text) is None for text in reports)


def orca(text: str | None) -> dict[str, float]:
    """An ORCA load report as TEXT, JSON or BIN, with or without its prefix; known names and finite numbers only."""
    found: dict[str, float] = {}
    for name, value in (read_report(text) if text is not None else None) or ():
        plain = finite(value)
        key = name.replace("-", "_")
        if key in ORCA_NAMES and plain is not None and plain < 1e15:
            found[key] = plain
    return found


def _load(response: Headers) -> dict[str, float]:
    """The first load report that says anything."""
    return next((found for found in (orca(response.first(name)) for name in REPORTS) if found), {})


def _model_load(response: Headers, reported: Mapping[str, float]) -> float | None:
    """`X-Model-Load`; else the utilization of an Azure deployment (`42.5%`), or that of the application as an ORCA
    report has it; both are full at 1 and may be more.
    """
    load = ratio(response.first("x-model-load"))
    used = (response.first("azure-openai-deployment-utilization") or "").strip()
    percent = number(used.removesuffix("%")) if used.endswith("%") else None
    if load is not None:
        return load
    if percent is not None and percent <= MAX_UTILIZATION:
        return min(1.0, percent / 100.0)
    application = reported.get("application_utilization")
    return None if application is None else min(1.0, application)


def _trace_detail(text: str | None) -> dict[str, object]:
    if text is None or len(text) > MAX_TRACE_DETAIL:
        return {}
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _first_id(headers: Headers, names: Iterable[str]) -> str | None:
    for name in names:
        found = identifier(headers.first(name))
        if found is not None:
            return found
    return None


def _first_place(headers: Headers, names: Iterable[str]) -> str | None:
    for name in names:
        found = _place(headers.first(name))
        if found is not None:
            return found
    return None


def _place(text: str | None) -> str | None:
    plain = text.strip() if text is not None else ""
    return plain if plain and _PLACE.fullmatch(plain) else None


def _flag(text: str | None) -> bool | None:
    match text.strip().lower() if text is not None else None:
        case "true" | "1" | "hit" | "yes":
            return True
        case "false" | "0" | "miss" | "no":
            return False
    return None
