"""What a route says of its findings: which rules are off, limits and tables."""

from __future__ import annotations

from msgspec import Struct

# Requests of a provider's own, as the source documents met them (R14), and staging systems that answered outside.
DIAGNOSTIC_PREFIXES = ("anthropic-internal-", "internal-", "diagnostic-", "debug-")


class Policy(Struct, frozen=True):
    """Settings of one route; `docs/configuration.md` says what each means.

    `aliases` are pairs (asked, served) of model names that are one model; `off` are ids of rules.
    """

    off: frozenset[str] = frozenset()
    system_prompt_tokens: int | None = None
    checked_headers: tuple[str, ...] = ()  # lower-case
    aliases: frozenset[tuple[str, str]] = frozenset()
    diagnostic_prefixes: tuple[str, ...] = DIAGNOSTIC_PREFIXES
    overload_load: float = 0.8
    retry_storm: int = 5  # early retries within a minute
