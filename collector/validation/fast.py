"""The faster validator `jsonschema-rs`, where it is installed and known to judge as `jsonschema` does."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any


def _engine() -> Any:
    try:
        return import_module("jsonschema_rs")
    except ImportError:  # Without the extra `fast-validation` everything is left to jsonschema.
        return None


ENGINE = _engine()
CLASSES = {
    "draft-06": "Draft6Validator",
    "draft-07": "Draft7Validator",
    "2019-09": "Draft201909Validator",
    "2020-12": "Draft202012Validator",
}
# Keywords about which both agree, on the official suite and on generated documents (tests/validation). Left out are
# dynamic references and what is unevaluated, for which their readings of odd schemas differ.
AGREED = frozenset(
    {
        "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
        "minLength", "maxLength", "pattern", "items", "prefixItems", "additionalItems", "minItems", "maxItems",
        "uniqueItems", "contains", "minContains", "maxContains", "properties", "patternProperties",
        "additionalProperties", "propertyNames", "required", "minProperties", "maxProperties", "dependentRequired",
        "dependentSchemas", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "format",
    }
)  # fmt: skip
# Members that one of the two may read although the draft has no such keyword.
CONTESTED = frozenset(
    {
        *AGREED, "dependencies", "contentEncoding", "contentMediaType", "contentSchema", "disallow", "divisibleBy",
        "extends", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef", "id",
    }
) - {"then", "else", "minContains", "maxContains"}  # fmt: skip
# These change what references mean, wherever they stand in a document.
NAMING = frozenset({"$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"})
EXACT = 2**53  # integers beyond it and floats compare differently
MATCHERS = 256  # patterns kept compiled

# Tokens that mean the same to both; `\b` does not, being Unicode there and ASCII here. No quantifier follows another,
# which Python takes for a possessive one.
_IN_CLASS = r"(?:\\[dDwWsS](?!-[^\]])|\\[nrt./+*?()\[\]{}|^$\\-]|-(?![\\-])|[^\\\[\]&~|-])"
_ATOM = rf"(?:\\[dDwWsSnrt./+*?()\[\]{{}}|^$\\-]|\[\^?{_IN_CLASS}+\]|\)|[^\\\[\](){{}}*+?|^$])"
_COUNT = r"(?:[*+?]|\{[0-9]{1,3}(?:,(?:[0-9]{1,3})?)?\})\??"
_SIMPLE = re.compile(rf"(?:{_ATOM}(?:{_COUNT})?(?![*+?{{])|\((?:\?:)?(?![*+?{{])|[|^$](?![*+?{{]))*")

_SERIOUS = (MemoryError, KeyboardInterrupt, SystemExit)
IsValid = Callable[[object], bool | None]


def validator(
    document: object, draft: str, schemas: Collection[dict[str, Any]], keywords: Collection[str]
) -> IsValid | None:
    """The compiled validator of a schema, or None where `jsonschema` has to judge alone.

    `draft` is a key of CLASSES, `schemas` are the document's subschemas that are applied, and `keywords` those of the
    draft. What it returns tells of a JSON value whether it is valid, None where it cannot say.
    """
    if ENGINE is None or draft not in CLASSES or not _is_agreed(document, schemas, keywords):
        return None
    return _compiled(document, getattr(ENGINE, CLASSES[draft]))


@lru_cache(maxsize=MATCHERS)
def matcher(pattern: str) -> IsValid | None:
    """Whether a text holds the pattern, found in linear time; None where only Python can read it."""
    if ENGINE is None or not is_simple(pattern):
        return None
    return _compiled({"pattern": pattern}, ENGINE.Draft202012Validator)


def is_simple(pattern: str) -> bool:
    """Whether a pattern is of such tokens only as mean the same to both engines."""
    return _SIMPLE.fullmatch(pattern) is not None


def _compiled(document: object, kind: Any) -> IsValid | None:
    """A compiled schema; None where it cannot be compiled, such as for a pattern that would grow too large."""
    options = ENGINE.RegexOptions()
    try:
        is_valid = kind(document, pattern_options=options, validate_formats=False, offline=True).is_valid
    except _SERIOUS:
        raise
    except BaseException:  # noqa: BLE001 - a panic of its own is no Exception
        return None

    def judged(value: object) -> bool | None:
        try:
            return bool(is_valid(value))
        except _SERIOUS:
            raise
        except BaseException:  # noqa: BLE001 - half of a surrogate pair, or a panic
            return None

    return judged


def _is_agreed(document: object, schemas: Iterable[dict[str, Any]], keywords: Collection[str]) -> bool:
    return all(_is_plain(schema, keywords) for schema in schemas) and not _is_renamed(document)


def _is_plain(schema: dict[str, Any], keywords: Collection[str]) -> bool:
    """Whether every member of an applied schema means the same to both."""
    if "$ref" in schema and not schema["$ref"].startswith("#"):
        return False
    for name, value in schema.items():
        if name in keywords:
            if name not in AGREED or not _is_agreed_value(name, value):
                return False
        elif name in CONTESTED:
            return False
    return True


def _is_agreed_value(name: str, value: Any) -> bool:
    match name:
        case "pattern":
            return is_simple(value)
        case "patternProperties":
            return all(map(is_simple, value))
        case "multipleOf":  # Decimal here, binary there.
            return isinstance(value, int) and value <= EXACT
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            return bool(-EXACT <= value <= EXACT)
    return True


def _is_renamed(document: object) -> bool:
    """Whether something in a document bears a name of its own, by which references may mean it."""
    todo = [document]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            if any(not isinstance(value.get(name), dict) for name in NAMING.intersection(value)):
                return True  # Where the value is an object, it is a property of that name.
            todo += value.values()
        elif isinstance(value, list):
            todo += value
    return False
