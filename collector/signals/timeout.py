"""How long does the client wait, as it says itself?"""

from __future__ import annotations

from collector.model import Headers
from collector.signals.values import number

# Header → its unit in seconds. The SDKs of OpenAI and Anthropic, Google's clients and Envoy state their time-outs.
TIMEOUT_HEADERS = {
    "x-stainless-read-timeout": 1.0,
    "x-stainless-timeout": 1.0,
    "x-server-timeout": 1.0,
    "x-envoy-upstream-rq-timeout-ms": 1e-3,
}
LONGEST = 86_400.0  # seconds; what says more is no time-out


def client_timeout(request: Headers) -> float | None:
    """The shortest time-out that the request states, in seconds; None where it states none."""
    if TIMEOUT_HEADERS.keys().isdisjoint(request.shared.places):
        return None
    read = ((number(request.first(name)), unit) for name, unit in TIMEOUT_HEADERS.items())
    found = [value * unit for value, unit in read if value is not None]
    return min((value for value in found if 0.0 < value <= LONGEST), default=None)
