"""How AWS tells of errors: in a header, in the body, and as frames inside a stream that began well."""

from __future__ import annotations

from msgspec import Struct, field

from collector.dialects.decoding import Decoder, UnreadableError
from collector.dialects.errors import bounded, kind_of, says_limits
from collector.model import Frame, ResponseHead, WireError

CHUNK_WORDS = ("exception:", "error:")  # before an exception's type or an error's code, as the codec names such frames


class _Fault(Struct, gc=False):
    type: str | None = field(default=None, name="__type")
    code: str | None = None
    original_status: int | None = field(default=None, name="originalStatusCode")


_decode = Decoder(_Fault)


def _fault(data: bytes) -> _Fault:
    try:
        return _decode(data)
    except UnreadableError:
        return _Fault()


def _name(word: str | None) -> str | None:
    """The bare name of an exception: `com.amazon…#ThrottlingException:http://…` → `ThrottlingException`."""
    return bounded((word or "").split(":", 1)[0].rsplit("#", 1)[-1])


def error_of_response(data: bytes, response: ResponseHead) -> WireError:
    """The error of a non-2xx answer; `x-amzn-errortype` wins over the body's `__type`."""
    told = _fault(data)
    kind = _name(response.headers.first("x-amzn-errortype")) or _name(told.type)
    code = bounded(told.code)
    has_limits = says_limits(response.headers)
    return WireError(kind, code, kind_of(response.status, kind, code, has_limits=has_limits))


def error_of_frame(frame: Frame) -> WireError | None:
    """The error that an exception frame or error frame of a stream is; None for any other frame."""
    for before in CHUNK_WORDS:
        if frame.event is not None and frame.event.startswith(before):
            kind = bounded(frame.event.removeprefix(before))
            told = _fault(frame.data)
            return WireError(kind, bounded(told.original_status), kind_of(told.original_status, kind))
    return None
