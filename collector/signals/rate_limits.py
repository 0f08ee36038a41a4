"""What do the headers say about limits: of every family, in one normal form?"""

from __future__ import annotations

import re

from collector.model import Headers, RateLimit
from collector.signals.values import number, seconds_until

MAX_LIMITS = 32  # per response
MAX_SCOPE = 40  # characters of a scope's name

KINDS = frozenset({"limit", "remaining", "reset", "utilization", "renewalperiod"})
WINDOWS = {
    "second": "second", "minute": "minute", "min": "minute", "hour": "hour", "day": "day", "daily": "day",
    "week": "week", "month": "month", "monthly": "month", "5h": "5h", "7d": "7d",
}  # fmt: skip
BY_SECONDS = {1: "second", 60: "minute", 3600: "hour", 86_400: "day"}
SCOPES = {"req": "requests", "request": "requests", "token": "tokens", "": "requests"}

# Windows that the provider's documentation states and its header names do not.
PROVIDER_WINDOWS: dict[tuple[str, str], str] = {
    ("groq", "requests"): "day", ("groq", "tokens"): "minute",
    ("anthropic", "requests"): "minute", ("anthropic", "tokens"): "minute",
    ("anthropic", "input_tokens"): "minute", ("anthropic", "output_tokens"): "minute",
}  # fmt: skip
# Bare resets of Azure OpenAI: `500` at 120 a minute fits milliseconds only, Azure AI's `1` seconds only. So: unclear.
UNCLEAR_RESETS = frozenset({"azure.ai.openai", "azure.ai.inference"})

_SIZE = re.compile(r"[a-z0-9]+")


class _Limits:
    """Limits by scope and window, in the order first named."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str | None], dict[str, float]] = {}
        self.periods: dict[str, str] = {}

    def put(self, scope: str, window: str | None, field: str, value: float | None) -> None:
        key = (scope[:MAX_SCOPE], window)
        if value is not None and (key in self._found or len(self._found) < MAX_LIMITS):
            self._found.setdefault(key, {}).setdefault(field, value)

    def all(self, provider: str | None) -> tuple[RateLimit, ...]:
        limits = []
        for (scope, window), fields in self._found.items():
            told = window or self.periods.get(scope) or PROVIDER_WINDOWS.get((provider or "", scope))
            limits.append(RateLimit(scope, told, **fields))
        return tuple(limits)


def rate_limits(headers: Headers, provider: str | None, arrived: float | None) -> tuple[RateLimit, ...]:
    """Every limit that the response headers state. `arrived` is when they came, in Unix seconds."""
    limits = _Limits()
    for name, value in headers.lines:
        words = name.replace("_", "-").split("-")
        if name in ("ratelimit", "ratelimit-policy"):
            _structured(name, value, limits)
        elif any("ratelimit" in word for word in words) or "rate-limit" in name:
            _plain(words, value, provider, arrived, limits)
        elif name.startswith(("x-trial-endpoint-call-", "x-endpoint-monthly-call-")):
            _plain(["ratelimit", *words[1:]], value, provider, arrived, limits)
    return limits.all(provider)


def _plain(
    words: list[str], value: str, provider: str | None, arrived: float | None, limits: _Limits
) -> None:
    """`x-ratelimit-remaining-tokens-minute`, `anthropic-ratelimit-unified-5h-utilization`, and their like."""
    marker = next((i for i, word in enumerate(words) if "ratelimit" in word), None)
    if marker is None:  # written `rate-limit`
        at = words.index("rate")
        marker, words = at, [*words[:at], "ratelimit", *words[at + 2 :]]
    by = words[marker].partition("ratelimit")[2].removeprefix("by")
    rest = ([by] if by else []) + words[marker + 1 :]
    kind = next((word for word in rest if word in KINDS), None)
    if kind is None:
        return
    rest.remove(kind)
    window = None
    for i, word in enumerate(rest):
        if word in WINDOWS:
            window = WINDOWS[word]
            before = rest[i - 1] if i else ""
            if word == "second" and before.isdigit():
                window = f"{before}s"
                del rest[i - 1 : i + 1]
            else:
                del rest[i]
            break
    scope = "_".join(part for part in rest if _SIZE.fullmatch(part))
    scope = SCOPES.get(scope, scope)
    first = value.split(",", 1)[0].split(";", 1)[0].strip()
    match kind:
        case "limit" | "remaining":
            limits.put(scope, window, kind, number(first))
        case "utilization":
            used = number(first)
            limits.put(scope, window, "used_ratio", used if used is None or used <= 1.5 else used / 100.0)
        case "renewalperiod":
            period = number(first)
            if period is not None and int(period) in BY_SECONDS:
                limits.periods[scope] = BY_SECONDS[int(period)]
        case "reset":
            unit = None if provider in UNCLEAR_RESETS else "s"
            limits.put(scope, window, "reset_after", seconds_until(value, arrived, unit))


def _structured(name: str, value: str, limits: _Limits) -> None:
    """draft-ietf-httpapi-ratelimit-headers: `"default";r=50;t=30` and `"default";q=100;w=60`."""
    for item in value.split(","):
        label, *parameters = (part.strip() for part in item.split(";"))
        told = dict(part.split("=", 1) for part in parameters if "=" in part)
        unit = told.get("qu", "requests").strip('"')
        scope = SCOPES.get(unit, unit) if label.strip('"') in ("default", "") else label.strip('"')
        scope = "_".join(_SIZE.findall(scope.lower())) or "requests"
        if name == "ratelimit-policy":
            limits.put(scope, None, "limit", number(told.get("q")))
            span = number(told.get("w"))
            if span is not None:
                limits.periods[scope] = BY_SECONDS.get(int(span), f"{int(span)}s")
        else:
            limits.put(scope, None, "remaining", number(told.get("r")))
            limits.put(scope, None, "reset_after", number(told.get("t")))
