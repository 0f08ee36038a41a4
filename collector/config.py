"""Settings: what a user can set, as frozen types, and how addresses, URLs, durations and sizes are written.

`config_file.py` reads them from YAML, the environment and the command line; `config_reference.py` describes every key.
This module stays light, since every process imports it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from ipaddress import IPv6Address, ip_address
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct
from msgspec.structs import replace

# ---------------------------------------------------------------- types

# Durations are written `300ms`, `2s`, `5m`, `1h` or a number of seconds; sizes `64KiB`, `8MiB` or a number of bytes.
# Here they are seconds (float) and bytes (int). The patterns are also given to editors, so they are plain ECMA 262.
DURATION_PATTERN = r"^ *[0-9]+(\.[0-9]+)? *(ms|s|m|h)? *$"
SIZE_PATTERN = r"^ *[0-9]+(\.[0-9]+)? *(B|kB|KB|MB|GB|KiB|MiB|GiB)? *$"
LONGEST = 31_536_000.0  # one year: longer is a slip of the pen
LARGEST = 1 << 40  # 1 TiB

_DURATION_SCHEMA: dict[str, Any] = {"pattern": DURATION_PATTERN}
_SIZE_SCHEMA: dict[str, Any] = {"pattern": SIZE_PATTERN}

Seconds = Annotated[float, Meta(ge=0.0, le=LONGEST, extra_json_schema=_DURATION_SCHEMA, extra={"unit": "seconds"})]
PositiveSeconds = Annotated[
    float, Meta(gt=0.0, le=LONGEST, extra_json_schema=_DURATION_SCHEMA, extra={"unit": "seconds"})
]
Bytes = Annotated[int, Meta(ge=0, le=LARGEST, extra_json_schema=_SIZE_SCHEMA, extra={"unit": "bytes"})]

DialectName = Literal[
    "openai.chat",
    "openai.responses",
    "openai.completions",
    "openai.embeddings",
    "openai.realtime",
    "anthropic.messages",
    "anthropic.completions",
    "gemini.generate",
    "gemini.interactions",
    "gemini.embeddings",
    "bedrock.converse",
    "bedrock.invoke",
    "bedrock.embeddings",
    "cohere.chat",
    "cohere.embeddings",
    "ollama",
    "ollama.embeddings",
    "replicate",
    "tgi",
    "watsonx",
    "watsonx.chat",
    "count_tokens",
    "rerank",
    "unknown",
]


# Formats of an ORCA load report, spelt as they are sent: vLLM takes either case, Triton small letters only.
OrcaFormat = Literal["TEXT", "JSON", "BIN", "text", "json", "bin"]


PromptClass = Literal["short_prompt", "long_context"]
ObjectiveProfile = Literal["strict", "none"]


class RouteObjective(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a route promises of its exchanges. `at_most` goes with times, `at_least` with scores and ratios."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    measure: Literal[
        "duration",
        "first_token",
        "jitter",
        "validity",
        "context_relevance",
        "answer_relevance",
        "groundedness",
        "errors",
        "kv_cache_hit",
    ]
    share: Annotated[float, Meta(gt=0.0, lt=1.0)]  # of the exchanges that can be judged, which must meet it
    at_most: PositiveSeconds | None = None
    at_least: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    prompts: PromptClass | None = None  # None: prompts of any length


class ModelAlias(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Two names of one model."""

    asked: str
    served: str


class FindingSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which findings are made, and from where on. None is the profile's value."""

    profile: Literal["default", "strict"] = "default"
    off: tuple[str, ...] = ()
    system_prompt_tokens: Annotated[int, Meta(ge=1)] | None = None
    checked_headers: tuple[str, ...] = ()
    aliases: tuple[ModelAlias, ...] = ()
    diagnostic_prefixes: tuple[str, ...] | None = None  # None: those of collector/findings/policy.py
    overload_load: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.8
    retry_storm: Annotated[int, Meta(ge=2, le=1000)] = 5  # early retries within a minute


class Sigv4(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Requests are signed anew for AWS (Signature Version 4), with the environment's credentials."""

    region: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,64}$")]
    service: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,64}$")] = "bedrock"  # as signatures name it
    mode: Literal["resign"] = "resign"


class Route(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One upstream behind a path prefix. The longest matching prefix wins."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    upstream: str  # http(s)://host[:port][/path]
    prefix: str = "/"
    strip_prefix: bool = True
    dialect: DialectName | None = None  # None: detected
    provider: str | None = None  # gen_ai.provider.name; None: from the upstream's host
    contract: str | None = None  # a JSON Schema, or a contract with rules (docs/contracts.md), for answers
    proxy: str | None = None  # http://host:port or `none`; None: as the environment says
    host: Literal["upstream", "preserve"] = "upstream"  # whose name the Host line has there: its own, or the client's
    sigv4: Sigv4 | None = None  # None: signatures pass as they are
    orca: OrcaFormat | None = None  # ask the upstream for load reports in this format; None: do not ask
    labels: dict[str, str] = {}
    objectives: tuple[RouteObjective, ...] = ()
    objective_profile: ObjectiveProfile | None = None  # None: that of all routes
    cost_per_hour: Annotated[float, Meta(gt=0.0)] | None = None  # US dollars
    findings: FindingSettings = FindingSettings()  # as they stand: those of all routes


class Tls(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How upstreams over https are verified."""

    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


class Proxy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The data plane."""

    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    connect_timeout: PositiveSeconds = 10.0
    response_timeout: PositiveSeconds | None = None  # until the response head; None: none of ours
    keep_alive: Seconds = 75.0  # an idle client connection is closed after this
    pool_idle: Seconds = 15.0  # an idle upstream connection is closed after this
    pool_age: PositiveSeconds = 300.0  # an older upstream connection is not kept after its answer
    pool_size: Annotated[int, Meta(ge=0)] = 512  # idle upstream connections kept per upstream and worker
    max_connections: Annotated[int, Meta(ge=1)] = 10_000
    max_head: Bytes = 131_072
    queue: Bytes = 16 * 1024 * 1024  # bytes that may wait for the analyst, per worker
    drain_timeout: Seconds = 25.0
    trace_parent: bool = False  # make the sidecar's span the parent: rewrites `traceparent`
    tls: Tls = Tls()


class Analysis(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is read, and how much of it."""

    stall_threshold: PositiveSeconds = 1.0  # a longer gap between content frames is a stall
    first_token_deadline: PositiveSeconds = 1.0  # for fluidity
    token_deadline: PositiveSeconds = 0.1  # for fluidity: time per content frame
    text_cap: Bytes = 256 * 1024  # visible text kept per exchange, for scoring and validation
    request_cap: Bytes = 4 * 1024 * 1024
    body_cap: Bytes = 16 * 1024 * 1024  # decoded bytes of a JSON body, and of any one frame
    event_cap: Bytes = 4 * 1024 * 1024  # one server-sent event
    decoded_cap: Bytes = 256 * 1024 * 1024  # decoded bytes of a compressed stream
    records: Annotated[int, Meta(ge=0)] = 1000  # kept in memory
    window: PositiveSeconds = 300.0  # of the headline gauges
    long_context_tokens: Annotated[int, Meta(ge=1)] = 4000  # a prompt of more is a long context, else a short prompt


class TransformerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model of sentence-transformers. With neither folder nor hub it is the packaged all-MiniLM-L6-v2."""

    folder: str | None = None
    hub: str | None = None  # a name; it is downloaded at the start
    backend: Literal["torch", "onnx"] = "torch"
    file: str = "onnx/model_int8.onnx"  # in the folder, for the onnx backend


class HttpEmbedderSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A server that embeds. It is sent queries, passages and answers."""

    url: str | None = None  # whole: https://host/v1/embeddings
    api: Literal["openai", "tei"] = "openai"  # tei: /embed of Text Embeddings Inference
    model: str | None = None
    # NAME@VERSION of the calibration that holds for its vectors
    calibrated_as: Annotated[str, Meta(pattern=r"^[^@\s]{1,128}@[^@\s]{1,128}$")] | None = None
    key_env: str | None = None  # the variable that holds the key
    timeout: PositiveSeconds = 5.0
    batch: Annotated[int, Meta(ge=1, le=1024)] = 32  # texts in one request
    max_tokens: Annotated[int, Meta(ge=16, le=32_768)] = 512
    dimensions: Annotated[int, Meta(ge=1, le=8192)] | None = None
    languages: tuple[str, ...] = ()  # ISO 639-1; empty: all
    failures: Annotated[int, Meta(ge=1, le=1000)] = 3  # in a row, after which it is left alone for a while


class EmbedderSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What scores relevance."""

    kind: Literal["use", "sentence-transformers", "http", "none"] = "use"
    sentence_transformers: TransformerSettings = TransformerSettings()
    http: HttpEmbedderSettings = HttpEmbedderSettings()
    cpu_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.25  # of one core; above it a sample is scored
    threads: Annotated[int, Meta(ge=1, le=16)] = 1
    cache: Bytes = 16 * 1024 * 1024
    queue: Annotated[int, Meta(ge=1)] = 64  # exchanges that may wait to be scored
    timeout: PositiveSeconds = 10.0


class ValidatorSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of the process that runs schemas."""

    timeout: PositiveSeconds = 1.0
    memory: Bytes = 1024 * 1024 * 1024
    queue: Annotated[int, Meta(ge=1)] = 1000
    formats: bool = False


class Otlp(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """OTLP. No endpoint, no export. Values left None follow the OTEL_* variables."""

    signals: tuple[Literal["metrics", "traces", "logs"], ...] = ("metrics", "traces", "logs")
    endpoint: str | None = None
    protocol: Literal["http/protobuf", "grpc"] | None = None
    interval: PositiveSeconds | None = None
    timeout: PositiveSeconds | None = None


class ExchangeLog(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One JSON line per exchange, mode 0600, rotated by size, reopened on SIGHUP."""

    path: str | None = None
    max_size: Bytes = 100 * 1024 * 1024
    keep: Annotated[int, Meta(ge=0, le=1000)] = 5


class Exporters(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where readings go."""

    otlp: Otlp = Otlp()
    exchange_log: ExchangeLog = ExchangeLog()
    max_series: Annotated[int, Meta(ge=100)] = 5000


class Privacy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How texts are told apart without being told. `hmac` takes its key from the variable named here."""

    text_hash: Literal["sha256", "hmac", "none"] = "sha256"
    hmac_key_env: str = "SEMHEALTH_HMAC_KEY"


class AdminAuth(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who may read the admin port. Neither the file nor the variable: whoever reaches it."""

    token_file: str | None = None  # read again when it changes
    token_env: str = "SEMHEALTH_ADMIN_TOKEN"  # noqa: S105 - the variable that holds the token where no file is named


class AdminTls(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """TLS of the admin port; both files or neither."""

    cert_file: str | None = None  # with its chain
    key_file: str | None = None


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything. `upstream` alone stands for one route named `default` at `/`."""

    upstream: str | None = None
    listen: str = "127.0.0.1:8080"
    admin: str = "127.0.0.1:9464"
    admin_auth: AdminAuth = AdminAuth()
    admin_tls: AdminTls = AdminTls()
    health: str | None = None
    routes: tuple[Route, ...] = ()
    label_headers: dict[str, str] = {}  # label name: request header it is read from
    proxy: Proxy = Proxy()
    analysis: Analysis = Analysis()
    embedder: EmbedderSettings = EmbedderSettings()
    validator: ValidatorSettings = ValidatorSettings()
    exporters: Exporters = Exporters()
    privacy: Privacy = Privacy()
    findings: FindingSettings = FindingSettings()  # of routes that say nothing of their own
    objective_profile: ObjectiveProfile = "none"  # of routes that say nothing of their own
    prices: str | None = None  # a YAML file of prices, looked at before those that are shipped
    log_level: Literal["debug", "info", "warning", "error"] = "info"


# ---------------------------------------------------------------- errors


class Problem(Struct, frozen=True):
    """One thing that is wrong: the key's path (empty for the whole), what and what to do, and where it was said."""

    path: str
    message: str
    where: str | None = None  # `line 3`, `--set`, `SEMHEALTH_LISTEN`

    def __str__(self) -> str:
        said = f"{self.path}: {self.message}" if self.path else self.message
        return said if self.where is None else f"{said} ({self.where})"


class ConfigError(ValueError):
    """The configuration cannot be used. `problems` are all that were found; the message has one line for each."""

    def __init__(self, problems: str | Sequence[Problem]) -> None:
        self.problems = (Problem("", problems),) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


# ---------------------------------------------------------------- durations and sizes

_DURATION = re.compile(DURATION_PATTERN)
_SIZE = re.compile(SIZE_PATTERN)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_SCALES: dict[str | None, Decimal] = {
    None: Decimal(1),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "B": Decimal(1),
    "kB": Decimal(10**3),
    "KB": Decimal(10**3),
    "MB": Decimal(10**6),
    "GB": Decimal(10**9),
    "KiB": Decimal(1 << 10),
    "MiB": Decimal(1 << 20),
    "GiB": Decimal(1 << 30),
}


def parse_duration(text: str) -> float:
    """`300ms`, `2s`, `1.5m`, `1h` or a bare number of seconds → seconds, at most a year."""
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise ConfigError(f"expected a duration such as 300ms, 2s, 1.5m or 1h, got {shown(text)}")
    return min(float(_scaled(text, matched[2])), 2 * LONGEST)


def parse_size(text: str) -> int:
    """`64KiB`, `8MiB`, `1MB` or a bare number of bytes → bytes."""
    matched = _SIZE.fullmatch(text)
    if matched is None:
        raise ConfigError(f"expected a size such as 64KiB, 8MiB or 1MB, got {shown(text)}")
    size = min(_scaled(text, matched[2]), Decimal(2 * LARGEST))
    if size != int(size):
        raise ConfigError(f"expected a whole number of bytes, got {shown(text)}")
    return int(size)


def _scaled(text: str, unit: str | None) -> Decimal:
    number = _NUMBER.search(text)
    assert number is not None  # noqa: S101 - both patterns begin with a number
    return Decimal(number[0]) * _SCALES[unit]


def format_duration(seconds: float) -> str:
    """Seconds as a user would write them; `parse_duration` gives back the same number."""
    exact = Decimal(repr(float(seconds)))
    if exact and exact % 3600 == 0:
        return f"{exact / 3600:f}".removesuffix(".0") + "h"
    if exact and exact % 60 == 0:
        return f"{exact / 60:f}".removesuffix(".0") + "m"
    if 0 < exact < 1:
        return _plain(exact * 1000) + "ms"
    return _plain(exact) + "s"


def format_size(size: int) -> str:
    """Bytes as a user would write them; `parse_size` gives back the same number."""
    for unit in ("GiB", "MiB", "KiB"):
        scale = int(_SCALES[unit])
        if size and size % scale == 0:
            return f"{size // scale}{unit}"
    return str(size)


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# ---------------------------------------------------------------- addresses and URLs

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?\.?")
_PATH = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*/?")
_INVISIBLE = re.compile(r"[^\x21-\x7e]")
_MAY_HOLD_A_KEY = re.compile(r"[@?#]")
_SCHEMES: dict[str, Literal["http", "https"]] = {"http": "http", "https": "https"}
DEFAULT_PORTS = {"http": 80, "https": 443}


class Upstream(Struct, frozen=True):
    """A parsed upstream URL. `path` is put in front of the request's own: empty, or `/v1` with no slash at its end."""

    scheme: Literal["http", "https"]
    host: str  # lower-case; an IPv6 address without its brackets
    port: int
    path: str

    @property
    def authority(self) -> str:
        """As in a Host header: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def parse_upstream(url: str) -> Upstream:
    """An upstream's URL, or ConfigError. What may hold a key is refused, and not repeated in the message."""
    if _MAY_HOLD_A_KEY.search(url):
        raise ConfigError(
            "expected http(s)://host[:port][/path] with no user, query or fragment; "
            "the URL is not shown since it may hold a key: keys belong in the headers of the service's own requests"
        )
    scheme = _SCHEMES.get(url.partition("://")[0].lower()) if "://" in url else None
    if scheme is None or _INVISIBLE.search(url):
        raise ConfigError(f"expected http(s)://host, got {shown(url)}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"expected http(s)://host[:port][/path], got {shown(url)}") from error
    if host is None or not _is_host(host) or port == 0 or parts.netloc.endswith(":"):
        raise ConfigError(f"expected http(s)://host[:port][/path], got {shown(url)}")
    if not _is_path(parts.path):
        raise ConfigError(f"expected a plain path after the host, with no empty or dot segments, got {shown(url)}")
    return Upstream(scheme, host, DEFAULT_PORTS[scheme] if port is None else port, parts.path.rstrip("/"))


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8080`, `localhost:8080` or `[::1]:8080` → host and port, or ConfigError. Port 0 takes any free one.

    `:8080` and a bare port are refused: it should be plain to see whether a port is open to other machines.
    """
    host, separator, digits = text.rpartition(":")
    port = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 5 else None
    if host == "" and port is not None:
        raise ConfigError(
            f"expected host:port, got {shown(text)}; write 127.0.0.1:{port} for this machine alone, "
            f"0.0.0.0:{port} for every interface"
        )
    if not separator or port is None or port > 65_535:
        raise ConfigError(f"expected host:port such as 127.0.0.1:8080 or [::1]:8080, got {shown(text)}")
    if host.startswith("[") and host.endswith("]") and _is_ipv6(host[1:-1]):
        return host[1:-1], port
    if ":" in host:
        raise ConfigError(f"expected an IPv6 address in brackets such as [::1]:8080, got {shown(text)}")
    if not _is_host(host):
        raise ConfigError(f"expected host:port such as 127.0.0.1:8080 or [::1]:8080, got {shown(text)}")
    return host, port


def parse_prefix(text: str) -> str:
    """A route's path prefix without its last slash (but `/` itself), or ConfigError."""
    if not text.startswith("/") or not _is_path(text):
        raise ConfigError(f"expected a path such as / or /openai, got {shown(text)}")
    return text.rstrip("/") or "/"


def shown(text: str) -> str:
    """A text as a message quotes it: on one line, short, and not where it looks like a URL with a user or a query."""
    if _MAY_HOLD_A_KEY.search(text):
        return "a text that is not shown, since it may hold a key"
    return repr(text) if len(text) <= 100 else repr(text[:100]) + "…"


def _is_host(host: str) -> bool:
    return _is_ipv6(host) or _HOST.fullmatch(host) is not None


def _is_ipv6(host: str) -> bool:
    try:
        return isinstance(ip_address(host), IPv6Address)
    except ValueError:
        return False


def _is_path(path: str) -> bool:
    return _PATH.fullmatch(path) is not None and not {".", ".."} & set(path.split("/"))


# ---------------------------------------------------------------- what follows from settings


def routes_of(settings: Settings) -> tuple[Route, ...]:
    """Every route in its normal form, in the order given; `upstream` comes last, as `default` at `/`."""
    routes = settings.routes
    if settings.upstream is not None:
        routes = (*routes, Route(name="default", upstream=settings.upstream))
    return tuple(
        replace(route, upstream=str(parse_upstream(route.upstream)), prefix=parse_prefix(route.prefix))
        for route in routes
    )


def extra_labels(settings: Settings) -> tuple[str, ...]:
    """Names of the labels that users added, by route or by header, sorted."""
    return tuple(sorted({*settings.label_headers, *(name for route in settings.routes for name in route.labels)}))
