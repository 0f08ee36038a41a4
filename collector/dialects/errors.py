"""What an error on the wire means, from its status and the words that providers use."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from collector.dialects.decoding import UnreadableError, read_json, salvage
from collector.model import Headers, WireError

MAX_WORD = 64
_CLEAN = re.compile(r"[^A-Za-z0-9_.:\-]+")

# Words in a type or code, the first match wins: a quota says "insufficient_quota" beside type "…rate_limit…".
KINDS: tuple[tuple[str, str], ...] = (
    ("insufficient_quota", "quota_exhausted"), ("quota", "quota_exhausted"), ("billing", "quota_exhausted"),
    ("insufficient_balance", "quota_exhausted"), ("credit", "quota_exhausted"), ("payment", "quota_exhausted"),
    ("overload", "overloaded"), ("unavailable", "overloaded"), ("capacity", "overloaded"), ("busy", "overloaded"),
    ("not_ready", "overloaded"), ("notready", "overloaded"),
    ("rate_limit", "rate_limited"), ("ratelimit", "rate_limited"),
    ("throttl", "rate_limited"), ("too_many_requests", "rate_limited"), ("toomanyrequests", "rate_limited"),
    ("tokens_per", "rate_limited"), ("resource_exhausted", "rate_limited"),
    ("content_filter", "content_filter"), ("content_policy", "content_filter"), ("moderation", "content_filter"),
    ("responsibleaipolicy", "content_filter"), ("safety", "content_filter"), ("guardrail", "content_filter"),
    ("authentication", "auth"), ("unauthorized", "auth"), ("permission", "auth"), ("forbidden", "auth"),
    ("invalid_api_key", "auth"), ("accessdenied", "auth"), ("expiredtoken", "auth"), ("unrecognizedclient", "auth"),
    ("invalidsignature", "auth"), ("incompletesignature", "auth"),
    ("not_found", "not_found"), ("notfound", "not_found"), ("timeout", "timeout"), ("timed_out", "timeout"),
    ("deadline", "timeout"), ("invalid", "invalid_request"), ("validation", "invalid_request"),
    ("bad_request", "invalid_request"), ("badrequest", "invalid_request"), ("context_length", "invalid_request"),
    ("unsupported", "invalid_request"), ("request_too_large", "invalid_request"), ("unprocessable", "invalid_request"),
    ("internal", "server_error"), ("server_error", "server_error"), ("api_error", "server_error"),
    ("streamerror", "server_error"), ("modelerror", "server_error"),
)  # fmt: skip
BY_STATUS: dict[int, str] = {
    400: "invalid_request", 401: "auth", 402: "quota_exhausted", 403: "auth", 404: "not_found", 405: "invalid_request",
    408: "timeout", 409: "invalid_request", 413: "invalid_request", 415: "invalid_request", 422: "invalid_request",
    500: "server_error", 502: "server_error", 503: "overloaded", 504: "timeout", 529: "overloaded",
}  # fmt: skip


def bounded(word: str | float | None) -> str | None:
    """An identifier of at most 64 plain characters; None for free text, which may hold anything.

    Providers put words such as `overloaded_error` here; a sentence with spaces or an address is no identifier.
    """
    if word is None or isinstance(word, bool):
        return None
    text = str(word).strip().split(":http", 1)[0]
    if not text or len(text) > MAX_WORD or _CLEAN.search(text):
        return None
    return text


def says_limits(headers: Headers) -> bool:
    """Whether response headers speak of rate limits at all."""
    names = "\n".join(("", *headers.shared.places))
    return "ratelimit" in names or "rate-limit" in names or "\nretry-after" in names


def kind_of(status: int | None, *words: str | None, has_limits: bool = False) -> str:
    """The catalogue's kind of an error; a bare 429 with nothing to say which of its meanings holds is unclassified."""
    for word in words:
        low = (word or "").lower().replace(" ", "_").replace("-", "_")
        for part, kind in KINDS:
            if part in low:
                return kind
    if status == 429:
        return "rate_limited" if has_limits else "unclassified"
    return BY_STATUS.get(status or 0, "server_error" if status is not None and status >= 500 else "unclassified")


class ErrorBody(Struct):
    type: str | int | float | None = None
    code: str | int | float | None = None
    status: str | int | float | None = None
    message: Any = None  # only whether there is one: it may quote the prompt

    @property
    def says_something(self) -> bool:
        """Whether this tells of an error: some send an empty object where there was none."""
        return any((self.type, self.code, self.status, self.message))


class _Envelope(Struct):
    error: ErrorBody | str | None = None
    errors: list[ErrorBody] | None = None
    type: str | int | float | None = None
    code: str | int | float | None = None
    error_type: str | int | float | None = None


def wire_error(body: ErrorBody | _Envelope, status: int | None = None, has_limits: bool = False) -> WireError:
    """An error object as sent → its bounded words. Without a `status`, a code that is one stands for it."""
    kind = bounded(body.type)
    code = bounded(body.code)
    named = bounded(body.error_type if isinstance(body, _Envelope) else body.status)
    if kind is None and named is not None and not named.isdigit():
        kind = named
    if status is None and code is not None and re.fullmatch(r"[45]\d\d", code):
        status = int(code)
    return WireError(kind, code, kind_of(status, code, kind, named, has_limits=has_limits))


def error_of_body(data: bytes, status: int, has_limits: bool) -> WireError:
    """The error a non-2xx body tells, in any of the usual envelopes; the status alone where it tells none."""
    try:
        told = read_json(data)
        # Gemini's front end for OpenAI clients puts the envelope into a list.
        envelope = salvage(told[0] if isinstance(told, list) and told else told, _Envelope)
    except (UnreadableError, RecursionError):
        envelope = _Envelope()
    if isinstance(envelope.error, ErrorBody):
        return wire_error(envelope.error, status, has_limits)
    if isinstance(envelope.error, str) and envelope.type is None and envelope.error_type is None:
        kind = kind_of(status, envelope.error[:200], has_limits=has_limits)
        return WireError(bounded(envelope.error), bounded(envelope.code), kind)
    if envelope.errors:
        return wire_error(envelope.errors[0], status, has_limits)
    return wire_error(envelope, status, has_limits)
