from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from collector.config import DURATION_PATTERN, SIZE_PATTERN
from collector.config_file import VARIABLES, check
from collector.config_reference import DESCRIPTIONS, key_tables, schema, variable_table
from collector.config_tree import SETTINGS, keys_below, pattern_of
from tools.build_config_docs import DOCS, built, main

EXAMPLE = DOCS / "examples" / "semhealth.yaml"


def test_every_key_is_described_and_nothing_else_is() -> None:
    assert set(DESCRIPTIONS) == {pattern_of(keys) for keys, _ in keys_below(SETTINGS, ())} - {"routes[]"}


def test_every_description_is_a_sentence() -> None:
    assert [key for key, text in DESCRIPTIONS.items() if not re.fullmatch(r"[A-Z`].*\.", text) or "|" in text] == []


def test_the_files_in_docs_are_current() -> None:
    for path, text in built().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m tools.build_config_docs"
    assert main(["--check"]) == 0


def test_the_page_names_every_key_and_variable() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert key_tables() in page
    assert variable_table() in page
    for name in (*VARIABLES, "SEMHEALTH_CONFIG", "SEMHEALTH_HMAC_KEY"):
        assert f"`{name}`" in page


def test_the_tables_have_a_row_for_every_key_that_is_not_a_section() -> None:
    tables = key_tables()
    sections = {key for key in DESCRIPTIONS if any(other.startswith(f"{key}.") for other in DESCRIPTIONS)}
    for key in DESCRIPTIONS.keys() - (sections - {"routes[].labels", "label_headers"}):
        assert f"| `{key}` |" in tables


def test_the_example_has_no_problem_and_satisfies_the_schema() -> None:
    assert check(EXAMPLE) == []
    assert list(Draft202012Validator(schema()).iter_errors(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))) == []


def test_the_schema_is_a_schema_and_describes_every_key() -> None:
    Draft202012Validator.check_schema(schema())
    for component in schema()["$defs"].values():
        assert component["additionalProperties"] is False
        for described in component["properties"].values():
            assert described["description"]


@pytest.mark.parametrize(
    ("settings", "valid"),
    [
        ({"analysis": {"stall_threshold": "300ms"}}, True),
        ({"analysis": {"stall_threshold": 0.3}}, True),
        ({"analysis": {"stall_threshold": "300"}}, True),
        ({"analysis": {"stall_threshold": "fast"}}, False),
        ({"analysis": {"stall_threshold": -1}}, False),
        ({"analysis": {"text_cap": "64KiB"}}, True),
        ({"analysis": {"text_cap": 1.5}}, False),
        ({"analysis": {"text_cap": "64kib"}}, False),
        ({"proxy": {"workers": 0}}, False),
        ({"routes": [{"name": "a"}]}, False),
        ({"unknown": 1}, False),
    ],
)
def test_the_schema_accepts_what_the_reader_accepts(settings: dict[str, object], valid: bool, tmp_path: Path) -> None:
    file = tmp_path / "semhealth.yaml"
    file.write_text(yaml.safe_dump({"upstream": "http://a.example", **settings}), encoding="utf-8")
    assert Draft202012Validator(schema()).is_valid(settings) is valid
    assert (check(file) == []) is valid


def test_the_patterns_for_editors_use_no_dialect_of_python() -> None:
    for pattern in (DURATION_PATTERN, SIZE_PATTERN):
        assert not re.search(r"\(\?|\\[AZdw]", pattern)
