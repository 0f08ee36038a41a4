"""Answers that the sidecar itself gives: health, refusals, and what went wrong upstream."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from msgspec import Struct

HEALTH_PREFIX = b"/-/"


class Problem(Struct, frozen=True):
    """An answer that names semhealth as its source. `message` holds no content, path or key: at most a host."""

    status: int
    type: str
    message: str


def problem_answer(problem: Problem, *, bodyless: bool = False, close: bool = False) -> bytes:
    """A JSON error in the shape that LLM APIs use, marked with `x-semhealth-error`."""
    error = {"message": problem.message, "type": problem.type, "source": "semhealth", "code": problem.status}
    body = msgspec.json.encode({"error": error})
    extra = b"x-semhealth-error: %b\r\n" % problem.type.encode()
    return _answer(problem.status, b"application/json", body, extra, bodyless=bodyless, close=close)


def health_answer(target: bytes, *, ready: bool, bodyless: bool = False, close: bool = False) -> bytes | None:
    """What `/-/healthz` and `/-/readyz` say; None for any other path."""
    path = target.partition(b"?")[0]
    if path == b"/-/healthz":
        status, body = 200, b"ok\n"
    elif path == b"/-/readyz":
        status, body = (200, b"ready\n") if ready else (503, b"draining\n")
    else:
        return None
    return _answer(status, b"text/plain; charset=utf-8", body, b"", bodyless=bodyless, close=close)


def _answer(status: int, content_type: bytes, body: bytes, extra: bytes, *, bodyless: bool, close: bool) -> bytes:
    return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b%b\r\n%b" % (
        status,
        HTTPStatus(status).phrase.encode(),
        content_type,
        len(body),
        extra,
        b"Connection: close\r\n" if close else b"",
        b"" if bodyless else body,
    )
