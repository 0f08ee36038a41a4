"""Writes docs/providers.md from the code and a table of providers and servers; --check only compares.

Only the names, sample requests, sample headers and remarks are written here. Which dialect reads a request, which
transport an answer is, which limits and phases its headers tell and what a dialect looks for is asked of the code.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import fields

from collector.analyst.answer import dialect_of
from collector.app import DIALECTS
from collector.catalogue import FINISH_WORDS, provider_of
from collector.model import Delta, Dialect, Headers, RequestFacts, RequestHead, ResponseHead
from collector.signals.rate_limits import rate_limits
from collector.signals.upstream import REQUEST_IDS, upstream_facts
from collector.wire.sniff import Sniffer

PAGE = Path(__file__).resolve().parent.parent / "docs" / "providers.md"

JSON, SSE = "application/json", "text/event-stream"
BOTH = (JSON, SSE)
EVENTS = "application/vnd.amazon.eventstream"
UPGRADE = "101"  # in the place of a media type: the connection becomes a WebSocket
ARRIVED = 1_772_704_800.0  # when the sample headers came, in Unix seconds

SAMPLES = {"reset": "1s", "renewalperiod": "60"}

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, EMBEDDINGS = "/v1/responses", "/v1/embeddings"


class Row(Struct, frozen=True):
    """A provider or server: sample requests as `METHOD path`, media types of answers, sample headers of limits."""

    name: str
    host: str
    requests: tuple[str, ...]
    answers: tuple[str, ...] = BOTH
    headers: tuple[tuple[str, str], ...] = ()
    remark: str = ""


def _told(*names: str, value: str = "1") -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name in names)


def _openai_limits(
    *scopes: str, fields_told: tuple[str, ...] = ("limit", "remaining", "reset")
) -> tuple[tuple[str, str], ...]:
    return tuple((f"x-ratelimit-{field}-{scope}", SAMPLES.get(field, "1")) for scope in scopes for field in fields_told)


ROWS: tuple[Row, ...] = (
    Row(
        "OpenAI",
        "api.openai.com",
        (f"POST {CHAT}", f"POST {RESPONSES}", f"POST {COMPLETIONS}", f"POST {EMBEDDINGS}", "GET /v1/realtime"),
        (*BOTH, UPGRADE),
        _openai_limits("requests", "tokens"),
        "`openai-processing-ms`; audio and images pass unread; realtime limits come in `rate_limits.updated`",
    ),
    Row(
        "Azure OpenAI",
        "made-up.openai.azure.com",
        (
            "POST /openai/deployments/d/chat/completions",
            "POST /openai/deployments/d/embeddings",
            "POST /openai/v1/responses",
            "GET /openai/realtime",
        ),
        (*BOTH, UPGRADE),
        (
            *_openai_limits("requests", "tokens", fields_told=("limit", "remaining", "renewalperiod")),
            *_told("cmp-upstream-response-duration", "ms-azureml-model-time"),
        ),
        "`retry-after-ms`, content filters; bare resets have no known unit and stay unknown",
    ),
    Row(
        "Azure AI",
        "made-up.services.ai.azure.com",
        ("POST /models/chat/completions", "POST /openai/v1/embeddings"),
        headers=_openai_limits("requests", "tokens", fields_told=("limit", "remaining")),
    ),
    Row(
        "Anthropic",
        "api.anthropic.com",
        ("POST /v1/messages", "POST /v1/complete", "POST /v1/messages/count_tokens"),
        headers=tuple(
            (f"anthropic-ratelimit-{scope}-{field}", "2026-03-05T10:00:01Z" if field == "reset" else "1")
            for scope in ("requests", "tokens", "input-tokens", "output-tokens")
            for field in ("limit", "remaining", "reset")
        ),
        remark="thinking, 529, `error` events inside streams",
    ),
    Row(
        "Amazon Bedrock",
        "bedrock-runtime.us-east-1.amazonaws.com",
        (
            "POST /model/m/converse",
            "POST /model/m/converse-stream",
            "POST /model/m/invoke",
            "POST /model/m/invoke-with-response-stream",
        ),
        (JSON, EVENTS),
        _told("x-amzn-bedrock-invocation-latency"),
        "both checksums; exceptions inside streams; invoke reads Anthropic, Titan, Nova, Llama, Mistral, Cohere, AI21; "
        "token counts from headers where the body has none",
    ),
    Row(
        "Google Gemini",
        "generativelanguage.googleapis.com",
        (
            "POST /v1beta/models/m:generateContent",
            "POST /v1beta/models/m:streamGenerateContent",
            "POST /v1beta/interactions",
            "POST /v1beta/models/m:embedContent",
        ),
        headers=(("server-timing", "gfet4t7; dur=1"),),
        remark="`RetryInfo` and `quotaId` in bodies; streams come as events or as one array",
    ),
    Row(
        "Google Vertex AI",
        "us-east5-aiplatform.googleapis.com",
        (
            "POST /v1/projects/p/locations/l/publishers/google/models/m:streamGenerateContent",
            "POST /v1/projects/p/locations/l/publishers/anthropic/models/m:streamRawPredict",
        ),
        remark="Anthropic's models in their own words",
    ),
    Row(
        "Cohere",
        "api.cohere.com",
        ("POST /v2/chat", "POST /v1/chat", "POST /v2/embed"),
        (JSON, SSE, "application/stream+json"),
        _told("x-trial-endpoint-call-limit", "x-trial-endpoint-call-remaining"),
    ),
    Row(
        "Mistral",
        "api.mistral.ai",
        (f"POST {CHAT}",),
        headers=_told(
            "x-ratelimit-limit-req-minute",
            "x-ratelimit-remaining-req-minute",
            "x-ratelimit-limit-tokens-minute",
            "x-kong-upstream-latency",
            "x-kong-proxy-latency",
        ),
    ),
    Row(
        "Groq",
        "api.groq.com",
        ("POST /openai/v1/chat/completions",),
        headers=_openai_limits("requests", "tokens"),
        remark="usage and times in `x_groq`; requests are counted per day, tokens per minute",
    ),
    Row(
        "DeepSeek", "api.deepseek.com", ("POST /chat/completions", "POST /responses"), remark="cache hits in the usage"
    ),
    Row(
        "xAI",
        "api.x.ai",
        (f"POST {CHAT}", f"POST {RESPONSES}"),
        headers=_openai_limits("requests", "tokens", fields_told=("limit", "remaining")),
        remark="reasoning counted beside the output",
    ),
    Row(
        "Perplexity",
        "api.perplexity.ai",
        ("POST /chat/completions", f"POST {EMBEDDINGS}"),
        remark="full text in every chunk",
    ),
    Row(
        "OpenRouter",
        "openrouter.ai",
        ("POST /api/v1/chat/completions", "POST /api/v1/rerank"),
        headers=_told("x-ratelimit-limit", "x-ratelimit-remaining"),
        remark="comments while it waits",
    ),
    Row(
        "Together",
        "api.together.xyz",
        (f"POST {CHAT}", f"POST {COMPLETIONS}"),
        headers=_told("x-ratelimit-limit", "x-ratelimit-remaining", "x-queue-time", "x-inference-time", "x-total-time"),
    ),
    Row(
        "Fireworks",
        "api.fireworks.ai",
        ("POST /inference/v1/chat/completions",),
        headers=(
            *_told("x-ratelimit-limit-tokens-prompt"),
            ("fireworks-server-time-to-first-token", "0.125"),
            ("fireworks-server-processing-time", "0.5"),
        ),
        remark="`perf_metrics` in the last chunk",
    ),
    Row(
        "Cerebras",
        "api.cerebras.ai",
        (f"POST {CHAT}",),
        headers=_openai_limits("requests-day", "tokens-minute"),
        remark="times in `time_info`",
    ),
    Row(
        "SambaNova",
        "api.sambanova.ai",
        (f"POST {CHAT}",),
        headers=_told("x-ratelimit-limit-requests-day"),
        remark="times in the usage",
    ),
    Row("Hugging Face router", "router.huggingface.co", (f"POST {CHAT}",)),
    Row(
        "Text Generation Inference",
        "localhost:8080",
        ("POST /generate_stream", f"POST {CHAT}"),
        headers=_told("x-queue-time", "x-validation-time", "x-inference-time", "x-time-per-token", "x-total-time"),
        remark="the whole text again in the last event",
    ),
    Row(
        "vLLM",
        "localhost:8000",
        (f"POST {CHAT}", f"POST {COMPLETIONS}", f"POST {EMBEDDINGS}"),
        remark="`endpoint-load-metrics` (ORCA), where asked for: `routes[].orca`",
    ),
    Row("llama.cpp", "localhost:8080", (f"POST {CHAT}",), remark="times in `timings`"),
    Row("LM Studio", "localhost:1234", (f"POST {CHAT}", f"POST {RESPONSES}")),
    Row(
        "Ollama",
        "localhost:11434",
        ("POST /api/chat", "POST /api/generate", "POST /api/embed", f"POST {CHAT}"),
        (JSON, "application/x-ndjson", SSE),
        remark="durations in its last line",
    ),
    Row("Ollama's cloud", "ollama.com", ("POST /api/chat", f"POST {CHAT}"), (JSON, "application/x-ndjson", SSE)),
    Row("watsonx", "us-south.ml.cloud.ibm.com", ("POST /ml/v1/text/generation_stream", "POST /ml/v1/text/chat_stream")),
    Row(
        "Replicate",
        "api.replicate.com",
        ("POST /v1/predictions", "POST /v1/models/a/b/predictions"),
        headers=_told("ratelimit-remaining", "ratelimit-reset"),
    ),
    Row("Writer", "api.writer.com", ("POST /v1/chat", f"POST {COMPLETIONS}")),
    Row("Voyage", "api.voyageai.com", (f"POST {EMBEDDINGS}",), (JSON,)),
    Row("Moonshot", "api.moonshot.ai", (f"POST {CHAT}",)),
    Row("Snowflake", "made-up.snowflakecomputing.com", ("POST /api/v2/cortex/v1/chat/completions",)),
    Row(
        "LiteLLM, Kong, Envoy in front of any",
        "localhost:4000",
        (f"POST {CHAT}",),
        headers=_told("x-litellm-response-duration-ms", "x-kong-upstream-latency", "x-envoy-upstream-service-time"),
        remark="headers of the provider behind `llm_provider-`",
    ),
    Row(
        "any other",
        "localhost",
        ("POST /anything",),
        remark="status, timing, sizes, headers, the error of an error body",
    ),
)

# What a reader may tell, and what it is called here.
SAID = {
    "text": "text", "tools": "tool calls", "reasoning": "reasoning", "refusal": "refusals", "finish": "finish words",
    "usage": "usage", "model": "model", "error": "errors", "blocked": "blocked prompts", "full_text": "repeats",
    "phases": "phases", "limits": "limits", "retry_after": "retry hints", "ping": "pings",
}  # fmt: skip
EMBEDDED = frozenset({"usage", "model", "error", "phases"})
ASKED = {
    "model": "model", "expectation": "schema", "tool_schemas": "tool schemas", "query": "query", "context": "context",
    "max_output_tokens": "output limit",
}  # fmt: skip


def built() -> str:
    """The page as it should be."""
    return "\n\n".join((
        "# What is read from which provider\n\n"
        "Built from the code by `python -m tools.build_providers`; a test compares. A host that is not listed is read\n"
        "all the same: the dialect goes by the path, and a route can name it (`dialect:`) and the provider.",
        "## Providers and servers\n\n" + _table(("provider or server", "`provider`", "dialects", "transports",
            "limits in headers", "phases in headers", "remarks"), [_provider(row) for row in ROWS]),
        "Request ids come from " + ", ".join(f"`{name}`" for name in REQUEST_IDS)
        + ".\n\nServer-Timing, `X-Trace-Detail`, `X-Model-Load`, ORCA load reports, `Retry-After` and\n"
        "`retry-after-ms` are read whoever sends them.",
        "## Dialects\n\n"
        "What a dialect looks for; where a provider does not say it, the record says null.\n\n"
        + _table(("dialect", "operation", "requests", "read from answers", "read from requests"),
                 [_dialect(dialect) for dialect in DIALECTS]),
        "## Finish words\n\n"
        "Each provider's own word is in the record; this is what it means for the outcome. A word that is not listed\n"
        "means `completed`. Case does not matter.\n\n" + _table(("meaning", "words"), _endings()),
    )) + "\n"  # fmt: skip


def dialects_of(row: Row) -> list[str]:
    """The dialect of each sample request."""
    answer = ResponseHead(200, Headers())
    found = []
    for request in row.requests:
        method, path = request.split(" ")
        head = RequestHead(method, path, row.host, Headers(), provider_of(row.host))
        found.append(dialect_of(head, answer, DIALECTS).name)
    return list(dict.fromkeys(found))


def transports_of(row: Row) -> list[str]:
    """The transports that answers of these media types have."""
    found = []
    for kind in row.answers:
        status = 101 if kind == UPGRADE else 200
        sniffer = Sniffer(ResponseHead(status, Headers((("content-type", kind),))))
        found.append(sniffer.decide(b"", ended=True) or "opaque")
    for request in row.requests:
        path = request.split(" ")[1]
        if ":stream" in path:
            sniffer = Sniffer(ResponseHead(200, Headers((("content-type", JSON),))), path)
            found.append(sniffer.decide(b"[{}]", ended=True) or "opaque")
    return list(dict.fromkeys(found))


def limits_of(row: Row) -> list[str]:
    """Scopes and windows of the limits that the sample headers state."""
    limits, _ = rate_limits(Headers(row.headers), provider_of(row.host), ARRIVED)[:2]
    return [limit.scope if limit.window is None else f"{limit.scope} per {limit.window}" for limit in limits]


def _provider(row: Row) -> tuple[str, ...]:
    provider = provider_of(row.host)
    phases = upstream_facts(Headers(), Headers(row.headers)).phases
    return (
        row.name,
        f"`{provider}`" if provider is not None else "",
        ", ".join(f"`{name}`" for name in dialects_of(row)),
        ", ".join(f"`{name}`" for name in transports_of(row)),
        ", ".join(limits_of(row)),
        ", ".join(f"`{name}`" for name in phases),
        row.remark,
    )


def _dialect(dialect: Dialect) -> tuple[str, ...]:
    says, asks = spoken(dialect)
    if dialect.operation == "embeddings":  # some share their reader with the dialect that chats
        says, asks = says & EMBEDDED, asks & EMBEDDED
    about = inspect.getdoc(type(dialect)) or "anything else"
    return (
        f"`{dialect.name}`",
        f"`{dialect.operation}`" if dialect.operation else "",
        " ".join(about.split("\n\n")[0].split()).rstrip("."),
        ", ".join(word for name, word in SAID.items() if name in says),
        ", ".join(word for name, word in ASKED.items() if name in asks),
    )


def spoken(dialect: Dialect) -> tuple[set[str], set[str]]:
    """The fields of Delta and of RequestFacts that a dialect, and those it hands bodies over to, ever fill in."""
    says: set[str] = set()
    asks: set[str] = set()
    for each in _with_its_own(dialect):
        for part in _reached(type(each)):
            for call in ast.walk(part):
                if isinstance(call, ast.Call) and _name(call.func) in ("Delta", "RequestFacts", "replace"):
                    told = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
                    if _name(call.func) != "RequestFacts":
                        says |= told & {field.name for field in fields(Delta)}
                    if _name(call.func) != "Delta":
                        asks |= told & {field.name for field in fields(RequestFacts)}
    return says, asks


def _reached(kind: type) -> list[ast.stmt]:
    """The class, and what it names of its own module, directly or not."""
    module = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    named = {part.name: part for part in module.body if isinstance(part, ast.ClassDef | ast.FunctionDef)}
    reached: dict[str, ast.stmt] = {}
    waiting = [kind.__name__]
    while waiting:
        name = waiting.pop()
        if name in named and name not in reached:
            reached[name] = named[name]
            waiting += [inner.id for inner in ast.walk(named[name]) if isinstance(inner, ast.Name)]
    return list(reached.values())


def _with_its_own(dialect: Dialect) -> Iterator[Dialect]:
    """The dialect, and the dialects that it hands bodies over to: none where it only embeds."""
    yield dialect
    for held in vars(dialect).values() if dialect.operation != "embeddings" else ():
        inner = [getattr(held, field.name) for field in fields(held)] if isinstance(held, Struct) else [held]
        for each in inner:
            if hasattr(each, "speaks") and hasattr(each, "request_facts"):
                yield each


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _endings() -> list[tuple[str, ...]]:
    meanings = dict.fromkeys(FINISH_WORDS.values())
    return [
        (f"`{meaning}`", ", ".join(f"`{word}`" for word, told in FINISH_WORDS.items() if told == meaning))
        for meaning in meanings
    ]


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main(arguments: list[str]) -> int:
    """Write the page, or with --check exit 1 if it is out of date."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m tools.build_providers [--check]", file=sys.stderr)
        return 2
    text = built()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    if arguments:
        print(f"{PAGE.name}: out of date; run python -m tools.build_providers", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.name}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
