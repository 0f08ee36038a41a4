"""Outputs and schemas made to stall or confuse whoever judges them, by kind, each with the results it may have."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

DRAFT7 = "http://json-schema.org/draft-07/schema#"
DRAFT2019 = "https://json-schema.org/draft/2019-09/schema"


class Hostile(NamedTuple):
    """`results` are those that are right; where time decides, `validator_timeout` is among them."""

    text: str
    schema: bytes | None
    results: frozenset[str]


def made(value: object, schema: object, *results: str) -> Hostile:
    """Values become JSON text; a schema that is bytes already stays as it is."""
    text = value if isinstance(value, str) else json.dumps(value)
    return Hostile(text, schema if isinstance(schema, bytes) else json.dumps(schema).encode(), frozenset(results))


def chain(length: int, last: object) -> dict[str, Any]:
    """References one after the other, each to the next."""
    links: dict[str, Any] = {f"a{number}": {"$ref": f"#/$defs/a{number + 1}"} for number in range(length)}
    return {"$defs": {**links, f"a{length}": last}, "$ref": "#/$defs/a0"}


def levels(depth: int, width: int, word: str, last: object) -> dict[str, Any]:
    """Definitions each of which combines the next one several times: width to the power of depth in all."""
    made = {
        f"a{level}": {word: [{"$ref": f"#/$defs/a{level + 1}"}, *[{"$ref": f"#/$defs/a{level + 1}"}] * (width - 1)]}
        for level in range(depth)
    }
    return {"$defs": {**made, f"a{depth}": last}, "$ref": "#/$defs/a0"}


def nested(depth: int, around: Callable[[Any], Any], core: Any) -> Any:
    for _ in range(depth):
        core = around(core)
    return core


LONG = "a" * 40 + "!"
TIME = "validator_timeout"
ANY = ("valid", "schema_violation", TIME)

KINDS: dict[str, Callable[[], Hostile]] = {
    # References.
    "remote reference": lambda: made({}, {"$ref": "http://127.0.0.1:9/schema.json"}, "schema_unresolvable"),
    "reference to the metadata service": lambda: made(
        {}, {"properties": {"a": {"$ref": "http://169.254.169.254/latest/meta-data/"}}}, "schema_unresolvable"
    ),
    "reference to a file": lambda: made({}, {"items": {"$ref": "file:///etc/passwd"}}, "schema_unresolvable"),
    "reference to a device": lambda: made({}, {"$ref": "file:///dev/zero"}, "schema_unresolvable"),
    "relative reference from a remote id": lambda: made(
        {}, {"$id": "https://example.com/a/", "$ref": "b"}, "schema_unresolvable"
    ),
    "reference by URN": lambda: made({}, {"$ref": "urn:example:a:b"}, "schema_unresolvable"),
    "malformed pointer": lambda: made({}, {"$ref": "#/$defs/~2"}, "schema_unresolvable"),
    "reference into a value": lambda: made({}, {"enum": [{"type": 7}], "$ref": "#/enum/0"}, "schema_invalid"),
    "reference to itself": lambda: made({}, {"$ref": "#"}, "schema_recursion"),
    "ring of three": lambda: made(
        {}, {"$defs": {a: {"allOf": [{"$ref": f"#/$defs/{b}"}]} for a, b in ("xy", "yz", "zx")}, "$ref": "#/$defs/x"},
        "schema_recursion",
    ),
    "ring of a thousand": lambda: made({}, chain(1_000, {"$ref": "#/$defs/a0"}), "schema_recursion"),
    "ring of ten thousand": lambda: made({}, chain(10_000, {"$ref": "#/$defs/a0"}), "schema_recursion", TIME),
    "chain of ten thousand": lambda: made({}, chain(10_000, {}), "valid", "schema_recursion", TIME),
    "dynamic loop": lambda: made(
        {}, {"$defs": {"x": {"$dynamicAnchor": "x", "$dynamicRef": "#x"}}, "$ref": "#/$defs/x"}, "schema_recursion"
    ),
    "recursive loop of 2019-09": lambda: made(
        {}, {"$schema": DRAFT2019, "allOf": [{"$recursiveRef": "#"}]}, "schema_recursion"
    ),
    "dynamic references into one another": lambda: made(
        nested(100, lambda inner: {"a": inner}, {}),
        {"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}, "unevaluatedProperties": False},
        "valid", TIME,
    ),
    "identified schemas by the thousand": lambda: made(
        {}, {"$defs": {f"a{n}": {"$id": f"https://example.com/{n}", "$ref": f"{n + 1}"} for n in range(2_000)},
             "$ref": "https://example.com/0"},
        "schema_unresolvable", "schema_recursion", TIME,
    ),
    "the same anchor twice": lambda: made(
        '"x"', {"$defs": {"a": {"$anchor": "n", "type": "string"}, "b": {"$anchor": "n"}}, "$ref": "#n"},
        "valid", "schema_violation", "schema_invalid", "schema_unresolvable",
    ),
    "the same id twice": lambda: made(
        '"x"', {"$defs": {"a": {"$id": "https://example.com/n", "type": "string"},
                          "b": {"$id": "https://example.com/n"}}, "$ref": "https://example.com/n"},
        "valid", "schema_violation", "schema_unresolvable",
    ),
    # Patterns.
    "nested quantifiers": lambda: made([LONG], {"items": {"pattern": "^(a+)+$"}}, "schema_violation", TIME),
    "alternatives that are alike": lambda: made([LONG], {"items": {"pattern": "^(a|a)*$"}}, "schema_violation", TIME),
    "look-ahead that backtracks": lambda: made([LONG], {"items": {"pattern": "^(?=(a+)+$)"}}, TIME),
    "reference back that backtracks": lambda: made(
        [LONG], {"items": {"pattern": r"^((a+)+)\1$"}}, "schema_violation", TIME
    ),
    "many optional letters": lambda: made(
        ["a" * 32], {"items": {"pattern": "^(?=" + "(a?)" * 32 + "a" * 32 + "b)"}}, "schema_violation", TIME
    ),
    "white space that overlaps": lambda: made(
        [" " * 30_000 + "x"], {"items": {"pattern": r"\s+$"}}, "schema_violation", TIME
    ),
    "counted repetition of itself": lambda: made(
        ["a" * 30 + "!"], {"items": {"pattern": "^((((a{1,99}){1,99}){1,99}){1,99})$"}}, "schema_violation", TIME
    ),
    "fifty thousand parentheses": lambda: made(
        {}, {"pattern": "(" * 50_000}, "schema_invalid", "schema_recursion"
    ),
    "catastrophic names of members": lambda: made(
        {LONG: 1}, {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, "schema_violation", TIME
    ),
    "catastrophic property names": lambda: made(
        {LONG: 1}, {"propertyNames": {"pattern": "^(?=(a|aa)+$)"}}, "schema_violation", TIME
    ),
    "patterns by the thousand over as many members": lambda: made(
        {f"m{n}": n for n in range(2_000)},
        {"patternProperties": {f"^m{n}(?=$)": {"type": "integer"} for n in range(2_000)}},
        "valid", TIME,
    ),
    "pattern that is none of Python's": lambda: made({}, {"pattern": r"^\p{L}+$"}, "schema_invalid"),
    # Combinations.
    "doubling of allOf": lambda: made(1, levels(40, 2, "allOf", {"type": "integer"}), "valid", TIME),
    "product of anyOf": lambda: made(1, levels(9, 10, "anyOf", {"type": "string"}), "schema_violation", TIME),
    "product of oneOf": lambda: made(1, levels(30, 2, "oneOf", {"type": "integer"}), "schema_violation", TIME),
    "doubling of not": lambda: made(
        7, {"$defs": {"a0": {"type": "integer"}} | {
            f"a{level}": {"oneOf": [{"$ref": f"#/$defs/a{level - 1}"}, {"not": {"$ref": f"#/$defs/a{level - 1}"}}]}
            for level in range(1, 40)}, "$ref": "#/$defs/a39"},
        *ANY,
    ),
    "conditions in conditions": lambda: made(
        1, nested(60, lambda inner: {"if": inner, "then": inner} if len(json.dumps(inner)) < 2**18 else {"if": inner},
                  {"type": "integer"}),
        "valid", TIME,
    ),
    "dependent schemas of dependent schemas": lambda: made(
        {"a": 1}, levels(24, 2, "allOf", {"dependentSchemas": {"a": {"required": ["b"]}}}), "schema_violation", TIME
    ),
    "unevaluated properties at every level": lambda: made(
        {f"m{n}": n for n in range(20)},
        nested(16, lambda inner: {"allOf": [inner, {"properties": {"x": {}}}], "unevaluatedProperties": False},
               {"properties": {f"m{n}": {} for n in range(20)}}),
        *ANY,
    ),
    "unevaluated items at every level": lambda: made(
        list(range(50)),
        nested(16, lambda inner: {"anyOf": [inner, {"contains": {"minimum": 10}}], "unevaluatedItems": False},
               {"prefixItems": [{}] * 50}),
        *ANY,
    ),
    "contains in contains": lambda: made(
        nested(5, lambda inner: [inner] * 10, 1),
        nested(5, lambda inner: {"contains": inner, "minContains": 10, "maxContains": 10}, {"const": 2}),
        "schema_violation", TIME,
    ),
    "contains over a large array": lambda: made(
        [0] * 200_000, {"contains": {"const": 1}, "minContains": 1_000_000_000}, "schema_violation", TIME
    ),
    # Sizes.
    "enum of ten megabytes": lambda: made(
        '"x"', {"enum": [f"{number:08d}" for number in range(900_000)]}, "schema_violation", TIME
    ),
    "enum of large objects": lambda: made(
        {"a": [list(range(500))] * 20, "b": 2},
        {"enum": [{"a": [list(range(500))] * 20, "b": 1} for _ in range(20)]},
        "schema_violation", TIME,
    ),
    "unique items by the hundred thousand": lambda: made(
        [{"a": number} for number in range(200_000)], {"uniqueItems": True}, "valid", TIME
    ),
    "unique items that are alike but for the end": lambda: made(
        [[0] * 2_000 + [number] for number in range(300)], {"uniqueItems": True}, "valid", TIME
    ),
    "a hundred thousand properties": lambda: made(
        {}, {"properties": {f"p{number}": {"type": "string"} for number in range(100_000)}}, "valid", TIME
    ),
    "a hundred thousand required names": lambda: made(
        {}, {"required": [f"p{number}" for number in range(100_000)]}, "schema_violation", TIME
    ),
    "members that are not allowed": lambda: made(
        {f"m{number}": 1 for number in range(100_000)}, {"additionalProperties": {"type": "string"}},
        "schema_violation", TIME,
    ),
    "violations by the million": lambda: made([0] * 1_000_000, {"items": {"type": "string"}}, "schema_violation", TIME),
    "text of twenty megabytes": lambda: made({"a": "x" * 20_000_000}, {"type": "object"}, "valid", TIME),
    "white space of twenty megabytes": lambda: made(" " * 20_000_000 + "{}", {}, "valid", TIME),
    "openings that lead nowhere": lambda: made("{[" * 99 + "x" * 1_000_000 + "{[" * 500_000, {}, "output_over_cap"),
    "fences by the hundred thousand": lambda: made("```" * 300_000, {}, "not_json"),
    # Depths.
    "arrays a hundred thousand deep": lambda: made("[" * 100_000 + "]" * 100_000, {}, "output_over_cap"),
    "objects that never close": lambda: made('{"a":' * 100_000, {}, "output_over_cap"),
    "schema a hundred thousand deep": lambda: made(
        {}, b'{"not":' * 100_000 + b"{}" + b"}" * 100_000, "schema_recursion"
    ),
    "schema that never closes": lambda: made({}, b'{"items":[' * 100_000, "schema_recursion"),
    "tree as deep as is read": lambda: made(
        nested(99, lambda inner: {"c": [inner]}, {}),
        {"properties": {"c": {"items": {"$ref": "#"}}}, "additionalProperties": False}, "valid",
    ),
    # Numbers.
    "integer of a million digits": lambda: made("9" * 1_000_000, {"multipleOf": 3}, "output_over_cap"),
    "integer of four thousand digits": lambda: made("7" * 4_000, {"multipleOf": 1e-308}, *ANY),
    "exponent without end": lambda: made("1e999999999", {"type": "number", "maximum": 5}, "schema_violation"),
    "bound without end": lambda: made(
        5, b'{"minimum": 1e999999999}', "schema_violation", "schema_invalid"
    ),
    "multiple of the smallest float": lambda: made("1e308", {"multipleOf": 5e-324}, *ANY),
    "multiple of a long fraction": lambda: made(0.3, {"multipleOf": 0.1234567890123456789e-300}, *ANY),
    "multiple of nothing": lambda: made(5, b'{"multipleOf": 1e-400}', "schema_invalid"),
    "length beyond all numbers": lambda: made("[]", b'{"minItems": 1e400}', "schema_violation", "schema_invalid"),
    # Characters.
    "halves of surrogate pairs": lambda: made(
        '{"\\ud800": "\\udfff"}', b'{"properties": {"\\ud800": {"pattern": "\\udfff"}}}', "valid"
    ),
    "NUL": lambda: made({"a\0": "\0"}, {"patternProperties": {"\0": {"pattern": "^\0$"}}}, "valid"),
    "byte order mark before the output": lambda: made("\ufeff{}", {}, "trailing_text"),
    "byte order mark before the schema": lambda: made({}, b"\xef\xbb\xbf{}", "schema_invalid"),
    "schema that is no UTF-8": lambda: made({}, b'{"title": "\xff"}', "schema_invalid"),
    "names of Python's own": lambda: made(
        {"__class__": 1, "__proto__": 2}, {"properties": {"__class__": {"type": "integer"}}}, "valid"
    ),
    # What is no schema.
    "schema that is an array": lambda: made({}, b"[]", "schema_invalid"),
    "schema that is a number": lambda: made({}, b"3", "schema_invalid"),
    "schema that is empty": lambda: made({}, b"", "schema_invalid"),
    "schema that allows nothing": lambda: made({}, False, "schema_violation"),
    "schema that allows everything": lambda: made({}, True, "valid"),
    "keywords of the wrong type": lambda: made({}, {"type": 12, "required": "a", "properties": []}, "schema_invalid"),
    "type that there is not": lambda: made({}, {"type": "money"}, "schema_invalid"),
    "dialect of someone's own": lambda: made({}, {"$schema": "https://example.com/draft"}, "schema_unresolvable"),
    "dialect that is no text": lambda: made({}, {"$schema": 7}, "schema_invalid"),
    "members given twice": lambda: made('{"a": 1' + ', "a": 1' * 100_000 + "}", {}, "duplicate_key"),
    "schema with members given twice": lambda: made(
        {"a": 1}, b'{"type": "string", "type": "object"}', "valid", "schema_invalid", "schema_violation"
    ),
}  # fmt: skip
