"""What was used, as the provider counts it?"""

from __future__ import annotations

from collections.abc import Iterable

from collector.labels import model_label
from collector.model import Reading, Record


def readings(record: Record) -> Iterable[Reading]:
    """Tokens by type, only those that the provider reported, and the share of the input that came from a cache."""
    usage = record.usage
    if usage is None:
        return
    where = (record.route, model_label(record))
    for kind, tokens in (
        ("input", usage.input_tokens),
        ("output", usage.output_tokens),
        ("cache_read", usage.cache_read_input_tokens),
        ("cache_write", usage.cache_write_input_tokens),
        ("reasoning", usage.reasoning_output_tokens),
    ):
        if tokens is not None:
            yield Reading("semantic_health_tokens_total", float(tokens), (*where, kind))
    if usage.cache_read_input_tokens is not None and usage.input_tokens:
        share = usage.cache_read_input_tokens / usage.input_tokens
        if share <= 1.0:
            yield Reading("semantic_health_prompt_cache_hit_ratio", share, where)
