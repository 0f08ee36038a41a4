"""The result of one output against one schema."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.catalogue import VALIDITY_KINDS, VALIDITY_RESULTS
from collector.validation.judge import judge
from collector.validation.schema import KEYWORDS

CITY = b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}'


@pytest.mark.parametrize(
    ("text", "schema", "kind", "verdict"),
    [
        ('{"city": "Rome"}', CITY, "json_schema", ("valid", None)),
        ('{"town": "Rome"}', CITY, "json_schema", ("schema_violation", "required")),
        ('{"city": 1}', CITY, "tool_arguments", ("schema_violation", "type")),
        ('{"city": 1}', CITY, "contract", ("contract_violation", "type")),
        ('{"city": "Rome"}', CITY, "contract", ("valid", None)),
        ('{"city": NaN}', CITY, "json_schema", ("non_standard_number", None)),
        ('```json\n{"city": "Rome"}\n```', CITY, "contract", ("fenced", None)),
        ("Rome", CITY, "contract", ("not_json", None)),
        ("{}", b'{"type": 12}', "json_schema", ("schema_invalid", None)),
        ("{}", b'{"type": 12}', "contract", ("contract_error", None)),
        ("{}", b"not a schema", "contract", ("contract_error", None)),
        ("{}", b'{"$ref": "#"}', "contract", ("contract_error", None)),
        ("no json", b'{"type": 12}', "json_schema", ("not_json", None)),
        ("{}", None, "json", ("valid", None)),
        ("[]", None, "json", ("schema_violation", "type")),
        ("3", None, "json_schema", ("valid", None)),
        ('"\\ud800"', b'{"minLength": 1}', "json_schema", ("valid", None)),
        ('{"a": 1}', b'{"$ref": "#/x", "x": {"properties": {"a": {"type": "no such"}}}}', "json_schema",
         ("schema_invalid", None)),
    ],
)  # fmt: skip
def test_an_output_has_one_result(text: str, schema: bytes | None, kind: str, verdict: tuple[str, str | None]) -> None:
    assert judge(text, schema, kind) == verdict


JUNK = st.text() | st.text(alphabet='{}[]",:$refdypt ` \\01ea')


@given(JUNK, st.none() | st.binary() | JUNK.map(str.encode), st.sampled_from(VALIDITY_KINDS))
def test_any_junk_has_a_result_of_the_closed_set(text: str, schema: bytes | None, kind: str) -> None:
    result, keyword = judge(text, schema, kind)
    assert result in VALIDITY_RESULTS
    assert keyword is None or keyword in KEYWORDS | {"other"}


SCHEMA_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["string", "object", "#", "#/x", "^a", "(", "$ref"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*sorted(KEYWORDS), "$id", "$defs", "$schema", "x", "then"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@given(SCHEMA_VALUES, SCHEMA_VALUES)
def test_any_document_as_schema_has_a_result_of_the_closed_set(schema: object, value: object) -> None:
    result, _ = judge(json.dumps(value), json.dumps(schema).encode(), "json_schema")
    assert result in VALIDITY_RESULTS
