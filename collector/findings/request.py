"""Rules on the request: each gives what it saw in one exchange, or None where it does not hold."""

from __future__ import annotations

import re

from collector.findings.policy import Policy
from collector.findings.schemas import TELLING, refused_feature
from collector.model import Exchange

Facts = dict[str, float | str | bool]

ROOM = 1.5  # R12: the limit of output tokens against the longest answer
LEAST_ANSWER = 50  # tokens; shorter answers in the history tell nothing

_HEADER_VALUE = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # R13
_STREAMS_WITH_OPTIONS = frozenset({"openai.chat", "openai.completions"})
_WITHOUT_OPTIONS = frozenset({"writer"})  # their text completions have no `stream_options`
# Their functions and output take a subset of OpenAPI, so that the schemas of tools are refused too.
_STRICT_TOOLS = frozenset({"gcp.gemini", "gcp.vertex_ai"})


def system_prompt_long(exchange: Exchange, policy: Policy) -> Facts | None:
    limit, prompt = policy.system_prompt_tokens, exchange.request.prompt
    if limit is None or prompt is None or prompt.system_tokens is None or prompt.system_tokens <= limit:
        return None
    return {"tokens": prompt.system_tokens, "limit": limit}


def markup_comments(exchange: Exchange, policy: Policy) -> Facts | None:
    prompt = exchange.request.prompt
    return {"comments": prompt.system_comments} if prompt is not None and prompt.system_comments else None


def cr_lf(exchange: Exchange, policy: Policy) -> Facts | None:
    prompt = exchange.request.prompt
    return {} if prompt is not None and prompt.has_cr_lf else None


def late_constraints(exchange: Exchange, policy: Policy) -> Facts | None:
    prompt = exchange.request.prompt
    if prompt is None or prompt.late_constraint is None:
        return None
    return {"kind": prompt.late_constraint}


def schema_feature_refused(exchange: Exchange, policy: Policy) -> Facts | None:
    request, record = exchange.request, exchange.record
    if request.expectation is None and not request.tool_schemas:
        return None
    refused = record.error is not None and record.error.kind == "invalid_request"
    if record.provider in TELLING and not refused:
        return None
    schemas = [request.expectation.schema] if request.expectation is not None else []
    if record.provider in _STRICT_TOOLS or refused:
        schemas += request.tool_schemas.values()
    for schema in schemas:
        feature = refused_feature(record.provider, schema) if schema is not None else None
        if feature is not None:
            return {"feature": feature, "refused": refused}
    return None


def invalid_header_value(exchange: Exchange, policy: Policy) -> Facts | None:
    if not policy.checked_headers:
        return None
    headers = exchange.request_headers
    for name in policy.checked_headers:
        if any(_HEADER_VALUE.fullmatch(value) is None for value in headers.all(name)):
            return {"header": name}
    return None


def include_usage_missing(exchange: Exchange, policy: Policy) -> Facts | None:
    record = exchange.record
    if record.usage is not None or not record.stream or record.outcome not in ("completed", "incomplete"):
        return None
    if record.dialect not in _STREAMS_WITH_OPTIONS or exchange.request.include_usage is True:
        return None
    if record.dialect == "openai.completions" and record.provider in _WITHOUT_OPTIONS:
        return None
    return {"provider": record.provider or "unknown"}


def usage_missing(exchange: Exchange, policy: Policy) -> Facts | None:
    record = exchange.record
    if "usage_missing" not in record.anomalies or include_usage_missing(exchange, policy) is not None:
        return None
    return {"provider": record.provider or "unknown"}


def max_tokens_low(exchange: Exchange, policy: Policy) -> Facts | None:
    limit, prompt = exchange.request.max_output_tokens, exchange.request.prompt
    if limit is None or prompt is None or prompt.longest_answer_tokens is None:
        return None
    longest = prompt.longest_answer_tokens
    if longest < LEAST_ANSWER or limit >= ROOM * longest:
        return None
    return {"max_tokens": limit, "longest_answer_tokens": longest}
