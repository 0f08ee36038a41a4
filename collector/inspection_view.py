"""A record for people: what happened to one exchange, in a few lines."""

from __future__ import annotations

from collections.abc import Iterator

from collector.model import Record


def described(record: Record) -> str:
    """One exchange, one fact a line, unknown things left out."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: Record) -> Iterator[str]:
    named = " → ".join(name for name in (record.request_model, record.response_model) if name is not None)
    yield f"{record.id}  {record.outcome}  {record.status}  {record.dialect} over {record.transport}  {named}".rstrip()
    if record.finish_reasons:
        yield f"    finish      {', '.join(reason or 'not said' for reason in record.finish_reasons)}"
    if record.usage is not None:
        parts = (
            ("input", record.usage.input_tokens),
            ("cached", record.usage.cache_read_input_tokens),
            ("output", record.usage.output_tokens),
            ("reasoning", record.usage.reasoning_output_tokens),
        )
        yield f"    tokens      {', '.join(f'{count} {name}' for name, count in parts if count is not None)}"
    yield f"    text        {record.text.chars} characters in {max(1, len(record.text.choices))} choice(s)"
    for call in record.tool_calls:
        yield f"    tool call   {call.name} with {call.arguments_chars} characters of arguments"
    if record.error is not None:
        error = record.error
        where = "in the stream" if error.mid_stream else f"by the {error.source}"
        yield f"    error       {error.type or error.code or 'unnamed'} ({error.kind}, {where})"
    if record.validity is not None:
        keyword = next((each.keyword for each in record.validity.judgements if each.keyword is not None), None)
        yield f"    validity    {record.validity.result}{f' at {keyword}' if keyword else ''} ({record.validity.kind})"
    scores = record.relevance
    if scores.scored:
        yield (
            f"    relevance   context {_score(scores.context_relevance)}, answer {_score(scores.answer_relevance)}, "
            f"groundedness {_score(scores.groundedness)}"
        )
    elif scores.reason is not None:
        yield f"    relevance   not scored: {scores.reason}"
    for limit in record.rate_limits:
        window = f" a {limit.window}" if limit.window is not None else ""
        yield f"    rate limit  {limit.scope}{window}: {_plain(limit.remaining)} of {_plain(limit.limit)} left"
    if record.anomalies:
        yield f"    odd         {', '.join(record.anomalies)}"


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _plain(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
