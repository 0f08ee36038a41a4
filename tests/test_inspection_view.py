"""Tests of collector.inspection_view beyond those of test_inspection: what is left out when it is not known."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from collector.app import rules_of
from collector.config import Settings
from collector.inspection import exchange_of
from collector.inspection_view import described
from collector.model import Finding
from collector.recorded import read_file


def test_unknown_things_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"id": "a", "host": "h", "url_path": "/x", "method": "GET", "status": 204}', encoding="utf-8")
    record = exchange_of(next(iter(read_file(path))), rules_of(Settings(upstream="http://127.0.0.1:1"))).record
    text = described(record)
    assert text.startswith("a  completed  204  unknown over opaque")
    assert "None" not in text
    assert "tokens" not in text


def test_findings_are_told_with_what_they_saw(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"id": "a", "host": "h", "url_path": "/x", "method": "GET", "status": 204}', encoding="utf-8")
    record = exchange_of(next(iter(read_file(path))), rules_of(Settings(upstream="http://127.0.0.1:1"))).record
    found = (Finding("cut_by_length", "warning", {"finish": "length", "max_tokens": 5}), Finding("cr_lf", "info"))
    lines = described(replace(record, findings=found)).splitlines()
    assert "    finding     cut_by_length (warning, finish length, max_tokens 5)" in lines
    assert "    finding     cr_lf (info)" in lines
