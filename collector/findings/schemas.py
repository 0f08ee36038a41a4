"""What in a JSON Schema do providers refuse or ignore?"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

MAX_SCHEMA = 256 * 1024  # bytes that are looked at
MAX_NODES = 20_000  # values of one schema that are visited
MAX_HOPS = 64  # of one pointer

PATTERN_PROPERTIES = "patternProperties"
EXTERNAL_REF = "external_ref"
REF_CYCLE = "ref_cycle"

_ALL = frozenset({PATTERN_PROPERTIES, EXTERNAL_REF, REF_CYCLE})
# What is refused in schemas of structured output. OpenAI takes recursion (docs, structured outputs, "supported
# schemas"), Anthropic and Gemini do not; who is not listed is taken to refuse all of it, as most engines for guided
# decoding do (R13).
REFUSED: dict[str | None, frozenset[str]] = {
    "openai": _ALL - {REF_CYCLE},
    "azure.ai.openai": _ALL - {REF_CYCLE},
}
# These refuse with a status, and only where the request sets `strict`; an answer says that there was nothing to refuse.
TELLING = frozenset({"openai", "azure.ai.openai"})


def refused_feature(provider: str | None, schema: bytes) -> str | None:
    """The first feature of this schema (JSON text) that the provider refuses; None where there is none."""
    if (b"patternProperties" not in schema and b"$ref" not in schema) or len(schema) > MAX_SCHEMA:
        return None
    refused = REFUSED.get(provider, _ALL)
    return next((feature for feature in _features(schema) if feature in refused), None)


@lru_cache(maxsize=64)  # schemas come again; each of at most MAX_SCHEMA, most of a few KB
def _features(schema: bytes) -> tuple[str, ...]:
    try:
        document = msgspec.json.decode(schema)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    found: list[str] = []
    refs: dict[str, tuple[str, ...]] = {}  # local pointer → the pointers below what it names
    for key, value in _keys(document):
        if key == PATTERN_PROPERTIES and isinstance(value, dict) and value:
            found.append(PATTERN_PROPERTIES)
        elif key == "$ref" and isinstance(value, str):
            if value.startswith("#"):
                refs.setdefault(value, ())
            else:
                found.append(EXTERNAL_REF)
    if _has_cycle(document, refs):
        found.append(REF_CYCLE)
    return tuple(dict.fromkeys(found))


def _keys(document: object) -> Iterable[tuple[str, object]]:
    """Every keyword with its value, names of properties left out, up to MAX_NODES values."""
    waiting: list[tuple[object, bool]] = [(document, False)]  # value, and whether its keys are names
    seen = 0
    while waiting and seen < MAX_NODES:
        value, is_named = waiting.pop()
        seen += 1
        if isinstance(value, list):
            waiting.extend((item, False) for item in value)
        elif isinstance(value, dict):
            for key, inner in value.items():
                if not is_named:
                    yield key, inner
                if is_named or key not in _DATA:
                    waiting.append((inner, not is_named and key in _NAMED))


_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_DATA = frozenset({"const", "enum", "default", "examples", "example"})


def _has_cycle(document: object, refs: dict[str, tuple[str, ...]]) -> bool:
    """Whether some pointer leads back to itself, or to what encloses it."""
    for pointer in tuple(refs):
        target = _at(document, pointer)
        refs[pointer] = tuple(
            value for key, value in _keys(target) if key == "$ref" and isinstance(value, str) and value in refs
        )
    state: dict[str, int] = {}  # 1: on the way, 2: done
    for start, named in refs.items():
        stack = [(start, iter(named))] if start not in state else []
        state.setdefault(start, 1)
        while stack:
            pointer, below = stack[-1]
            following = next(below, None)
            if following is None:
                state[pointer] = 2
                stack.pop()
            elif state.get(following) == 1:
                return True
            elif following not in state:
                state[following] = 1
                stack.append((following, iter(refs[following])))
    return False


def _at(document: object, pointer: str) -> Any:
    """What a local pointer names; None where nothing is there."""
    value: Any = document
    for part in pointer.removeprefix("#").split("/")[1 : MAX_HOPS + 1]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and len(name) < 6 and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value
