"""JSON documents that satisfy a JSON Schema, as a model with structured output would write them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec

from collector.simulator.patterns import UnsupportedPatternError, text_for_pattern

Json = Any
Schema = dict[str, Any] | bool

# Below this depth optional properties are left out and the shallowest alternative is taken, so recursion ends.
SOFT_DEPTH = 5
# A chain of references or of nested schemas longer than this is taken for endless.
HARD_DEPTH = 40
MOST_EXTRA_ITEMS = 2
MOST_VALUES = 20_000
LONGEST_STRING = 100_000

_WORDS = (
    "amber", "basin", "candle", "delta", "ember", "fjord", "garnet", "harbour", "island", "juniper", "kiln", "lantern",
    "meadow", "north", "orchard", "pebble", "quarry", "river", "slate", "timber", "umbra", "valley", "willow", "yarrow",
)  # fmt: skip

# What a field of this name usually holds. The longest name that is part of the field's name wins.
_BY_NAME: dict[str, tuple[str, ...]] = {
    "city": ("Velmar", "Calder", "Orrin", "Sill"),
    "country": ("Norrland", "Tessaly", "Varn"),
    "currency": ("EUR", "USD", "CNY"),
    "description": ("A short description of the matter.", "What was seen and what was done about it."),
    "email": ("edda@example.org", "ione@example.net"),
    "id": ("a-1042", "b-2210", "c-0077"),
    "language": ("en", "zh", "de"),
    "location": ("Velmar", "Calder", "Port Ardel"),
    "name": ("Edda Marsh", "Ione Tasker", "Tobias Lindqvist"),
    "phone": ("+49 30 0000000", "+86 10 00000000"),
    "reason": ("The passage says so.", "It follows from the second sentence."),
    "source": ("doc-1", "doc-2"),
    "status": ("open", "closed", "pending"),
    "tag": ("harbour", "tea", "railway"),
    "title": ("The Velmar sea lock", "Tarn Blue", "The Pell Valley array"),
    "unit": ("metric", "imperial"),
}

_FORMATS: dict[str, Callable[[Random], str]] = {
    "date": lambda rng: f"20{rng.randint(20, 29)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
    "time": lambda rng: f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}Z",
    "date-time": lambda rng: (
        f"20{rng.randint(20, 29)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T"
        f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:00Z"
    ),
    "duration": lambda rng: f"P{rng.randint(1, 9)}DT{rng.randint(1, 23)}H",
    "email": lambda rng: f"{rng.choice(_WORDS)}@example.org",
    "idn-email": lambda rng: f"{rng.choice(_WORDS)}@example.org",
    "hostname": lambda rng: f"{rng.choice(_WORDS)}.example.org",
    "idn-hostname": lambda rng: f"{rng.choice(_WORDS)}.example.org",
    "ipv4": lambda rng: f"192.0.2.{rng.randint(1, 254)}",
    "ipv6": lambda rng: f"2001:db8::{rng.randint(1, 0xFFFF):x}",
    "uri": lambda rng: f"https://example.org/{rng.choice(_WORDS)}",
    "iri": lambda rng: f"https://example.org/{rng.choice(_WORDS)}",
    "uri-reference": lambda rng: f"/{rng.choice(_WORDS)}",
    "uuid": lambda rng: "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}".format(
        *(rng.getrandbits(bits) for bits in (32, 16, 12, 12, 48))
    ),
    "json-pointer": lambda rng: f"/{rng.choice(_WORDS)}",
    "regex": lambda rng: f"^{rng.choice(_WORDS)}$",
}


def document(schema: Schema, rng: Random, hints: Mapping[str, str] | None = None) -> Json:
    """A JSON value that satisfies the schema; the same for the same generator state.

    `hints` gives the text for string fields of certain names. Local references, alternatives, recursion, enumerations,
    bounds, formats and simple patterns are followed; `not`, conditions and remote references are passed over.
    Raises SchemaError for what is no schema, or asks for too large a document.
    """
    try:
        return _Writer(schema, rng, {} if hints is None else hints).value(schema, "", 0)
    except SchemaError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, re.error) as error:
        # A keyword holds what it must not hold; where is not worth finding out.
        raise SchemaError(f"not a JSON Schema: {error}") from error


class SchemaError(ValueError):
    """A schema for which no document is written; the message says why."""


class _Writer:
    def __init__(self, root: Schema, rng: Random, hints: Mapping[str, str]) -> None:
        self._root = root
        self._rng = rng
        self._hints = hints
        self._left = MOST_VALUES

    def value(self, schema: Schema, name: str, depth: int) -> Json:
        self._left -= 1
        if self._left < 0:
            raise SchemaError(f"asks for more than {MOST_VALUES} values")
        if isinstance(schema, bool) or depth > HARD_DEPTH:
            return None
        plain = self._plain(schema, depth)
        if "const" in plain:
            return plain["const"]
        if "enum" in plain:
            return self._rng.choice(_fitting(plain["enum"], plain.get("type")))
        match self._type(plain):
            case "object":
                return self._object(plain, depth)
            case "array":
                return self._array(plain, name, depth)
            case "integer":
                return self._integer(plain)
            case "number":
                return self._number(plain, name)
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
            case _:
                return self._string(plain, name)

    # -- one schema without references and alternatives

    def _plain(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        plain = schema
        for _ in range(HARD_DEPTH):
            if "$ref" in plain:
                target = self._target(plain["$ref"])
                plain = _merged({key: value for key, value in plain.items() if key != "$ref"}, target)
            elif "allOf" in plain:
                parts = plain["allOf"]
                plain = {key: value for key, value in plain.items() if key != "allOf"}
                for part in parts:
                    plain = _merged(plain, part)
            elif choice := next((key for key in ("anyOf", "oneOf") if plain.get(key)), None):
                alternative = self._alternative(plain[choice], depth)
                plain = _merged({key: value for key, value in plain.items() if key != choice}, alternative)
            else:
                return plain
        return {"type": "null"}

    def _target(self, reference: str) -> dict[str, Any]:
        if not reference.startswith("#"):
            return {}
        node: Any = self._root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and key in node:
                node = node[key]
            elif isinstance(node, list) and key.isdigit() and int(key) < len(node):
                node = node[int(key)]
            else:
                return {}
        return node if isinstance(node, dict) else {}

    def _alternative(self, alternatives: list[Any], depth: int) -> dict[str, Any]:
        known = [alternative for alternative in alternatives if isinstance(alternative, dict)]
        if not known:
            return {}
        if depth >= SOFT_DEPTH:
            return min(known, key=lambda alternative: self._height(alternative, 0))
        # A field that may be null is usually filled in.
        filled = [alternative for alternative in known if alternative.get("type") != "null"]
        return self._rng.choice(filled if filled and self._rng.random() < 0.9 else known)

    def _height(self, schema: Schema, depth: int) -> int:
        """How deep the shallowest document is; HARD_DEPTH where it may not end."""
        if depth >= SOFT_DEPTH * 2:
            return HARD_DEPTH
        if isinstance(schema, bool) or "const" in schema or "enum" in schema:
            return 0
        below = [self._target(schema["$ref"])] if "$ref" in schema else []
        below += schema.get("allOf", [])
        properties = schema.get("properties", {})
        below += [properties[name] for name in schema.get("required", []) if name in properties]
        if schema.get("minItems", 0) > 0 and "items" in schema:
            below.append(schema["items"])
        height = max((1 + self._height(part, depth + 1) for part in below), default=0)
        if alternatives := schema.get("anyOf", schema.get("oneOf")):
            height = max(height, min(1 + self._height(part, depth + 1) for part in alternatives))
        return min(height, HARD_DEPTH)

    def _type(self, schema: dict[str, Any]) -> str:
        said = schema.get("type")
        if isinstance(said, str):
            return said
        if isinstance(said, list) and said:
            filled = [word for word in said if word != "null"]
            return str(self._rng.choice(filled if filled and self._rng.random() < 0.9 else said))
        for keywords, implied in _IMPLIED:
            if any(keyword in schema for keyword in keywords):
                return implied
        return "string"

    # -- values

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Json]:
        properties: dict[str, Schema] = schema.get("properties", {})
        required: list[str] = list(schema.get("required", []))
        least, most = schema.get("minProperties", 0), schema.get("maxProperties", math.inf)
        chosen = set(required)
        for name, rule in properties.items():
            if name in chosen or len(chosen) >= most or rule is False:
                continue
            wanted = self._rng.random() < 0.75 if depth < SOFT_DEPTH else False
            if wanted or len(chosen) < least:
                chosen.add(name)
        pending = list(chosen)
        while pending:
            for name in schema.get("dependentRequired", {}).get(pending.pop(), []):
                if name not in chosen:
                    chosen.add(name)
                    pending.append(name)
        # The order is the schema's: models are told to write the fields as they are listed.
        names = [name for name in properties if name in chosen] + [name for name in required if name not in properties]
        names += sorted(chosen - set(names))
        if least > MOST_VALUES:
            raise SchemaError(f"asks for more than {MOST_VALUES} values")
        others = schema.get("additionalProperties", True)
        extra = 1
        while len(names) < least and others is not False:
            names.append(f"extra_{extra}")
            extra += 1
        patterns: dict[str, Schema] = schema.get("patternProperties", {})
        written: dict[str, Json] = {}
        for name in dict.fromkeys(names):
            rules = [asked for pattern, asked in patterns.items() if re.search(pattern, name)]
            if name in properties:
                rules.insert(0, properties[name])
            elif not rules:
                rules.append(others)
            whole: Schema = rules[0] if len(rules) == 1 else {"allOf": rules}
            written[name] = self.value({} if whole is True else whole, name, depth + 1)
        return written

    def _array(self, schema: dict[str, Any], name: str, depth: int) -> list[Json]:
        prefix: list[Schema] = schema.get("prefixItems", [])
        rest: Any = schema.get("items", True)
        if isinstance(rest, list):  # how older drafts wrote prefixItems
            prefix, rest = rest, schema.get("additionalItems", True)
        contained: Schema | None = schema.get("contains")
        least = max(schema.get("minItems", 0), schema.get("minContains", 1) if contained is not None else 0)
        most = min(schema.get("maxItems", math.inf), len(prefix) if rest is False else math.inf)
        usual = least if depth >= SOFT_DEPTH else max(least, len(prefix), 1) + self._rng.randint(0, MOST_EXTRA_ITEMS)
        count = int(max(least, min(usual, most)))
        needed = schema.get("minContains", 1) if contained is not None else 0
        written: list[Json] = []
        seen: set[bytes] = set()
        singular = name.removesuffix("s")
        for index in range(count):
            rule = prefix[index] if index < len(prefix) else rest
            if contained is not None and index >= count - needed:
                rule = {"allOf": [part for part in (rule, contained) if isinstance(part, dict)]}
            value = self.value({} if rule is True else rule, singular, depth + 1)
            if schema.get("uniqueItems"):
                for _ in range(50):
                    if _fingerprint(value) not in seen:
                        break
                    value = self.value({} if rule is True else rule, "", depth + 1)
                if _fingerprint(value) in seen:
                    break
                seen.add(_fingerprint(value))
            written.append(value)
        return written

    def _integer(self, schema: dict[str, Any]) -> int:
        low, low_open, high, high_open = _bounds(schema)
        lowest = None if low is None else math.floor(low) + 1 if low_open else math.ceil(low)
        highest = None if high is None else math.ceil(high) - 1 if high_open else math.floor(high)
        if lowest is None:
            lowest = 1 if highest is None or highest >= 1 else highest - 40
        if highest is None:
            highest = lowest + 40
        step = schema.get("multipleOf", 1)
        if isinstance(step, float) and not step.is_integer():
            step = math.lcm(*step.as_integer_ratio()) if step > 0 else 1
        step = max(int(step), 1)
        first, last = -(-lowest // step), highest // step
        return step * (self._rng.randint(first, last) if first <= last else first)

    def _number(self, schema: dict[str, Any], name: str) -> float | int:
        low, low_open, high, high_open = _bounds(schema)
        lowest = low if low is not None else (0.0 if high is None or high > 0 else high - 40)
        highest = high if high is not None else lowest + 40

        def is_inside(value: float) -> bool:
            return (value > lowest if low_open else value >= lowest) and (
                value < highest if high_open else value <= highest
            )

        step = schema.get("multipleOf")
        if step is not None:
            first, last = math.ceil(lowest / step), math.floor(highest / step)
            tries = [self._rng.randint(first, max(first, last)) for _ in range(50)]
            for times in tries + list(range(first, min(last, first + 1000) + 1)):
                # A validator divides in floating point, so the product has to divide cleanly again.
                if is_inside(times * step) and (times * step / step).is_integer():
                    return float(times * step) if isinstance(step, float) else int(times * step)
        if re.search("confidence|score|probab", name, re.IGNORECASE) and lowest <= 0.7 and highest >= 0.99:
            return round(self._rng.uniform(0.72, 0.98), 2)
        for _ in range(50):
            value = self._rng.uniform(lowest, highest)
            for digits in (2, 4):
                if is_inside(round(value, digits)):
                    return round(value, digits)
            if is_inside(value):
                return value
        return lowest

    def _string(self, schema: dict[str, Any], name: str) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
        if least > LONGEST_STRING:
            raise SchemaError(f"asks for a string of {least} characters, more than {LONGEST_STRING}")
        if isinstance(pattern := schema.get("pattern"), str):
            try:
                return text_for_pattern(pattern, self._rng, least, most)
            except UnsupportedPatternError:
                pass
        if write := _FORMATS.get(schema.get("format", "")):
            return write(self._rng)
        text = self._words(name)
        while len(text) < least:
            text += " " + self._rng.choice(_WORDS)
        return text if len(text) <= most else text[: int(most)]

    def _words(self, name: str) -> str:
        lowered = name.lower()
        if lowered in self._hints:
            return self._hints[lowered]
        matches = [word for word in _BY_NAME if word in lowered]
        if matches:
            return self._rng.choice(_BY_NAME[max(matches, key=len)])
        return " ".join(self._rng.choice(_WORDS) for _ in range(self._rng.randint(1, 3)))


_IMPLIED: tuple[tuple[tuple[str, ...], str], ...] = (
    (("properties", "required", "minProperties", "patternProperties"), "object"),
    (("items", "prefixItems", "minItems", "contains"), "array"),
    (("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
)

_IS_TYPE: dict[str, Callable[[Json], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: not isinstance(value, bool) and isinstance(value, int | float) and value == int(value),
    "number": lambda value: not isinstance(value, bool) and isinstance(value, int | float),
}


def is_of_type(value: Json, word: str) -> bool:
    """Whether a JSON value has the type that JSON Schema calls by this word; an unknown word fits all."""
    check = _IS_TYPE.get(word)
    return check is None or check(value)


def _fitting(values: list[Json], said: Json) -> list[Json]:
    words = said if isinstance(said, list) else [said]
    fitting = [value for value in values if said is None or any(is_of_type(value, word) for word in words)]
    return fitting or values


def _merged(one: dict[str, Any], other: Schema) -> dict[str, Any]:
    """A schema that asks for what both ask for."""
    if isinstance(other, bool):
        return one
    merged = dict(one)
    for key, value in other.items():
        if key not in merged:
            merged[key] = value
            continue
        mine = merged[key]
        if key in ("properties", "patternProperties"):
            both = {name: {"allOf": [mine[name], rule]} for name, rule in value.items() if name in mine}
            merged[key] = mine | {name: rule for name, rule in value.items() if name not in mine} | both
        elif key == "required":
            merged[key] = list(dict.fromkeys([*mine, *value]))
        elif key in ("minimum", "minLength", "minItems", "minProperties"):
            merged[key] = max(mine, value)
        elif key in ("maximum", "maxLength", "maxItems", "maxProperties"):
            merged[key] = min(mine, value)
        elif key == "enum":
            merged[key] = [item for item in mine if item in value] or mine
        elif key == "type":
            merged[key] = _common_type(mine, value)
        elif key in ("allOf", "prefixItems"):
            merged[key] = [*mine, *value]
        elif key in ("anyOf", "oneOf"):
            merged.setdefault("allOf", [])
            merged["allOf"] = [*merged["allOf"], {key: value}]
        elif key == "items" and isinstance(mine, dict) and isinstance(value, dict):
            merged[key] = {"allOf": [mine, value]}
        elif key == "additionalProperties" and value is False:
            merged[key] = False
    return merged


def _common_type(one: Json, other: Json) -> Json:
    ones = one if isinstance(one, list) else [one]
    others = other if isinstance(other, list) else [other]
    if "integer" in ones + others:
        ones = ["integer" if word == "number" else word for word in ones]
        others = ["integer" if word == "number" else word for word in others]
    common = [word for word in ones if word in others]
    return (common[0] if len(common) == 1 else common) if common else one


def _bounds(schema: dict[str, Any]) -> tuple[float | None, bool, float | None, bool]:
    """Lowest and highest value, each with whether it is excluded; draft 4 wrote the exclusion as a boolean."""

    def bound(plain: str, exclusive: str, tighter: Callable[[float, float], bool]) -> tuple[float | None, bool]:
        inclusive, excluded = schema.get(plain), schema.get(exclusive)
        if excluded is None or excluded is False:
            return inclusive, False
        if excluded is True:
            return inclusive, True
        if inclusive is None or not tighter(inclusive, excluded):
            return excluded, True
        return inclusive, False

    low, low_open = bound("minimum", "exclusiveMinimum", lambda a, b: a > b)
    high, high_open = bound("maximum", "exclusiveMaximum", lambda a, b: a < b)
    return low, low_open, high, high_open


def _fingerprint(value: Json) -> bytes:
    """Equal for values that JSON Schema holds equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return b"[" + b",".join(_fingerprint(part) for part in value) + b"]"
    if isinstance(value, dict):
        return b"{" + b",".join(msgspec.json.encode(key) + _fingerprint(value[key]) for key in sorted(value)) + b"}"
    return msgspec.json.encode(value)
