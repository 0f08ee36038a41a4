"""What an error says of itself, in bounded words that hold nobody's text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.catalogue import ERROR_KINDS
from collector.dialects.errors import MAX_WORD, ErrorBody, bounded, error_of_body, kind_of, says_limits, wire_error
from collector.model import Headers, WireError


@pytest.mark.parametrize(
    ("status", "body", "named", "code", "kind"),
    [
        (429, {"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}, "insufficient_quota",
         "insufficient_quota", "quota_exhausted"),
        (429, {"error": {"type": "requests", "code": "rate_limit_exceeded"}}, "requests", "rate_limit_exceeded",
         "rate_limited"),
        (429, {"type": "error", "error": {"type": "rate_limit_error", "message": "x y"}}, "rate_limit_error", None,
         "rate_limited"),
        (529, {"type": "error", "error": {"type": "overloaded_error"}}, "overloaded_error", None, "overloaded"),
        (401, {"error": {"type": "invalid_request_error", "code": "invalid_api_key"}}, "invalid_request_error",
         "invalid_api_key", "auth"),
        (400, {"error": {"code": "content_filter", "status": 400}}, None, "content_filter", "content_filter"),
        (404, {"error": {"type": "invalid_request_error", "code": "model_not_found"}}, "invalid_request_error",
         "model_not_found", "not_found"),
        (400, {"object": "error", "type": "BadRequestError", "code": 400}, "BadRequestError", "400", "invalid_request"),
        (400, {"error": {"code": 400, "status": "INVALID_ARGUMENT"}}, "INVALID_ARGUMENT", "400", "invalid_request"),
        (429, [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}], "RESOURCE_EXHAUSTED", "429", "rate_limited"),
        (500, {"error": "internal_error"}, "internal_error", None, "server_error"),
        (503, {"error": "Service Unavailable, try later"}, None, None, "overloaded"),
        (422, {"detail": [{"loc": ["body"]}]}, None, None, "invalid_request"),
        (400, {"errors": [{"code": 7003}]}, None, "7003", "invalid_request"),
        (504, {}, None, None, "timeout"),
        (418, {}, None, None, "unclassified"),
        (599, None, None, None, "server_error"),
    ],
)  # fmt: skip
def test_the_envelopes_of_providers_are_read(
    status: int,
    body: Any,
    named: str | None,
    code: str | None,
    kind: str,
) -> None:
    assert error_of_body(json.dumps(body).encode(), status, False) == WireError(named, code, kind)


@pytest.mark.parametrize("body", [b"", b"Error", b"<html>Bad gateway</html>", b"[]", b"null", b"[" * 100_000])
def test_a_bare_429_is_a_rate_limit_only_where_headers_speak_of_limits(body: bytes) -> None:
    assert error_of_body(body, 429, False) == WireError(None, None, "unclassified")
    assert error_of_body(body, 429, True) == WireError(None, None, "rate_limited")


def test_a_code_that_is_a_status_stands_for_one() -> None:
    assert wire_error(ErrorBody(code=502)) == WireError(None, "502", "server_error")
    assert wire_error(ErrorBody(code="503")).kind == "overloaded"
    assert wire_error(ErrorBody(code=20012)).kind == "unclassified"


@pytest.mark.parametrize("name", ["InvalidSignatureException", "IncompleteSignatureException"])
def test_a_signature_that_aws_refuses_is_a_matter_of_who_asks(name: str) -> None:
    assert kind_of(403, name) == "auth"


def test_text_is_no_identifier() -> None:
    secret = "pat@example.test asked for acct_42"
    told = error_of_body(
        json.dumps({"error": {"type": secret, "code": secret, "message": secret}}).encode(), 400, False
    )
    assert told == WireError(None, None, "invalid_request")
    assert error_of_body(json.dumps({"error": secret}).encode(), 400, False) == told
    assert bounded("x" * (MAX_WORD + 1)) is None
    assert bounded(" plain_word ") == "plain_word"
    assert bounded(429) == "429"
    assert bounded(True) is None


def test_an_empty_error_says_nothing() -> None:
    assert not ErrorBody().says_something
    assert not ErrorBody(type="", code=0, message="").says_something
    assert ErrorBody(message="anything").says_something


def test_headers_speak_of_limits_under_several_names() -> None:
    for name in (
        "retry-after",
        "retry-after-ms",
        "x-ratelimit-limit",
        "anthropic-ratelimit-tokens-limit",
        "x-rate-limit-a",
    ):
        assert says_limits(Headers(((name, "1"),)))
    assert not says_limits(Headers((("x-request-id", "1"),)))


@given(st.none() | st.integers(100, 999), st.lists(st.none() | st.text(max_size=40)), st.booleans())
def test_kinds_are_the_catalogues(status: int | None, words: list[str | None], has_limits: bool) -> None:
    assert kind_of(status, *words, has_limits=has_limits) in ERROR_KINDS


@given(
    st.binary(max_size=60) | st.sampled_from([b'{"error":{"code":1e999,"type":[1]}}', b'{"error":NaN}']),
    st.integers(400, 599),
)
def test_any_body_gives_bounded_words(body: bytes, status: int) -> None:
    told = error_of_body(body, status, False)
    assert told.kind in ERROR_KINDS
    assert all(word is None or 0 < len(word) <= MAX_WORD for word in (told.type, told.code))
