"""What the standard OTEL_* variables say: where each signal goes, how, and how much of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Literal, get_args
from urllib.parse import urlsplit

from msgspec import Struct

from collector.model import TraceParent

log = logging.getLogger(__name__)

Protocol = Literal["http/protobuf", "grpc"]
Signal = Literal["metrics", "traces", "logs"]
SIGNALS: tuple[Signal, ...] = get_args(Signal)
IsSampled = Callable[[int, TraceParent | None], bool]  # of a trace id, and what the client says of it

INTERVAL = 60.0  # seconds, as the specification's OTEL_METRIC_EXPORT_INTERVAL
TIMEOUT = 10.0  # seconds, as the specification's OTEL_EXPORTER_OTLP_TIMEOUT
OPT_IN = "gen_ai_latest_experimental"
LOW_64_BITS = (1 << 64) - 1
MOST_NAMED = 20  # variables that one line names
LONGEST_NAME = 80  # characters of such a name

# What each of these says is followed; docs/telemetry.md lists them, and tests/exporters try each.
_OTLP = r"OTEL_EXPORTER_OTLP_(?:(?:METRICS|TRACES|LOGS)_)?"
FOLLOWED = re.compile(
    rf"{_OTLP}(?:ENDPOINT|HEADERS|PROTOCOL|TIMEOUT|COMPRESSION|CERTIFICATE|CLIENT_KEY|CLIENT_CERTIFICATE|INSECURE)"
    r"|OTEL_(?:METRICS|TRACES|LOGS)_EXPORTER|OTEL_SERVICE_NAME|OTEL_RESOURCE_ATTRIBUTES|OTEL_METRIC_EXPORT_INTERVAL"
    r"|OTEL_TRACES_SAMPLER(?:_ARG)?|OTEL_SDK_DISABLED|OTEL_SEMCONV_STABILITY_OPT_IN"
)


class Destination(Struct, frozen=True):
    """Where one signal goes: the endpoint in full, and the seconds that one export may take with its retries."""

    endpoint: str
    protocol: Protocol
    timeout: float

    @property
    def place(self) -> str:
        """Scheme, host and port: the rest of an endpoint may hold a key."""
        scheme = self.endpoint.partition("://")[0] + "://" if "://" in self.endpoint else ""
        return scheme + _host(self.endpoint)


class Environment:
    """Reads the variables, and says once of each what is wrong with it. Values are not repeated: they may hold keys."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._said: set[str] = set()  # of names, which are few

    @property
    def is_disabled(self) -> bool:
        return self._said_or("OTEL_SDK_DISABLED", "").lower() == "true"

    @property
    def takes_latest(self) -> bool:
        """Whether the newer of the GenAI conventions' names are opted in to."""
        return OPT_IN in re.split(r"\s*,\s*", self._said_or("OTEL_SEMCONV_STABILITY_OPT_IN", ""))

    def destination(
        self,
        signal: Signal,
        endpoint: str | None = None,
        protocol: Protocol | None = None,
        timeout: float | None = None,
    ) -> Destination | None:
        """Where a signal goes; what is given wins over the variables, the signal's own over the general ones."""
        if self.is_disabled or not self._is_exported(signal):
            return None
        how = protocol if protocol is not None else self._protocol(signal)
        where = self._endpoint(signal, endpoint, how)
        if where is None:
            return None
        return Destination(where, how, timeout if timeout is not None else self._timeout(signal))

    def interval(self) -> float:
        """Seconds between two exports of metrics."""
        return self._number("OTEL_METRIC_EXPORT_INTERVAL", 1e3 * INTERVAL) / 1e3

    def sampler(self) -> IsSampled:
        """The sampler of spans; what is not known is `parentbased_always_on`, as the specification has it."""
        name = self._said_or("OTEL_TRACES_SAMPLER", "parentbased_always_on").lower()
        root = name.removeprefix("parentbased_")
        if root not in {"always_on", "always_off", "traceidratio"}:
            self._say("OTEL_TRACES_SAMPLER", "parentbased_always_on is used; expected a sampler of the specification")
            name, root = "parentbased_always_on", "always_on"
        share = {"always_on": 1.0, "always_off": 0.0}.get(root)
        bound = round((self._ratio() if share is None else share) * (LOW_64_BITS + 1))
        follows_parent = name != root

        def is_sampled(trace_id: int, parent: TraceParent | None) -> bool:
            if follows_parent and parent is not None:
                return parent.is_sampled
            return trace_id & LOW_64_BITS < bound

        return is_sampled

    def warn_of_others(self) -> None:
        """Say which OTEL_* variables are set and not followed, by name."""
        others = [name for name in sorted(self._variables) if name.startswith("OTEL_") and not FOLLOWED.fullmatch(name)]
        shown = [name[:LONGEST_NAME] for name in others if name.isprintable()][:MOST_NAMED]
        if others:
            rest = f" and {len(others) - len(shown)} more" if len(others) > len(shown) else ""
            log.warning("set, and not supported (docs/telemetry.md): %s%s", ", ".join(shown), rest)

    # ------------------------------------------------------------ parts

    def _is_exported(self, signal: Signal) -> bool:
        name = f"OTEL_{signal.upper()}_EXPORTER"
        said = re.split(r"\s*,\s*", self._said_or(name, "otlp").lower())
        if "otlp" not in said and "none" not in said:
            self._say(name, "otlp is used; expected otlp or none")
            return True
        return "otlp" in said

    def _protocol(self, signal: Signal) -> Protocol:
        name, said = self._of_signal(signal, "PROTOCOL")
        if said == "grpc":
            return "grpc"
        if said not in {None, "http/protobuf"}:
            self._say(name, "http/protobuf is used; expected http/protobuf or grpc")
        return "http/protobuf"

    def _endpoint(self, signal: Signal, given: str | None, protocol: Protocol) -> str | None:
        own = None if given is not None else self._get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        endpoint = given or own or self._get("OTEL_EXPORTER_OTLP_ENDPOINT")
        if endpoint is None or (protocol == "grpc" and _host(endpoint)):
            return endpoint
        if not endpoint.startswith(("http://", "https://")) or not _host(endpoint):
            if "endpoint" not in self._said:
                log.error("OTLP endpoint: expected http(s)://host[:port], got something else; nothing is exported")
            self._said.add("endpoint")
            return None
        if own is not None:
            return own
        base = endpoint.rstrip("/")
        for other in SIGNALS:
            base = base.removesuffix(f"/v1/{other}")
        return f"{base}/v1/{signal}"

    def _timeout(self, signal: Signal) -> float:
        """Seconds. The specification says milliseconds and the Python SDK seconds; 600 and more are the former."""
        name, _ = self._of_signal(signal, "TIMEOUT")
        said = self._number(name, TIMEOUT)
        return said if said < 600.0 else said / 1e3

    def _of_signal(self, signal: Signal, what: str) -> tuple[str, str | None]:
        """The name and value of a signal's own variable, where it is set, else of the general one."""
        own, general = f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", f"OTEL_EXPORTER_OTLP_{what}"
        said = self._get(own)
        return (own, said) if said is not None else (general, self._get(general))

    def _ratio(self) -> float:
        try:
            ratio = float(self._said_or("OTEL_TRACES_SAMPLER_ARG", "1"))
        except ValueError:
            ratio = -1.0
        if not 0.0 <= ratio <= 1.0:
            self._say("OTEL_TRACES_SAMPLER_ARG", "1 is used; expected a share from 0 to 1")
            return 1.0
        return ratio

    def _number(self, name: str, default: float) -> float:
        said = self._get(name)
        if said is None:
            return default
        try:
            number = float(said)
        except ValueError:
            number = -1.0
        if not 0.0 < number < float("inf"):
            self._say(name, f"{default} is used; expected a number above 0")
            return default
        return number

    def _said_or(self, name: str, default: str) -> str:
        said = self._get(name)
        return default if said is None else said

    def _get(self, name: str) -> str | None:
        """What a variable is set to; empty is not set."""
        said = self._variables.get(name, "").strip()
        return said or None

    def _say(self, name: str, what: str) -> None:
        if name not in self._said:
            log.warning("%s: %s", name, what)
        self._said.add(name)


def _host(endpoint: str) -> str:
    """Host and port; empty when there are none."""
    try:
        return urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").netloc.rpartition("@")[2]
    except ValueError:  # a bracket of an IPv6 address is missing
        return ""
