"""What Google's APIs for models share: the error envelope with its details, and schemas in the manner of OpenAPI."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from collector.dialects.decoding import Decoder, UnreadableError, raw_bytes, read_json
from collector.dialects.errors import ErrorBody, bounded, error_of_body, wire_error
from collector.model import Delta, WireError

# ---------------------------------------------------------------- errors


class _Violation(Struct, gc=False):
    quota_id: str | None = field(default=None, name="quotaId")


class _Detail(Struct, gc=False):
    """One of google.rpc's ErrorInfo, QuotaFailure or RetryInfo; other details are left out."""

    reason: str | None = None
    violations: list[_Violation] | None = None
    retry_delay: str | None = field(default=None, name="retryDelay")


class GoogleError(Struct, gc=False):
    code: str | int | float | None = None
    status: str | int | float | None = None
    message: Any = None
    details: list[_Detail] | None = None

    @property
    def says_something(self) -> bool:
        """Whether this tells of an error at all."""
        return any((self.code, self.status, self.message))


class _Envelope(Struct, gc=False):
    error: GoogleError | None = None


_decode = Decoder(_Envelope)
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")  # google.protobuf.Duration as JSON
_KEY_REASONS = frozenset({"API_KEY_INVALID", "API_KEY_EXPIRED", "API_KEY_SERVICE_BLOCKED", "ACCESS_TOKEN_EXPIRED"})


def error_delta(told: GoogleError, status: int | None = None, has_limits: bool = False) -> Delta:
    """An error object as a delta: its words, what limited, and when to come back."""
    error = wire_error(ErrorBody(code=told.code, status=told.status), status, has_limits)
    limiter = error.limiter
    wait: float | None = None
    kind = error.kind
    for detail in told.details or ():
        if detail.reason in _KEY_REASONS:
            kind = "auth"  # a wrong key is an INVALID_ARGUMENT here
        if limiter is None:
            limiter = next((bounded(each.quota_id) for each in detail.violations or () if each.quota_id), None)
        match = _DURATION.fullmatch(detail.retry_delay or "")
        if match is not None:
            wait = float(match[1])
    return Delta(error=WireError(error.type, error.code, kind, limiter), retry_after=wait)


def error_of_answer(data: bytes, status: int, has_limits: bool) -> Delta:
    """The error of a non-2xx body: an envelope, or an array of one."""
    text = data.strip()
    if text.startswith(b"[") and text.endswith(b"]"):
        text = text[1:-1]
    try:
        envelope = _decode(text)
    except UnreadableError:
        envelope = _Envelope()
    if envelope.error is not None and envelope.error.says_something:
        return error_delta(envelope.error, status, has_limits)
    return Delta(error=error_of_body(data, status, has_limits))


def retry_hint(data: bytes) -> float | None:
    """The seconds that a RetryInfo among an error's details says to wait; None where there is none."""
    return error_of_answer(data, 429, has_limits=False).retry_after if b"RetryInfo" in data else None


# ---------------------------------------------------------------- schemas

_TYPES: dict[object, str] = {
    name: name.lower() for name in ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
}
_NUMBERED = ("", "string", "number", "integer", "boolean", "array", "object", "null")  # as proto enums
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")  # int64: may be strings
_SNAKE = {
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "any_of": "anyOf",
    "additional_properties": "additionalProperties",
    "ref": "$ref",
    "defs": "$defs",
}
_LEFT_OUT = frozenset({"nullable", "propertyOrdering", "property_ordering", "example", "type"})
_NUMBER = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?")
MAX_SCHEMA_DEPTH = 100


class _TooDeepError(Exception):
    """A schema that nests deeper than is followed."""


def json_schema(schema: Raw) -> bytes | None:
    """A schema of google.ai's `Schema` type as JSON Schema; None where there is none or it makes no sense.

    Types are upper-case words or proto numbers, `nullable` adds null, counts and the numbers of an enumeration may be
    strings, and `propertyOrdering` and `example` judge nothing (ai.google.dev and cloud.google.com, Schema). What is
    lower-case JSON Schema already passes as it is.
    """
    written = raw_bytes(schema)
    if written is None:
        return None
    try:
        value = read_json(written)
        return json.dumps(_translate(value, 0), separators=(",", ":")).encode() if isinstance(value, dict) else None
    except (UnreadableError, _TooDeepError, RecursionError):
        return None


def _type(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return _NUMBERED[value] or None if 0 <= value < len(_NUMBERED) else None
    if isinstance(value, str):
        name = _TYPES.get(value.upper())
        return name if name is not None else None if value.upper() == "TYPE_UNSPECIFIED" else value
    return None


def _translate(schema: Any, depth: int) -> Any:
    """A schema's translation; what is no object (`true`, junk) stays as it is."""
    return _object(schema, depth) if isinstance(schema, dict) else schema


def _object(schema: dict[str, Any], depth: int) -> dict[str, Any]:
    if depth > MAX_SCHEMA_DEPTH:
        raise _TooDeepError
    told: dict[str, Any] = {}
    kinds = schema.get("type")
    kind = [each for each in map(_type, kinds) if each] if isinstance(kinds, list) else _type(kinds)
    if kind:
        told["type"] = kind
    for key, value in schema.items():
        name = _SNAKE.get(key, key)
        if key in _LEFT_OUT or (name == "format" and value == "enum"):
            continue
        told[name] = _keyword(name, value, depth)
    if kind in ("integer", "number") and isinstance(told.get("enum"), list):
        told["enum"] = [_number(value) for value in told["enum"]]
    return _or_null(told) if schema.get("nullable") is True else told


def _number(value: Any) -> Any:
    """A number of an enumeration, where they are written as texts: `{type: INTEGER, format: enum, enum: ["101"]}`."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value) is None:
        return value
    return float(value) if "." in value else int(value)


def _keyword(name: str, value: Any, depth: int) -> Any:
    if name in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
        return {key: _translate(inner, depth + 1) for key, inner in value.items()}
    if name in ("items", "additionalProperties", "not"):
        return _translate(value, depth + 1)
    if name in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
        return [_translate(inner, depth + 1) for inner in value]
    if name in _COUNTS and isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    if name == "$ref" and isinstance(value, str) and value.startswith("#/defs/"):
        return f"#/$defs/{value.removeprefix('#/defs/')}"
    return value


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema, or null."""
    kind, options = schema.get("type"), schema.get("enum")
    if isinstance(options, list) and None not in options:
        schema["enum"] = [*options, None]
    if "anyOf" in schema or "oneOf" in schema or "allOf" in schema or "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    if isinstance(kind, str) and kind != "null":
        schema["type"] = [kind, "null"]
    elif isinstance(kind, list) and "null" not in kind:
        schema["type"] = [*kind, "null"]
    return schema


def named(*values: msgspec.Raw) -> bytes | None:
    """The first of several spellings of a field that was given."""
    return next((found for found in map(raw_bytes, values) if found is not None), None)
