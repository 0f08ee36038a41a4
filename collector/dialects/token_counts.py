"""Counts of the tokens that a request would take: Anthropic, also on Vertex AI, OpenAI responses, Gemini, Bedrock."""

from __future__ import annotations

from msgspec import Struct, field

from collector.dialects.aws import error_of_response
from collector.dialects.decoding import Decoder, UnreadableError, count
from collector.dialects.errors import error_of_body, says_limits
from collector.dialects.google import error_of_answer
from collector.model import (
    Delta,
    Frame,
    Reader,
    ReportedUsage,
    RequestFacts,
    RequestHead,
    ResponseHead,
    Usage,
)

GOOGLE = ":countTokens"
BEDROCK = "/count-tokens"
OTHERS = ("/messages/count_tokens", "/models/count-tokens:rawPredict", "/responses/input_tokens")


class _Body(Struct, gc=False):
    """Gemini tells only a total, of which nobody says that it is all input."""

    input_tokens: int | float | None = None
    bedrock_tokens: int | float | None = field(default=None, name="inputTokens")


_decode = Decoder(_Body)


class TokenCountReader:
    """One whole answer: a number."""

    def __init__(self, request: RequestHead, response: ResponseHead) -> None:
        self._path = request.path.rstrip("/")
        self._response = response

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if self._response.status >= 400:
            return self._failure(frame.data)
        try:
            told = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True)
        tokens = told.bedrock_tokens if told.input_tokens is None else told.input_tokens
        return Delta(usage=ReportedUsage(count(tokens)), terminal=True)

    def _failure(self, data: bytes) -> Delta:
        status, limited = self._response.status, says_limits(self._response.headers)
        if self._path.endswith(BEDROCK):
            return Delta(error=error_of_response(data, self._response))
        if self._path.endswith(GOOGLE):
            return error_of_answer(data, status, limited)
        return Delta(error=error_of_body(data, status, limited))

    def ended_well(self) -> bool:
        """These are no streams."""
        return False

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """Nothing was used: these tokens were counted only."""
        return Usage()


class _Request(Struct, gc=False):
    model: str | None = None


_decode_request = Decoder(_Request)


class TokenCounts:
    """POST …/messages/count_tokens, …/count-tokens:rawPredict, …/responses/input_tokens, …:countTokens and
    /model/{model}/count-tokens.
    """

    name = "count_tokens"
    operation = "count_tokens"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        return request.method == "POST" and request.path.rstrip("/").endswith((*OTHERS, GOOGLE, BEDROCK))

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        return RequestFacts(model=_decode_request(body).model or None)

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return TokenCountReader(request, response)
