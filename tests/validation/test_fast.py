"""The faster validator calls nothing valid that `jsonschema` does not, and is asked about nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.validation import ecma, fast
from collector.validation.json_text import read
from collector.validation.judge import judge
from collector.validation.schema import DRAFTS, UnusableSchemaError, compile_schema

from . import suite

needs_engine = pytest.mark.skipif(fast.ENGINE is None, reason="the extra fast-validation is not installed")
NEWEST = "json-schema.org/draft/2020-12/schema"


def quick_and_reference(schema: bytes, text: str) -> tuple[bool | None, bool]:
    """What the faster validator says of a text, None where it is not asked; and what jsonschema says."""
    compiled = compile_schema(schema)
    document = read(text)
    reference = compiled.failing_keyword(document.value, exact=False) is None
    return (compiled._quick(document.value) if compiled._quick is not None and document.exact else None), reference


@needs_engine
@pytest.mark.parametrize("draft", suite.DRAFTS)
def test_both_agree_on_every_schema_of_the_suite_and_all_values_of_its_file(draft: str) -> None:
    """More than the suite asks: each schema is put to the values of its neighbours too."""
    cases = [case for case in suite.cases(draft) if not case.leads_out]
    asked = 0
    for file in {case.file for case in cases}:
        here = [case for case in cases if case.file == file]
        texts = {json.dumps(case.data) for case in here}
        for schema in {case.schema for case in here}:
            for text in texts:
                quick, reference = quick_and_reference(schema, text)
                assert quick is None or quick is reference, (schema, text)
                asked += quick is not None
    assert asked > 2000 or draft == "draft4", asked
    assert asked == 0 or draft != "draft4"


# ---------------------------------------------------------------- generated documents

NAMES = ("a", "b", "city", "id", "é")
TEXTS = st.sampled_from(["", "a", "ab", "A-1", "é", "2026-01-02", "a\n", "𝒳", "high", "١"])
NUMBERS = st.integers(-3, 12) | st.sampled_from([0.5, 1.0, 1.5, -2.0, 2.5, 10, 1e15, 123456789012345, 0.1])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=10,
)
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "null", "array", "object"])
PATTERNS = st.sampled_from(["^a", "a$", r"^\d{4}-\d\d-\d\d$", "^[A-Z]-[0-9]+$", r"^\w+$", "", "^.$", "(a|b)*c?", r"\s"])
SMALL = st.integers(0, 3)


def members(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """A strategy for the value of each keyword."""
    named = st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    several = st.lists(inner, min_size=1, max_size=3)
    names = st.lists(st.sampled_from(NAMES), unique=True, max_size=3)
    return {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=4, unique_by=repr),
        "const": VALUES,
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), NUMBERS),
        "multipleOf": st.integers(1, 5) | st.sampled_from([0.5, 0.1]),
        **dict.fromkeys(
            ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains",
             "maxContains"), SMALL,
        ),
        "pattern": PATTERNS,
        "uniqueItems": st.booleans(),
        **dict.fromkeys(("items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else",
                         "unevaluatedProperties", "unevaluatedItems", "additionalItems"), inner),
        **dict.fromkeys(("prefixItems", "allOf", "anyOf", "oneOf"), several),
        "properties": named,
        "dependentSchemas": named,
        "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
        "required": names,
        "dependentRequired": st.dictionaries(st.sampled_from(NAMES), names, max_size=2),
        "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two", "#"]),
        "title": st.just("T"),
        "default": VALUES,
        "format": st.sampled_from(["date", "uuid", "nonsense"]),
        "x-order": st.just(["a"]),
        "dependencies": named,
    }  # fmt: skip


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    each = members(inner)
    return st.lists(st.sampled_from(sorted(each)), max_size=4, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({name: each[name] for name in chosen})
    )


SCHEMAS = st.recursive(st.booleans() | TYPES.map(lambda kind: {"type": kind}), schemas, max_leaves=8)


@needs_engine
@settings(max_examples=400, deadline=None)
@given(SCHEMAS, SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=1, max_size=6), st.sampled_from(sorted(DRAFTS)))
def test_both_agree_on_generated_schemas_and_values(
    root: Any, one: Any, two: Any, values: list[Any], draft: str
) -> None:
    whole = {"$schema": f"http://{draft}", "$defs": {"one": one, "two": two}, "allOf": [root]}
    text = json.dumps(whole).encode()
    try:
        compile_schema(text)
    except UnusableSchemaError:
        return
    for value in values:
        try:
            quick, reference = quick_and_reference(text, json.dumps(value))
        except Exception:  # noqa: BLE001, S112 - jsonschema on what no draft's schema checks: judge() says invalid
            continue
        assert quick is None or quick is reference


@needs_engine
@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet=r"ab1é-^$.|()[]{}*+?\dDwWsSbB,:=!<&~ ", max_size=10),
    st.lists(st.text(alphabet="ab1é-_ \n\r\u2028\ufeff\x1c\x85٣", max_size=4), max_size=8),
)
def test_both_find_simple_patterns_in_the_same_texts(pattern: str, texts: list[str]) -> None:
    if not fast.is_simple(pattern):
        return
    try:
        reference = ecma.compiled(pattern)
    except re.error:
        return
    matches = fast.matcher(pattern)
    if matches is not None:
        assert [matches(text) for text in texts] == [reference.search(text) is not None for text in texts]


# ---------------------------------------------------------------- what it is not asked about


@needs_engine
@pytest.mark.parametrize(
    "schema",
    [
        {"unevaluatedProperties": False},
        {"items": {"$dynamicRef": "#"}},
        {"$id": "https://example.com/a", "type": "string"},
        {"$defs": {"a": {"$anchor": "x"}}, "$ref": "#/$defs/a"},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"pattern": "(?=a)"},
        {"pattern": "a++"},
        {"patternProperties": {r"(a)\1": {}}},
        {"multipleOf": 0.01},
        {"maximum": 1e300},
        {"dependencies": {"a": ["b"]}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{}]},
        {"$schema": "http://json-schema.org/draft-04/schema#", "type": "string"},
    ],
)  # fmt: skip
def test_contested_schemas_are_left_to_jsonschema(schema: dict[str, Any]) -> None:
    assert compile_schema(json.dumps(schema).encode())._quick is None


@needs_engine
@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": "object", "properties": {"id": {"type": "string"}, "$id": {"type": "null"}}, "required": ["id"]},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "type": "string", "x-note": 1, "format": "date"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}], "additionalItems": False},
    ],
)
def test_ordinary_schemas_are_not(schema: Any) -> None:
    assert compile_schema(json.dumps(schema).encode())._quick is not None


@needs_engine
@pytest.mark.parametrize(
    ("text", "schema", "result"),
    [
        ('{"a": 1e999}', {"properties": {"a": {"maximum": 5}}}, "schema_violation"),
        ('{"a": 9007199254740993}', {"properties": {"a": {"const": 9007199254740992.0}}}, "schema_violation"),
        ('["\\ud800"]', {"items": {"type": "string"}}, "valid"),
        ('["\\ud800"]', {"items": {"type": "integer"}}, "schema_violation"),
        ("1" * 400, {"type": "integer"}, "valid"),
    ],
)
def test_numbers_and_texts_that_it_cannot_hold_are_left_to_jsonschema(text: str, schema: Any, result: str) -> None:
    assert judge(text, json.dumps(schema).encode(), "json_schema")[0] == result


@needs_engine
@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a*)*b$", r"^(\w+\s?)*$", "(x+x+)+y"])
def test_a_simple_pattern_takes_linear_time(pattern: str) -> None:
    """Python's `re` takes years for these: were it asked, the test would hit its time limit."""
    text = json.dumps("xa" * 20_000 + "!") if "x" in pattern else json.dumps("a" * 40_000 + "!")
    assert judge(text, json.dumps({"pattern": pattern}).encode(), "json_schema") == ("schema_violation", "pattern")


def test_without_it_everything_is_left_to_jsonschema(jsonschema_alone: None) -> None:
    assert compile_schema(b'{"type": "string"}')._quick is None
    assert fast.matcher("a") is None
    assert judge('"b"', b'{"pattern": "a"}', "json_schema") == ("schema_violation", "pattern")
    assert judge('"ba"', b'{"pattern": "a"}', "json_schema") == ("valid", None)


@needs_engine
def test_a_panic_or_an_error_of_the_engine_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        pass

    class Broken:
        def __init__(self, document: object, **_: object) -> None:
            if document == {"maxLength": 1}:
                raise Panic

        def is_valid(self, value: object) -> bool:
            raise Panic

    monkeypatch.setattr(fast.ENGINE, "Draft202012Validator", Broken)
    assert compile_schema(b'{"maxLength": 1}')._quick is None
    assert judge('"ab"', b'{"maxLength": 1}', "json_schema") == ("schema_violation", "maxLength")
    assert judge('"ab"', b'{"minLength": 3}', "json_schema") == ("schema_violation", "minLength")
    assert judge('"ab"', b'{"minLength": 2}', "json_schema") == ("valid", None)
