"""Strict JSON (RFC 8259), and what is wrong with a text that is nearly that."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

# Deeper output than this is not judged. No answer that means anything nests so; jsonschema needs a dozen stack frames
# a level, so the bound keeps legal recursive schemas well inside the validator's stack.
DEPTH = 200

Fault = Literal["not_json", "fenced", "trailing_text", "non_standard_number", "duplicate_key", "output_over_cap"]

# A string, closed or not, or a bracket. Possessive, so that it is linear on any text and keeps no stack.
_STRUCTURE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[\[\]{}]', re.DOTALL)
_LONG = re.compile(r"[0-9]{16}")  # in a string too: that costs time and nothing else
_SHORT = 15  # characters of a number
_FENCE_TAG = re.compile(r"[A-Za-z0-9_+-]*")


class Document(Struct, frozen=True):
    """A text as JSON: its value, as the standard library gives it, or what is wrong with it.

    `exact` says that its numbers are such as binary floats hold without doubt: short, and with no exponent.
    """

    value: object = None
    fault: Fault | None = None
    exact: bool = True


def read(text: str) -> Document:
    """A text as strict JSON.

    NaN and infinities are `non_standard_number`, a key given twice in one object is `duplicate_key`; a text whose
    JSON stands in a code fence is `fenced`, and one with words around its JSON object or array is `trailing_text`.
    Integers too long for Python (4,300 digits) and nesting beyond DEPTH are `output_over_cap`: legal, but not read.
    """
    if is_deeper(text, DEPTH):
        return Document(fault="output_over_cap")
    remarks = _Remarks()
    try:
        value = remarks.decoder().decode(text)
    except json.JSONDecodeError:
        return Document(fault=_nearly(text))
    except (ValueError, RecursionError):  # Digits of an integer; brackets that a broken text hid from is_deeper.
        return Document(fault="output_over_cap")
    if remarks.non_standard_number:
        return Document(fault="non_standard_number")
    if remarks.duplicate_key:
        return Document(fault="duplicate_key")
    return Document(value, exact=not remarks.long_number and _LONG.search(text) is None)


def is_deeper(text: str, depth: int) -> bool:
    """Whether brackets outside strings nest deeper than `depth`."""
    if text.count("[") + text.count("{") <= depth:
        return False
    level = 0
    for found in _STRUCTURE.finditer(text):
        symbol = found[0]
        if symbol in ("[", "{"):
            level += 1
            if level > depth:
                return True
        elif symbol in ("]", "}"):
            level -= 1
    return False


class _Remarks:
    """What the decoder met that is no syntax error to Python, but is none of RFC 8259 or ambiguous by it."""

    def __init__(self) -> None:
        self.non_standard_number = False
        self.duplicate_key = False
        self.long_number = False

    def decoder(self) -> json.JSONDecoder:
        return json.JSONDecoder(object_pairs_hook=self._object, parse_constant=self._constant, parse_float=self._float)

    def _object(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(pairs)
        if len(made) != len(pairs):
            self.duplicate_key = True
        return made

    def _float(self, digits: str) -> float:
        if len(digits) > _SHORT or "e" in digits or "E" in digits:
            self.long_number = True
        return float(digits)

    def _constant(self, word: str) -> None:
        self.non_standard_number = True


def _nearly(text: str) -> Fault:
    """`fenced` or `trailing_text` where a text that is no JSON holds some; else `not_json`."""
    body = text.strip()
    if len(body) >= 6 and body.startswith("```") and body.endswith("```"):
        tag = _FENCE_TAG.match(body, 3)
        inner = body[3 if tag is None else tag.end() : -3]
        if _attempt(lambda: json.loads(inner)) is not None:
            return "fenced"
    # One object or array is looked for, the first of each: looking from every bracket would be quadratic.
    for opening, kind in (("{", dict), ("[", list)):
        start = text.find(opening)
        if start >= 0:
            found = _attempt(lambda start=start: json.JSONDecoder().raw_decode(text, start)[0])  # type: ignore[misc]
            if isinstance(found, kind):
                return "trailing_text"
    return "not_json"


def _attempt(decode: Callable[[], object]) -> object:
    """What `decode` gives; None when it is no JSON, cannot be read, or is null."""
    try:
        return decode()
    except (ValueError, RecursionError):
        return None
