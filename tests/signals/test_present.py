"""What the names of a head rule out is not in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Headers
from collector.signals import present
from collector.signals.rate_limits import unknown_names
from collector.signals.retry import retry_after, retry_attempt
from collector.signals.timeout import client_timeout
from collector.signals.upstream import (
    as_the_provider_said,
    client_request_id,
    is_deprecated,
    load_is_unreadable,
    served_model,
    trace_id,
)

RESPONSE = (
    ("retry-after", "3"), ("retry-after-ms", "30"), ("x-ms-retry-after-ms", "x"), ("openai-model", "m"),
    ("x-ms-served-model", "m"), ("x-trace-detail", '{"model_name": "m"}'), ("deprecation", "true"),
    ("sunset", "Sat, 31 Dec 2033 23:59:59 GMT"), ("warning", "it will be removed"), ("x-model-load", "much"),
    ("endpoint-load-metrics", "?"), ("x-ratelimit-mood", "1"), ("llm_provider-retry-after", "4"), ("server", "a"),
)  # fmt: skip
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"
REQUEST = (
    ("traceparent", TRACE), ("x-client-request-id", "c"), ("x-request-id", "r"), ("x-stainless-retry-count", "1"),
    ("x-retry-attempt", "2"), ("x-stainless-timeout", "60"), ("x-server-timeout", "5"), ("host", "h"),
)  # fmt: skip


@given(st.lists(st.sampled_from(RESPONSE), max_size=4))
def test_what_a_response_may_say_is_what_it_says(lines: list[tuple[str, str]]) -> None:
    headers = Headers(lines)
    told = present.said(headers.shared)
    assert told.unknown == unknown_names(headers.shared)
    assert told.passes_on == (as_the_provider_said(headers) is not headers)
    assert told.retry_hint or retry_after(headers, 1.7e9) is None
    assert told.model or served_model(headers) is None
    assert told.warning or not is_deprecated(headers)
    assert told.load or not load_is_unreadable(headers)


@given(st.lists(st.sampled_from(REQUEST), max_size=4))
def test_what_a_request_may_say_is_what_it_says(lines: list[tuple[str, str]]) -> None:
    headers = Headers(lines)
    says = [trace_id(headers), client_request_id(headers), retry_attempt(headers), client_timeout(headers)]
    assert present.identifies(headers.shared) or says == [None] * 4


@pytest.mark.parametrize("line", [("server", "a"), ("x-request-id", "r"), ("content-type", "text/plain")])
def test_a_response_without_such_names_says_nothing(line: tuple[str, str]) -> None:
    assert present.said(Headers((line,)).shared) == present.Said(False, (), False, False, False, False)
    assert not present.identifies(Headers((("host", "h"),)).shared)
