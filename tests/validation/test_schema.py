"""Five drafts, references that cannot hang, and keywords of a closed set."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.validation.judge import judge
from collector.validation.schema import DRAFTS, KEYWORDS, UnusableSchemaError, compile_schema

DRAFT4 = "http://json-schema.org/draft-04/schema#"
DRAFT6 = "http://json-schema.org/draft-06/schema#"
DRAFT7 = "http://json-schema.org/draft-07/schema#"
DRAFT2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT2020 = "https://json-schema.org/draft/2020-12/schema"


def failing(schema: object, value: object) -> str | None:
    return compile_schema(json.dumps(schema).encode()).failing_keyword(value)


def fault(schema: object) -> str:
    with pytest.raises(UnusableSchemaError) as caught:
        compile_schema(schema if isinstance(schema, bytes) else json.dumps(schema).encode())
    return caught.value.fault


@pytest.mark.parametrize(
    ("schema", "value", "keyword"),
    [
        # What the drafts disagree about.
        ({"$schema": DRAFT4, "maximum": 3, "exclusiveMaximum": True}, 3, "maximum"),
        ({"$schema": DRAFT6, "exclusiveMaximum": 3}, 3, "exclusiveMaximum"),
        ({"$schema": DRAFT4, "type": "integer"}, 1.0, "type"),
        ({"$schema": DRAFT6, "type": "integer"}, 1.0, None),
        ({"$schema": DRAFT4, "const": 1}, 2, None),
        ({"$schema": DRAFT6, "const": 1}, 2, "const"),
        ({"$schema": DRAFT6, "if": {"type": "null"}, "then": False}, None, None),
        ({"$schema": DRAFT7, "if": {"type": "null"}, "then": {"type": "string"}}, None, "type"),
        ({"$schema": DRAFT7, "items": [{"type": "string"}], "additionalItems": False}, ["a", 1], "additionalItems"),
        ({"$schema": DRAFT2019, "items": [{"type": "string"}]}, [1], "type"),
        ({"$schema": DRAFT2020, "prefixItems": [{"type": "string"}], "items": False}, ["a", 1], "items"),
        ({"$schema": DRAFT7, "prefixItems": [{"type": "string"}]}, [1], None),
        ({"$schema": DRAFT7, "dependencies": {"a": ["b"]}}, {"a": 1}, "dependencies"),
        ({"$schema": DRAFT2019, "dependentRequired": {"a": ["b"]}}, {"a": 1}, "dependentRequired"),
        ({"$schema": DRAFT7, "dependentRequired": {"a": ["b"]}}, {"a": 1}, None),
        ({"$schema": DRAFT7, "definitions": {"a": {}}, "$ref": "#/definitions/a", "type": "string"}, 1, None),
        ({"$schema": DRAFT2019, "$defs": {"a": {}}, "$ref": "#/$defs/a", "type": "string"}, 1, "type"),
        ({"$schema": DRAFT2019, "contains": {"const": 1}, "minContains": 2}, [1], "minContains"),
        ({"$schema": DRAFT7, "contains": {"const": 1}, "minContains": 2}, [1], None),
        (
            {"$schema": DRAFT2019, "unevaluatedProperties": False, "properties": {"a": {}}},
            {"b": 1},
            "unevaluatedProperties",
        ),
        ({"$schema": DRAFT2020, "allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"a": 1}, None),
        # Without $schema the newest holds.
        ({"prefixItems": [{"type": "string"}]}, [1], "type"),
        ({"$schema": "http://json-schema.org/schema#", "prefixItems": [{"type": "string"}]}, [1], "type"),
        # format says something, and asserts nothing.
        ({"type": "object", "properties": {"uuid": {"type": "string", "format": "uuid"}}}, {"uuid": "7"}, None),
        ({"format": "regex"}, "(", None),
        # Numbers are decimal, as JSON writes them.
        ({"multipleOf": 0.01}, 19.99, None),
        ({"multipleOf": 0.0001}, 0.0075, None),
        ({"multipleOf": 0.01}, 19.995, "multipleOf"),
        ({"multipleOf": 0.5}, 1e308, None),
        ({"multipleOf": 2}, 7, "multipleOf"),
        ({"multipleOf": 0.123456789}, 10**400, "multipleOf"),
        ({"multipleOf": 0.5}, float("inf"), None),
        ({"multipleOf": 0.5}, "x", None),
        # Equality is JSON's.
        ({"uniqueItems": True}, [1, True, "1", [1], {"a": 1}], None),
        ({"uniqueItems": True}, [1, 1.0], "uniqueItems"),
        ({"uniqueItems": True}, [{"a": 1, "b": [2]}, {"b": [2], "a": 1.0}], "uniqueItems"),
        ({"uniqueItems": True}, [[1], [True]], None),
        ({"uniqueItems": True}, [[], {}], None),
        ({"uniqueItems": False}, [1, 1], None),
        ({"enum": [1]}, True, "enum"),
        # Patterns are ECMA's.
        ({"pattern": r"^\d$"}, "5\n", "pattern"),
        ({"pattern": "^(?<a>x)$"}, "x", None),
        ({"patternProperties": {"^a$": {"type": "string"}}}, {"a": 1}, "type"),
        ({"patternProperties": {r"^\w$": {}}, "additionalProperties": False}, {"a": 1}, None),
        ({"patternProperties": {r"^\w$": {}}, "additionalProperties": False}, {"é": 1}, "additionalProperties"),
        ({"additionalProperties": {"type": "string"}, "properties": {"a": {}}}, {"a": 1, "b": 1}, "type"),
        # The failing keyword is the one that says most.
        ({"anyOf": [{"type": "null"}, {"type": "object", "required": ["a"]}]}, {}, "required"),
        ({"properties": {"a": {"maxLength": 1}}, "required": ["b"]}, {"a": "xx"}, "required"),
        (False, 1, "other"),
        (True, 1, None),
        ({}, 1, None),
    ],
)
def test_a_value_satisfies_a_schema_or_breaks_a_keyword(schema: object, value: object, keyword: str | None) -> None:
    assert failing(schema, value) == keyword


@pytest.mark.parametrize("named", sorted(DRAFTS))
def test_every_draft_accepts_its_own_schema_and_judges_by_it(named: str) -> None:
    meta = DRAFTS[named].validator.META_SCHEMA
    assert failing(meta, meta) is None
    assert failing(meta, {"type": 12}) is not None


@pytest.mark.parametrize("named", sorted(DRAFTS))
@pytest.mark.parametrize(
    "broken",
    [
        {"type": 12},
        {"properties": {"a": {"minimum": "1"}}},
        {"items": {"allOf": [{"required": "a"}]}},
        {"pattern": "("},
    ],
)
def test_a_broken_schema_is_found_in_every_draft(named: str, broken: dict[str, object]) -> None:
    assert fault({"$schema": f"http://{named}"} | broken) == "schema_invalid"


@pytest.mark.parametrize(
    "schema",
    [
        b"", b"{", b"\xff", b"[]", b"3", b"null", b'"object"', b'{"$schema": 7}', b'{"minimum": 1' + b"0" * 5000 + b"}",
        b'{"$ref": "#/x", "x": 3}', b'{"$ref": "#/x", "x": {"$ref": 3}}', b'{"$ref": "#/x", "x": {"properties": []}}',
        b'{"patternProperties": {"[": {}}}', b'{"properties": {"a": {"pattern": "\\\\p{L}"}}}',
        b'{"multipleOf": 0}', b'{"$id": 5}', b'{"enum": 1}',
    ],
)  # fmt: skip
def test_what_is_no_schema_is_invalid(schema: bytes) -> None:
    assert fault(schema) == "schema_invalid"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/hostname"},
        {"properties": {"a": {"items": {"$ref": "other.json#/a"}}}},
        {"$ref": "#/$defs/missing"},
        {"$ref": "#missing"},
        {"$id": "https://example.com/a/", "$ref": "b"},
        {"$dynamicRef": "#missing"},
        {"$schema": "https://example.com/my-own-draft"},
        {"$schema": DRAFT7, "$ref": "https://example.com/x", "type": "object"},
    ],
)
def test_references_out_of_the_schema_are_never_followed(schema: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the schema made somebody open a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fault(schema) == "schema_unresolvable"


def test_references_within_the_schema_are_followed_by_pointer_anchor_and_id() -> None:
    number = {"type": "number"}
    assert failing({"$defs": {"a b": number}, "$ref": "#/$defs/a%20b"}, "x") == "type"
    assert failing({"$defs": {"a": number | {"$anchor": "n"}}, "$ref": "#n"}, "x") == "type"
    embedded = {"$id": "https://example.com/root", "$defs": {"a": number | {"$id": "n"}}, "$ref": "n"}
    assert failing(embedded, "x") == "type"
    assert failing({"$schema": DRAFT4, "definitions": {"a": number}, "$ref": "#/definitions/a"}, "x") == "type"


def test_an_unused_definition_does_no_harm() -> None:
    unused = {"a": {"$ref": "https://example.com/x"}, "b": {"$ref": "#/$defs/b"}, "c": {"pattern": r"\p{L}"}}
    assert failing({"$defs": unused, "type": "object"}, {}) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"type": "string"}, {"oneOf": [{"not": {"$ref": "#"}}]}]},
        {"if": {"type": "string"}, "then": {"$ref": "#"}},
        {"dependentSchemas": {"a": {"$ref": "#"}}},
        {"items": {"$dynamicRef": "#x"}, "$defs": {"x": {"$dynamicAnchor": "x", "$dynamicRef": "#x"}}},
        {"$schema": DRAFT2019, "allOf": [{"$recursiveRef": "#"}]},
        {"$schema": DRAFT4, "definitions": {"a": {"allOf": [{"$ref": "#/definitions/a"}]}}, "$ref": "#/definitions/a"},
        {"$schema": DRAFT7, "dependencies": {"a": {"$ref": "#"}}},
        b'{"not":' * 100_000 + b"{}" + b"}" * 100_000,
        b'{"items":[' * 100_000,
    ],
)
def test_references_that_lead_nowhere_are_found_before_anything_is_judged(schema: object) -> None:
    assert fault(schema) == "schema_recursion"


TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "children": {"items": {"$ref": "#/$defs/node"}}},
            "required": ["value"],
            "additionalProperties": False,
        }
    },
    "anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}],
}


def tree(depth: int, leaf: object) -> dict[str, object]:
    node: dict[str, object] = {"value": leaf}
    for _ in range(depth):
        node = {"value": 1, "children": [node]}
    return node


def test_a_schema_that_refers_to_itself_judges_a_tree_sixty_deep() -> None:
    assert failing(TREE, tree(60, leaf=1)) is None
    assert failing(TREE, tree(60, leaf="x")) == "type"


def test_two_ways_to_the_same_definition_are_no_circle() -> None:
    assert failing({"$defs": {"a": {"type": "string"}}, "allOf": [{"$ref": "#/$defs/a"}] * 2}, "x") is None


SUBSCHEMAS = st.recursive(
    st.sampled_from([{}, True, False, {"type": "string"}, {"minimum": 3}, {"$ref": "#"}, {"$ref": "#/$defs/a"}]),
    lambda inner: (
        st.builds(lambda each: {"allOf": [each]}, inner)
        | st.builds(lambda each: {"properties": {"a": each}}, inner)
        | st.builds(lambda one, two: {"anyOf": [one, two]}, inner, inner)
        | st.builds(lambda each: {"not": each}, inner)
        | st.builds(lambda each: {"items": each}, inner)
    ),
    max_leaves=8,
)


@given(SUBSCHEMAS, SUBSCHEMAS, st.recursive(st.integers() | st.text(), lambda inner: st.lists(inner, max_size=2)
       | st.dictionaries(st.just("a"), inner), max_leaves=6))  # fmt: skip
def test_no_schema_that_compiles_recurses_without_end(root: object, definition: object, value: object) -> None:
    schema = {"$defs": {"a": definition}, "allOf": [root]}
    result, _ = judge(json.dumps(value), json.dumps(schema).encode(), "json_schema")
    assert result in ("valid", "schema_violation", "schema_recursion")
    with contextlib.suppress(UnusableSchemaError):  # Its own RecursionError is not caught here, as judge() does.
        assert compile_schema(json.dumps(schema).encode()).failing_keyword(value) in KEYWORDS | {None, "other"}


@pytest.mark.parametrize(
    ("form", "text", "holds"),
    [
        ("date", "2026-02-29", False),
        ("date", "2028-02-29", True),
        ("ipv4", "256.1.1.1", False),
        ("email", "nobody", False),
        ("regex", "(", False),
        ("of our own", "anything", True),
    ],
)
def test_formats_hold_only_where_that_is_switched_on(form: str, text: str, holds: bool) -> None:
    schema = json.dumps({"properties": {"a": {"format": form}}}).encode()
    assert compile_schema(schema).failing_keyword({"a": text}) is None
    assert compile_schema(schema, formats=True).failing_keyword({"a": text}) == (None if holds else "format")


def test_a_keyword_of_another_draft_in_a_schema_does_not_break_its_draft() -> None:
    assert failing({"items": {"$recursiveRef": "#"}}, [1]) is None


def test_the_keywords_are_few_enough_to_be_a_label() -> None:
    assert len(KEYWORDS) < 60
    assert all(re.fullmatch(r"\$?[a-zA-Z]+", keyword) for keyword in KEYWORDS)
