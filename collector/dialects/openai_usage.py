"""Token counts and times as chat and text completions tell them, and what those counts leave out."""

from __future__ import annotations

import re

from msgspec import Struct

from collector.catalogue import provider_of
from collector.dialects.decoding import Count, count
from collector.model import ReportedUsage, RequestHead, Usage

# Their front ends for OpenAI clients count the model's thoughts in the total only.
_THOUGHTS_IN_TOTAL = frozenset({"gcp.gemini", "gcp.vertex_ai"})
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,18})?")


class InputDetails(Struct, gc=False):
    cached_tokens: int | float | None = None
    cache_creation_tokens: int | float | None = None
    cache_write_tokens: int | float | None = None


class OutputDetails(Struct, gc=False):
    reasoning_tokens: int | float | None = None


class CompletionUsage(Struct, gc=False):
    prompt_tokens: int | float | None = None
    completion_tokens: int | float | None = None
    total_tokens: int | float | None = None
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None
    prompt_cache_hit_tokens: int | float | None = None
    queue_time: float | None = None  # Groq, in seconds
    prompt_time: float | None = None
    completion_time: float | None = None
    total_time: float | None = None
    time_to_first_token_ms: float | None = None  # gpustack
    time_to_first_token: float | None = None  # SambaNova, in seconds
    total_latency: float | None = None


class _PlainInput(Struct, gc=False):
    cached_tokens: Count | None = None
    cache_creation_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class _PlainOutput(Struct, gc=False):
    reasoning_tokens: Count | None = None


class PlainUsage(Struct, gc=False):
    """What most tell of their usage: counts that are counts, and no times. `CompletionUsage`, narrowed."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None
    prompt_tokens_details: _PlainInput | None = None
    completion_tokens_details: _PlainOutput | None = None
    prompt_cache_hit_tokens: Count | None = None
    queue_time: None = None
    prompt_time: None = None
    completion_time: None = None
    total_time: None = None
    time_to_first_token_ms: None = None
    time_to_first_token: None = None
    total_latency: None = None


class Timings(Struct, gc=False):
    """Milliseconds, beside the usage (llama.cpp)."""

    prompt_ms: float | None = None
    predicted_ms: float | None = None


class TimeInfo(Struct, gc=False):
    """Seconds, beside the usage (Cerebras)."""

    queue_time: float | None = None
    prompt_time: float | None = None
    completion_time: float | None = None
    total_time: float | None = None


class PerfMetrics(Struct, gc=False, rename="kebab"):
    """As numbers or as text, in the last chunk where they were asked for (Fireworks)."""

    server_time_to_first_token: float | str | None = None
    server_processing_time: float | str | None = None
    prefill_duration: float | str | None = None
    prefill_queue_duration: float | str | None = None
    generation_queue_duration: float | str | None = None


def provider_asked(request: RequestHead | None) -> str | None:
    """The provider that a request goes to, where the route or the host tells."""
    return None if request is None else request.hint or provider_of(request.host)


def is_writer(request: RequestHead) -> bool:
    """Writer speaks like OpenAI under a path that Cohere has too."""
    return provider_asked(request) == "writer"


def reported_usage(usage: CompletionUsage) -> ReportedUsage:
    details, made = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = count(details.cached_tokens) if details else None
    return ReportedUsage(
        count(usage.prompt_tokens),
        count(usage.completion_tokens),
        count(usage.prompt_cache_hit_tokens) if cached is None else cached,
        count(details.cache_creation_tokens) if details else None,
        count(made.reasoning_tokens) if made else None,
        count(details.cache_write_tokens) if details else None,
    )


def _seconds(told: float | str | None) -> float | None:
    """Fireworks' times name no unit: with a fraction they are seconds, without one they are not known, but 0."""
    if isinstance(told, str):
        told = float(told) if _DECIMAL.fullmatch(told) else None
    return None if told is None or (told and told == round(told, 0)) else told


def _tells_times(usage: CompletionUsage) -> bool:
    times = (
        usage.queue_time, usage.prompt_time, usage.completion_time, usage.total_time, usage.time_to_first_token_ms,
        usage.time_to_first_token, usage.total_latency,
    )  # fmt: skip
    return times.count(None) < len(times)


def phases_of(
    usage: CompletionUsage | None,
    timings: Timings | None = None,
    info: TimeInfo | None = None,
    perf: PerfMetrics | None = None,
) -> tuple[tuple[str, float], ...]:
    """Phases in seconds, however they are told."""
    if timings is None and info is None and perf is None and (usage is None or not _tells_times(usage)):
        return ()  # as most
    named: list[tuple[str, float | None, float]] = []
    for told in (usage, info):
        if told is not None:
            named += [
                ("queue", told.queue_time, 1.0),
                ("prefill", told.prompt_time, 1.0),
                ("decode", told.completion_time, 1.0),
                ("total", told.total_time, 1.0),
            ]
    if usage is not None:
        named += [
            ("first_token", usage.time_to_first_token_ms, 1e-3),
            ("first_token", usage.time_to_first_token, 1.0),
            ("total", usage.total_latency, 1.0),
        ]
    if timings is not None:
        named += [("prefill", timings.prompt_ms, 1e-3), ("decode", timings.predicted_ms, 1e-3)]
    if perf is not None:
        # The same names as those of Fireworks' headers have in collector/signals.
        named += [
            ("first_token", _seconds(perf.server_time_to_first_token), 1.0),
            ("total", _seconds(perf.server_processing_time), 1.0),
            ("prefill", _seconds(perf.prefill_duration), 1.0),
            ("queue", _seconds(perf.prefill_queue_duration), 1.0),
            ("decode_queue", _seconds(perf.generation_queue_duration), 1.0),
        ]
    return tuple((name, told * unit) for name, told, unit in named if told is not None and 0 <= told * unit < 1e6)


class Account:
    """Whether the output count leaves reasoning out. It is given every usage of one answer; the last one holds."""

    _beside = 0

    def __init__(self, request: RequestHead | None = None) -> None:
        self._request = request

    def take(self, usage: CompletionUsage) -> ReportedUsage:
        """The numbers as told."""
        told = reported_usage(usage)
        if told.output_tokens is not None:
            self._beside = self._left_out(told, told.output_tokens, count(usage.total_tokens))
        return told

    def take_plain(self, usage: PlainUsage) -> ReportedUsage:
        """What `take` makes of a usage of this kind."""
        details, made = usage.prompt_tokens_details, usage.completion_tokens_details
        cached = details.cached_tokens if details is not None else None
        told = ReportedUsage(
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.prompt_cache_hit_tokens if cached is None else cached,
            details.cache_creation_tokens if details is not None else None,
            made.reasoning_tokens if made is not None else None,
            details.cache_write_tokens if details is not None else None,
        )
        if told.reasoning_tokens == 0:
            self._beside = 0
        elif told.output_tokens is not None:
            self._beside = self._left_out(told, told.output_tokens, usage.total_tokens)
        return told

    def _left_out(self, told: ReportedUsage, made: int, total: int | None) -> int:
        thought = told.reasoning_tokens
        rest = total - told.input_tokens - made if total is not None and told.input_tokens is not None else 0
        if thought is None:
            return max(0, rest) if provider_asked(self._request) in _THOUGHTS_IN_TOTAL else 0
        # xAI's total has the reasoning beside the output; some gateways leave it out of both.
        return thought if thought > made or rest == thought else 0

    def normal(self, reported: ReportedUsage) -> Usage:
        """OpenAI counts cached tokens inside the input and reasoning inside the output; so does the normal form."""
        made = reported.output_tokens
        return Usage(
            reported.input_tokens,
            made if made is None else made + self._beside,
            reported.cached_input_tokens,
            reported.cache_write_tokens
            if reported.cache_creation_input_tokens is None
            else reported.cache_creation_input_tokens,
            reported.reasoning_tokens,
        )
