"""CEL expressions are true or false of an answer, or say why they are neither; wrong ones say where."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.contracts import cel
from collector.contracts.answer import Answer, NotEvaluatedError
from collector.contracts.cel import CelError, Expression, compile_expression

OUTPUT = {
    "risk_level": "high", "amount": 2_000_000, "confidence": 0.9, "whole": 3, "part": 3.5, "tags": ["a", "b"],
    "rows": [{"price": 2.5, "count": 2}, {"price": 3, "count": 1}], "total": 8.0, "name": "病历😀", "nothing": None,
    "day": "2026-01-02T03:04:05Z",
}  # fmt: skip


def holds(expression: str, output: object = OUTPUT, text: str = "") -> bool:
    return compile_expression(expression).holds(Answer(text, output, is_json=True), {})


def why(expression: str, answer: Answer) -> str:
    with pytest.raises(NotEvaluatedError) as raised:
        compile_expression(expression).holds(answer, {})
    return raised.value.why


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('output.risk_level == "high" ? output.amount > 1000000 : true', True),
        ('(output.risk_level == "high") == (output.amount > 1000000)', True),
        ("output.confidence > 0.85", True),
        ("output.amount > 0.5 && output.whole == 3", True),
        ("output.whole + output.part == 6.5", True),  # 3 and 3.5 are of one type, whatever the model wrote
        ("output.whole * 2.0 == 6.0", True),
        ("int(output.whole) % 2 == 1", True),
        ("size(output.name) == 3", True),  # code points, not bytes
        ("has(output.missing)", False),
        ("!has(output.missing) || output.missing > 1", True),
        ("output.missing > 1 || true", True),
        ('output.tags.all(tag, tag in ["a", "b"])', True),
        ("output.rows.exists(row, row.count > 5)", False),
        ("output.nothing == null", True),
        ("timestamp(output.day).getFullYear() == 2026", True),
        ('output["risk_level"].matches("^h.*")', True),
        ("size(output.rows) == 2 && output.rows[1].price == 3", True),
    ],
)
def test_an_expression_says_what_the_language_says(expression: str, expected: bool) -> None:
    assert holds(expression) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("output.missing > 1", "missing"),
        ("output.tags[7] == 'x'", "missing"),
        ("output.risk_level > 1", "type"),
        ("output.whole * 2 == 6", "type"),  # an integer literal beside a JSON number, which is a double
        ("output.amount", "type"),
        ("output.tags.x == 1", "type"),
        ("int(output.risk_level) > 1", "type"),
        ("timestamp(output.name) > timestamp(output.day)", "type"),
        ("int(output.amount) / 0 == 1", "failed"),
    ],
)
def test_what_cannot_be_evaluated_says_why(expression: str, expected: str) -> None:
    assert why(expression, Answer("", OUTPUT, is_json=True)) == expected


def test_an_expression_on_the_json_of_an_answer_without_any_is_not_evaluated() -> None:
    assert why("output.amount > 1", Answer("Sorry.")) == "not_json"


def test_an_expression_on_the_text_needs_no_json() -> None:
    expression = compile_expression("size(text) < 20 && !text.contains('password')")
    assert not expression.reads_output
    assert expression.holds(Answer("短い"), {})
    assert not expression.holds(Answer("my password is"), {})


def test_steps_are_bounded() -> None:
    answer = Answer("", list(range(1000)), is_json=True)
    cubed = "output.all(a, output.all(b, output.all(c, a + b + c >= 0.0)))"
    assert why(cubed, answer) == "over_bounds"


def test_a_pattern_that_explodes_elsewhere_is_linear() -> None:
    assert not holds('output.s.matches("^(a|a)*$")', {"s": "a" * 50_000 + "!"})


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("output.a == ", r"position 13: Syntax error"),
        ("ouput.amount > 1", r"position 6: undeclared reference to 'ouput.amount'"),
        ("output.a > 1 &&\n  ouput.b > 1", r"line 2, position 8: undeclared reference to 'ouput.b'"),
        ("shout(output.a)", r"position 6: undeclared reference to 'shout'"),
        ("1 + 'a' == 2", r"position 3: found no matching overload"),
        ("size(text)", r"gives int, where true or false is wanted"),
        ("(" * 2000 + "true" + ")" * 2000, r"nested too deeply"),
        ("+".join(["output.a"] * 500) + " > 1", r"nested too deeply"),
        ("", r"position 1: Syntax error"),
    ],
)
def test_a_wrong_expression_says_where(expression: str, said: str) -> None:
    with pytest.raises(CelError, match=said) as raised:
        compile_expression(expression)
    assert "\n" not in str(raised.value)


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for cached in (cel._library, cel._environment, cel._text_environment):
        cached.cache_clear()
    monkeypatch.setitem(sys.modules, "cel_expr_python.cel", None)
    try:
        with pytest.raises(CelError, match=r"pip install 'semhealth\[contracts\]'"):
            compile_expression("true")
    finally:
        for cached in (cel._library, cel._environment, cel._text_environment):
            cached.cache_clear()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF, categories=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)
EXPRESSIONS = [
    compile_expression(each)
    for each in ("output.a > 1", "output == output", "size(output) > 1", "output[0] == text", "output.a.b.c == null")
]


def _told(expression: Expression, answer: Answer, activations: dict[str, Any]) -> bool | str:
    try:
        return expression.holds(answer, activations)
    except NotEvaluatedError as error:
        return error.why


@given(JSON)
def test_any_json_is_answered_or_not_evaluated(output: Any) -> None:
    answer = Answer("t", {"a": output} if not isinstance(output, dict | list) else output, is_json=True)
    activations: dict[str, Any] = {}
    told = {_told(expression, answer, activations) for expression in EXPRESSIONS}
    assert told <= {True, False, "missing", "type", "failed"}  # the library refuses keys with a NUL in them


@given(st.text(max_size=60))
def test_any_text_compiles_or_is_refused_in_one_line(text: str) -> None:
    said = ""
    try:
        compile_expression(text)
    except CelError as error:
        said = str(error)
    assert "\n" not in said
