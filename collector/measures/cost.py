"""What did the exchange cost, by the price table? No price, no cost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from collector.model import ANY_PROVIDER, Meters, Price, Rates, Record, Usage

Tables = Sequence[Mapping[str, Mapping[str, Price]]]  # in the order looked at: provider → model → price
Parts = tuple[tuple[str, float], ...]  # US dollars by kind of token; together they are the cost

PER = 1_000_000.0  # tokens that a rate is for

# Outcomes whose usage is final. A stream that broke off has told only a part of what it will be billed for.
FINAL = frozenset({"completed", "incomplete", "blocked"})
# Tiers of service, as requests ask for them. `flex` is billed at the rates of a batch (OpenAI docs, flex processing).
STANDARD_TIERS = frozenset({None, "auto", "default", "standard", "standard_only", "on_demand"})
BATCH_TIERS = frozenset({"batch", "flex"})

_SEPARATOR = re.compile(r"[-@_:]")
_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{2}-[0-9]{4}|[0-9]{8}|[0-9]{6}|[0-9]{3,4}|v[0-9]{1,2}|latest")
_PATHS = ("models/", "publishers/google/models/")  # what Google puts before a model's name


def measure(parts: Parts, meters: Meters) -> None:
    """Dollars by kind of token. `input` is what came from no cache, `output` what was no reasoning: they add up."""
    for kind, dollars in parts:
        meters["semantic_health_cost_usd_total", kind](dollars)


def parts(record: Record, tier: str | None, tables: Tables) -> Parts | None:
    """What each kind of token cost; None where the price, or a count that has one, is not known.

    The served model counts, the requested one only where none is named. `tier` is the one that the request asked for.
    """
    usage, model = record.usage, record.response_model or record.request_model
    if usage is None or model is None or record.outcome not in FINAL:
        return None
    price = price_of(record.provider, model, tables)
    share = _share(price, tier) if price is not None else None
    if price is None or share is None:
        return None
    is_long = price.above is not None and usage.input_tokens is not None and usage.input_tokens > price.above
    rates = price.long if is_long else price.rates
    found = _parts(usage, rates) if rates is not None else None
    return None if found is None else tuple((kind, tokens * rate * share / PER) for kind, tokens, rate in found)


def price_of(provider: str | None, model: str, tables: Tables) -> Price | None:
    """The price by exact name, else by the longest name that only a date or version follows."""
    names = _names(model)
    for table in tables:
        for prices in (table.get(provider or ""), table.get(ANY_PROVIDER)):
            if prices:
                found = next((prices[name] for name in names if name in prices), None)
                if found is not None:
                    return found
    return None


@lru_cache(maxsize=512)
def _names(model: str) -> tuple[str, ...]:
    """The names that a model may be listed under: its own, then those without what may be a version, longest first."""
    for prefix in _PATHS:
        model = model.removeprefix(prefix)
    cuts = reversed([match.start() for match in _SEPARATOR.finditer(model)])
    return (model, *(model[:cut] for cut in cuts if _VERSION.fullmatch(model, cut + 1)))


def _share(price: Price, tier: str | None) -> float | None:
    if tier in STANDARD_TIERS:
        return 1.0
    return price.batch if tier in BATCH_TIERS else None


def _parts(usage: Usage, rates: Rates) -> list[tuple[str, int, float]] | None:
    """Kind, tokens and rate. Cached input has its own rate, reasoning that of output unless it has one itself."""
    if usage.input_tokens is None or rates.input is None:
        return None
    read, written = usage.cache_read_input_tokens or 0, usage.cache_write_input_tokens or 0
    found = [("input", max(0, usage.input_tokens - read - written), rates.input)]
    if read:
        found.append(("cache_read", read, rates.input if rates.cached_input is None else rates.cached_input))
    if written:
        found.append(("cache_write", written, rates.input if rates.cache_write is None else rates.cache_write))
    if rates.output is None:
        return None if usage.output_tokens else found
    if usage.output_tokens is None:
        return None
    thought = usage.reasoning_output_tokens or 0
    found.append(("output", max(0, usage.output_tokens - thought), rates.output))
    if thought:
        found.append(("reasoning", thought, rates.output if rates.reasoning is None else rates.reasoning))
    return found
