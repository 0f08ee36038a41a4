"""Time-outs that clients state in their requests."""

from __future__ import annotations

import pytest

from collector.model import Headers
from collector.signals.timeout import client_timeout


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ([("x-stainless-read-timeout", "600")], 600.0),
        ([("x-stainless-timeout", "30.5"), ("x-stainless-read-timeout", "10")], 10.0),
        ([("x-server-timeout", "9")], 9.0),
        ([("x-envoy-upstream-rq-timeout-ms", "1500")], 1.5),
        ([("x-stainless-timeout", "NOT_GIVEN")], None),
        ([("x-stainless-timeout", "0")], None),
        ([("x-stainless-timeout", "-1"), ("x-server-timeout", "7")], 7.0),
        ([("x-stainless-timeout", "999999")], None),
        ([("x-other", "3")], None),
        ([], None),
    ],
)
def test_the_shortest_stated_timeout_counts(lines, seconds):
    assert client_timeout(Headers(tuple(lines))) == seconds
