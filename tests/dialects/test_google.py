"""Google's schemas as JSON Schema, and its errors."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from collector.dialects.google import MAX_SCHEMA_DEPTH, error_of_answer, json_schema, retry_hint
from collector.model import WireError


def translated(schema: Any) -> Any:
    found = json_schema(Raw(json.dumps(schema).encode()))
    return None if found is None else json.loads(found)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "STRING"}, {"type": "string"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        (
            {"type": 6, "properties": {"type": {"type": 3}}},
            {"type": "object", "properties": {"type": {"type": "integer"}}},
        ),
        ({"type": "TYPE_UNSPECIFIED"}, {}),
        ({"type": "INTEGER", "nullable": True}, {"type": ["integer", "null"]}),
        ({"type": "INTEGER", "nullable": False}, {"type": "integer"}),
        (
            {"type": "STRING", "format": "enum", "enum": ["a"], "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"anyOf": [{"type": "STRING"}], "nullable": True},
            {"anyOf": [{"anyOf": [{"type": "string"}]}, {"type": "null"}]},
        ),
        ({"type": ["STRING", "NULL"], "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "ARRAY", "items": {"type": "NUMBER"}, "minItems": "2", "max_items": 3},
            {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 3},
        ),
        (
            {"properties": {"nullable": {"type": "BOOLEAN"}, "example": {"type": "NULL"}}, "example": {"a": 1}},
            {"properties": {"nullable": {"type": "boolean"}, "example": {"type": "null"}}},
        ),
        (
            {"ref": "#/defs/A", "defs": {"A": {"type": "STRING"}}},
            {"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}},
        ),
        (
            {"type": "OBJECT", "additionalProperties": {"type": "STRING"}, "required": ["a"]},
            {"type": "object", "additionalProperties": {"type": "string"}, "required": ["a"]},
        ),
        (
            {"enum": ["OBJECT"], "default": {"type": "STRING"}, "title": "t"},
            {"enum": ["OBJECT"], "default": {"type": "STRING"}, "title": "t"},
        ),
        ([], None),
        (None, None),
        ("STRING", None),
    ],
)
def test_a_schema_means_the_same_in_json_schema(schema: Any, expected: Any) -> None:
    assert translated(schema) == expected


def test_a_schema_that_nests_too_deep_is_none() -> None:
    deep: dict[str, Any] = {"type": "STRING"}
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        deep = {"type": "ARRAY", "items": deep}
    assert translated(deep) is None
    assert translated(deep["items"]) is not None


SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["STRING", "INTEGER", "BOOLEAN", "NUMBER"])}, optional={"nullable": st.booleans()}
    ),
    lambda inner: (
        st.fixed_dictionaries(
            {"type": st.just("ARRAY"), "items": inner},
            optional={"minItems": st.sampled_from(["0", 1]), "nullable": st.booleans()},
        )
        | st.fixed_dictionaries(
            {"type": st.just("OBJECT"), "properties": st.dictionaries(st.sampled_from("abc"), inner)},
            optional={"propertyOrdering": st.just(["a"])},
        )
        | st.fixed_dictionaries(
            {"anyOf": st.lists(inner, min_size=1, max_size=3)}, optional={"nullable": st.booleans()}
        )
    ),
    max_leaves=8,
)


@given(SCHEMAS)
def test_a_translated_schema_is_json_schema_and_takes_null_where_it_may_be_null(schema: dict[str, Any]) -> None:
    found = translated(schema)
    jsonschema.Draft202012Validator.check_schema(found)
    if schema.get("nullable"):
        jsonschema.Draft202012Validator(found).validate(None)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.sampled_from(["OBJECT", "7", "\ud83d", "9s", "RetryInfo"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "items",
                    "properties",
                    "anyOf",
                    "enum",
                    "nullable",
                    "error",
                    "details",
                    "code",
                    "retryDelay",
                    "minItems",
                    "ref",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(JUNK)
def test_any_junk_is_a_schema_or_none_and_an_error_at_most(value: Any) -> None:
    translated(value)
    data = json.dumps(value).encode()
    assert error_of_answer(data, 500, has_limits=False).error is not None
    retry_hint(data)


def test_a_body_without_googles_envelope_is_read_as_any_other() -> None:
    assert error_of_answer(b"<html>", 502, has_limits=False).error == WireError(None, None, "server_error")
    assert error_of_answer(b'{"error":"invalid_grant"}', 400, has_limits=False).error == WireError(
        "invalid_grant", None, "invalid_request"
    )
