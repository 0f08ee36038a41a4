"""What several dashboards show: series, thresholds and words."""

from __future__ import annotations

from tools.dashboards.model import Annotation, Query, Steps
from tools.expressions import appeared, latest, quantile, rate, ratio, select

WHO = ("route", "model")
OF_WHOM = "{{route}} {{model}}"
LIMITS = ("route", "provider", "scope", "window")
OF_LIMIT = "{{route}} {{provider}} {{scope}}/{{window}}"

VALIDITY = "semantic_health_model_output_validity_rate"
RELEVANCE = "semantic_health_context_relevance_score"
CONTINUITY = "semantic_health_stream_continuity_index_seconds"
FINDINGS = "semantic_health_findings_total"

VALIDITY_STEPS = Steps(0.97, 0.9, low_is_bad=True)
RELEVANCE_STEPS = Steps(0.75, 0.63, low_is_bad=True)  # the source documents' threshold, and their sick value
CONTINUITY_STEPS = Steps(0.015, 0.1)  # the source documents' limit; above the second, people see it
QUOTA_STEPS = Steps(0.25, 0.1, low_is_bad=True)
BUDGET_STEPS = Steps(0.8, 1.0)

NOTHING = "Nothing is shown where nothing was measured in the last 5 minutes."
WEIGHTED = "Several instances are averaged, each weighted by its observations."

REMAINING = f"{select('semantic_health_rate_limit_remaining')} / ({select('semantic_health_rate_limit_limit')} > 0)"
BUDGET_SPENT = ratio(
    f"{rate('semantic_health_cost_usd_total', 'route')} * 3600",
    latest("max", "semantic_health_cost_budget_usd_per_hour", "route"),
)

MODEL_CHANGES = Annotation(
    "A model answers that did not before",
    appeared("semantic_health_exchanges_total", "route", "model"),
    OF_WHOM,
)


def quantiles(histogram: str, *shares: float) -> tuple[Query, ...]:
    """Quantiles by route and model, the steadiest first."""
    return tuple(Query(quantile(share, histogram, *WHO), f"p{share * 100:g} {OF_WHOM}") for share in shares)
