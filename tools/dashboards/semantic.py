"""Semantic health: the three headline metrics, what they stand on, and what is there to mend."""

from __future__ import annotations

from collector.catalogue import VALIDITY_CHECKED
from tools.dashboards.model import Dashboard, Panel, Query, Row, Steps
from tools.dashboards.shared import (
    CONTINUITY,
    CONTINUITY_STEPS,
    FINDINGS,
    MODEL_CHANGES,
    NOTHING,
    OF_WHOM,
    RELEVANCE,
    RELEVANCE_STEPS,
    VALIDITY,
    VALIDITY_STEPS,
    WEIGHTED,
    WHO,
    quantiles,
)
from tools.expressions import events, increase, latest, mean, most, rate, ratio, weighted

HEADLINE = Row(
    "Is it valid, relevant and smooth?",
    (
        Panel(
            "Output validity",
            "Share of the structured outputs and tool calls checked in the last 5 minutes that "
            f"satisfy their schema. Good: 97 % and more. {NOTHING} {WEIGHTED}",
            "percentunit",
            (Query(weighted(VALIDITY, *WHO), OF_WHOM),),
            "stat",
            height=6,
            steps=VALIDITY_STEPS,
        ),
        Panel(
            "Context relevance",
            "Median of the last 5 minutes: how well the passages in the prompt bear on the question, "
            f"calibrated to 0-1. Good: 0.75 and more. {NOTHING} {WEIGHTED}",
            "none",
            (Query(weighted(RELEVANCE, *WHO), OF_WHOM),),
            "stat",
            height=6,
            steps=RELEVANCE_STEPS,
        ),
        Panel(
            "Stream continuity index",
            "Median of the last 5 minutes of the standard deviation of the gaps between content "
            f"frames of one stream. Low is smooth. Good: below 15 ms. {NOTHING} {WEIGHTED}",
            "s",
            (Query(weighted(CONTINUITY, *WHO), OF_WHOM),),
            "stat",
            height=6,
            steps=CONTINUITY_STEPS,
        ),
        Panel(
            "Output validity over time",
            f"As above, over time. {NOTHING}",
            "percentunit",
            (Query(weighted(VALIDITY, *WHO), OF_WHOM),),
            high=1.0,
            steps=VALIDITY_STEPS,
        ),
        Panel(
            "Context relevance over time",
            f"As above, over time. {NOTHING}",
            "none",
            (Query(weighted(RELEVANCE, *WHO), OF_WHOM),),
            high=1.0,
            steps=RELEVANCE_STEPS,
        ),
        Panel(
            "Stream continuity index over time",
            f"As above, over time. {NOTHING}",
            "s",
            (Query(weighted(CONTINUITY, *WHO), OF_WHOM),),
            steps=CONTINUITY_STEPS,
        ),
        Panel(
            "Observations behind output validity",
            "How many checked outputs the ratio stands on. A ratio of five is not worth a page.",
            "short",
            (Query(latest("sum", f"{VALIDITY}_observations", *WHO), OF_WHOM),),
            height=6,
        ),
        Panel(
            "Observations behind context relevance",
            "How many scored exchanges the median stands on.",
            "short",
            (Query(latest("sum", f"{RELEVANCE}_observations", *WHO), OF_WHOM),),
            height=6,
        ),
        Panel(
            "Observations behind stream continuity",
            "How many streams the median stands on.",
            "short",
            (Query(latest("sum", f"{CONTINUITY}_observations", *WHO), OF_WHOM),),
            height=6,
        ),
    ),
)

ANSWERS = Row(
    "Is it valid?",
    (
        Panel(
            "Judgements by result",
            "Structured outputs and tool calls judged, per second. Only the results from `valid` to "
            "`contract_violation` count as checked; a truncated or blocked output is not an invalid one.",
            "reqps",
            (Query(rate("semantic_health_output_validations_total", "result"), "{{result}}"),),
            width=12,
        ),
        Panel(
            "Failures by schema keyword",
            "Outputs per interval that broke their schema, by the keyword that failed first: `required` "
            "is a missing field, `type` a wrong type, `enum` a value outside its list. Good: none.",
            "short",
            (
                Query(
                    events("semantic_health_output_validation_failures_total", "model", "keyword"),
                    "{{keyword}} ({{model}})",
                ),
            ),
            width=12,
        ),
        Panel(
            "Valid share by kind",
            "Valid share of the checked outputs by what was judged. Good: 97 % and more in each. A fall of tool "
            "arguments alone points at tool definitions.",
            "percentunit",
            (
                Query(
                    ratio(
                        rate("semantic_health_output_validations_total", "kind", result="valid"),
                        rate("semantic_health_output_validations_total", "kind", result=VALIDITY_CHECKED),
                    ),
                    "{{kind}}",
                ),
            ),
            high=1.0,
            steps=VALIDITY_STEPS,
        ),
        Panel(
            "Rules of contracts broken",
            "Share of the answers that broke a rule of their route's contract, of those that the rule could be tried "
            "on. Good: 0. Empty where no contract has rules.",
            "percentunit",
            (
                Query(
                    ratio(
                        rate("semantic_health_contract_rules_total", "route", "rule", result="broken"),
                        rate("semantic_health_contract_rules_total", "route", "rule", result=("kept", "broken")),
                    ),
                    "{{route}} {{rule}}",
                ),
            ),
            high=1.0,
        ),
        Panel(
            "Rules of contracts not evaluated",
            "Answers that a rule could not be tried on, per second: what it speaks of is missing or of another type. "
            "Good: none; the records say why.",
            "reqps",
            (
                Query(
                    rate("semantic_health_contract_rules_total", "route", "rule", result="not_evaluated"),
                    "{{route}} {{rule}}",
                ),
            ),
        ),
        Panel(
            "Contracts in force",
            "1 where the route's contract is applied, 0 where it could not be read any more and the route is judged "
            "without it.",
            "none",
            (Query(latest("min", "semantic_health_contract_loaded", "route"), "{{route}}"),),
            high=1.0,
            steps=Steps(0.9, 0.5, low_is_bad=True),
        ),
    ),
)

MEANING = Row(
    "Is it relevant?",
    (
        Panel(
            "Context relevance, distribution",
            "How many exchanges had which context relevance. A second band near the "
            "bottom is retrieval that brings passages of something else.",
            "none",
            (Query(increase("semantic_health_context_relevance_bucket", "le"), "{{le}}"),),
            "heatmap",
            low=None,
        ),
        Panel(
            "Context relevance, median and worst tenth",
            "The worst tenth falls before the median does.",
            "none",
            quantiles("semantic_health_context_relevance", 0.5, 0.1),
            high=1.0,
        ),
        Panel(
            "Groundedness",
            "How far the answer's sentences are found in the passages, median and worst tenth. Low with a "
            "high context relevance: the model says what it was not given.",
            "none",
            quantiles("semantic_health_groundedness", 0.5, 0.1),
            high=1.0,
        ),
        Panel(
            "Answer relevance",
            "How far the answer bears on the question, median and worst tenth.",
            "none",
            quantiles("semantic_health_answer_relevance", 0.5, 0.1),
            high=1.0,
        ),
        Panel(
            "Mean context relevance by script",
            "Scores by the script of question and answer: a fall in one alone points "
            "to its documents or to the embedding model.",
            "none",
            (Query(mean("semantic_health_context_relevance", "language"), "{{language}}"),),
            high=1.0,
        ),
        Panel(
            "Not scored, by reason",
            "Exchanges without a context relevance. `no_context` and `tool_only` are normal. `sampled_out` means that "
            "there is CPU for a sample only; `budget` that the share of a core was used up for a moment.",
            "reqps",
            (Query(rate("semantic_health_relevance_unscored_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            "Share scored",
            "Of the exchanges whose context relevance could be scored, by route and model. Below 1 the busiest are "
            "thinned first; one by this share is the weight of a scored exchange.",
            "percentunit",
            (
                Query(
                    ratio(
                        rate("semantic_health_context_relevance_count", *WHO),
                        rate("semantic_health_relevance_eligible_total", *WHO),
                    ),
                    OF_WHOM,
                ),
            ),
            high=1.0,
        ),
        Panel(
            "Away from the usual level",
            "Score at the recent level by the score at the usual one, less 1, the lowest of all instances. Good: above "
            "-5 %, a fall that stops a migration. Nothing is shown for the first 150 exchanges after a start.",
            "percentunit",
            (Query(latest("min", "semantic_health_relevance_drift_ratio", *WHO, "score"), f"{OF_WHOM} {{{{score}}}}"),),
            low=None,
        ),
        Panel(
            "Away from the usual level, raw",
            "The same of the raw logit, which still moves where scores are close to 1. -0.69 halves the odds that a "
            "context is relevant. Good: about 0.",
            "none",
            (
                Query(
                    latest("min", "semantic_health_relevance_drift_logits", *WHO, "score"), f"{OF_WHOM} {{{{score}}}}"
                ),
            ),
            low=None,
        ),
        Panel(
            "Away from the usual level, in standard errors",
            "Good: between -4 and 4, where it may be chance.",
            "none",
            (
                Query(
                    latest("min", "semantic_health_relevance_drift_errors", *WHO, "score"), f"{OF_WHOM} {{{{score}}}}"
                ),
            ),
            low=None,
        ),
    ),
)

ADVICE = Row(
    "What is there to mend?",
    (
        Panel(
            "Most frequent findings",
            "Findings over the time that is looked at, by rule; docs/findings has a page for each, with its remedy.",
            "short",
            (Query(most(20, FINDINGS, *WHO, "rule", "severity"), ""),),
            "table",
            width=16,
        ),
        Panel(
            "Critical findings",
            "Findings per interval whose severity is critical: a storm of retries, another region, diagnostic mode. "
            "Good: none.",
            "short",
            (Query(events(FINDINGS, "route", "rule", severity="critical"), "{{route}} {{rule}}"),),
        ),
        Panel(
            "Findings on requests and answers",
            "Findings a second, by rule. A rise after a release of the service points at what it changed.",
            "reqps",
            (Query(rate(FINDINGS, "rule"), "{{rule}}"),),
            width=16,
        ),
    ),
)

SEMANTIC = Dashboard(
    "semhealth-semantic",
    "semhealth semantic health",
    "Whether what comes back satisfies its schema and contract, and whether it bears on the question.",
    (HEADLINE, ANSWERS, MEANING, ADVICE),
    annotations=(MODEL_CHANGES,),
)
