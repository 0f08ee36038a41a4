"""How many of the exchanges whose context relevance could be scored were?

Beside `semantic_health_context_relevance_count`, which counts the scored ones, this gives each its weight: eligible by
scored, of its route and model. Whatever is added up over routes or models needs it, since these are thinned unequally.
"""

from __future__ import annotations

from collections.abc import Iterator

from collector.model import Reading, Relevance

# Reasons for which an exchange that could be scored was not.
LEFT_OUT = frozenset({"sampled_out", "budget", "model_not_ready"})


def readings(scores: Relevance, labels: tuple[str, str]) -> Iterator[Reading]:
    """One for an exchange that could be scored. `labels` are the values of `route` and `model`."""
    if scores.scored or scores.reason in LEFT_OUT:
        yield Reading("semantic_health_relevance_eligible_total", 1.0, labels)
