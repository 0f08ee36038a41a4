"""JSON of the wire → typed facts, strictly first and then as much of it as makes sense."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import types
import typing
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

BOM = b"\xef\xbb\xbf"
MAX_DEPTH = 512
MAX_NESTED = 500_000  # objects and arrays of one text: each costs many times the bytes it is written in
MAX_COUNT = 10**15  # of tokens; what says more is no count
MAX_VALUES = 1_000_000  # values of a text that is read into plain objects
# A string that does not end goes on to the end of the text: looking for its end again at every quote takes hours.
_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{\]}]', re.DOTALL)


class UnreadableError(Exception):
    """The bytes are not JSON, nest too deep, or hold more values than are read."""


def too_deep(data: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether brackets nest deeper than `limit`."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    depth = 0
    for match in _BRACKETS.finditer(data):
        mark = match[0]
        if mark in (b"{", b"["):
            depth += 1
            if depth > limit:
                return True
        elif mark in (b"}", b"]"):
            depth -= 1
    return False


def _nested(data: bytes) -> int:
    """How many objects and arrays there are at most: brackets in strings count too."""
    return data.count(b"{") + data.count(b"[")


def read_json(data: bytes) -> Any:
    """Any JSON value. Lone surrogates are kept, as providers split pairs over deltas. Raises UnreadableError."""
    if too_deep(data) or (len(data) > MAX_VALUES and _nested(data) + data.count(b",") > MAX_VALUES):
        raise UnreadableError
    try:
        return json.loads(data.removeprefix(BOM).decode("utf-8"), parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise UnreadableError from error


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < 300 else float("inf")


class Decoder(typing.Generic[T]):
    """Decodes one struct type: typed where the bytes fit, else field by field. Raises UnreadableError."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._strict = msgspec.json.Decoder(kind).decode

    def __call__(self, data: bytes) -> T:
        if len(data) > MAX_NESTED and _nested(data) > MAX_NESTED:
            raise UnreadableError
        try:
            return self._strict(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return self._salvaged(data)

    def _salvaged(self, data: bytes) -> T:
        try:
            return salvage(read_json(data), self._kind)
        except RecursionError as error:
            raise UnreadableError from error


Count = Annotated[int, msgspec.Meta(ge=0, lt=MAX_COUNT)]  # in a narrow type; what `count` takes as it is
SomeText = Annotated[str, msgspec.Meta(min_length=1)]  # in a narrow type; a piece without text is no piece


class PlainDecoder(typing.Generic[T]):
    """Decodes many payloads of one narrow type: the first ones, as far as they fit it.

    The type of a plain frame is that of any frame with its fields narrowed: what fits it decodes to the same values
    there. A field that the wide type reads must be in the narrow one too, or what is wrong in it would go unseen.
    """

    def __init__(self, kind: type[T]) -> None:
        self._strict = msgspec.json.Decoder(kind).decode

    def __call__(self, payloads: Iterable[bytes]) -> list[T]:
        found: list[T] = []
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            found.extend(map(self._strict, payloads))  # keeps those before one that does not fit
        return found

    def one(self, payload: bytes) -> T | None:
        """One payload; None where it does not fit."""
        try:
            return self._strict(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None


_hints = functools.cache(typing.get_type_hints)


def salvage(value: Any, kind: type[T]) -> T:
    """The fields of `value` that fit their types; the rest keep their defaults."""
    found: dict[str, Any] = {}
    if isinstance(value, dict):
        hints = _hints(kind)
        for field in msgspec.structs.fields(kind):
            if field.encode_name in value:
                fits, kept = _fit(value[field.encode_name], hints[field.name])
                if fits:
                    found[field.name] = kept
    return kind(**found)


def _fit(value: Any, kind: Any) -> tuple[bool, Any]:
    if kind is msgspec.Raw:
        return True, msgspec.Raw(json.dumps(value).encode())
    try:
        return True, msgspec.convert(value, kind)
    except (msgspec.ValidationError, ValueError, RecursionError):  # ValueError: half a surrogate pair
        pass
    options = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    for option in options:
        if isinstance(option, type) and issubclass(option, msgspec.Struct) and isinstance(value, dict):
            return True, salvage(value, option)
        if typing.get_origin(option) is list and isinstance(value, list):
            (item,) = typing.get_args(option)
            return True, [kept for fits, kept in (_fit(each, item) for each in value) if fits]
    return False, None


def raw_bytes(value: msgspec.Raw) -> bytes | None:
    """The JSON text of a field that is kept as it was written; None where it was left out or null."""
    # Such a field is declared `Raw = Raw()`: msgspec reads `Raw | None` as nothing but null.
    written = bytes(value)
    return None if written in (b"", b"null") else written


def count(value: float | None) -> int | None:
    """A token count, or None for what is not one (negative, not finite, a fraction)."""
    if value is None:
        return None
    if type(value) is int:  # most
        return value if 0 <= value < MAX_COUNT else None
    if isinstance(value, bool) or not 0 <= value < MAX_COUNT or value != int(value):
        return None
    return int(value)


def json_text(value: Any) -> str:
    """A decoded value as JSON text again, for arguments that came as an object."""
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, OverflowError):  # lone surrogates and integers over 64 bits
        return json.dumps(value, separators=(",", ":"))
