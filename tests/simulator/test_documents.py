"""Generated documents satisfy the schemas they were generated for."""

from __future__ import annotations

import contextlib
import json
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from collector.simulator.documents import SchemaError, document, is_of_type


def _problems(value: Any, schema: Any) -> list[str]:
    # What is sent is JSON text, so that is what is judged.
    sent = json.loads(json.dumps(value))
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    return [error.message for error in validator.iter_errors(sent)]


names = st.sampled_from(["name", "city", "score", "confidence", "answer", "note", "tags", "a_b", "值"])


def _ordered(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda pair: (min(pair), max(pair)))


def _some(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=optional)


strings = st.one_of(
    _ordered(0, 40).map(lambda pair: {"type": "string", "minLength": pair[0], "maxLength": pair[1]}),
    st.sampled_from(
        ["date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "uri", "hostname", "duration", "regex"]
    ).map(lambda name: {"type": "string", "format": name}),
    st.sampled_from(["^[A-Z]{2}\\d{3}$", "^(a|bc)+$", "^\\w+@\\w+\\.org$"]).map(
        lambda pattern: {"type": "string", "pattern": pattern}
    ),
)
integers = st.one_of(
    _ordered(-50, 50).map(lambda pair: {"type": "integer", "minimum": pair[0], "maximum": pair[1]}),
    _ordered(-50, 50).map(
        lambda pair: {"type": "integer", "exclusiveMinimum": pair[0], "exclusiveMaximum": pair[1] + 2}
    ),
    st.integers(1, 12).map(lambda step: {"type": "integer", "multipleOf": step}),
    _some(minimum=st.integers(-99, 99)).map(lambda more: {"type": "integer"} | more),
    _some(maximum=st.integers(-99, 99)).map(lambda more: {"type": "integer"} | more),
)
numbers = st.one_of(
    st.tuples(st.floats(-9, 9), st.floats(0, 9)).map(
        lambda pair: {"type": "number", "minimum": pair[0], "maximum": pair[0] + pair[1]}
    ),
    st.tuples(st.floats(-9, 9), st.floats(0.001, 9)).map(
        lambda pair: {"type": "number", "exclusiveMinimum": pair[0], "exclusiveMaximum": pair[0] + pair[1]}
    ),
    st.sampled_from([0.1, 0.25, 0.01, 5]).map(
        lambda step: {"type": "number", "minimum": 0, "maximum": 20, "multipleOf": step}
    ),
)
scalars = st.one_of(
    strings,
    integers,
    numbers,
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({}),
    st.just(True),
    st.lists(st.one_of(st.text(max_size=5), st.integers(-3, 3), st.none()), min_size=1, max_size=4).map(
        lambda values: {"enum": values}
    ),
    st.one_of(st.text(max_size=5), st.integers(), st.booleans()).map(lambda value: {"const": value}),
    st.just({"type": ["string", "null"]}),
    st.just({"type": ["integer", "string"], "enum": ["x", 3]}),
)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def build(parts: tuple[dict[str, Any], list[str], Any]) -> dict[str, Any]:
        properties, required, others = parts
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if others is not None:
            schema["additionalProperties"] = others
        schema["required"] = [name for name in required if name in properties or others is not False]
        return schema

    return st.tuples(
        st.dictionaries(names, inner, max_size=4),
        st.lists(names, unique=True, max_size=3),
        st.sampled_from([None, False, {"type": "integer"}]),
    ).map(build)


def _arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.tuples(inner, _ordered(0, 4)).map(
            lambda parts: {"type": "array", "items": parts[0], "minItems": parts[1][0], "maxItems": parts[1][1]}
        ),
        st.tuples(st.lists(inner, min_size=1, max_size=3), inner).map(
            lambda parts: {"type": "array", "prefixItems": parts[0], "items": parts[1]}
        ),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda parts: {"type": "array", "prefixItems": parts, "items": False}
        ),
        st.integers(1, 4).map(
            lambda count: {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": count}
        ),
        st.just({"type": "array", "items": {"type": "integer"}, "contains": {"const": 7}}),
    )


def _combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts}),
        st.just({"oneOf": [{"type": "string", "maxLength": 8}, {"type": "integer"}, {"type": "null"}]}),
        inner.map(lambda part: {"allOf": [part], "description": "one part"}),
    )


schemas = st.recursive(
    scalars, lambda inner: st.one_of(_objects(inner), _arrays(inner), _combined(inner)), max_leaves=8
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=schemas, seed=st.integers(0, 9))
def test_a_document_satisfies_its_schema(schema, seed):
    assert _problems(document(schema, Random(seed)), schema) == []


RECURSIVE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value", "next", "children"],
            "additionalProperties": False,
        }
    },
}


@pytest.mark.parametrize(
    "schema",
    [
        RECURSIVE,
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/definitions/id"}, "b": {"$ref": "#/properties/a"}},
            "required": ["a", "b"],
            "definitions": {"id": {"type": "string", "pattern": "^id-[0-9]{4}$"}},
        },
        {
            "allOf": [
                {"type": "object", "properties": {"n": {"type": "number", "minimum": 3}}, "required": ["n"]},
                {"properties": {"n": {"maximum": 4}, "m": {"enum": [1, 2]}}, "required": ["m"]},
            ]
        },
        {"type": "object", "properties": {"a": {}}, "dependentRequired": {"a": ["b"]}, "required": ["a"]},
        {"type": "object", "minProperties": 3, "additionalProperties": {"type": "boolean"}},
        {
            "type": "object",
            "patternProperties": {"^n_": {"type": "integer"}},
            "required": ["n_one", "n_two"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            "additionalProperties": False,
        },
        {"properties": {"x": {"minimum": 2, "maximum": 3}}, "required": ["x"]},
        {"type": "array", "items": {"enum": ["p", "q"]}, "uniqueItems": True, "maxItems": 5},
        {"type": "string", "pattern": "^[a-z]{5,}$", "minLength": 30, "maxLength": 34},
    ],
    ids=lambda schema: ",".join(schema)[:40],
)
@pytest.mark.parametrize("seed", range(8))
def test_references_recursion_and_combinations_are_followed(schema, seed):
    assert _problems(document(schema, Random(seed)), schema) == []


def test_the_same_generator_state_gives_the_same_document():
    assert document(RECURSIVE, Random(4)) == document(RECURSIVE, Random(4))


def test_references_that_lead_nowhere_or_in_circles_end():
    circle = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    endless = {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}},
    }
    assert document(circle, Random(1)) is None
    assert set(document(endless, Random(1))) == {"a"}
    assert isinstance(document({"$ref": "https://example.org/schema"}, Random(1)), str)


def test_fields_are_filled_by_hints_and_written_in_the_order_of_the_schema():
    schema = {
        "type": "object",
        "properties": {"zeta": {"type": "integer"}, "answer": {"type": "string"}, "alpha": {"type": "integer"}},
        "required": ["alpha", "answer", "zeta"],
    }
    written = document(schema, Random(1), {"answer": "The lock is long."})
    assert written["answer"] == "The lock is long."
    assert list(written) == ["zeta", "answer", "alpha"]


@pytest.mark.parametrize(
    ("value", "word", "fits"),
    [(1, "integer", True), (1.0, "integer", True), (1.5, "integer", False), (True, "integer", False), (1, "x", True)],
)
def test_types_are_those_of_json_schema(value, word, fits):
    assert is_of_type(value, word) is fits


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "object", "properties": ["a"]}, "not a JSON Schema"),
        ({"type": "object", "required": 5}, "not a JSON Schema"),
        ({"type": "object", "required": ["a"], "patternProperties": {"(": {}}}, "not a JSON Schema"),
        ({"enum": []}, "not a JSON Schema"),
        ({"type": "integer", "minimum": "low"}, "not a JSON Schema"),
        ({"type": "array", "minItems": 10**9}, "more than 20000 values"),
        ({"type": "object", "minProperties": 10**9}, "more than 20000 values"),
        ({"type": "string", "minLength": 10**9}, "more than 100000"),
    ],
)
def test_what_is_no_schema_or_asks_for_too_much_is_refused(schema, why):
    with pytest.raises(SchemaError, match=why):
        document(schema, Random(1))


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(-5, 5), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5,
)
keywords = st.sampled_from(
    ["type", "properties", "required", "items", "enum", "const", "anyOf", "allOf", "$ref", "minimum", "maximum",
     "multipleOf", "minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems", "contains",
     "prefixItems", "additionalProperties", "minProperties", "dependentRequired", "patternProperties"]
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.dictionaries(keywords, json_values, max_size=4), st.sampled_from(["object", "array", "number", "string"]))
def test_whatever_stands_in_a_schema_there_is_a_document_or_a_reason(schema, word):
    for tried in (schema, {"type": word} | schema, {"type": "object", "properties": {"a": schema}, "required": ["a"]}):
        with contextlib.suppress(SchemaError):
            assert json.dumps(document(tried, Random(1)))
