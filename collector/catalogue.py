"""Every metric, label, closed vocabulary and table of words that semhealth knows, as typed values."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from msgspec import Struct

# ---------------------------------------------------------------- closed vocabularies (docs/exchange-record.md)

OUTCOMES = (
    "completed", "incomplete", "blocked", "truncated", "error_event", "upstream_error", "client_disconnect",
)  # fmt: skip
VALIDITY_CHECKED = (
    "valid", "not_json", "fenced", "trailing_text", "non_standard_number", "duplicate_key", "schema_violation",
    "contract_violation",
)  # fmt: skip
VALIDITY_UNCHECKED = (
    "truncated", "blocked", "refusal", "empty", "output_over_cap", "schema_invalid", "schema_unresolvable",
    "schema_recursion", "contract_error", "validator_timeout", "skipped",
)  # fmt: skip
VALIDITY_RESULTS = VALIDITY_CHECKED + VALIDITY_UNCHECKED
VALIDITY_KINDS = ("json", "json_schema", "tool_arguments", "contract")
RULE_RESULTS = ("kept", "broken", "not_evaluated", "skipped")  # of a contract's rule, on one answer
RULE_REASONS = (
    "missing", "type", "not_json", "over_bounds", "unusable", "timeout", "failed",  # why it was not evaluated
    "email", "phone", "card", "iban", "national_id",  # the personal data that it met
)  # fmt: skip
RELEVANCE_REASONS = (
    "empty_output", "tool_only", "blocked", "truncated", "no_query", "no_context", "language_unsupported",
    "sampled_out", "budget", "model_not_ready",
)  # fmt: skip
LANGUAGES = ("latin", "cjk", "other", "mixed")
ERROR_KINDS = (
    "rate_limited", "quota_exhausted", "overloaded", "invalid_request", "auth", "not_found", "timeout",
    "content_filter", "server_error", "unclassified",
)  # fmt: skip
TRANSPORTS = ("json", "sse", "ndjson", "json_array", "eventstream", "length_prefixed", "websocket", "opaque")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
ANOMALIES = (
    "unterminated_final_event",  # the last SSE event lacked its empty line; it is read where it parses
    "event_over_cap",  # one SSE event larger than the bound
    "frame_over_cap",  # one line, frame or body larger than the bound
    "decompress_over_cap",  # decoded body larger than the bound
    "content_type_mismatch",  # the body is not what the header says
    "encoding_unsupported",  # a content coding that is not read
    "encoding_broken",  # a content coding that does not decode
    "framing_broken",  # chunked coding, or a part's head, that does not parse
    "usage_missing",  # the answer was complete and named no usage
    "observation_lost",  # seen in part
    "crc_mismatch",  # an AWS event-stream frame with a wrong checksum
    "text_over_cap",  # more visible text than is kept for scoring
    "request_over_cap",  # a request body larger than is read
    "request_unreadable",  # a request body that is not the JSON its dialect speaks
    "choices_over_cap",  # more choices or tool calls than are kept
    "header_unreadable",  # a rate-limit or load header that does not parse
)
UNOBSERVED_REASONS = (
    "queue_full",  # the bounded buffer to the analyst was full
    "analyst_down",  # no analyst was connected
    "analyst_lost",  # told, but the analyst died before it said so
    "proxy_lost",  # the proxy worker died with the exchange
    "analysis_failed",  # the analyst met a fault of its own
)
REFUSED_REASONS = (
    "no_route", "bad_request", "head_over_cap", "body_over_cap", "unsupported_protocol", "over_connections", "draining",
)  # fmt: skip
THROTTLE_SOURCES = ("upstream", "sidecar")
EMBEDDER_FAILURES = ("unreachable", "timeout", "status", "too_large", "malformed", "circuit_open", "model_error")
RELEVANCE_SCORES = ("context_relevance", "answer_relevance", "groundedness")
SIGNALS = ("metrics", "traces", "logs")
TELEMETRY_DROPS = (
    "queue_full",  # more waited for the receiver than the queue holds
    "export_failed",  # the receiver was not there, refused or took too long
    "rejected",  # the receiver said that it took only a part
    "shutdown",  # the sidecar ended before it could be sent
)
VERDICTS = ("met", "missed")
SLO_VERDICTS = ("good", "bad")
SLO_UNJUDGED = (
    "not_answered",  # it has no full answer, so its time says nothing
    "not_streamed",  # it was no stream, or one without a token
    "too_few_gaps",
    "unchecked",  # a structured output that is outside the validity rate
    "unscored",
    "not_stated",  # the upstream did not say it
    "client_left",
    "client_fault",  # the request was wrong, or not allowed
)
SLO_MEASURES = (
    "duration", "first_token", "jitter", "validity", "context_relevance", "answer_relevance", "groundedness", "errors",
    "kv_cache_hit",
)  # fmt: skip
PROMPT_CLASSES = ("short_prompt", "long_context")  # R4
PROMPT_BASES = ("reported", "estimated")  # input tokens as the provider says; else bytes of the request ÷ 4
TOKEN_TYPES = ("input", "output", "cache_read", "cache_write", "reasoning")

# What a provider's finish word means for an outcome.
Ending = Literal["completed", "incomplete", "blocked", "refusal", "error"]

FINISH_WORDS: dict[str, Ending] = {
    # OpenAI and those who speak like it
    "stop": "completed", "tool_calls": "completed", "function_call": "completed", "length": "incomplete",
    "content_filter": "blocked", "error": "error", "eos": "completed", "eos_token": "completed",
    "model_length": "incomplete", "insufficient_system_resource": "error", "abort": "incomplete",
    # Responses API
    "completed": "completed", "incomplete": "incomplete", "max_output_tokens": "incomplete", "failed": "error",
    "cancelled": "incomplete", "queued": "incomplete", "in_progress": "incomplete",
    # Anthropic
    "end_turn": "completed", "stop_sequence": "completed", "tool_use": "completed", "max_tokens": "incomplete",
    "pause_turn": "incomplete", "refusal": "refusal", "model_context_window_exceeded": "incomplete",
    # Bedrock
    "guardrail_intervened": "blocked", "content_filtered": "blocked", "finish": "completed",
    "malformed_tool_use": "incomplete", "malformed_model_output": "incomplete",
    # Gemini
    "STOP": "completed", "MAX_TOKENS": "incomplete", "SAFETY": "blocked", "RECITATION": "blocked",
    "LANGUAGE": "blocked", "BLOCKLIST": "blocked", "PROHIBITED_CONTENT": "blocked", "SPII": "blocked",
    "IMAGE_SAFETY": "blocked", "IMAGE_PROHIBITED_CONTENT": "blocked", "IMAGE_RECITATION": "blocked",
    "MODEL_ARMOR": "blocked", "OTHER": "incomplete", "IMAGE_OTHER": "incomplete", "NO_IMAGE": "incomplete",
    "FINISH_REASON_UNSPECIFIED": "incomplete",
    # The model went wrong and was stopped; no error is told, and what it had said stands.
    "MALFORMED_FUNCTION_CALL": "incomplete", "UNEXPECTED_TOOL_CALL": "incomplete", "TOO_MANY_TOOL_CALLS": "incomplete",
    "MALFORMED_RESPONSE": "incomplete", "MISSING_THOUGHT_SIGNATURE": "incomplete",
    # The same as proto numbers (google.ai.generativelanguage, Candidate.FinishReason).
    "1": "completed", "2": "incomplete", "3": "blocked", "4": "blocked", "5": "incomplete", "6": "blocked",
    "7": "blocked", "8": "blocked", "9": "blocked", "10": "incomplete", "11": "blocked", "12": "incomplete",
    # Cohere
    "COMPLETE": "completed", "STOP_SEQUENCE": "completed", "TOOL_CALL": "completed", "ERROR": "error",
    "ERROR_TOXIC": "blocked", "ERROR_LIMIT": "incomplete", "USER_CANCEL": "incomplete",
    # watsonx
    "token_limit": "incomplete", "time_limit": "incomplete",
    # Replicate
    "starting": "incomplete", "processing": "incomplete", "succeeded": "completed", "canceled": "incomplete",
    "aborted": "incomplete",
}  # fmt: skip


def ending_of(word: str | None) -> str | None:
    """What a finish word means; None for no word, `completed` for a word that nobody has listed."""
    if word is None:
        return None
    return FINISH_WORDS.get(word) or FINISH_WORDS.get(word.lower()) or FINISH_WORDS.get(word.upper()) or "completed"


# OpenTelemetry gen_ai.provider.name by the end of the upstream's host name (its enumeration, else a plain name).
PROVIDER_HOSTS: tuple[tuple[str, str], ...] = (
    ("api.openai.com", "openai"), ("openai.azure.com", "azure.ai.openai"),
    ("cognitiveservices.azure.com", "azure.ai.openai"), ("services.ai.azure.com", "azure.ai.inference"),
    ("models.ai.azure.com", "azure.ai.inference"), ("inference.ml.azure.com", "azure.ai.inference"),
    ("api.anthropic.com", "anthropic"), ("api.groq.com", "groq"), ("api.mistral.ai", "mistral_ai"),
    ("api.deepseek.com", "deepseek"), ("api.perplexity.ai", "perplexity"), ("api.x.ai", "x_ai"),
    ("api.cohere.com", "cohere"), ("api.cohere.ai", "cohere"), ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"), ("ml.cloud.ibm.com", "ibm.watsonx.ai"),
    ("api.moonshot.ai", "moonshot_ai"), ("api.moonshot.cn", "moonshot_ai"), ("openrouter.ai", "openrouter"),
    ("api.together.xyz", "together"), ("api.fireworks.ai", "fireworks"), ("api.cerebras.ai", "cerebras"),
    ("router.huggingface.co", "huggingface"), ("api-inference.huggingface.co", "huggingface"),
    ("api.sambanova.ai", "sambanova"), ("api.writer.com", "writer"), ("api.voyageai.com", "voyage"),
    ("replicate.com", "replicate"), ("stream.replicate.net", "replicate"), ("ollama.com", "ollama"),
)  # fmt: skip


# Names that recordings use for providers that the convention names otherwise.
PROVIDER_NAMES = {
    "azure_openai": "azure.ai.openai", "azure_ai": "azure.ai.inference", "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini", "vertex": "gcp.vertex_ai", "vertex_anthropic": "gcp.vertex_ai", "mistral": "mistral_ai",
    "xai": "x_ai", "watsonx": "ibm.watsonx.ai", "moonshot": "moonshot_ai",
}  # fmt: skip


@lru_cache(maxsize=1024)  # hosts; the configuration names few
def provider_of(host: str) -> str | None:
    """The provider of an upstream host (port allowed), or None where the host tells nothing."""
    name = host.rsplit(":", 1)[0].lower() if host.count(":") == 1 else host.lower()
    if name.startswith("bedrock-runtime.") and name.endswith(".amazonaws.com"):
        return "aws.bedrock"
    for suffix, provider in PROVIDER_HOSTS:
        if name == suffix or name.endswith(("." + suffix, "-" + suffix)):
            return provider
    return None


# ---------------------------------------------------------------- finding rules (docs/findings/)

Severity = Literal["info", "warning", "critical"]


class FindingRule(Struct, frozen=True):
    """One rule: what it saw, the names of the facts it tells, and the remedy. Its page is docs/findings/<id>.md."""

    id: str
    side: Literal["request", "response"]
    severity: Severity
    saw: str
    facts: tuple[str, ...]
    remedy: str


FINDING_RULES: tuple[FindingRule, ...] = (
    FindingRule("system_prompt_long", "request", "warning", "The system prompt is longer than the route's limit.",
                ("tokens", "limit"),
                "Shorten the system prompt; move examples and background to the user's message or to a cached prefix."),
    FindingRule("markup_comments", "request", "warning", "The system prompt holds XML or HTML comments.",
                ("comments",),
                "Remove comments when the template is rendered: the model reads them, and each change of one loses the "
                "prompt cache."),
    FindingRule("cr_lf", "request", "info", "The system prompt has CR LF line ends.", (),
                "Write line ends as LF: CR LF costs tokens and makes another prompt of the same text for caches."),
    FindingRule("late_constraints", "request", "info",
                "A constraint on the whole answer stands late in a long system prompt and is vague, or conflicts with "
                "an earlier one.", ("kind",),
                "State each global constraint once, at the front of the system prompt, so that it can be checked."),
    FindingRule("schema_feature_refused", "request", "warning",
                "The schema of the structured output uses what the provider refuses or ignores.",
                ("feature", "refused"),
                "Write the schema without that feature: inline references, and name properties instead of patterns."),
    FindingRule("invalid_header_value", "request", "warning",
                "A header that the route names is not 1 to 64 letters, digits, `_` and `-`.", ("header",),
                "Send an id of letters, digits, `_` and `-`, at most 64 long; hash or encode anything else."),
    FindingRule("include_usage_missing", "request", "warning",
                "A streamed answer told no usage, and the request had not asked for it.", ("provider",),
                "Send `stream_options: {include_usage: true}`; without it cost and tokens of the stream are unknown."),
    FindingRule("max_tokens_low", "request", "info",
                "The limit of output tokens is below 1.5 times the longest answer in the history.",
                ("max_tokens", "longest_answer_tokens"),
                "Raise the limit of output tokens to at least 1.5 times the longest answer that is expected."),
    FindingRule("early_retry", "request", "warning",
                "A request came back before the time to wait, which a throttling answer had named, had passed.", (),
                "Honour `Retry-After`, with jitter; leave retries to one layer of the client."),
    FindingRule("retry_storm", "request", "critical", "Requests came back too early many times within a minute.",
                ("early_retries", "seconds"),
                "Stop retries of the service, wait until the hint has passed, and come back slowly with a budget of "
                "retries."),
    FindingRule("client_timeout_short", "request", "warning",
                "The client's time-out is shorter than answers of this model need.", ("timeout", "recommended"),
                "Set the time-out to what `semantic_health_recommended_timeout_seconds` says, or ask for fewer "
                "tokens."),
    FindingRule("model_downgrade", "response", "warning", "The model that answered is not the one that was asked for.",
                ("asked", "served", "differs"),
                "Ask the provider or the gateway why; where it is an alias, list it under `findings.aliases`."),
    FindingRule("cut_by_length", "response", "warning", "The answer was cut by its limit of tokens.",
                ("finish", "max_tokens", "output_tokens"),
                "Raise the limit of output tokens, or ask for a shorter answer; treat the answer as incomplete."),
    FindingRule("cold_start", "response", "info",
                "The prompt took far longer to read than of late while the load was normal, or a model was loaded.",
                ("prefill", "usual", "load_time"),
                "Keep the model warm with regular traffic or reserved capacity; leave first requests a longer "
                "time-out."),
    FindingRule("cache_hit_collapse", "response", "warning",
                "The share of the prompt that comes from the cache fell far below its recent level.",
                ("hit_ratio", "usual"),
                "Look for what changed at the front of the prompt: a date, an id, another order of tools or passages."),
    FindingRule("diagnostic_mode", "response", "critical",
                "The upstream's request id begins with a prefix of its internal traffic.", ("prefix",),
                "Send no further tests and pause what can wait for five minutes: such answers are not what production "
                "gives. Tell the provider the request id."),
    FindingRule("overload_coming", "response", "warning", "The model's load has been high for several seconds.",
                ("load", "seconds"),
                "Shed or delay work that can wait, before the upstream refuses it."),
    FindingRule("quota_running_out", "response", "warning",
                "At the present pace an allowance runs out sooner than it resets.",
                ("scope", "window", "remaining", "limit", "seconds_left", "reset_after"),
                "Slow down or spread the work now; ask for a higher limit where this is usual traffic."),
    FindingRule("answer_repeats", "response", "warning", "The answer ends in one text repeated over and over.",
                ("period_chars", "repeats"),
                "Set a limit of tokens and a repetition penalty, raise the temperature a little, or shorten the "
                "context."),
    FindingRule("answer_empty", "response", "warning", "The answer is complete and says nothing.",
                ("finish", "output_tokens"),
                "Look at stop sequences and at the last message of the prompt; ask again where that is safe."),
    FindingRule("stream_stalls", "response", "warning", "The stream stood still for longer than the stall threshold.",
                ("stalls", "longest_gap"),
                "Compare load and phases at that time; let clients show that they still wait instead of giving up."),
    FindingRule("usage_missing", "response", "info", "The answer is complete and told no usage.", ("provider",),
                "Ask the provider for usage: without it cost and tokens of these answers are unknown."),
    FindingRule("wrong_region", "response", "critical", "The region that served is not the one that was asked for.",
                ("asked", "served"),
                "Stop sending data that must stay in its region, and take the request id to the provider."),
    FindingRule("deprecation", "response", "info", "The answer announces that the model or the API will go away.", (),
                "Find the date in the provider's `Deprecation` or `Sunset` header and plan the move."),
    FindingRule("text_corrected", "response", "info",
                "The text that the provider repeated in full differs from the text that it had streamed.",
                ("correction_ratio",),
                "Use the final text, not the joined deltas, for what is stored or acted on."),
)  # fmt: skip
FINDING_RULE: dict[str, FindingRule] = {rule.id: rule for rule in FINDING_RULES}

# ---------------------------------------------------------------- labels


class Label(Struct, frozen=True):
    """`values` closes the set; an open set keeps its first `bound` values and calls the rest `other`."""

    name: str
    help: str
    values: tuple[str, ...] | None = None
    bound: int = 100


LABELS: dict[str, Label] = {
    label.name: label
    for label in (
        Label("route", "name of the configured route", bound=200),
        Label("provider", "gen_ai.provider.name, or `unknown`", bound=50),
        Label("model", "served model, else the requested one of a 2xx answer, else `unknown`", bound=100),
        Label("operation", "gen_ai.operation.name, or `unknown`", bound=20),
        Label("outcome", "how the exchange ended", OUTCOMES),
        Label("kind", "what was judged: json, json_schema, tool_arguments, contract", VALIDITY_KINDS),
        Label("result", "validity result", VALIDITY_RESULTS),
        Label("keyword", "JSON Schema keyword that failed", bound=60),
        Label("contract_rule", "name of a rule of the route's contract", bound=60),
        Label("contract_result", "what the rule said of the answer", RULE_RESULTS),
        Label("language", "script of query and answer", LANGUAGES),
        Label("scope", "what a limit counts", bound=30),
        Label("window", "over which time a limit counts, or `unknown`", bound=30),
        Label("source", "who made the answer", THROTTLE_SOURCES),
        Label("limiter", "what said it limited, or `unknown`", bound=20),
        Label("error_kind", "kind of error", ERROR_KINDS),
        Label("phase", "phase of the upstream's work", bound=40),
        Label("type", "kind of token", TOKEN_TYPES),
        Label("header", "name of a response header", bound=30),
        Label("verdict", "whether a token came in time", VERDICTS),
        Label("slo", "name of an objective of the route", bound=50),
        Label("slo_verdict", "whether the exchange met the objective", SLO_VERDICTS),
        Label("slo_unjudged", "why an objective could not be judged", SLO_UNJUDGED),
        Label("slo_measure", "what an objective is about", SLO_MEASURES),
        Label("prompt", "class of the prompt, by its length", PROMPT_CLASSES),
        Label("basis", "how the length of the prompt is known", PROMPT_BASES),
        Label("unobserved", "why an exchange has no record", UNOBSERVED_REASONS),
        Label("refused", "why the sidecar refused a request", REFUSED_REASONS),
        Label("relevance_reason", "why an exchange has no context relevance", RELEVANCE_REASONS),
        Label("score", "one of the scores of relevance", RELEVANCE_SCORES),
        Label("cache_result", "whether a text's vector was remembered", ("hit", "miss")),
        Label("embedder_failure", "why an embedder had no vectors", EMBEDDER_FAILURES),
        Label("anomaly", "what was odd on the wire", ANOMALIES),
        Label("worker", "proxy worker", bound=64),
        Label("process", "a process of the sidecar", ("proxy", "analyst", "embedder", "validator")),
        Label("version", "version of semhealth", bound=2),
        Label("metric", "a metric of this catalogue", bound=200),
        Label("signal", "what OTLP carries", SIGNALS),
        Label("telemetry_drop", "why OTLP lost it", TELEMETRY_DROPS),
        Label("rule", "finding rule", tuple(rule.id for rule in FINDING_RULES)),
        Label("severity", "severity of a finding", ("info", "warning", "critical")),
    )
}  # fmt: skip

# ---------------------------------------------------------------- metrics

Kind = Literal["counter", "gauge", "histogram", "window_ratio", "window_median"]


class Metric(Struct, frozen=True):
    """One metric. `labels` are label names in the order readings give their values.

    A label whose Prometheus name differs from its row in LABELS is written `name=row` (`reason=unobserved`).
    `window_ratio` and `window_median` are gauges over the last 5 minutes that vanish when their window is empty; each
    brings `<name>_observations` (and a ratio `good ÷ all` takes readings of 0 or 1). `lives` is how long, in seconds, a
    gauge stays after it was last set; None is for ever. `otel` is the OpenTelemetry name where a convention has one.
    With `exemplars` each bucket, or the total, keeps the trace id of its last sampled exchange for OpenMetrics.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: tuple[float, ...] = ()
    otel: str | None = None
    lives: float | None = None
    exemplars: bool = False


# Bounds lie at every default threshold: R3 5, 15 ms; R4 50, 80 and 180 ms; R2 0.63 0.75 0.81 0.89; R5 0.70 0.85 0.95;
# 1 s for stalls and for the first token's deadline.
SECONDS = (
    0.005, 0.01, 0.02, 0.04, 0.05, 0.08, 0.12, 0.18, 0.32, 0.64, 1.0, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
    163.84, 327.68,
)  # fmt: skip
GAP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SCORES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.63, 0.7, 0.75, 0.81, 0.85, 0.89, 0.9, 0.95, 1.0)
RATIOS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99, 1.0)
CACHE_RATIOS = (0.0, *RATIOS)
MICRO_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)

METRICS: tuple[Metric, ...] = (
    # The three headline gauges.
    Metric("semantic_health_model_output_validity_rate", "window_ratio",
           "Valid share of the structured outputs checked in the last 5 minutes.", ("route", "model")),
    Metric("semantic_health_context_relevance_score", "window_median",
           "Median context relevance of the exchanges scored in the last 5 minutes, calibrated to 0-1.",
           ("route", "model")),
    Metric("semantic_health_stream_continuity_index_seconds", "window_median",
           "Median over the streams of the last 5 minutes of the standard deviation of gaps between content frames.",
           ("route", "model"), "seconds"),
    # Exchanges.
    Metric("semantic_health_exchanges_total", "counter", "Exchanges recorded, by how they ended.",
           ("route", "provider", "model", "operation", "outcome")),
    Metric("semantic_health_operation_duration_seconds", "histogram",
           "From forwarding the request to the end of the response.",
           ("route", "provider", "model", "operation"), "seconds", SECONDS, "gen_ai.client.operation.duration",
           exemplars=True),
    Metric("semantic_health_errors_total", "counter", "Exchanges that ended in an error, by kind and by who made it.",
           ("route", "provider", "kind=error_kind", "source")),
    Metric("semantic_health_anomalies_total", "counter", "Oddities met on the wire.", ("route", "anomaly")),
    # Validity.
    Metric("semantic_health_output_validations_total", "counter",
           "Judgements of structured output: one per choice and per tool call.", ("route", "model", "kind", "result"),
           exemplars=True),
    Metric("semantic_health_output_validation_failures_total", "counter",
           "Outputs that broke their schema, by the keyword that failed first.", ("route", "model", "keyword")),
    Metric("semantic_health_contract_rules_total", "counter",
           "Answers of routes whose contract has rules, by rule and by what it said of them.",
           ("route", "model", "rule=contract_rule", "result=contract_result")),
    Metric("semantic_health_contract_loaded", "gauge",
           "1 when the route's contract is in force, 0 when it could not be read and the route is judged without it.",
           ("route",)),
    # Relevance.
    Metric("semantic_health_context_relevance", "histogram", "Context relevance per scored exchange.",
           ("route", "model", "language"), "", SCORES, exemplars=True),
    Metric("semantic_health_answer_relevance", "histogram", "Answer relevance per scored exchange.",
           ("route", "model", "language"), "", SCORES, exemplars=True),
    Metric("semantic_health_groundedness", "histogram", "Groundedness of the answer in its context.",
           ("route", "model", "language"), "", SCORES, exemplars=True),
    Metric("semantic_health_relevance_unscored_total", "counter", "Exchanges without a context relevance, by reason.",
           ("route", "reason=relevance_reason")),
    Metric("semantic_health_relevance_eligible_total", "counter",
           "Exchanges whose context relevance could be scored: those that were, and those left out as `sampled_out`, "
           "`budget` or `model_not_ready`. By the scored ones it is the weight of each.", ("route", "model")),
    Metric("semantic_health_relevance_drift_ratio", "gauge",
           "Score at the recent level (5 minutes, at least some 50 exchanges) by the score at the usual one (2 hours, "
           "at least some 1,000), less 1: -0.05 is 5 % below. Unknown for the first 150 exchanges.",
           ("route", "model", "score"), lives=900.0),
    Metric("semantic_health_relevance_drift_logits", "gauge",
           "Recent level of the raw logit less the usual one; -0.69 halves the odds.", ("route", "model", "score"),
           lives=900.0),
    Metric("semantic_health_relevance_drift_errors", "gauge",
           "The same in standard errors: within -4 and 4 it may be chance.", ("route", "model", "score"), lives=900.0),
    Metric("semantic_health_relevance_cpu_seconds_total", "counter",
           "CPU seconds that scoring took, of the embedder and of the analyst's arithmetic.", (), "seconds"),
    Metric("semantic_health_embedder_texts_total", "counter",
           "Texts whose vectors were asked for, by whether they were remembered.", ("result=cache_result",)),
    Metric("semantic_health_embedder_failures_total", "counter",
           "Exchanges that went unscored since the embedder failed: its server, or the model itself.",
           ("reason=embedder_failure",)),
    # Continuity.
    Metric("semantic_health_stream_gap_stddev_seconds", "histogram",
           "Standard deviation of the gaps between content frames, per stream.", ("route", "model"), "seconds",
           GAP_SECONDS, exemplars=True),
    Metric("semantic_health_stream_longest_gap_seconds", "histogram", "Longest gap between content frames, per stream.",
           ("route", "model"), "seconds", GAP_SECONDS, exemplars=True),
    Metric("semantic_health_stream_stalls_total", "counter", "Gaps longer than the stall threshold.",
           ("route", "model")),
    Metric("semantic_health_stream_deadlines_total", "counter",
           "Deadlines for content frames, met and missed (fluidity as in Etalon).", ("route", "model", "verdict")),
    Metric("semantic_health_streams_total", "counter", "Streams with at least one content frame.", ("route", "model")),
    Metric("semantic_health_time_to_first_token_seconds", "histogram",
           "From forwarding the request to the first generated token (text, reasoning or tool call) of a stream.",
           ("route", "model"), "seconds", SECONDS, exemplars=True),
    Metric("semantic_health_time_to_first_chunk_seconds", "histogram",
           "From forwarding the request to the first byte of a streamed body.",
           ("route", "provider", "model", "operation"), "seconds", SECONDS,
           "gen_ai.client.operation.time_to_first_chunk", exemplars=True),
    Metric("semantic_health_time_per_output_token_seconds", "histogram",
           "Time between first and last content frame by output tokens less one, where usage is known.",
           ("route", "model"), "seconds", GAP_SECONDS),
    Metric("semantic_health_client_blocked_seconds_total", "counter", "Time that streams waited for a slow client.",
           ("route",), "seconds"),
    # Signals.
    Metric("semantic_health_rate_limit_limit", "gauge", "Limit as the upstream last stated it.",
           ("route", "provider", "scope", "window"), lives=300.0),
    Metric("semantic_health_rate_limit_remaining", "gauge", "Remaining allowance as the upstream last stated it.",
           ("route", "provider", "scope", "window"), lives=300.0),
    Metric("semantic_health_rate_limit_reset_timestamp_seconds", "gauge", "When the allowance is full again.",
           ("route", "provider", "scope", "window"), "seconds", lives=300.0),
    Metric("semantic_health_rate_limit_observed_timestamp_seconds", "gauge", "When the limit was last stated.",
           ("route", "provider", "scope", "window"), "seconds", lives=300.0),
    Metric("semantic_health_throttled_total", "counter", "Answers that said to come back later (429, 503, 529).",
           ("route", "source", "limiter", "kind=error_kind")),
    Metric("semantic_health_model_load_ratio", "gauge",
           "Model load as the upstream last stated it (X-Model-Load, Azure's deployment utilization, ORCA).",
           ("route", "model"), lives=300.0),
    Metric("semantic_health_upstream_phase_seconds", "histogram", "Time the upstream says a phase took.",
           ("route", "model", "phase"), "seconds", SECONDS),
    Metric("semantic_health_kv_cache_hit_ratio", "histogram", "KV-cache hit share as the upstream states it.",
           ("route", "model", "phase"), "", RATIOS),
    Metric("semantic_health_tokens_total", "counter", "Tokens as the provider reported them, in normal form.",
           ("route", "model", "type")),
    Metric("semantic_health_prompt_cache_hit_ratio", "histogram",
           "Share of the input tokens that came from the provider's prompt cache, where it reports both.",
           ("route", "model"), "", CACHE_RATIOS),
    Metric("semantic_health_cost_usd_total", "counter",
           "US dollars by the price table, of exchanges whose model has a price. The types add up: `input` is what "
           "came from no cache, `output` what was no reasoning.", ("route", "model", "type")),
    Metric("semantic_health_early_retries_total", "counter",
           "Requests that came back before the time to wait, which a throttling answer had named, had passed.",
           ("route", "provider")),
    Metric("semantic_health_unknown_headers_total", "counter",
           "Headers that name a rate limit in a way that is not read.", ("route", "header")),
    Metric("semantic_health_deprecations_total", "counter",
           "Answers that warn that the model or the API will go away.", ("route", "model")),
    # Findings.
    Metric("semantic_health_findings_total", "counter", "Findings, by the rule of the catalogue that held.",
           ("route", "model", "rule", "severity")),
    Metric("semantic_health_recommended_timeout_seconds", "gauge",
           "Time-out that whole answers of the model need: 1.8 times what reading the prompt and writing the answer "
           "have taken of late.", ("route", "model"), "seconds", lives=300.0),
    # Objectives.
    Metric("semantic_health_slo_events_total", "counter", "Exchanges judged against an objective of their route.",
           ("route", "slo", "verdict=slo_verdict")),
    Metric("semantic_health_slo_unjudged_total", "counter", "Exchanges that an objective could not be judged for.",
           ("route", "slo", "reason=slo_unjudged")),
    Metric("semantic_health_slo_objective_ratio", "gauge", "Share of exchanges that must meet the objective.",
           ("route", "slo")),
    Metric("semantic_health_slo_threshold", "gauge",
           "What the objective is judged against: seconds at most, or a score or ratio at least.",
           ("route", "slo", "measure=slo_measure")),
    Metric("semantic_health_prompts_total", "counter",
           "Exchanges by class of prompt, and whether its length was reported or is estimated.",
           ("route", "prompt", "basis")),
    Metric("semantic_health_cost_budget_usd_per_hour", "gauge", "US dollars an hour that the route may cost.",
           ("route",)),
    # The sidecar itself.
    Metric("semantic_health_unobserved_total", "counter", "Forwarded exchanges that have no record, by reason.",
           ("reason=unobserved",)),
    Metric("semantic_health_forwarded_total", "counter", "Exchanges forwarded, counted by the proxy when they end."),
    Metric("semantic_health_refused_total", "counter", "Requests that the sidecar itself refused.",
           ("reason=refused",)),
    Metric("semantic_health_accept_failures_total", "counter",
           "Times that a connection could not be accepted and had to wait, for want of descriptors or memory."),
    Metric("semantic_health_in_flight", "gauge", "Exchanges being forwarded now.", ("worker",), lives=15.0),
    Metric("semantic_health_queue_bytes", "gauge", "Bytes waiting for the analyst.", ("worker",), "bytes", lives=15.0),
    Metric("semantic_health_proxy_added_seconds", "histogram", "The sidecar's own share of the time, per exchange.", (),
           "seconds", MICRO_SECONDS),
    Metric("semantic_health_event_loop_lag_seconds", "histogram", "How late timers ran in the proxy.", (), "seconds",
           MICRO_SECONDS),
    Metric("semantic_health_analysis_seconds", "histogram", "Time from the end of an exchange to its record.", (),
           "seconds", SECONDS),
    Metric("semantic_health_process_restarts_total", "counter", "Processes of the sidecar that died and came back.",
           ("process",)),
    Metric("semantic_health_config_last_reload_successful", "gauge",
           "1 when the configuration that was last read is in force, 0 when it was refused."),
    Metric("semantic_health_config_last_reload_success_timestamp_seconds", "gauge",
           "When the configuration that is in force was read.", (), "seconds"),
    Metric("semantic_health_relevance_ready", "gauge", "1 when the embedding model is loaded."),
    Metric("semantic_health_readings_dropped_total", "counter", "Readings refused: no finite number or no series left.",
           ("metric",)),
    Metric("semantic_health_label_overflow_total", "counter", "Label values counted as `other`, past a bound.",
           ("metric",)),
    Metric("semantic_health_export_failures_total", "counter", "OTLP exports that failed."),
    Metric("semantic_health_telemetry_dropped_total", "counter",
           "Spans, log records and points of metrics that no OTLP receiver took, by signal and reason.",
           ("signal", "reason=telemetry_drop")),
    Metric("semantic_health_exchange_log_lost_total", "counter", "Records that the exchange log could not take."),
    Metric("semantic_health_build_info", "gauge", "Always 1.", ("version",)),
)  # fmt: skip

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}


def label_names(metric: Metric) -> tuple[str, ...]:
    """Label names as exported, without the row that governs them."""
    return tuple(name.split("=", 1)[0] for name in metric.labels)


def label_rules(metric: Metric) -> tuple[Label, ...]:
    """The row of LABELS that governs each label, in order."""
    return tuple(LABELS[name.rsplit("=", 1)[-1]] for name in metric.labels)
