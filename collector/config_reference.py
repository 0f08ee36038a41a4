"""Describes every key of the configuration: for people as Markdown, for editors as JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import NODEFAULT, inspect

from collector.config import DURATION_PATTERN, SIZE_PATTERN, Settings, format_duration, format_size
from collector.config_file import FILE_VARIABLE, KEY_VARIABLE, TOKEN_VARIABLE, VARIABLES
from collector.config_tree import SETTINGS, Keys, bare_type, is_section, keys_below, pattern_of

_FINDINGS = {
    "profile": (
        "`strict` takes the limits of the source documents: system prompts of at most 128 tokens. `default` has no "
        "such limit."
    ),
    "off": "Ids of rules that make no finding, of docs/findings/README.md.",
    "system_prompt_tokens": (
        "Longest system prompt, in tokens as they are estimated: one per 4 characters, one per character of Chinese, "
        "Japanese or Korean. Left out, the profile decides."
    ),
    "checked_headers": "Request headers whose values must be 1 to 64 letters, digits, `_` and `-`.",
    "aliases": "Pairs of names that are one model, so that no downgrade is found between them.",
    "aliases[].asked": "Name as requests give it.",
    "aliases[].served": "Name as answers give it.",
    "diagnostic_prefixes": (
        "Beginnings of request ids that an upstream gives to its internal traffic. Left out: `anthropic-internal-`, "
        "`internal-`, `diagnostic-` and `debug-`."
    ),
    "overload_load": "A model load above this for 3 seconds announces an overload.",
    "retry_storm": "So many requests that came back too early within a minute are a storm.",
}
_FINDINGS_OF_ALL = {f"findings.{key}": text for key, text in _FINDINGS.items()}
_FINDINGS_OF_ROUTES = {f"routes[].findings.{key}": text for key, text in _FINDINGS.items()}

# One sentence or two per key and section, in Markdown. A test holds this table against the types, both ways.
DESCRIPTIONS: dict[str, str] = {
    "upstream": (
        "The LLM API that requests are forwarded to, `http(s)://host[:port][/path]`. It stands for a route named "
        "`default` at `/`, beside any `routes`. A URL with a user, a query or a fragment is refused: keys belong "
        "in the headers of the service's own requests, which pass unchanged."
    ),
    "listen": (
        "Where the service sends its requests, `host:port` or `[IPv6]:port`; port 0 takes any free one. The host "
        "is always written: `127.0.0.1:8080` for this machine alone, `0.0.0.0:8080` for every interface."
    ),
    "admin": "Where metrics, records, health and the live page are served.",
    "admin_auth": "Who may read the admin port; see docs/security.md. Without a token, whoever reaches it.",
    "admin_auth.token_file": (
        "File with the bearer token that requests to the admin port have to show, but those to `/livez` and `/readyz`. "
        "It is read again when it changes."
    ),
    "admin_auth.token_env": "Name of the environment variable that holds the token where no file is named.",
    "admin_tls": "TLS of the admin port. Both files or neither; they are read when the analyst process starts.",
    "admin_tls.cert_file": "PEM file with the certificate of the admin port and its chain.",
    "admin_tls.key_file": "PEM file with its key, without a password.",
    "health": (
        "A further address on which the proxy answers `/-/healthz` and `/-/readyz`, for probes from outside the pod."
    ),
    "routes": (
        "Upstreams by path prefix. The longest matching prefix wins; a request that matches none is answered 404."
    ),
    "routes[].name": "Value of the label `route`; letters, digits, `_`, `.` and `-`, at most 64. Names must differ.",
    "routes[].upstream": "As `upstream` above. Its path is put in front of what remains of the request's path.",
    "routes[].prefix": "Path prefix, whole segments: `/a` matches `/a` and `/a/b`, not `/ab`. Prefixes must differ.",
    "routes[].strip_prefix": "Whether the prefix is removed before the upstream's own path is put in front.",
    "routes[].dialect": (
        "How bodies are read; `unknown` reads nothing of them. Detected from each request when left out."
    ),
    "routes[].provider": "Value of `gen_ai.provider.name`. Taken from the upstream's host when left out.",
    "routes[].contract": "A JSON Schema, or a contract with `schema` and `rules` (docs/contracts.md), for answers. "
    "The schema counts where the request itself asks for none.",
    "routes[].proxy": (
        "A forward proxy for this route's upstream, `http://host:port`, or `none`. Left out, `https_proxy`, "
        "`http_proxy`, `all_proxy` and `no_proxy` of the environment decide; an upstream on this machine is never "
        "reached through one of those. Over https the proxy is asked for a tunnel, and sees no more than the host."
    ),
    "routes[].host": (
        "What the upstream gets as `Host`: the name in its URL, or with `preserve` what the client sent. Where to "
        "connect, and the name that TLS asks for, are the URL's either way; see docs/bedrock.md."
    ),
    "routes[].sigv4": (
        "Signs requests anew for AWS, with the credentials of the environment: `AWS_ACCESS_KEY_ID`, "
        "`AWS_SECRET_ACCESS_KEY` and, with a session, `AWS_SESSION_TOKEN`. A request is held until its body is "
        "complete, 4 MiB at most. Needs the extra `aws`. Left out, signatures pass as they are; see docs/bedrock.md."
    ),
    "routes[].sigv4.mode": "`resign` takes an earlier signature out and puts its own in.",
    "routes[].sigv4.region": "Region that is signed for, such as `us-east-1`.",
    "routes[].sigv4.service": "Service that is signed for, by its name in signatures.",
    "routes[].orca": (
        "Asks the upstream for its load with every request, as an ORCA report in this format, spelt as it is sent: "
        "vLLM takes either case, Triton small letters only. The line `endpoint-load-metrics-format` is added to the "
        "request, and `endpoint-load-metrics` and `endpoint-load-metrics-bin` are taken out of the answer. A request "
        "that asks by itself passes, and is answered, as if this were not set. Reports in trailers are not read; "
        "vLLM adds none to streams."
    ),
    "routes[].objectives": "What the route promises; judged per exchange, see docs/objectives.md.",
    "routes[].objectives[].name": "Value of the label `slo`. Names must differ within a route.",
    "routes[].objectives[].measure": (
        "What is judged: `duration`, `first_token` and `jitter` (deviation of gaps) with `at_most`; "
        "`context_relevance`, `answer_relevance`, `groundedness` and `kv_cache_hit` with `at_least`; "
        "`validity` and `errors` with neither."
    ),
    "routes[].objectives[].share": "Share of the exchanges that must meet it, between 0 and 1.",
    "routes[].objectives[].at_most": "The longest time that meets it.",
    "routes[].objectives[].at_least": "The lowest score that meets it, up to 1.",
    "routes[].objectives[].prompts": (
        "Prompts that it is about, by their length: `analysis.long_context_tokens` is the boundary. Left out: all."
    ),
    "routes[].objective_profile": (
        "As `objective_profile` below, for this route. Its own objectives come first: one of the same name replaces "
        "that of the profile."
    ),
    "routes[].cost_per_hour": (
        "US dollars an hour that the route may cost, by the price table. Models without a price cost nothing here."
    ),
    "routes[].findings": "As `findings` below, for this route alone; it replaces them as a whole.",
    **_FINDINGS_OF_ROUTES,
    "routes[].labels": "Fixed labels for the metrics of this route.",
    "routes[].labels.<name>": (
        "Value of the label, 1 to 128 bytes. Where `label_headers` has the same label, it stands for requests "
        "without that header."
    ),
    "label_headers": (
        "Labels that are read from request headers, such as a team's name. With the labels of routes, at most 8 "
        "names; headers that carry credentials are refused."
    ),
    "label_headers.<name>": "Name of the request header. The values seen are bounded; later ones count as `other`.",
    "proxy": "The data plane.",
    "proxy.workers": "Processes that forward. One carries tens of thousands of requests a second.",
    "proxy.connect_timeout": "Longest wait for a connection to the upstream; then the answer is 504.",
    "proxy.response_timeout": (
        "Longest wait for the head of a response; then the answer is 504. No limit when left out: the service's "
        "own time-out rules."
    ),
    "proxy.keep_alive": "An idle connection of the service is closed after this.",
    "proxy.pool_idle": "An idle connection to the upstream is closed after this.",
    "proxy.pool_age": (
        "A connection to the upstream that is older is closed after its answer, however busy. New connections ask "
        "for the name anew, so this is how long a change of DNS may take to be followed."
    ),
    "proxy.pool_size": "Idle connections kept per upstream and worker.",
    "proxy.max_connections": "Connections of the service per worker; further ones are refused.",
    "proxy.max_head": "Largest head of a request or response. At least 1KiB.",
    "proxy.queue": (
        "Bytes of events per worker that may wait for the analyst. From half of it on whole exchanges go unobserved, "
        "those that carry much first, and are counted; requests are never held up."
    ),
    "proxy.drain_timeout": "On SIGTERM, how long open streams may take to finish.",
    "proxy.trace_parent": (
        "Whether the sidecar's span becomes the parent: `traceparent` is then rewritten. Beside the lines of "
        "`routes[].orca` it is the one end-to-end header that changes."
    ),
    "proxy.tls": "How upstreams over https are verified.",
    "proxy.tls.ca_file": "Certificates to trust, PEM, beside the system's.",
    "proxy.tls.client_cert": "Certificate to present, PEM; it may hold the key too.",
    "proxy.tls.client_key": "Its key, PEM.",
    "analysis": "What is read of each exchange, and how much.",
    "analysis.stall_threshold": "A longer gap between content frames of a stream is a stall.",
    "analysis.first_token_deadline": "For fluidity: when the first content frame is due.",
    "analysis.token_deadline": "For fluidity: how much later each further content frame is due.",
    "analysis.text_cap": "Visible text kept per exchange, for scoring and validation. It is never exported.",
    "analysis.request_cap": (
        "Bytes of a request's body that are read; a longer one is forwarded, but its schema and context are not known."
    ),
    "analysis.body_cap": "Decoded bytes of a JSON body, and of any one frame.",
    "analysis.event_cap": "Bytes of one server-sent event.",
    "analysis.decoded_cap": "Decoded bytes of a compressed stream.",
    "analysis.records": "Recent records kept in memory for `/records`.",
    "analysis.window": "Time over which the headline gauges look back.",
    "analysis.long_context_tokens": (
        "A prompt of more input tokens is a `long_context`, else a `short_prompt`, for objectives. Where the provider "
        "reports none, a quarter of the request's bytes is taken, and counted as estimated."
    ),
    "embedder": "What scores relevance.",
    "embedder.kind": (
        "`use` is the multilingual Universal Sentence Encoder that comes with semhealth; `sentence-transformers` a "
        "model of that library (an extra); `http` a server; `none` scores nothing. See [embedders](embedders.md)."
    ),
    "embedder.sentence_transformers": (
        "With neither `folder` nor `hub` it is the packaged all-MiniLM-L6-v2, which knows English only."
    ),
    "embedder.sentence_transformers.folder": "A folder with a model as the library saves it.",
    "embedder.sentence_transformers.hub": (
        "Name of a model that is downloaded when the embedder starts. Without it nothing is ever downloaded."
    ),
    "embedder.sentence_transformers.backend": "`onnx` needs the extra `onnx` and no torch, and reads `file`.",
    "embedder.sentence_transformers.file": "For the backend `onnx`: the model's file in `folder`.",
    "embedder.http": "A server that embeds. It is sent the texts of queries, passages and answers.",
    "embedder.http.url": "The whole URL, such as `http://127.0.0.1:8081/v1/embeddings`.",
    "embedder.http.api": "`openai` is the API of `/v1/embeddings`; `tei` is `/embed` of Text Embeddings Inference.",
    "embedder.http.model": "Name of the model to ask for.",
    "embedder.http.calibrated_as": (
        "`NAME@VERSION` of the calibration that holds for the server's vectors, such as "
        "`all-MiniLM-L6-v2@53aa51172d14`; see [embedders](embedders.md#calibration)."
    ),
    "embedder.http.key_env": "Name of the environment variable that holds the key, sent as a bearer token.",
    "embedder.http.timeout": "Longest wait for the vectors of one request.",
    "embedder.http.batch": "Texts in one request. Text Embeddings Inference takes 32 unless told otherwise.",
    "embedder.http.max_tokens": "What the model reads at once. Longer texts are sent in parts of as many characters.",
    "embedder.http.dimensions": "Numbers in a vector; asked for where the API is `openai`, and checked.",
    "embedder.http.languages": "Languages that the model knows, such as `en`. Others are not scored. Empty: all.",
    "embedder.http.failures": (
        "Failures in a row after which the server is not asked for 5 s, twice as long each time up to 60 s."
    ),
    "embedder.cpu_share": (
        "Share of one core that scoring may use; above it a sample is scored, by route and model, and the others go "
        "unscored, with the reason `sampled_out`."
    ),
    "embedder.threads": "Threads for the arithmetic. More than one contends with the proxy.",
    "embedder.cache": "Bytes of vectors kept for texts that come again.",
    "embedder.queue": "Exchanges that may wait to be scored.",
    "embedder.timeout": "Longest wait for vectors; then the exchange goes unscored.",
    "validator": "Limits of the process that runs schemas.",
    "validator.timeout": (
        "Longest time for one judgement; then the process is killed and the result is `validator_timeout`."
    ),
    "validator.memory": "Address space of the process. At least 64MiB.",
    "validator.queue": "Judgements that may wait; further ones are skipped, and counted.",
    "validator.formats": (
        "Whether a schema's `format` (`date`, `uuid`, …) must hold, as far as the installed libraries know it. JSON "
        "Schema calls it an annotation, and providers do not enforce all of them."
    ),
    "exporters": "Where readings go beside `/metrics`.",
    "exporters.otlp": (
        "OTLP: metrics, a span per exchange, and log records of findings. What is left out follows the standard "
        "`OTEL_*` variables; headers, certificates and compression always do."
    ),
    "exporters.otlp.signals": "Which of them are exported.",
    "exporters.otlp.endpoint": (
        "Address of the receiver, `http(s)://host:port`, or `host:port` with grpc. No endpoint here and in the "
        "environment: no export."
    ),
    "exporters.otlp.protocol": "How to speak to it.",
    "exporters.otlp.interval": "Time between exports of metrics; spans and log records wait for 5s, or for less here.",
    "exporters.otlp.timeout": "Longest time for one export.",
    "exporters.exchange_log": "One JSON line per exchange, without texts; mode 0600, reopened on SIGHUP.",
    "exporters.exchange_log.path": "The file. No log when left out.",
    "exporters.exchange_log.max_size": "The file is rotated when it reaches this size.",
    "exporters.exchange_log.keep": "Rotated files kept.",
    "exporters.max_series": "Series on `/metrics`; further ones are folded into `other`, and counted.",
    "privacy": "How texts are told apart without being told.",
    "privacy.text_hash": (
        "Hash of texts in records. A plain hash of a short text can be guessed: `hmac` takes a secret key, `none` "
        "leaves hashes out."
    ),
    "privacy.hmac_key_env": "Name of the environment variable that holds the key for `hmac`.",
    "findings": "Which findings are made, and from where on, on routes that have no `findings` of their own.",
    **_FINDINGS_OF_ALL,
    "objective_profile": (
        "Objectives of routes beside those that they state. `strict` takes the values of the source documents "
        "(docs/objectives.md), which a public API does not keep; `none` has none."
    ),
    "prices": (
        "A YAML file of prices, looked at before the table that is shipped (`collector/prices.yaml`, which explains "
        "its shape). A model that neither has is given no cost."
    ),
    "log_level": "Least severe messages of the sidecar's own log that are written.",
}


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a configuration file."""
    (top,), components = msgspec.json.schema_components((Settings,), ref_template="#/$defs/{name}")
    for type_, keys in _sections(SETTINGS, ()):
        component = components[type_.cls.__name__]
        for field in type_.fields:
            described = component["properties"][field.encode_name]
            described["description"] = _plain(DESCRIPTIONS[pattern_of((*keys, field.encode_name))])
            if is_section(field.type):
                described.pop("default", None)
            for option in described.get("anyOf", [described]):
                if option.get("pattern") in (DURATION_PATTERN, SIZE_PATTERN):
                    option["type"] = [option["type"], "string"]
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "semhealth configuration", **top}
    built: dict[str, Any] = msgspec.to_builtins({**whole, "$defs": components})
    return built


def key_tables() -> str:
    """Every key with its type, default, variable and description, as Markdown tables."""
    parts = []
    for type_, keys in _sections(SETTINGS, ()):
        title = "Top level" if not keys else f"`{pattern_of(keys)}`"
        about = DESCRIPTIONS[re.sub(r"\[\]$", "", pattern_of(keys))] if keys else ""
        lines = ["| key | value | default | what it sets |", "| --- | --- | --- | --- |"]
        for name, field in ((field.encode_name, field) for field in type_.fields):
            here = (*keys, name)
            if isinstance(bare_type(field.type)[0], inspect.StructType):
                continue
            lines.append(_row(pattern_of(here), field.type, _default(field)))
            lines += [_row(pattern_of(below), value, "") for below, value in _named_values(field.type, here)]
        if len(lines) > 2:
            parts.append("\n\n".join(filter(None, (f"### {title}", about, "\n".join(lines)))))
    return "\n\n".join(parts)


def variable_table() -> str:
    """The environment variables, as a Markdown table."""
    lines = ["| variable | key |", "| --- | --- |"]
    lines.append(f"| `{FILE_VARIABLE}` | the configuration file, where `--config` is not given |")
    lines += [f"| `{name}` | `{pattern_of(keys)}` |" for name, keys in VARIABLES.items()]
    lines.append(f"| `{TOKEN_VARIABLE}` | the token of the admin port, without a file (the name can be changed) |")
    lines.append(f"| `{KEY_VARIABLE}` | the key for `privacy.text_hash: hmac` (the name can be changed) |")
    return "\n".join(lines)


def _sections(type_: inspect.Type, keys: Keys) -> list[tuple[inspect.StructType, Keys]]:
    match bare_type(type_)[0]:
        case inspect.StructType() as section:
            found = [(section, keys)]
            for field in section.fields:
                found += _sections(field.type, (*keys, field.encode_name))
            return found
        case inspect.VarTupleType(item_type=item):
            return _sections(item, (*keys, 0))
        case _:
            return []


def _named_values(type_: inspect.Type, keys: Keys) -> list[tuple[Keys, inspect.Type]]:
    return list(keys_below(type_, keys)) if isinstance(bare_type(type_)[0], inspect.DictType) else []


def _row(key: str, type_: inspect.Type, default: str) -> str:
    return f"| `{key}` | {_value(type_)} | {default} | {DESCRIPTIONS[key]} |"


def _value(type_: inspect.Type) -> str:
    bare, unit, _ = bare_type(type_)
    match bare:
        case inspect.LiteralType(values=values):
            return ", ".join(f"`{value}`" for value in values)
        case inspect.FloatType() | inspect.IntType():
            what = {"seconds": "duration", "bytes": "size", None: "number"}[unit]
            return what + _range(bare, what)
        case inspect.BoolType():
            return "`true`, `false`"
        case inspect.StrType():
            return "text"
        case inspect.DictType():
            return "names and values"
        case inspect.VarTupleType():
            return "list"
        case _:
            raise TypeError(f"settings of type {bare} are not described")


def _range(type_: inspect.FloatType | inspect.IntType, what: str) -> str:
    if what != "number":
        return "" if type_.gt is None else " above 0"
    low = f"above {type_.gt:g}" if type_.gt is not None else f"from {type_.ge:g}" if type_.ge is not None else ""
    high = f"to {type_.le:g}" if type_.le is not None else ""
    return "".join(f" {bound}" for bound in (low, high) if bound)


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    default: object = field.default if field.default is not NODEFAULT else field.default_factory()
    _, unit, _ = bare_type(field.type)
    match default:
        case None:
            return "–"
        case bool():
            return f"`{str(default).lower()}`"
        case float() if unit == "seconds":
            return f"`{format_duration(default)}`"
        case int() if unit == "bytes":
            return f"`{format_size(default)}`"
        case tuple() | Mapping():
            return "–" if not default else f"`{default}`"
        case _:
            return f"`{default}`"


def _plain(markdown: str) -> str:
    return markdown.replace("`", "")
