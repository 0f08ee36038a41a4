"""What do the headers say about limits: of every family, in one normal form?"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from collector.model import Headers, Names, RateLimit
from collector.signals.values import is_reset, number, plain_counts, seconds_until

MAX_LIMITS = 32  # per response
MAX_SCOPE = 40  # characters of a scope's name

KINDS = frozenset({"limit", "remaining", "reset", "utilization", "renewalperiod"})
WINDOWS = {
    "second": "second", "minute": "minute", "min": "minute", "hour": "hour", "day": "day", "daily": "day",
    "week": "week", "month": "month", "monthly": "month", "5h": "5h", "7d": "7d",
}  # fmt: skip
BY_SECONDS = {1: "second", 60: "minute", 3600: "hour", 86_400: "day"}
SCOPES = {"req": "requests", "request": "requests", "token": "tokens", "": "requests"}

# Families whose names do not say `ratelimit` (Cohere; Anthropic, priority tier).
FAMILIES = ("x-trial-endpoint-call-", "x-endpoint-monthly-call-", "anthropic-priority-", "x-codex-", "x-livekit-")

# Headers whose names are in no order: kind, scope and window of each (OpenAI's Codex plans; LiveKit's gateway).
NAMED: dict[str, tuple[str, str, str | None]] = {
    f"x-codex-{which}-{word}": (kind, f"codex_{which}", None)
    for which in ("primary", "secondary")
    for word, kind in (
        ("used-percent", "percent"), ("window-minutes", "minutes"), ("reset-at", "reset"),
        ("reset-after-seconds", "reset"),
    )
} | {
    f"x-livekit-inference-{which}-{kind}": (kind, scope, window)
    for which, scope, window in (
        ("rpm", "requests", "minute"), ("tpm", "tokens", "minute"), ("credits", "credits", None),
    )
    for kind in ("limit", "used")
}  # fmt: skip
BY_MINUTES = {60: "hour", 300: "5h", 1440: "day", 10_080: "7d"}

# Windows that the provider's documentation states and its header names do not.
PROVIDER_WINDOWS: dict[tuple[str, str], str] = {
    ("groq", "requests"): "day", ("groq", "tokens"): "minute",
    ("anthropic", "requests"): "minute", ("anthropic", "tokens"): "minute",
    ("anthropic", "input_tokens"): "minute", ("anthropic", "output_tokens"): "minute",
}  # fmt: skip
# Bare resets of Azure OpenAI: `500` at 120 a minute fits milliseconds only, Azure AI's `1` seconds only. So: unclear.
UNCLEAR_RESETS = frozenset({"azure.ai.openai", "azure.ai.inference"})

# Words of names in these families that are no limit: what one request took, states, reasons and settings.
NO_LIMITS = frozenset({
    "cost", "status", "claim", "abusepenalty", "source", "policy", "fallback", "overage", "reason", "resource", "type",
    "scope", "bucket", "id",
})  # fmt: skip
_KNOWN_WORDS = KINDS | NO_LIMITS
MAX_HEADER_NAME = 128  # characters of a name that is read
MAX_UNKNOWN = 8  # names per response
MAX_NAME = 64  # characters of such a name

STRUCTURED = frozenset({"ratelimit", "ratelimit-policy"})  # draft-ietf-httpapi-ratelimit-headers
NOT_SAID = frozenset({"", "-1", "unlimited"})  # values that say there is no number

_WORD = re.compile(r"[a-z0-9]+")
_PLAIN_NAME = re.compile(r"[a-z0-9_-]+")
_THOUSANDS = re.compile(r"[0-9]{1,3}(,[0-9]{3})+")


class _Limits:
    """Limits by scope and window, in the order first named."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str | None], dict[str, float]] = {}
        self.periods: dict[str, str] = {}
        self.unreadable = False

    def put(self, scope: str, window: str | None, field: str, value: float | None) -> None:
        key = (scope[:MAX_SCOPE], window)
        if value is not None and (key in self._found or len(self._found) < MAX_LIMITS):
            self._found.setdefault(key, {}).setdefault(field, value)

    def all(self, provider: str | None) -> tuple[RateLimit, ...]:
        limits = []
        for (scope, window), fields in self._found.items():
            told = window or self.periods.get(scope) or PROVIDER_WINDOWS.get((provider or "", scope))
            used = fields.get("used")
            limits.append(
                RateLimit(
                    scope,
                    told,
                    fields.get("limit"),
                    fields.get("remaining") if used is None else _left(fields.get("limit"), used),
                    fields.get("used_ratio"),
                    fields.get("reset_after"),
                )
            )
        return tuple(limits)


def _left(limit: float | None, used: float) -> float | None:
    return None if limit is None else max(0.0, limit - used)


def rate_limits(headers: Headers, provider: str | None, arrived: float | None) -> tuple[tuple[RateLimit, ...], bool]:
    """Every limit that the response headers state, and whether one of them could not be read.

    `arrived` is when the headers came, in Unix seconds; None where that is not known.
    """
    slots = _slots(headers.shared, provider)
    if slots is not None:
        quick = _quickly(slots, headers.values, arrived) if slots.limits else ()
        if quick is not None:
            return quick, False
    limits = _Limits()
    for name, value in headers.lines:
        if not _may_limit(name):
            continue  # most headers
        if name in STRUCTURED:
            _structured(name, value, limits)
        else:
            meaning = _meaning(name)
            if meaning is not None:
                _plain(*meaning, value, provider, arrived, limits)
    return limits.all(provider), limits.unreadable


class _Slot(Struct, frozen=True, gc=False):
    """One limit: where its numbers are among the counts of a head, and its reset among the values; None for none."""

    scope: str
    window: str | None
    limit: int | None
    remaining: int | None
    reset: int | None


class _Slots(Struct, frozen=True, gc=False):
    """All limits of a head. `counts` are places among its values; `bare` is the unit of a bare reset."""

    limits: tuple[_Slot, ...]
    counts: tuple[int, ...] = ()
    bare: str | None = "s"


@lru_cache(maxsize=512)
def _slots(names: Names, provider: str | None) -> _Slots | None:
    """The limits of a head where all it has of them is a limit, a remainder and a reset each; None where it has more.

    Empty where it has none at all, as most have.
    """
    found: dict[tuple[str, str | None], dict[str, int]] = {}
    counts: list[int] = []
    for at, name in enumerate(names.all):
        if not _may_limit(name):
            continue
        meaning = _meaning(name)
        if name in STRUCTURED or (meaning is not None and meaning[0] not in ("limit", "remaining", "reset")):
            return None
        if meaning is not None:
            kind, scope, window = meaning
            places = found.setdefault((scope[:MAX_SCOPE], window), {})
            if kind in places or len(found) > MAX_LIMITS:
                return None
            places[kind] = at if kind == "reset" else len(counts)
            if kind != "reset":
                counts.append(at)
    limits = tuple(
        _Slot(
            scope,
            window or PROVIDER_WINDOWS.get((provider or "", scope)),
            places.get("limit"),
            places.get("remaining"),
            places.get("reset"),
        )
        for (scope, window), places in found.items()
    )
    return _Slots(limits, tuple(counts), None if provider in UNCLEAR_RESETS else "s")


def _quickly(slots: _Slots, values: tuple[str, ...], arrived: float | None) -> tuple[RateLimit, ...] | None:
    """The limits where every value is plain, as nearly all are; None where one wants a closer look."""
    counts = plain_counts([values[at] for at in slots.counts])
    if counts is None:
        return None
    found, bare = [], slots.bare
    for slot in slots.limits:
        limit, remaining, reset = slot.limit, slot.remaining, slot.reset
        after = None
        if reset is not None:
            after = seconds_until(values[reset], arrived, bare)
            if after is None:
                return None
        found.append(
            RateLimit(
                slot.scope,
                slot.window,
                None if limit is None else counts[limit],
                None if remaining is None else counts[remaining],
                None,
                after,
            )
        )
    return tuple(found)


def _may_limit(name: str) -> bool:
    return ("rate" in name or name.startswith(FAMILIES)) and len(name) <= MAX_HEADER_NAME


@lru_cache(maxsize=512)  # names; an upstream sends the same ones with every answer
def _meaning(name: str) -> tuple[str, str, str | None] | None:
    """Kind, scope and window of one plain header, by its name; None where it states no limit."""
    words = name.replace("_", "-").split("-")
    if name.startswith(("x-codex-", "x-livekit-")):
        return NAMED.get(name)
    if name.startswith(FAMILIES):
        return _kind_scope_window(words[1:])
    return _kind_scope_window(_after_marker(words) or [])


def unknown_names(names: Names) -> tuple[str, ...]:
    """Names that speak of a rate limit with no word that is known, so that new ones are noticed; sorted and bounded."""
    found = {name for name in names.all if "rate" in name and len(name) <= MAX_NAME and _is_unknown(name)}
    return tuple(sorted(found)[:MAX_UNKNOWN])


def _is_unknown(name: str) -> bool:
    after = _after_marker(name.replace("_", "-").split("-"))
    if after is None or name in STRUCTURED or not _KNOWN_WORDS.isdisjoint(after):
        return False
    return _PLAIN_NAME.fullmatch(name) is not None


def _after_marker(words: list[str]) -> list[str] | None:
    """What follows `ratelimit`, `rate-limit` or `ratelimitby…` in a header's name; None where that is not in it."""
    for i, word in enumerate(words):
        _, marker, by = word.partition("ratelimit")
        if marker:
            by = by.removeprefix("by")
            return ([by] if by else []) + words[i + 1 :]
        if word == "rate" and words[i + 1 : i + 2] == ["limit"]:
            return words[i + 2 :]
    return None


def _kind_scope_window(words: list[str]) -> tuple[str, str, str | None] | None:
    """`remaining-tokens-minute`, `unified-5h-utilization`, and their like."""
    kind = next((word for word in words if word in KINDS), None)
    if kind is None:
        return None
    rest = list(words)
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
    scope = "_".join(part for part in rest if _WORD.fullmatch(part))
    return kind, SCOPES.get(scope, scope), window


def _plain(
    kind: str, scope: str, window: str | None, value: str, provider: str | None, arrived: float | None, limits: _Limits
) -> None:
    value = value.strip()
    if kind == "reset":
        after = seconds_until(value, arrived, None if provider in UNCLEAR_RESETS else "s")
        limits.put(scope, window, "reset_after", after)
        if after is None and not (value in NOT_SAID or is_reset(value)):
            limits.unreadable = True
        return
    # Several limits of one draft are in one line; `40,000` could be two of them or one.
    is_single = value.isdigit()  # most are
    first = value if is_single else value.split(",", 1)[0].split(";", 1)[0].strip()
    amount = None if not is_single and _THOUSANDS.fullmatch(value) else number(first)
    limits.unreadable = limits.unreadable or (amount is None and first not in NOT_SAID)
    match kind:
        case "limit" | "remaining":
            limits.put(scope, window, kind, amount)
        case "utilization" if amount is not None and amount <= 150.0:
            limits.put(scope, window, "used_ratio", amount if amount <= 1.5 else amount / 100.0)
        case "percent" if amount is not None and amount <= 1000.0:
            limits.put(scope, window, "used_ratio", amount / 100.0)
        case "used":
            limits.put(scope, window, "used", amount)
        case "minutes" if amount is not None and 0 < amount < 1e6:
            limits.periods[scope] = BY_MINUTES.get(int(amount), f"{int(amount)}m")
        case "renewalperiod" if amount is not None and int(amount) in BY_SECONDS:
            limits.periods[scope] = BY_SECONDS[int(amount)]


def _structured(name: str, value: str, limits: _Limits) -> None:
    """draft-ietf-httpapi-ratelimit-headers: `"default";r=50;t=30` and `"default";q=100;w=60`."""
    for item in value.split(","):
        label, *parameters = (part.strip() for part in item.split(";"))
        told = dict(part.split("=", 1) for part in parameters if "=" in part)
        unit = told.get("qu", "requests").strip('"')
        scope = SCOPES.get(unit, unit) if label.strip('"') in ("default", "") else label.strip('"')
        scope = "_".join(_WORD.findall(scope.lower())) or "requests"
        if name == "ratelimit-policy":
            limits.put(scope, None, "limit", number(told.get("q")))
            span = number(told.get("w"))
            if span is not None:
                limits.periods[scope] = BY_SECONDS.get(int(span), f"{int(span)}s")
        else:
            limits.put(scope, None, "remaining", number(told.get("r")))
            limits.put(scope, None, "reset_after", number(told.get("t")))
