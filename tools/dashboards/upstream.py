"""The upstream: load, phases, caches, regions, and models served against models asked for."""

from __future__ import annotations

from tools.dashboards.model import Dashboard, Panel, Query, Row, Steps
from tools.dashboards.shared import FINDINGS, MODEL_CHANGES, OF_WHOM, WHO
from tools.expressions import events, latest, mean, quantile, rate

LOAD = Row(
    "How busy is it?",
    (
        Panel(
            "Model load",
            "As the upstream last stated it. Above 0.8 for long it will soon be overloaded; below 0.2 it has "
            "capacity to spare.",
            "percentunit",
            (Query(latest("max", "semantic_health_model_load_ratio", *WHO), OF_WHOM),),
            steps=Steps(0.8, 0.95),
        ),
        Panel(
            "Upstream phases",
            "95th percentile of the time that the upstream says a phase took.",
            "s",
            (Query(quantile(0.95, "semantic_health_upstream_phase_seconds", "model", "phase"), "{{model}} {{phase}}"),),
        ),
        Panel(
            "Cold starts",
            "Prompts per interval that took far longer to read than of late at normal load, or for which a model "
            "was loaded. Good: none.",
            "short",
            (Query(events(FINDINGS, *WHO, rule="cold_start"), OF_WHOM),),
        ),
        Panel(
            "Recommended time-out",
            "1.8 times what reading the prompt and writing a whole answer have taken of late. Set the client's "
            "time-out no shorter.",
            "s",
            (Query(latest("max", "semantic_health_recommended_timeout_seconds", *WHO), OF_WHOM),),
        ),
    ),
)

CACHES = Row(
    "What does it keep of the prompt?",
    (
        Panel(
            "KV cache hits",
            "Mean share of the prompt that the upstream says it had cached. Below 0.85 look for what "
            "changes at the front of the prompt.",
            "percentunit",
            (Query(mean("semantic_health_kv_cache_hit_ratio", "model", "phase"), "{{model}} {{phase}}"),),
            high=1.0,
        ),
        Panel(
            "Prompt cache hits",
            "Mean share of the input tokens that came from the provider's prompt cache, as it reports them. Where it "
            "falls, something changes at the front of the prompt.",
            "percentunit",
            (Query(mean("semantic_health_prompt_cache_hit_ratio", "model"), "{{model}}"),),
            high=1.0,
        ),
    ),
)

WHO_ANSWERS = Row(
    "Who answers?",
    (
        Panel(
            "Models that answered",
            "Exchanges a second by the model that served. A new line is a model that nobody may have asked for.",
            "reqps",
            (Query(rate("semantic_health_exchanges_total", *WHO), OF_WHOM),),
        ),
        Panel(
            "Another model than asked for",
            "Answers per interval of a model that was not asked for, by the model that answered. Good: none.",
            "short",
            (Query(events(FINDINGS, *WHO, rule="model_downgrade"), OF_WHOM),),
        ),
        Panel(
            "Another region than asked for",
            "Answers per interval that came from another region than the request demanded. Good: none; it may "
            "break a promise of residency.",
            "short",
            (Query(events(FINDINGS, *WHO, rule="wrong_region"), OF_WHOM),),
        ),
        Panel(
            "Diagnostic mode",
            "Answers per interval whose request id marks the upstream's internal traffic. Good: none.",
            "short",
            (Query(events(FINDINGS, *WHO, rule="diagnostic_mode"), OF_WHOM),),
        ),
        Panel(
            "Deprecation warnings",
            "Answers a second that warn that the model or the API will go away. Good: none.",
            "reqps",
            (Query(rate("semantic_health_deprecations_total", *WHO), OF_WHOM),),
        ),
    ),
)

UPSTREAM = Dashboard(
    "semhealth-upstream",
    "semhealth upstream",
    "What the upstream says of its load, phases and caches, and whether who answers is who was asked.",
    (LOAD, CACHES, WHO_ANSWERS),
    annotations=(MODEL_CHANGES,),
)
