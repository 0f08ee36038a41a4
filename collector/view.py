"""What a person at a terminal sees: the summary as a table that updates, and as the last word."""

from __future__ import annotations

from collector.analyst.summary import LimitSummary, RouteSummary, Summary

CLEAR = "\x1b[H\x1b[2J"
WIDTH = 112


def table(summary: Summary, addresses: dict[str, str], elapsed: float) -> str:
    """The live table. `addresses` are what to open, by name; `elapsed` is in seconds."""
    totals = summary.totals
    lines = [
        f"semhealth · {elapsed:5.0f} s · {totals.recorded} exchanges recorded, {totals.in_flight} running, "
        f"{sum(totals.unobserved.values())} not observed",
        "",
        f"{'route / model':<38} {'n':>5} {'validity':>9} {'relevance':>10} {'continuity':>11} "
        f"{'first token':>23} {'stalls':>6}",
        "-" * WIDTH,
    ]
    lines += [_row(route) for route in summary.routes[:12]]
    lines += ["", f"outcomes     {_counts(totals.outcomes)}"]
    if summary.limits:
        lines.append(f"rate limits  {'  '.join(_limit(limit) for limit in summary.limits[:4])}")
    lines.append(f"drops        {_counts(totals.unobserved)}   refused  {_counts(totals.refused)}")
    if not totals.relevance_ready:
        lines.append("relevance    the embedding model is loading")
    lines.append("")
    lines += [f"{name:<12} {address}" for name, address in addresses.items()]
    return "\n".join(line[: WIDTH + 40] for line in lines) + "\n"


def farewell(summary: Summary, elapsed: float) -> str:
    """The summary at the end of a run, one fact a line."""
    totals, whole = summary.totals, summary.overall
    lines = [
        f"semhealth ran for {elapsed:.0f} s",
        f"  exchanges    {totals.recorded} recorded of {totals.forwarded} forwarded",
        f"  outcomes     {_counts(totals.outcomes)}",
        f"  validity     {_ratio(whole.validity_rate)} of {whole.validity_checked} checked outputs",
        f"  relevance    {_ratio(whole.context_relevance)} median context relevance, "
        f"{_ratio(whole.groundedness)} groundedness, of {whole.relevance_scored} scored",
        f"  continuity   {_ms(whole.continuity_index)} median deviation of gaps, {whole.stalls} stalls, "
        f"in {whole.streams} streams",
        f"  first token  {_ms(whole.first_token_p50)} median, {_ms(whole.first_token_p95)} 95th percentile",
        f"  drops        {_counts(totals.unobserved)}",
    ]
    return "\n".join(lines) + "\n"


def _row(route: RouteSummary) -> str:
    name = f"{route.route} / {route.model}"
    first = f"{_ms(route.first_token_p50)} / {_ms(route.first_token_p95)}"
    return (
        f"{name[:38]:<38} {route.exchanges:>5} {_ratio(route.validity_rate):>9} {_ratio(route.context_relevance):>10} "
        f"{_ms(route.continuity_index):>11} {first:>23} {route.stalls:>6}"
    )


def _limit(limit: LimitSummary) -> str:
    window = f"/{limit.window}" if limit.window is not None else ""
    remaining = "?" if limit.remaining is None else f"{limit.remaining:g}"
    return f"{limit.provider} {limit.scope}{window} {remaining} of {'?' if limit.limit is None else f'{limit.limit:g}'}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:.1f} ms"
