"""Text Generation Inference's own wire: `/generate` and `/generate_stream`."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError, count
from collector.dialects.errors import ErrorBody, error_of_body, says_limits, wire_error
from collector.dialects.structured import ResponseFormat, of_format
from collector.model import (
    Delta,
    Finish,
    Frame,
    Headers,
    Reader,
    ReportedUsage,
    RequestFacts,
    RequestHead,
    ResponseHead,
    TextPiece,
    Usage,
    WireError,
)

SIGNS = ("x-compute-type", "x-generated-tokens", "x-prompt-tokens")  # what it says of its whole answers
MAX_REPEATED = 1024 * 1024  # characters of streamed text that are compared with the whole of it
JOINED = 64  # pieces of it are joined when there are so many: a piece takes more than its characters

# ---------------------------------------------------------------- the response on the wire


class _Token(Struct, gc=False):
    text: str | None = None
    special: bool | None = None


class _Details(Struct, gc=False):
    finish_reason: str | None = None
    generated_tokens: int | float | None = None
    input_length: int | float | None = None


class _Body(Struct, gc=False):
    """A token of a stream, the last of them with the whole text, or a whole answer."""

    token: _Token | None = None
    generated_text: str | None = None
    details: _Details | None = None
    error: str | None = None
    error_type: str | None = None


_decode = Decoder(_Body)


class TgiReader:
    """Tokens of a stream, or one whole answer. The last token brings the whole text; there is no end marker."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._headers = response.headers
        self._streamed: list[str] = []
        self._pieces: list[str] = []  # the last of it
        self._chars = 0
        self._ended = False

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True)
        if body.error is not None or body.error_type is not None:
            return Delta(error=_stream_error(body))
        return self._delta(body)

    def ended_well(self) -> bool:
        return self._ended

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """A whole answer counts its input in a header."""
        came, made = reported.input_tokens, reported.output_tokens
        return Usage(
            _told(self._headers, "x-prompt-tokens") if came is None else came,
            _told(self._headers, "x-generated-tokens") if made is None else made,
        )

    def _delta(self, body: _Body) -> Delta:
        text, repeated = "", None
        if body.token is not None:
            # Special tokens, such as the end of the sequence, are no part of the text.
            text = "" if body.token.special else body.token.text or ""
            self._keep(text)
            repeated = self._whole(body.generated_text) if body.generated_text is not None else None
        elif body.generated_text is not None:
            text = body.generated_text
        self._ended = self._ended or body.generated_text is not None
        said = Delta(
            text=(TextPiece(0, text),) if text else (),
            choices=1 if body.token is not None or body.generated_text is not None else 0,
            full_text=(TextPiece(0, repeated),) if repeated else (),
            terminal=body.generated_text is not None,
        )
        details = body.details
        if details is None:
            return said
        return replace(
            said,
            finish=(Finish(0, details.finish_reason),) if details.finish_reason else (),
            usage=ReportedUsage(count(details.input_length), count(details.generated_tokens)),
        )

    def _keep(self, text: str) -> None:
        self._chars += len(text)
        if self._chars > MAX_REPEATED:
            self._streamed, self._pieces = [], []
        elif text:
            self._pieces.append(text)
            if len(self._pieces) == JOINED:
                self._streamed.append("".join(self._pieces))
                self._pieces = []

    def _whole(self, text: str) -> str | None:
        """The text as it is told again, without the prompt, which comes before it where that was asked for."""
        if self._chars > MAX_REPEATED:
            return None
        streamed = "".join(self._streamed + self._pieces)
        return streamed if text.endswith(streamed) else text


def _stream_error(body: _Body) -> WireError:
    """`generation` and its like say no more than that it went wrong."""
    error = wire_error(ErrorBody(type=body.error_type))
    return replace(error, kind="server_error") if error.kind == "unclassified" else error


def _told(headers: Headers, name: str) -> int | None:
    text = headers.first(name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


# ---------------------------------------------------------------- the request


class _Parameters(Struct, gc=False):
    max_new_tokens: int | None = None
    grammar: ResponseFormat | None = None  # `json`, `json_schema` or `regex`, with its `value`


class _Request(Struct, gc=False):
    inputs: str | None = None
    stream: bool | None = None
    parameters: _Parameters | None = None


_decode_request = Decoder(_Request)


class Tgi:
    """POST …/generate_stream, and …/generate where the answer's headers are those of this server."""

    name = "tgi"
    operation = "text_completion"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        path = request.path.rstrip("/")
        if request.method != "POST" or not path.endswith(("/generate", "/generate_stream")):
            return False
        return path.endswith("_stream") or any(response.headers.first(name) is not None for name in SIGNS)

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        query, context = split([Turn("user", "text", asked.inputs)]) if asked.inputs else (None, ())
        wishes = asked.parameters or _Parameters()
        return RequestFacts(
            stream=asked.stream is True,
            expectation=of_format(wishes.grammar),
            query=query,
            context=context,
            max_output_tokens=wishes.max_new_tokens,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return TgiReader(response)
