"""How many of the exchanges whose context relevance could be scored were?

Beside `semantic_health_context_relevance_count`, which counts the scored ones, this gives each its weight: eligible by
scored, of its route and model. Whatever is added up over routes or models needs it, since these are thinned unequally.
"""

from __future__ import annotations

from collector.model import Meters, Relevance

# Reasons for which an exchange that could be scored was not.
LEFT_OUT = frozenset({"sampled_out", "budget", "model_not_ready"})


def measure(scores: Relevance, meters: Meters) -> None:
    """Count an exchange that could be scored."""
    if scores.scored or scores.reason in LEFT_OUT:
        meters["semantic_health_relevance_eligible_total"](1.0)
