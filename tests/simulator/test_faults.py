"""Faults: their settings, how often they strike, and what they spoil."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from collector.simulator.documents import document
from collector.simulator.faults import (
    FAULT_NAMES,
    OF_TRAFFIC,
    FaultBoard,
    FaultError,
    FaultSetting,
    broken_json,
    drifted,
    setting_from_words,
    settings_from_json,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["first_name", "age", "tags"],
}


def test_a_fault_strikes_about_as_often_as_its_share():
    board = FaultBoard([FaultSetting("stall", 0.3)])
    struck = sum("stall" in board.strikes(Random(seed)) for seed in range(2000))
    assert 500 < struck < 700


def test_switching_one_fault_does_not_move_the_draws_of_another():
    alone, beside = FaultBoard([FaultSetting("stall", 0.3)]), FaultBoard([FaultSetting("stall", 0.3)])
    beside.switch([FaultSetting("invalid_json", 0.5), FaultSetting("overload", 0.5)])
    for seed in range(200):
        assert ("stall" in alone.strikes(Random(seed))) == ("stall" in beside.strikes(Random(seed)))


def test_the_faults_of_the_traffic_never_strike_the_api_but_are_kept():
    board = FaultBoard([FaultSetting(name) for name in OF_TRAFFIC])
    assert board.strikes(Random(1)) == {}
    assert board.share("context_cut") == 1.0


def test_every_mode_occurs_unless_one_was_asked_for():
    free = FaultBoard([FaultSetting("truncation")])
    asked = FaultBoard([FaultSetting("truncation", mode="cut")])
    assert {free.strikes(Random(seed))["truncation"].mode for seed in range(40)} == {"cut", "length"}
    assert {asked.strikes(Random(seed))["truncation"].mode for seed in range(40)} == {"cut"}


def test_a_share_of_zero_and_clearing_switch_off():
    board = FaultBoard([FaultSetting("stall"), FaultSetting("stutter"), FaultSetting("overload")])
    board.switch([FaultSetting("stall", 0)])
    board.clear("stutter")
    assert set(board.strikes(Random(1))) == {"overload"}
    board.clear()
    assert board.strikes(Random(1)) == {}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"fault":"stal"}', "unknown fault 'stal'; known are invalid_json, schema_drift"),
        (b'{"fault":"stall","share":1.5}', "share must be from 0 to 1, got 1.5"),
        (b'{"fault":"stall","share":"much"}', "Expected `float`"),
        (b'{"fault":"stall","mode":"cut"}', "unknown mode 'cut'; it has none"),
        (b'{"fault":"overload","mode":"cut"}', "unknown mode 'cut'; model, gateway"),
        (b'{"fault":"overload","seconds":2}', "takes no seconds"),
        (b'{"fault":"stall","seconds":-1}', "seconds must be from 0 to 600"),
        (b'{"fault":"stall","shares":1}', "unknown field `shares`"),
        (b"stall", 'expected {"fault": NAME'),
    ],
)
def test_a_wrong_setting_is_refused_with_its_reason(body, why):
    board = FaultBoard()
    with pytest.raises(FaultError) as refused:
        board.switch(settings_from_json(body))
    assert why in str(refused.value)


def test_of_several_settings_all_are_taken_or_none():
    board = FaultBoard()
    with pytest.raises(FaultError):
        board.switch(settings_from_json(b'[{"fault":"stall"},{"fault":"nonsense"}]'))
    assert board.share("stall") == 0


def test_every_fault_is_described():
    rows = FaultBoard([FaultSetting("stall", 0.2, seconds=5)]).described()["faults"]
    assert [row["fault"] for row in rows] == list(FAULT_NAMES)
    assert all(row["meaning"] for row in rows)
    assert next(row for row in rows if row["fault"] == "stall")["seconds"] == 5


def test_settings_are_written_in_words():
    assert setting_from_words("stall=0.25") == FaultSetting("stall", 0.25)
    assert setting_from_words("stall") == FaultSetting("stall", 1.0)
    with pytest.raises(FaultError, match="expected NAME=SHARE"):
        setting_from_words("stall=often")


@settings(deadline=None)
@given(st.integers(0, 200))
def test_broken_json_is_never_json(seed):
    values = [document(SCHEMA, Random(seed)), {}, [], [1, 2], {"a": {"b": []}}, "text", 12]
    for value in values:
        with pytest.raises(json.JSONDecodeError):
            json.loads(broken_json(json.dumps(value), Random(seed)))


@settings(deadline=None)
@given(st.integers(0, 200))
def test_a_drifted_document_violates_its_schema(seed):
    whole = document(SCHEMA, Random(seed))
    assert not Draft202012Validator(SCHEMA).is_valid(drifted(whole, SCHEMA, Random(seed)))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"type": "object", "required": ["b"], "properties": {"b": {}}}}},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "string"},
    ],
)
@pytest.mark.parametrize("seed", range(10))
def test_documents_without_required_fields_drift_too(schema, seed):
    whole = document(schema | {"minProperties": 1} if schema["type"] == "object" else schema, Random(seed))
    assert not Draft202012Validator(schema).is_valid(drifted(whole, schema, Random(seed)))
