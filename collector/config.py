"""Settings: what a user can set, decoded from YAML, the environment and the command line into frozen types."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

# Durations are written `300ms`, `2s`, `5m`, `1h` or a number of seconds; sizes `64KiB`, `8MiB` or a number of bytes.
# Here they are seconds (float) and bytes (int).
Seconds = Annotated[float, Meta(ge=0.0)]
Bytes = Annotated[int, Meta(ge=0)]

DialectName = Literal["openai.chat", "anthropic.messages", "unknown"]


class Route(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One upstream behind a path prefix. The longest matching prefix wins."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    upstream: str  # http(s)://host[:port][/path]
    prefix: str = "/"
    strip_prefix: bool = True
    dialect: DialectName | None = None  # None: detected
    provider: str | None = None  # gen_ai.provider.name; None: from the upstream's host
    contract: str | None = None  # a JSON Schema file that answers must satisfy where the request asks for none
    labels: dict[str, str] = {}


class Tls(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How upstreams over https are verified."""

    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


class Proxy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The data plane."""

    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    connect_timeout: Seconds = 10.0
    response_timeout: Seconds | None = None  # until the response head; None: none of ours
    keep_alive: Seconds = 75.0  # an idle client connection is closed after this
    pool_idle: Seconds = 15.0  # an idle upstream connection is closed after this
    pool_size: Annotated[int, Meta(ge=0)] = 512  # idle upstream connections kept per upstream and worker
    max_connections: Annotated[int, Meta(ge=1)] = 10_000
    max_head: Bytes = 65_536
    queue: Bytes = 16 * 1024 * 1024  # bytes that may wait for the analyst, per worker
    drain_timeout: Seconds = 25.0
    trace_parent: bool = False  # make the sidecar's span the parent: rewrites `traceparent`
    tls: Tls = Tls()


class Analysis(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is read, and how much of it."""

    stall_threshold: Seconds = 1.0  # a longer gap between content frames is a stall
    first_token_deadline: Seconds = 1.0  # for fluidity
    token_deadline: Seconds = 0.1  # for fluidity: time per content frame
    text_cap: Bytes = 256 * 1024  # visible text kept per exchange, for scoring and validation
    request_cap: Bytes = 4 * 1024 * 1024
    body_cap: Bytes = 16 * 1024 * 1024  # decoded bytes of a JSON body, and of any one frame
    event_cap: Bytes = 4 * 1024 * 1024  # one server-sent event
    decoded_cap: Bytes = 256 * 1024 * 1024  # decoded bytes of a compressed stream
    records: Annotated[int, Meta(ge=0)] = 1000  # kept in memory
    window: Seconds = 300.0  # of the headline gauges


class EmbedderSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What scores relevance."""

    kind: Literal["use", "none"] = "use"
    cpu_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.25  # of one core; above it exchanges go unscored (`budget`)
    threads: Annotated[int, Meta(ge=1, le=16)] = 1
    cache: Bytes = 16 * 1024 * 1024
    queue: Annotated[int, Meta(ge=1)] = 64  # exchanges that may wait to be scored
    timeout: Seconds = 10.0


class ValidatorSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of the process that runs schemas."""

    timeout: Seconds = 1.0
    memory: Bytes = 1024 * 1024 * 1024
    queue: Annotated[int, Meta(ge=1)] = 1000


class Otlp(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """OTLP metrics. No endpoint, no export. Values left None follow the OTEL_* variables."""

    endpoint: str | None = None
    protocol: Literal["http/protobuf", "grpc"] | None = None
    interval: Seconds | None = None
    timeout: Seconds | None = None


class ExchangeLog(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One JSON line per exchange, mode 0600, rotated by size, reopened on SIGHUP."""

    path: str | None = None
    max_size: Bytes = 100 * 1024 * 1024
    keep: Annotated[int, Meta(ge=0, le=1000)] = 5


class Exporters(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    otlp: Otlp = Otlp()
    exchange_log: ExchangeLog = ExchangeLog()
    max_series: Annotated[int, Meta(ge=100)] = 5000


class Privacy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How texts are told apart without being told. `hmac` takes its key from the variable named here."""

    text_hash: Literal["sha256", "hmac", "none"] = "sha256"
    hmac_key_env: str = "SEMHEALTH_HMAC_KEY"


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything. `upstream` alone stands for one route named `default` at `/`."""

    upstream: str | None = None
    listen: str = "127.0.0.1:8080"
    admin: str = "127.0.0.1:9464"
    health: str | None = None
    routes: tuple[Route, ...] = ()
    label_headers: dict[str, str] = {}  # label name: request header it is read from
    proxy: Proxy = Proxy()
    analysis: Analysis = Analysis()
    embedder: EmbedderSettings = EmbedderSettings()
    validator: ValidatorSettings = ValidatorSettings()
    exporters: Exporters = Exporters()
    privacy: Privacy = Privacy()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
