"""A provider nobody knows: its errors are told, its words are not guessed."""

from __future__ import annotations

import pytest

from collector.dialects.unknown import Unknown
from collector.model import Delta, Frame, Headers, ReportedUsage, RequestFacts, RequestHead, ResponseHead, Usage

REQUEST = RequestHead("POST", "/anything", "api.example", Headers())


def read(frame: Frame, status: int = 200) -> Delta | None:
    return Unknown().reader(REQUEST, ResponseHead(status, Headers())).read(frame)


def test_it_speaks_anything_and_reads_nothing_out_of_a_request() -> None:
    dialect = Unknown()
    assert dialect.speaks(REQUEST, ResponseHead(200, Headers()))
    assert dialect.request_facts(b"\xff not json") == RequestFacts()


def test_text_of_an_unknown_wire_is_not_guessed() -> None:
    assert read(Frame(b'{"choices":[{"delta":{"content":"hi"}}]}')) == Delta()


def test_the_usual_end_marker_and_pings_are_known_anywhere() -> None:
    assert read(Frame(b" [DONE] ")) == Delta(terminal=True, marker=True)
    assert read(Frame(b"{}", "ping")) == Delta(ping=True)
    assert read(Frame(b"", None, "comment")) is None


@pytest.mark.parametrize(("status", "kind"), [(401, "auth"), (500, "server_error"), (404, "not_found")])
def test_an_error_status_is_an_error_with_any_body(status: int, kind: str) -> None:
    delta = read(Frame(b"<html>"), status)
    assert delta is not None
    assert delta.error is not None
    assert delta.error.kind == kind


def test_a_body_that_http_ends_is_whole_and_usage_is_unknown() -> None:
    reader = Unknown().reader(REQUEST, ResponseHead(200, Headers()))
    assert reader.ended_well()
    assert reader.normal_usage(ReportedUsage(1, 2)) == Usage()
