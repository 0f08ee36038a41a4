"""A record for people: what happened to one exchange, in a few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import UNSET

from collector.catalogue import RULE_RESULTS
from collector.model import Record, RuleResult

SHOWN_IDS = 20  # records that are named, by rule and result


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
    for rule in rules_broken(record):
        yield f"    rule        {rule.rule} {rule.result}{f' ({rule.reason})' if rule.reason else ''}"
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
    for finding in record.findings:
        saw = "".join(f", {name} {value}" for name, value in finding.facts.items())
        yield f"    finding     {finding.rule} ({finding.severity}{saw})"
    if record.anomalies:
        yield f"    odd         {', '.join(record.anomalies)}"


def _rules(record: Record) -> Iterator[RuleResult]:
    for judgement in () if record.validity is None else record.validity.judgements:
        if judgement.rules is not UNSET:
            yield from judgement.rules


def rules_broken(record: Record) -> Iterator[RuleResult]:
    """What rules of a contract found wrong, or could not say."""
    return (each for each in _rules(record) if each.result in ("broken", "not_evaluated"))


class RuleTally:
    """How often each rule of a contract was kept, broken or neither, and on which records."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._ids: dict[tuple[str, str], list[str]] = {}  # the first SHOWN_IDS of each

    def add(self, record: Record) -> None:
        for each in _rules(record):
            self._counts[each.rule, each.result] += 1
            if each.result in ("broken", "not_evaluated"):
                what = each.result if each.reason is None else f"{each.result}, {each.reason}"
                self._counts[each.rule, what] += each.reason is not None
                ids = self._ids.setdefault((each.rule, what), [])
                if len(ids) < SHOWN_IDS and record.id not in ids:
                    ids.append(record.id)

    def described(self) -> str:
        """A table of counts, then the records behind those that were broken or not evaluated."""
        width = max(len(name) for name in self._names)
        lines = [f"{'rule':{width}}" + "".join(f"  {result:>13}" for result in RULE_RESULTS)]
        lines += (
            f"{name:{width}}" + "".join(f"  {self._counts[name, result]:13}" for result in RULE_RESULTS)
            for name in self._names
        )
        for (name, what), ids in self._ids.items():
            more = self._counts[name, what] - len(ids)
            lines.append(f"{name} {what}: {', '.join(ids)}{f' and {more} more' if more > 0 else ''}")
        return "\n".join(lines)


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _plain(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
