"""Rules on the response: each gives what it saw in one exchange, or None where it does not hold."""

from __future__ import annotations

from collector.findings.models import difference
from collector.findings.policy import Policy
from collector.findings.regions import is_elsewhere
from collector.findings.repetition import SHORTEST, loop_at_end
from collector.model import Exchange

Facts = dict[str, float | str | bool]

# Finish words that say that a limit of tokens cut the answer (catalogue.FINISH_WORDS has them as `incomplete`).
LENGTH_WORDS = frozenset({
    "length", "max_tokens", "model_length", "max_output_tokens", "token_limit", "error_limit",
    "model_context_window_exceeded", "2",
})  # fmt: skip
# A response is `incomplete` by its limit or by the content filter, and then its outcome is `blocked`.
RESPONSES_WORDS = frozenset({"incomplete"})
UNSEEN_TOKENS = 8  # output tokens beyond reasoning; more were said in a form that is no text, such as audio
LEAST_CORRECTION = 0.01  # share of characters; less is white space at an end


def model_downgrade(exchange: Exchange, policy: Policy) -> Facts | None:
    asked, served = exchange.record.request_model, exchange.record.response_model
    if asked is None or served is None or asked == served:
        return None
    differs = difference(asked, served)
    if differs is None or (asked, served) in policy.aliases:
        return None
    if any(difference(other, served) is None for other in exchange.request.fallback_models):
        return None
    return {"asked": asked, "served": served, "differs": differs}


def cut_by_length(exchange: Exchange, policy: Policy) -> Facts | None:
    record = exchange.record
    if record.dialect == "openai.responses":
        words = RESPONSES_WORDS if record.outcome == "incomplete" else frozenset()
    else:
        words = LENGTH_WORDS
    for choice in exchange.choices:
        if choice.ending == "incomplete" and choice.finish is not None and choice.finish.lower() in words:
            facts: Facts = {"finish": choice.finish[:64]}
            usage, limit = record.usage, exchange.request.max_output_tokens
            if limit is not None:
                facts["max_tokens"] = limit
            if usage is not None and usage.output_tokens is not None:
                facts["output_tokens"] = usage.output_tokens
            return facts
    return None


def diagnostic_mode(exchange: Exchange, policy: Policy) -> Facts | None:
    told = exchange.record.upstream.request_id
    if told is None or not told.startswith(policy.diagnostic_prefixes):
        return None
    return {"prefix": next(prefix for prefix in policy.diagnostic_prefixes if told.startswith(prefix))}


def answer_repeats(exchange: Exchange, policy: Policy) -> Facts | None:
    if exchange.record.text.chars < SHORTEST:
        return None
    for choice in exchange.choices:
        loop = loop_at_end(choice.text)
        if loop is not None:
            return {"period_chars": loop.period, "repeats": loop.repeats}
    return None


def answer_empty(exchange: Exchange, policy: Policy) -> Facts | None:
    record = exchange.record
    if record.text.chars or record.outcome != "completed" or record.operation != "chat" or not exchange.choices:
        return None
    if exchange.tool_calls or any(choice.refusal_chars for choice in exchange.choices):
        return None
    facts: Facts = {"finish": (exchange.choices[0].finish or "none")[:64]}
    usage = record.usage
    if usage is not None and usage.output_tokens is not None:
        thought = usage.reasoning_output_tokens if usage.reasoning_output_tokens is not None else 0
        if usage.output_tokens - thought > UNSEEN_TOKENS:
            return None
        facts["output_tokens"] = usage.output_tokens
    return facts


def stream_stalls(exchange: Exchange, policy: Policy) -> Facts | None:
    timing = exchange.record.timing
    if not timing.stalls:
        return None
    longest = timing.chunk_gaps.max
    return {"stalls": timing.stalls} if longest is None else {"stalls": timing.stalls, "longest_gap": round(longest, 3)}


def wrong_region(exchange: Exchange, policy: Policy) -> Facts | None:
    upstream = exchange.record.upstream
    if upstream.residency_requested is None or upstream.region is None:
        return None
    if not is_elsewhere(upstream.residency_requested, upstream.region):
        return None
    return {"asked": upstream.residency_requested, "served": upstream.region}


def deprecation(exchange: Exchange, policy: Policy) -> Facts | None:
    return {} if exchange.is_deprecated else None


def text_corrected(exchange: Exchange, policy: Policy) -> Facts | None:
    ratio = exchange.record.correction_ratio
    return {"correction_ratio": round(ratio, 4)} if ratio is not None and ratio >= LEAST_CORRECTION else None
