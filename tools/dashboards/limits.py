"""Limits and cost: what remains, for how long, who throttles, tokens and money."""

from __future__ import annotations

from tools.dashboards.model import Dashboard, Panel, Query, Row
from tools.dashboards.shared import (
    BUDGET_SPENT,
    BUDGET_STEPS,
    LIMITS,
    MODEL_CHANGES,
    OF_LIMIT,
    OF_WHOM,
    QUOTA_STEPS,
    WHO,
)
from tools.expressions import exhaustion, latest, rate, ratio, select

RESET = "semantic_health_rate_limit_reset_timestamp_seconds"

QUOTA = Row(
    "How much is left?",
    (
        Panel(
            "Rate limit remaining",
            "Remaining share of each limit as the upstream last stated it, the lowest of all "
            "instances. It vanishes when the limit is full again or 5 minutes after it was stated.",
            "percentunit",
            (
                Query(
                    f"min by ({', '.join(LIMITS)}) ({select('semantic_health_rate_limit_remaining')} / "
                    f"({select('semantic_health_rate_limit_limit')} > 0))",
                    OF_LIMIT,
                ),
            ),
            high=1.0,
            steps=QUOTA_STEPS,
        ),
        Panel(
            "Time to exhaustion",
            "Seconds until a limit is used up at the pace of the last minutes. Bad where it is shorter than the "
            "time until the limit is full again, beside this. Empty while it lasts longer than a day.",
            "s",
            (Query(exhaustion("semantic_health_rate_limit_remaining", *LIMITS), OF_LIMIT),),
        ),
        Panel(
            "Rate limit full again in",
            "Seconds until the allowance is full again.",
            "s",
            (Query(f"clamp_min({latest('max', RESET, *LIMITS)} - time(), 0)", OF_LIMIT),),
        ),
        Panel(
            "Rate limit last stated",
            "How old the figures beside this are.",
            "s",
            (
                Query(
                    f"time() - {latest('max', 'semantic_health_rate_limit_observed_timestamp_seconds', *LIMITS)}",
                    OF_LIMIT,
                ),
            ),
        ),
        Panel(
            "Unknown rate limit headers",
            "Headers a second that name a rate limit in a way that is not read. A new one is worth a report.",
            "reqps",
            (Query(rate("semantic_health_unknown_headers_total", "route", "header"), "{{route}} {{header}}"),),
        ),
    ),
)

THROTTLING = Row(
    "Who says to come back later?",
    (
        Panel(
            "Throttled",
            "Answers that said to come back later, by who limited and by what it meant. Good: none.",
            "reqps",
            (
                Query(
                    rate("semantic_health_throttled_total", "source", "limiter", "kind"),
                    "{{kind}} by {{limiter}} ({{source}})",
                ),
            ),
        ),
        Panel(
            "Early retries",
            "Requests a second that came back before the time to wait, which a throttling answer had named, had "
            "passed. Good: none; many of them keep the limit exceeded.",
            "reqps",
            (Query(rate("semantic_health_early_retries_total", "route", "provider"), "{{route}} {{provider}}"),),
        ),
    ),
)

MONEY = Row(
    "What does it cost?",
    (
        Panel(
            "Tokens",
            "Tokens a second as the provider reported them. Cached ones are part of the input, reasoning is "
            "part of the output.",
            "none",
            (Query(rate("semantic_health_tokens_total", "model", "type"), "{{model}} {{type}}"),),
            width=16,
        ),
        Panel(
            "Cost",
            "US dollars an hour by the price table, of exchanges whose model has a price there.",
            "currencyUSD",
            (Query(f"{rate('semantic_health_cost_usd_total', 'model', 'type')} * 3600", "{{model}} {{type}}"),),
        ),
        Panel(
            "Spent of the hourly budget",
            "Cost an hour by the price table, as a share of what the route may cost an hour. Good: below 80 %. "
            "Empty where no budget is stated.",
            "percentunit",
            (Query(BUDGET_SPENT, "{{route}}"),),
            steps=BUDGET_STEPS,
        ),
        Panel(
            "Cost of an answer",
            "US dollars per exchange of a model that has a price. A rise at the same traffic is longer prompts, "
            "longer answers or a lost cache.",
            "currencyUSD",
            (
                Query(
                    ratio(rate("semantic_health_cost_usd_total", *WHO), rate("semantic_health_exchanges_total", *WHO)),
                    OF_WHOM,
                ),
            ),
        ),
    ),
)

LIMITS_AND_COST = Dashboard(
    "semhealth-limits",
    "semhealth limits and cost",
    "Limits as the upstream states them, how long they last, who throttles, and what tokens cost.",
    (QUOTA, THROTTLING, MONEY),
    annotations=(MODEL_CHANGES,),
)
