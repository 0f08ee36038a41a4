"""Findings in the log: the first at once, then one a minute with their number, and nothing of the content."""

from __future__ import annotations

import json
import logging

import pytest
from msgspec.structs import replace

from collector.analyst.finding_log import FindingLog
from collector.model import Finding

BODY = b'{"model":"sim-large","messages":[{"role":"system","content":"<!-- secret -->"}]}'
ANSWER = b'{"model":"sim-small","choices":[{"index":0,"message":{"content":"private"},"finish_reason":"length"}]}'
WHOLE = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def lines(caplog: pytest.LogCaptureFixture) -> list[dict]:
    return [json.loads(each.getMessage()) for each in caplog.records if each.name == "semhealth.findings"]


def test_the_first_is_told_at_once_and_then_one_a_minute(play, caplog):
    caplog.set_level(logging.INFO, "semhealth.findings")
    record = play([ANSWER], body=BODY, head=WHOLE).record
    log, found = FindingLog(), Finding("cut_by_length", "warning", {"finish": "length"})
    for second in range(150):
        log.tell(record, (found,), float(second))
    log.tell(replace(record, route="other"), (found,), 150.0)
    log.tell(record, (Finding("cr_lf", "info"),), 150.0)
    told = lines(caplog)
    assert [(each["route"], each["finding"], each["count"]) for each in told] == [
        ("r", "cut_by_length", 1), ("r", "cut_by_length", 60), ("r", "cut_by_length", 60),
        ("other", "cut_by_length", 1), ("r", "cr_lf", 1),
    ]  # fmt: skip
    assert told[0]["facts"] == {"finish": "length"}
    assert told[0]["model"] == "sim-small"
    assert told[0]["exchange"] == "x"
    assert [each.levelname for each in caplog.records if each.name == "semhealth.findings"] == ["WARNING"] * 4 + [
        "INFO"
    ]
