"""The records of late, and how one is found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from collector.analyst.ledger import Ledger, Wanted
from collector.model import Finding, Judgement, Record, UpstreamFacts, Validity


@pytest.fixture(scope="module")
def record(play: Any) -> Record:
    return play([b"data: [DONE]\n\n"]).record


def with_id(record: Record, own: str, upstream: str | None = None, client: str | None = None) -> Record:
    facts = UpstreamFacts(request_id=upstream)
    return msgspec.structs.replace(record, id=own, upstream=facts, client_request_id=client)


def test_it_keeps_the_last_ones_newest_first(record: Record) -> None:
    ledger = Ledger(3)
    for number in range(5):
        ledger.add(with_id(record, str(number)))
    assert [each.id for each in ledger.newest_first()] == ["4", "3", "2"]
    assert [each.id for each in ledger.find(Wanted(), 2)] == ["4", "3"]


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        (Wanted(), True), (Wanted(route="r"), True), (Wanted(route="x"), False), (Wanted(outcome="blocked"), True),
        (Wanted(outcome="completed"), False), (Wanted(model="served"), True), (Wanted(model="asked"), True),
        (Wanted(model="other"), False), (Wanted(finding="slow"), True), (Wanted(finding="fast"), False),
        (Wanted(validity="valid"), True), (Wanted(validity="not_json"), False),
        (Wanted(route="r", outcome="blocked", model="served"), True), (Wanted(route="r", outcome="completed"), False),
    ],
)  # fmt: skip
def test_records_are_picked_by_what_is_wanted(record: Record, wanted: Wanted, passes: bool) -> None:
    judged = Validity(True, True, "valid", "json", None, (Judgement(0, None, "json", "valid"),))
    full = msgspec.structs.replace(
        record, outcome="blocked", response_model="served", findings=(Finding("slow", "warning"),), validity=judged
    )
    assert wanted.lets_pass(full) is passes


def test_a_record_without_a_validity_is_not_found_by_one(record: Record) -> None:
    assert not Wanted(validity="valid").lets_pass(record)


def test_its_own_id_goes_before_the_upstreams_and_that_before_the_clients(record: Record) -> None:
    ledger = Ledger(10)
    own, upstream, client = with_id(record, "x"), with_id(record, "b", "x"), with_id(record, "c", None, "x")
    for each in (own, upstream, client):
        ledger.add(each)
    assert ledger.look_up("x") == own
    later = Ledger(10)
    later.add(upstream)
    later.add(client)
    assert later.look_up("x") == upstream
    assert later.look_up("nothing") is None


def test_of_several_the_newest_is_found(record: Record) -> None:
    ledger = Ledger(10)
    ledger.add(with_id(record, "a", None, "same"))
    ledger.add(with_id(record, "b", None, "same"))
    found = ledger.look_up("same")
    assert found is not None
    assert found.id == "b"
