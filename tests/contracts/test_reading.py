"""Contract files: what they may say, and everything that is wrong with one, with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.config import ConfigError
from collector.contracts.reading import read_contract
from collector.contracts.rule import MAX_RULES, Bound, Cel, Personal, Rule, Values, rules_of
from collector.validation.contract import usable_contract

EXAMPLE = Path(__file__).parent.parent.parent / "docs" / "examples" / "claim.contract.yaml"
ONE_RULE = "rules: [{name: a, cel: output.a > 1}]\n"


def written(directory: Path, text: str, name: str = "contract.yaml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        usable_contract(path)
    return [str(problem).removeprefix(str(path)) for problem in raised.value.problems]


def test_a_json_schema_alone_is_a_contract(tmp_path: Path) -> None:
    contract = usable_contract(written(tmp_path, '{"type": "object"}', "schema.json"))
    assert contract.schema == b'{"type": "object"}'
    assert contract.rules == ()
    assert contract.rule_set() is None


def test_a_contract_states_a_schema_and_rules_of_every_kind(tmp_path: Path) -> None:
    written(tmp_path, "Code;Title\n1A00;Cholera\n 1A01 ;Other\n;none\n", "codes.csv")
    written(tmp_path, "\ufeffEUR\nUSD\r\n\nEUR\n", "currencies.txt")
    path = written(
        tmp_path,
        """
        schema: {type: object}
        rules:
          - {name: risk, cel: 'output.risk == "high" ? output.amount > 1000000 : true', when: has(output.risk)}
          - {name: code, values: {at: 'diagnoses[*].code', file: codes.csv, column: Code}}
          - {name: currency, values: {at: currency, file: currencies.txt}}
          - {name: level, values: {at: level, list: [low, high, 3, "true"]}, severity: info}
          - {name: sure, floor: {at: confidence, value: 0.85}}
          - {name: least, at_least: {at: n, value: 1}}
          - {name: most, at_most: {at: n, value: 9}}
          - {name: private, no_personal_data: {}}
          - {name: ids, no_personal_data: {kinds: [national_id, phone], regions: [DE, CN]}}
        """,
    )
    contract = usable_contract(path)
    assert contract.schema == b'{"type":"object"}'
    assert contract.rules == (
        Rule("risk", Cel('output.risk == "high" ? output.amount > 1000000 : true'), "has(output.risk)"),
        Rule("code", Values("diagnoses[*].code", ("1A00", "1A01"))),
        Rule("currency", Values("currency", ("EUR", "USD"))),
        Rule("level", Values("level", ("low", "high", "3", "true")), counts=False),
        Rule("sure", Bound("confidence", "floor", 0.85)),
        Rule("least", Bound("n", "at_least", 1.0)),
        Rule("most", Bound("n", "at_most", 9.0)),
        Rule("private", Personal(("email", "phone", "card", "iban"))),
        Rule("ids", Personal(("national_id", "phone"), ("DE", "CN"))),
    )
    travelling = contract.rule_set()
    assert travelling is not None
    assert travelling.names == tuple(rule.name for rule in contract.rules)
    assert rules_of(travelling.text) == contract.rules


def test_a_schema_may_be_a_file_beside_the_contract(tmp_path: Path) -> None:
    written(tmp_path, '{"type": "array"}', "schema.json")
    assert read_contract(written(tmp_path, "schema: schema.json\n")).schema == b'{"type": "array"}'


def test_a_contract_may_be_json(tmp_path: Path) -> None:
    path = written(tmp_path, '{"rules": [{"name": "a", "cel": "output.a > 1"}]}', "contract.json")
    assert usable_contract(path).rules == (Rule("a", Cel("output.a > 1")),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: [{name: a, cel: output.a >}]", ": rule a: cel: position 11: Syntax error"),
        ("rules: [{name: a, cel: ouput.a > 1}]", ": rule a: cel: position 6: undeclared reference to 'ouput.a'"),
        ("rules: [{name: a, cel: 'true', when: output.a +}]", ": rule a: when: position 11: Syntax error"),
        ("rules:\n  - {name: a, cel: 'true'}\n  - {name: a, cel: 'true'}", ":3: rule a: the name is taken"),
        ("rules: [{name: a}]", ":1: rule a: expected one of cel, values, floor"),
        ("rules: [{name: a, cel: 'true', floor: {at: x, value: 1}}]", ":1: rule a: expected one of cel"),
        ("rules: [{name: a b, cel: 'true'}]", ":1: rules[0]: name: expected `str` matching regex"),
        ("rules: [{cel: 'true'}]", ":1: rules[0]: missing `name`"),
        ("rules: [{name: a, cell: 'true'}]", ":1: rule a: unknown key `cell`"),
        ("rules: [{name: a, floor: {at: x, value: big}}]", ":1: rule a: floor.value: expected `float`, got `str`"),
        ("rules: [{name: a, floor: {at: 'x[', value: 1}}]", ": rule a: at: position 2: expected a name, [0] or [*]"),
        ("rules: [{name: a, values: {at: x}}]", ":1: rule a: values: expected either list or file"),
        ("rules: [{name: a, values: {at: x, list: []}}]", ":1: rule a: values: there is none"),
        ("rules: [{name: a, values: {at: x, list: [1], column: b}}]", ":1: rule a: values: column goes with a file"),
        ("rules: [{name: a, values: {at: x, list: [NO]}}]", ":1: rule a: values.list[0]: expected"),
        ("rules: [{name: a, values: {at: x, file: none.txt}}]", "none.txt: cannot be read: No such file"),
        ("rules: [{name: a, values: {at: x, file: t.csv, column: b}}]", "no column 'b'; there are Code, Title"),
        ("rules: [{name: a, no_personal_data: {kinds: [mail]}}]", "no_personal_data.kinds[0]: invalid enum"),
        ("rules: [{name: a, no_personal_data: {kinds: [national_id]}}]", "no_personal_data: national_id needs"),
        ("rules: [{name: a, no_personal_data: {regions: [de]}}]", ":1: rule a: no_personal_data.regions[0]"),
        ("rules: [{name: a, cel: 'true', severity: fatal}]", ":1: rule a: severity: invalid enum value 'fatal'"),
        ("rules: {a: 1}", ":1: rules: expected a list, got keys and values"),
        ("rule: []", ":1: unknown key 'rule'; did you mean rules?"),
        ("{}", ": states nothing: expected schema, rules or both"),
        ("schema: {type: 12}", ": schema: not a valid JSON Schema"),
        ("schema: {$ref: 'https://example.com/x'}", ": schema: a $ref leads nowhere"),
        ("schema: {$ref: '#'}", ": schema: a $ref leads back to itself"),
        ("schema: none.json", ":1: schema: "),
        ("schema: [1]", ":1: schema: expected a JSON Schema or the name of its file, got a list"),
        ("rules: [", "not valid YAML"),
        ("- 1", "expected keys and values, got a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    written(tmp_path, "Code,Title\n1,x\n", "t.csv")
    found = problems(written(tmp_path, text))
    assert any(said in each for each in found), found
    assert all("\n" not in each for each in found)


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = "schema: {type: 12}\nrules:\n- {name: a, cel: output.a >}\n- {name: b, floor: {at: '', value: 1}}\n"
    assert len(problems(written(tmp_path, text))) == 1  # what cannot be read first
    text = "schema: {type: 12}\nrules:\n- {name: a, cel: output.a >}\n- {name: b, floor: {at: 'x[', value: 1}}\n"
    assert len(problems(written(tmp_path, text))) == 3


def test_rules_are_bounded_in_number(tmp_path: Path) -> None:
    rules = "".join(f"- {{name: r{number}, cel: 'true'}}\n" for number in range(MAX_RULES + 1))
    assert f"at most {MAX_RULES}, got {MAX_RULES + 1}" in problems(written(tmp_path, "rules:\n" + rules))[0]


def test_the_example_of_the_documentation_is_a_contract() -> None:
    contract = usable_contract(EXAMPLE)
    assert contract.schema is not None
    assert len(contract.rules) >= 5


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
ANY = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "cel", "values", "at", "list", "file", "floor", "value", "when", "kinds", "x"]),
            inner,
        )
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(schema=ANY, rules=ANY | st.lists(ANY, max_size=3))
def test_any_file_is_a_contract_or_refused(tmp_path: Path, schema: Any, rules: Any) -> None:
    import yaml

    path = written(tmp_path, yaml.safe_dump({"schema": schema, "rules": rules}, allow_unicode=False))
    said = []
    try:
        usable_contract(path)
    except ConfigError as error:
        said = [str(problem) for problem in error.problems]
        assert said != []
    assert all("\n" not in each for each in said)
