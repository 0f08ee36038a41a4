"""Counts of tokens are reported, and are not tokens that were used."""

from __future__ import annotations

import pytest

from collector.dialects.decoding import UnreadableError
from collector.dialects.token_counts import TokenCounts
from collector.model import Delta, Frame, Headers, ReportedUsage, RequestHead, ResponseHead, Usage, WireError


def request(path: str, method: str = "POST") -> RequestHead:
    return RequestHead(method, path, "h", Headers())


def read(body: bytes, status: int = 200) -> Delta | None:
    head = ResponseHead(status, Headers())
    return TokenCounts().reader(request("/v1/messages/count_tokens"), head).read(Frame(body))


def test_a_count_is_reported_and_nothing_was_used() -> None:
    assert read(b'{"object":"response.input_tokens","input_tokens":11}') == Delta(
        usage=ReportedUsage(11), terminal=True
    )
    reader = TokenCounts().reader(request("/v1/messages/count_tokens"), ResponseHead(200, Headers()))
    assert reader.normal_usage(ReportedUsage(11)) == Usage()


@pytest.mark.parametrize("body", [b"{}", b'{"input_tokens":-1}', b'{"input_tokens":"x"}', b"[]"])
def test_what_is_no_count_is_unknown(body: bytes) -> None:
    assert read(body) == Delta(usage=ReportedUsage(), terminal=True)
    assert read(b"{") == Delta(malformed=True)


def test_errors_are_told() -> None:
    delta = read(b'{"type":"error","error":{"type":"not_found_error","message":"m"}}', 404)
    assert delta == Delta(error=WireError("not_found_error", None, "not_found"))


def test_it_speaks_where_tokens_are_counted() -> None:
    response = ResponseHead(200, Headers())
    vertex = "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict"
    for path in ("/v1/messages/count_tokens", vertex, "/v1/responses/input_tokens"):
        assert TokenCounts().speaks(request(path), response)
        assert not TokenCounts().speaks(request(path, "GET"), response)
    assert not TokenCounts().speaks(request("/v1/messages"), response)
    assert TokenCounts().request_facts(b'{"model":"m"}').model == "m"
    with pytest.raises(UnreadableError):
        TokenCounts().request_facts(b"<xml/>")
