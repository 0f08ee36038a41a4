"""The required tests of the JSON Schema Test Suite, from JSON text to result, as the validator process judges them."""

from __future__ import annotations

import json
from collections import Counter

import jsonschema
import pytest
from referencing import Registry

from collector.validation.judge import judge
from collector.validation.schema import _OWN, DRAFTS

from . import suite

# Required tests, those that pass, and those whose schema leads to a document elsewhere, which is never fetched.
TABLE = {
    "draft4": (610, 593, 17),
    "draft6": (829, 806, 23),
    "draft7": (913, 890, 23),
    "draft2019-09": (1227, 1191, 36),
    "draft2020-12": (1257, 1208, 49),
}
JSONSCHEMA = {
    "draft4": "Draft4Validator",
    "draft6": "Draft6Validator",
    "draft7": "Draft7Validator",
    "draft2019-09": "Draft201909Validator",
    "draft2020-12": "Draft202012Validator",
}


def counts(draft: str) -> tuple[Counter[str], list[str]]:
    found: Counter[str] = Counter()
    wrong = []
    for case in suite.cases(draft):
        result, _ = judge(json.dumps(case.data), case.schema, "json_schema")
        if result == ("valid" if case.valid else "schema_violation"):
            found["passed"] += 1
        elif result == "schema_unresolvable" and case.leads_out:
            found["refused"] += 1
        else:
            wrong.append(f"{case.file}: {case.description}: {result}")
    return found, wrong


@pytest.mark.parametrize("draft", suite.DRAFTS)
@pytest.mark.parametrize("alone", [False, True], ids=["as installed", "jsonschema alone"])
def test_every_required_test_has_its_result_or_leads_elsewhere(
    draft: str, alone: bool, request: pytest.FixtureRequest
) -> None:
    if alone:
        request.getfixturevalue("jsonschema_alone")
    found, wrong = counts(draft)
    assert wrong == []
    assert (len(suite.cases(draft)), found["passed"], found["refused"]) == TABLE[draft]


@pytest.mark.parametrize("draft", suite.DRAFTS)
def test_the_way_down_finds_the_very_violations_of_jsonschemas_own(draft: str) -> None:
    """Keyword, place and place in the schema, for every schema and value of the suite."""
    named = DRAFTS[suite.DRAFTS[draft].partition("://")[2].rstrip("#")]
    own = getattr(jsonschema, JSONSCHEMA[draft])
    plain = jsonschema.validators.extend(own, _OWN)
    assert plain.descend is not named.validator.descend
    compared = 0
    for case in suite.cases(draft):
        document = json.loads(case.schema)
        if case.leads_out or not isinstance(document, dict):
            continue
        document.pop("$schema")
        ours, theirs = (
            [
                (error.validator, list(error.path), list(error.schema_path), len(error.context))
                for error in kind(document, registry=Registry()).iter_errors(case.data)
            ]
            for kind in (named.validator, plain)
        )
        assert ours == theirs, case
        compared += 1
    assert compared > 500


def test_the_suite_says_where_it_is_from_and_under_which_licence() -> None:
    told = suite.told()
    assert "Copyright (c) 2012 Julian Berman" in told["licence"]
    assert "json-schema-org/JSON-Schema-Test-Suite" in told["source"]
