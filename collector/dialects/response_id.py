"""The provider's id of an answer, which most dialects tell in the first frame or in the whole body."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

MAX_ID = 128  # characters
MAX_FRAME = 256 * 1024  # bytes; a larger frame is not read for its id alone


class _Inner(Struct):
    id: str | None = None


class _Outer(Struct):
    id: Raw = Raw()
    responseId: Raw = Raw()  # Gemini  # noqa: N815
    response: Raw = Raw()  # OpenAI Responses, streamed
    message: Raw = Raw()  # Anthropic, streamed


_read_outer = msgspec.json.Decoder(_Outer).decode
_read_inner = msgspec.json.Decoder(_Inner).decode
_read_text = msgspec.json.Decoder(str).decode


def response_id(data: bytes) -> str | None:
    """The id that a frame of JSON tells, printable and at most 128 characters; None where it tells none."""
    if len(data) > MAX_FRAME or data.lstrip()[:1] != b"{":
        return None
    try:
        outer = _read_outer(data)
        for inner in (outer.response, outer.message):
            if _first(inner) == b"{":
                found = _read_inner(inner).id
                if found is not None:
                    return _bounded(found)
        told = outer.id if _first(outer.id) else outer.responseId
        return _bounded(_read_text(told)) if _first(told) == b'"' else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _first(raw: Raw) -> bytes:
    return bytes(memoryview(raw)[:1])


def _bounded(text: str) -> str | None:
    return text if 0 < len(text) <= MAX_ID and text.isprintable() else None
