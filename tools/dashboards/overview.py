"""The overview: a row for each route, and whether promises are kept."""

from __future__ import annotations

from tools.dashboards.model import Dashboard, Panel, Query, Row
from tools.dashboards.shared import (
    BUDGET_SPENT,
    BUDGET_STEPS,
    CONTINUITY,
    CONTINUITY_STEPS,
    MODEL_CHANGES,
    NOTHING,
    QUOTA_STEPS,
    RELEVANCE,
    RELEVANCE_STEPS,
    REMAINING,
    VALIDITY,
    VALIDITY_STEPS,
    quantiles,
)
from tools.expressions import latest, quantile, rate, ratio, weighted

GOAL = ("route", "slo")
OF_GOAL = "{{route}} {{slo}}"
EVENTS = "semantic_health_slo_events_total"
OBJECTIVE = "semantic_health_slo_objective_ratio"

ROUTES = Row(
    "$route",
    (
        Panel(
            "Valid",
            "Share of the structured outputs and tool calls of the last 5 minutes that satisfy their schema. "
            f"Good: 97 % and more. {NOTHING}",
            "percentunit",
            (Query(weighted(VALIDITY, "route"), "{{route}}"),),
            "stat",
            width=4,
            height=5,
            steps=VALIDITY_STEPS,
        ),
        Panel(
            "Relevant",
            f"Median context relevance of the last 5 minutes. Good: 0.75 and more. {NOTHING}",
            "none",
            (Query(weighted(RELEVANCE, "route"), "{{route}}"),),
            "stat",
            width=4,
            height=5,
            steps=RELEVANCE_STEPS,
        ),
        Panel(
            "Smooth",
            f"Median standard deviation of the gaps of a stream, last 5 minutes. Good: below 15 ms. {NOTHING}",
            "s",
            (Query(weighted(CONTINUITY, "route"), "{{route}}"),),
            "stat",
            width=4,
            height=5,
            steps=CONTINUITY_STEPS,
        ),
        Panel(
            "Fast",
            "95th percentile of the wait for the first token of a stream, and of whole answers. What is good, the "
            "route's objectives say.",
            "s",
            (
                Query(quantile(0.95, "semantic_health_time_to_first_token_seconds", "route"), "first token"),
                Query(quantile(0.95, "semantic_health_operation_duration_seconds", "route"), "whole answer"),
            ),
            "stat",
            width=4,
            height=5,
        ),
        Panel(
            "Within quota",
            "Lowest remaining share of any limit that the upstream states. Good: 25 % and more. Empty where it "
            "states none.",
            "percentunit",
            (Query(f"min by (route) ({REMAINING})", "{{route}}"),),
            "stat",
            width=4,
            height=5,
            steps=QUOTA_STEPS,
        ),
        Panel(
            "On budget",
            "Cost an hour by the price table, as a share of what the route may cost an hour. Good: below 80 %. "
            "Empty where no budget is stated (`routes[].cost_per_hour`).",
            "percentunit",
            (Query(BUDGET_SPENT, "{{route}}"),),
            "stat",
            width=4,
            height=5,
            steps=BUDGET_STEPS,
        ),
    ),
    "route",
)

PROMISES = Row(
    "Does each route keep what it promises?",
    (
        Panel(
            "Objectives met",
            "Share of the judged exchanges that met each objective of their route, and the share that must. Good: "
            "above its objective. Empty where no route states an objective.",
            "percentunit",
            (
                Query(ratio(rate(EVENTS, *GOAL, verdict="good"), rate(EVENTS, *GOAL)), OF_GOAL),
                Query(latest("max", OBJECTIVE, *GOAL), f"{OF_GOAL}, objective"),
            ),
            high=1.0,
        ),
        Panel(
            "Budget burn rate",
            "How many times faster than allowed exchanges miss their objective. At 1 the budget lasts exactly as "
            "long as its period; at 14.4 a month's budget is gone in two days.",
            "none",
            (
                Query(
                    f"{ratio(rate(EVENTS, *GOAL, verdict='bad'), rate(EVENTS, *GOAL))}"
                    f" / (1 - {latest('max', OBJECTIVE, *GOAL)} > 0)",
                    OF_GOAL,
                ),
            ),
        ),
        Panel(
            "Not judged, by reason",
            "Exchanges that an objective could not be judged for; they count neither as good nor as bad.",
            "reqps",
            (Query(rate("semantic_health_slo_unjudged_total", "slo", "reason"), "{{slo}}: {{reason}}"),),
        ),
        Panel(
            "Prompts by class",
            "Exchanges a second by the length of their prompts, on which objectives of latency depend. `estimated` "
            "are those whose provider reports no input tokens.",
            "reqps",
            (Query(rate("semantic_health_prompts_total", "prompt", "basis"), "{{prompt}}, {{basis}}"),),
        ),
    ),
)

EXCHANGES = Row(
    "How did exchanges end?",
    (
        Panel(
            "Exchanges by outcome",
            "Recorded exchanges a second. Good: nearly all `completed`. `truncated` ended before "
            "their end marker, `incomplete` ran into a length limit, `client_disconnect` is the service that left.",
            "reqps",
            (Query(rate("semantic_health_exchanges_total", "outcome"), "{{outcome}}"),),
        ),
        Panel(
            "Share completed",
            "Completed exchanges of all but those that the service itself left.",
            "percentunit",
            (
                Query(
                    ratio(
                        rate("semantic_health_exchanges_total", "route", outcome="completed"),
                        rate(
                            "semantic_health_exchanges_total",
                            "route",
                            outcome=(
                                "completed",
                                "incomplete",
                                "blocked",
                                "truncated",
                                "error_event",
                                "upstream_error",
                            ),
                        ),
                    ),
                    "{{route}}",
                ),
            ),
            high=1.0,
        ),
        Panel(
            "Duration",
            "From forwarding the request to the end of the response, median and 95th percentile.",
            "s",
            quantiles("semantic_health_operation_duration_seconds", 0.5, 0.95),
        ),
        Panel(
            "Errors by kind",
            "Exchanges that ended in an error, by what it meant and by who answered: `sidecar` is an "
            "upstream that could not be reached or did not answer.",
            "reqps",
            (Query(rate("semantic_health_errors_total", "kind", "source"), "{{kind}} ({{source}})"),),
        ),
        Panel(
            "Exchanges by provider and operation",
            "What is called.",
            "reqps",
            (Query(rate("semantic_health_exchanges_total", "provider", "operation"), "{{provider}} {{operation}}"),),
        ),
        Panel(
            "Oddities on the wire",
            "Things that were odd, per second; each names what could not be read in full. Good: none.",
            "reqps",
            (Query(rate("semantic_health_anomalies_total", "anomaly"), "{{anomaly}}"),),
        ),
    ),
)

OVERVIEW = Dashboard(
    "semhealth-overview",
    "semhealth overview",
    "Semantic health of the LLM APIs that this service calls, a row a route: is what comes back valid, relevant and "
    "smooth, is it fast, within its quota and on its budget?",
    (ROUTES, PROMISES, EXCHANGES),
    annotations=(MODEL_CHANGES,),
)
