"""What was used, as the provider counts it?"""

from __future__ import annotations

from collector.model import Meters, Record


def measure(record: Record, meters: Meters) -> None:
    """Tokens by type, only those that the provider reported, and the share of the input that came from a cache."""
    usage = record.usage
    if usage is None:
        return
    cached = usage.cache_read_input_tokens
    if usage.input_tokens is not None:
        meters["semantic_health_tokens_total", "input"](usage.input_tokens)
    if usage.output_tokens is not None:
        meters["semantic_health_tokens_total", "output"](usage.output_tokens)
    if cached is not None:
        meters["semantic_health_tokens_total", "cache_read"](cached)
    if usage.cache_write_input_tokens is not None:
        meters["semantic_health_tokens_total", "cache_write"](usage.cache_write_input_tokens)
    if usage.reasoning_output_tokens is not None:
        meters["semantic_health_tokens_total", "reasoning"](usage.reasoning_output_tokens)
    if cached is not None and usage.input_tokens:
        share = cached / usage.input_tokens
        if share <= 1.0:
            meters["semantic_health_prompt_cache_hit_ratio"](share)
