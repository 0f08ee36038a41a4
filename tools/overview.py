"""The overview dashboard: one question a row."""

from __future__ import annotations

from tools.dashboards import Dashboard, Panel, Query, Row, Steps
from tools.expressions import increase, latest, mean, most, quantile, rate, ratio, select, weighted

WHO = ("route", "model")
OF_WHOM = "{{route}} {{model}}"

VALIDITY = "semantic_health_model_output_validity_rate"
RELEVANCE = "semantic_health_context_relevance_score"
CONTINUITY = "semantic_health_stream_continuity_index_seconds"

GOAL = ("route", "slo")
OF_GOAL = "{{route}} {{slo}}"
EVENTS = "semantic_health_slo_events_total"
OBJECTIVE = "semantic_health_slo_objective_ratio"

VALIDITY_STEPS = Steps(0.97, 0.9, low_is_bad=True)
RELEVANCE_STEPS = Steps(0.75, 0.63, low_is_bad=True)  # the source documents' threshold, and their sick value
CONTINUITY_STEPS = Steps(0.015, 0.1)  # the source documents' limit; above the second, people see it

NOTHING = "Nothing is shown where nothing was measured in the last 5 minutes."
WEIGHTED = "Several instances are averaged, each weighted by its observations."


def _quantiles(histogram: str, *shares: float) -> tuple[Query, ...]:
    return tuple(Query(quantile(share, histogram, *WHO), f"p{share * 100:g} {OF_WHOM}") for share in shares)


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
            _quantiles("semantic_health_operation_duration_seconds", 0.5, 0.95),
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
            "Outputs that broke their schema, by the keyword that failed first: `required` "
            "is a missing field, `type` a wrong type, `enum` a value outside its list. Good: none.",
            "reqps",
            (
                Query(
                    rate("semantic_health_output_validation_failures_total", "model", "keyword"),
                    "{{keyword}} ({{model}})",
                ),
            ),
            width=12,
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
            _quantiles("semantic_health_context_relevance", 0.5, 0.1),
            high=1.0,
        ),
        Panel(
            "Groundedness",
            "How far the answer's sentences are found in the passages, median and worst tenth. Low with a "
            "high context relevance: the model says what it was not given.",
            "none",
            _quantiles("semantic_health_groundedness", 0.5, 0.1),
            high=1.0,
        ),
        Panel(
            "Answer relevance",
            "How far the answer bears on the question, median and worst tenth.",
            "none",
            _quantiles("semantic_health_answer_relevance", 0.5, 0.1),
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
            "Score at the recent level by the score at the usual one, less 1, the lowest of all instances. -5 % is a "
            "fall that stops a migration. Nothing is shown for the first 150 exchanges after a start.",
            "percentunit",
            (Query(latest("min", "semantic_health_relevance_drift_ratio", *WHO, "score"), f"{OF_WHOM} {{{{score}}}}"),),
            low=None,
        ),
        Panel(
            "Away from the usual level, raw",
            "The same of the raw logit, which still moves where scores are close to 1. -0.69 halves the odds that a "
            "context is relevant.",
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
            "Between -4 and 4 it may be chance.",
            "none",
            (
                Query(
                    latest("min", "semantic_health_relevance_drift_errors", *WHO, "score"), f"{OF_WHOM} {{{{score}}}}"
                ),
            ),
            low=None,
        ),
        Panel(
            "CPU of scoring",
            "Cores that the embedder and the analyst's arithmetic take, per instance. It stays at `embedder.cpu_share` "
            "(0.25 by default) or below.",
            "none",
            (Query(rate("semantic_health_relevance_cpu_seconds_total", "instance"), "{{instance}}"),),
        ),
        Panel(
            "Texts remembered",
            "Share of the texts whose vectors the embedder still knew. Passages that come again make scoring cheap; a "
            "larger `embedder.cache` helps where it could be higher.",
            "percentunit",
            (
                Query(
                    ratio(
                        rate("semantic_health_embedder_texts_total", "instance", result="hit"),
                        rate("semantic_health_embedder_texts_total", "instance"),
                    ),
                    "{{instance}}",
                ),
            ),
            high=1.0,
        ),
        Panel(
            "Embedder failures",
            "Exchanges that went unscored since the embedder had no vectors, by reason; docs/embedders.md says what to "
            "do. None with the default embedder.",
            "reqps",
            (Query(rate("semantic_health_embedder_failures_total", "reason"), "{{reason}}"),),
        ),
    ),
)

STREAMS = Row(
    "Is it smooth?",
    (
        Panel(
            "Standard deviation of gaps",
            "Per stream, median and 95th percentile. Good: below 15 ms.",
            "s",
            _quantiles("semantic_health_stream_gap_stddev_seconds", 0.5, 0.95),
        ),
        Panel(
            "Longest gap",
            "Per stream, median and 95th percentile. Above a second people think that it hangs.",
            "s",
            _quantiles("semantic_health_stream_longest_gap_seconds", 0.5, 0.95),
        ),
        Panel(
            "Stalls per stream",
            "Gaps longer than the stall threshold (1 s by default) by streams. Good: 0.",
            "none",
            (
                Query(
                    ratio(
                        rate("semantic_health_stream_stalls_total", *WHO), rate("semantic_health_streams_total", *WHO)
                    ),
                    OF_WHOM,
                ),
            ),
        ),
        Panel(
            "First token",
            "From forwarding the request to the first generated token, median and 95th percentile.",
            "s",
            _quantiles("semantic_health_time_to_first_token_seconds", 0.5, 0.95),
        ),
        Panel(
            "First chunk",
            "From forwarding the request to the first byte of a streamed body. Far before the first token: "
            "the upstream answers early and thinks late.",
            "s",
            _quantiles("semantic_health_time_to_first_chunk_seconds", 0.5, 0.95),
        ),
        Panel(
            "Time per output token",
            "Time between first and last content frame by output tokens.",
            "s",
            _quantiles("semantic_health_time_per_output_token_seconds", 0.5, 0.95),
        ),
        Panel(
            "Fluidity",
            "Share of content frames that came before their deadline, early ones lending time to later ones "
            "(as in Etalon). Good: 0.9 and more.",
            "percentunit",
            (
                Query(
                    ratio(
                        rate("semantic_health_stream_deadlines_total", *WHO, verdict="met"),
                        rate("semantic_health_stream_deadlines_total", *WHO),
                    ),
                    OF_WHOM,
                ),
            ),
            high=1.0,
        ),
        Panel(
            "Streams",
            "Streams with at least one content frame, per second.",
            "reqps",
            (Query(rate("semantic_health_streams_total", *WHO), OF_WHOM),),
        ),
        Panel(
            "Blocked by slow clients",
            "Seconds per second that streams waited because the service did not read. This is not counted as a gap.",
            "s",
            (Query(rate("semantic_health_client_blocked_seconds_total", "route"), "{{route}}"),),
        ),
    ),
)

LIMITS = ("route", "provider", "scope", "window")
RESET = "semantic_health_rate_limit_reset_timestamp_seconds"
OF_LIMIT = "{{route}} {{provider}} {{scope}}/{{window}}"
UPSTREAM = Row(
    "What does the upstream say of itself?",
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
            steps=Steps(0.25, 0.1, low_is_bad=True),
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
            "KV cache hits",
            "Mean share of the prompt that the upstream says it had cached. Below 0.85 look for what "
            "changes at the front of the prompt.",
            "percentunit",
            (Query(mean("semantic_health_kv_cache_hit_ratio", "model", "phase"), "{{model}} {{phase}}"),),
            high=1.0,
        ),
        Panel(
            "Tokens",
            "Tokens a second as the provider reported them. Cached ones are part of the input, reasoning is "
            "part of the output.",
            "none",
            (Query(rate("semantic_health_tokens_total", "model", "type"), "{{model}} {{type}}"),),
            width=16,
        ),
        Panel(
            "Prompt cache hits",
            "Mean share of the input tokens that came from the provider's prompt cache, as it reports them. Where it "
            "falls, something changes at the front of the prompt.",
            "percentunit",
            (Query(mean("semantic_health_prompt_cache_hit_ratio", "model"), "{{model}}"),),
            high=1.0,
        ),
        Panel(
            "Cost",
            "US dollars an hour by the price table, of exchanges whose model has a price there.",
            "currencyUSD",
            (Query(f"{rate('semantic_health_cost_usd_total', 'model', 'type')} * 3600", "{{model}} {{type}}"),),
        ),
        Panel(
            "Early retries",
            "Requests a second that came back before the time to wait, which a throttling answer had named, had "
            "passed. Good: none; many of them keep the limit exceeded.",
            "reqps",
            (Query(rate("semantic_health_early_retries_total", "route", "provider"), "{{route}} {{provider}}"),),
        ),
        Panel(
            "Deprecation warnings",
            "Answers a second that warn that the model or the API will go away. Good: none.",
            "reqps",
            (Query(rate("semantic_health_deprecations_total", *WHO), OF_WHOM),),
        ),
        Panel(
            "Unknown rate limit headers",
            "Headers a second that name a rate limit in a way that is not read. A new one is worth a report.",
            "reqps",
            (Query(rate("semantic_health_unknown_headers_total", "route", "header"), "{{route}} {{header}}"),),
        ),
    ),
)

FINDINGS = "semantic_health_findings_total"
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
            (Query(increase(FINDINGS, "route", "rule", severity="critical"), "{{route}} {{rule}}"),),
        ),
        Panel(
            "Findings on requests and answers",
            "Findings a second, by rule. A rise after a release of the service points at what it changed.",
            "reqps",
            (Query(rate(FINDINGS, "rule"), "{{rule}}"),),
            width=16,
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

SIDECAR = Row(
    "Is the sidecar itself well?",
    (
        Panel(
            "Not observed, by reason",
            "Exchanges that were forwarded but have no record. Good: none. Traffic is not hurt "
            "by it; what the panels above say is then drawn from less.",
            "reqps",
            (Query(rate("semantic_health_unobserved_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            "Forwarded",
            "Exchanges forwarded a second, as the proxy counts them.",
            "reqps",
            (Query(rate("semantic_health_forwarded_total", "instance"), "{{instance}}"),),
        ),
        Panel(
            "Refused by the sidecar",
            "Requests that the sidecar itself answered with an error. Good: none.",
            "reqps",
            (Query(rate("semantic_health_refused_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            "Added latency",
            "The sidecar's own share of the time of an exchange, median and 99th percentile. Good: below "
            "a millisecond.",
            "s",
            tuple(
                Query(quantile(share, "semantic_health_proxy_added_seconds"), f"p{share * 100:g}")
                for share in (0.5, 0.99)
            ),
        ),
        Panel(
            "Event loop lag",
            "How late timers ran in the proxy, median and 99th percentile.",
            "s",
            tuple(
                Query(quantile(share, "semantic_health_event_loop_lag_seconds"), f"p{share * 100:g}")
                for share in (0.5, 0.99)
            ),
        ),
        Panel(
            "Time to a record",
            "From the end of an exchange to its record, median and 95th percentile.",
            "s",
            tuple(
                Query(quantile(share, "semantic_health_analysis_seconds"), f"p{share * 100:g}") for share in (0.5, 0.95)
            ),
        ),
        Panel(
            "In flight",
            "Exchanges being forwarded now, by proxy worker.",
            "short",
            (
                Query(
                    latest("sum", "semantic_health_in_flight", "instance", "worker"), "{{instance}} worker {{worker}}"
                ),
            ),
        ),
        Panel(
            "Waiting for the analyst",
            "Bytes told to the analyst and not yet taken in. At `proxy.queue` (16 MiB by default) "
            "exchanges go unobserved.",
            "bytes",
            (
                Query(
                    latest("sum", "semantic_health_queue_bytes", "instance", "worker"), "{{instance}} worker {{worker}}"
                ),
            ),
        ),
        Panel(
            "Processes that came back",
            "Processes of the sidecar that died and were started again, per interval. Good: none.",
            "short",
            (Query(increase("semantic_health_process_restarts_total", "process"), "{{process}}"),),
        ),
        Panel(
            "Embedding model loaded",
            "1 when relevance can be scored.",
            "none",
            (Query(latest("min", "semantic_health_relevance_ready", "instance"), "{{instance}}"),),
            high=1.0,
        ),
        Panel(
            "Lost on the way out",
            "Readings that no series could take, label values beyond their bound, failed OTLP "
            "exports and records that the exchange log could not take, per interval. Good: none.",
            "short",
            (
                Query(increase("semantic_health_readings_dropped_total", "metric"), "dropped {{metric}}"),
                Query(increase("semantic_health_label_overflow_total", "metric"), "overflow {{metric}}"),
                Query(increase("semantic_health_export_failures_total"), "failed OTLP exports"),
                Query(increase("semantic_health_exchange_log_lost_total"), "lost log records"),
            ),
        ),
        Panel(
            "Versions",
            "Instances by version.",
            "short",
            (Query(f"count by (version) ({select('semantic_health_build_info')})", "{{version}}"),),
        ),
    ),
)

OVERVIEW = Dashboard(
    "semhealth-overview",
    "semhealth overview",
    "Semantic health of the LLM APIs that this service calls: is what comes back valid, relevant and smooth?",
    (HEADLINE, PROMISES, EXCHANGES, ANSWERS, MEANING, STREAMS, UPSTREAM, ADVICE, SIDECAR),
)
