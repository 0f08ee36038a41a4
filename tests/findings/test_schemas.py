"""Features that providers refuse are found where they are keywords, and only there."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.findings.schemas import MAX_SCHEMA, refused_feature

TREE = {"$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"}
TWO = {"$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}


@pytest.mark.parametrize(
    ("schema", "feature"),
    [
        ({"patternProperties": {"^x": {}}}, "patternProperties"),
        ({"properties": {"a": {"patternProperties": {"^x": {}}}}}, "patternProperties"),
        ({"$ref": "https://example.test/schema.json"}, "external_ref"),
        (TREE, "ref_cycle"),
        (TWO, "ref_cycle"),
        ({"properties": {"self": {"$ref": "#"}}}, "ref_cycle"),
        ({"$defs": {"a~/b": {"items": {"$ref": "#/$defs/a~0~1b"}}}, "$ref": "#/$defs/a~0~1b"}, "ref_cycle"),
        ({"$defs": {"leaf": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/leaf"}}}, None),
        ({"properties": {"patternProperties": {"type": "string"}, "$ref": {"type": "string"}}}, None),
        ({"const": {"$ref": "https://example.test"}, "enum": [{"patternProperties": {"x": 1}}]}, None),
        ({"patternProperties": {}}, None),
        ({"$ref": "#/nowhere"}, None),
    ],
)
def test_a_feature_is_found_where_it_is_a_keyword(schema, feature):
    assert refused_feature("vllm", json.dumps(schema).encode()) == feature


def test_who_takes_recursion_is_not_told_of_it():
    assert refused_feature("openai", json.dumps(TREE).encode()) is None
    assert refused_feature("anthropic", json.dumps(TREE).encode()) == "ref_cycle"


def test_hostile_schemas_take_no_time():
    deep = b'{"items":' * 5000 + b'{"$ref":"#"}' + b"}" * 5000
    chain = {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(3000)}
    wide = json.dumps({"$defs": chain, "$ref": "#/$defs/d0"}).encode()
    huge = b'{"patternProperties":{"x":{}},"description":"' + b"x" * MAX_SCHEMA + b'"}'
    began = time.perf_counter()
    for schema in (deep, wide, huge, b"patternProperties", b'{"$ref":'):
        refused_feature(None, schema)
    assert time.perf_counter() - began < 5.0
    assert refused_feature(None, huge) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["#", "#/a", "#/$defs/a", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$ref", "a", "$defs", "properties", "patternProperties"]), inner, max_size=4)
    ),
    max_leaves=30,
)


@given(JSON)
def test_any_json_is_judged(schema):
    feature = refused_feature(None, json.dumps(schema).encode())
    assert feature in (None, "patternProperties", "external_ref", "ref_cycle")
