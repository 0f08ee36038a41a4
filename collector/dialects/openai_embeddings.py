"""Embeddings and rankings of texts in OpenAI's shape: OpenAI, Azure, Voyage, Perplexity, Jina, vLLM, OpenRouter.

Vectors and scores are passed by; what is read is the model, the tokens and the error.
"""

from __future__ import annotations

from msgspec import Struct

from collector.dialects.decoding import Decoder, UnreadableError, count
from collector.dialects.errors import ErrorBody, error_of_body, says_limits, wire_error
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

# ---------------------------------------------------------------- the response on the wire


class _Usage(Struct, gc=False):
    prompt_tokens: int | float | None = None
    completion_tokens: int | float | None = None
    total_tokens: int | float | None = None


class _Body(Struct, gc=False):
    model: str | None = None
    usage: _Usage | None = None
    error: ErrorBody | None = None


_decode = Decoder(_Body)


class EmbeddingsReader:
    """One whole answer."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._total: int | None = None

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True)
        usage = None
        if body.usage is not None:
            usage = ReportedUsage(count(body.usage.prompt_tokens), count(body.usage.completion_tokens))
            self._total = count(body.usage.total_tokens)
        told = body.error is not None and body.error.says_something
        return Delta(
            model=body.model or None,
            usage=usage,
            error=wire_error(body.error) if told and body.error is not None else None,
            terminal=True,
        )

    def ended_well(self) -> bool:
        """These are no streams."""
        return False

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """A total that stands alone (Voyage) is input: nothing else is counted here."""
        told = self._total if reported.input_tokens is None else reported.input_tokens
        return Usage(told, reported.output_tokens)


# ---------------------------------------------------------------- the request


class _Request(Struct, gc=False):
    model: str | None = None


_decode_request = Decoder(_Request)


class OpenAiEmbeddings:
    """POST …/embeddings."""

    name = "openai.embeddings"
    operation = "embeddings"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        return request.method == "POST" and request.path.rstrip("/").endswith("/embeddings")

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        return RequestFacts(model=_decode_request(body).model or None)

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return EmbeddingsReader(response)


class Rerank:
    """POST …/rerank."""

    name = "rerank"
    operation = "rerank"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        return request.method == "POST" and request.path.rstrip("/").endswith("/rerank")

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        return RequestFacts(model=_decode_request(body).model or None)

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return EmbeddingsReader(response)
