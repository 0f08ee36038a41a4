"""IBM watsonx.ai: text generation, streamed and whole, and chat, which speaks like OpenAI."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError, count
from collector.dialects.errors import ErrorBody, error_of_body, says_limits, wire_error
from collector.model import (
    MAX_CHOICES,
    Delta,
    Dialect,
    Finish,
    Frame,
    Reader,
    ReportedUsage,
    RequestFacts,
    RequestHead,
    ResponseHead,
    TextPiece,
    Usage,
)

RUNNING = "not_finished"  # the stop reason of every chunk but the last
CHAT = ("/text/chat", "/text/chat_stream")
GENERATION = ("/text/generation", "/text/generation_stream", "/generation/text", "/generation/text_stream")

# ---------------------------------------------------------------- the response on the wire


class _Result(Struct, gc=False):
    generated_text: str | None = None
    generated_token_count: int | float | None = None
    input_token_count: int | float | None = None
    stop_reason: str | None = None


class _Body(Struct, gc=False):
    model_id: str | None = None
    results: list[_Result] | None = None
    errors: list[ErrorBody] | None = None


_decode = Decoder(_Body)


class GenerationReader:
    """Chunks of a stream, or one whole answer. No end marker: results say how they stopped."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._input: int | None = None
        self._seen: set[int] = set()
        self._finished: set[int] = set()

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True, error=wire_error(ErrorBody()) if frame.event == "error" else None)
        if body.errors:
            return Delta(error=wire_error(body.errors[0]))
        return Delta(error=wire_error(ErrorBody())) if frame.event == "error" else self._delta(body)

    def ended_well(self) -> bool:
        """Whether every result seen has stopped."""
        return bool(self._seen) and self._seen == self._finished

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        return Usage(reported.input_tokens, reported.output_tokens)

    def _delta(self, body: _Body) -> Delta:
        results = (body.results or [])[:MAX_CHOICES]
        finish = [
            Finish(choice, result.stop_reason)
            for choice, result in enumerate(results)
            if result.stop_reason and result.stop_reason != RUNNING
        ]
        self._seen.update(range(len(results)))
        self._finished.update(end.choice for end in finish)
        return Delta(
            text=tuple(TextPiece(at, one.generated_text) for at, one in enumerate(results) if one.generated_text),
            finish=tuple(finish),
            choices=len(self._seen),
            model=body.model_id or None,
            usage=self._reported(results),
        )

    def _reported(self, results: list[_Result]) -> ReportedUsage | None:
        """The output so far. Only a stream's first chunk counts the input; those after it say 0."""
        if not results:
            return None
        told = count(results[0].input_token_count)
        if told is not None and (told or self._input is None):
            self._input = told
        written = [tokens for one in results if (tokens := count(one.generated_token_count)) is not None]
        return ReportedUsage(self._input, sum(written) if written else None)


# ---------------------------------------------------------------- the request


class _Parameters(Struct, gc=False):
    max_new_tokens: int | None = None


class _Request(Struct, gc=False):
    model_id: str | None = None
    input: str | None = None
    parameters: _Parameters | None = None


_decode_request = Decoder(_Request)


class WatsonxGeneration:
    """POST …/ml/…/text/generation and /text/generation_stream, also under their first names."""

    name = "watsonx"
    operation = "text_completion"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        path = request.path.rstrip("/")
        return request.method == "POST" and "/ml/" in path and path.endswith(GENERATION)

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        query, context = split([Turn("user", "text", asked.input)]) if asked.input else (None, ())
        return RequestFacts(
            model=asked.model_id or None,
            query=query,
            context=context,
            max_output_tokens=asked.parameters.max_new_tokens if asked.parameters is not None else None,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return GenerationReader(response)


class WatsonxChat:
    """POST …/ml/…/text/chat and /text/chat_stream: in the words of `chat`, but for the name of the model's field."""

    name = "watsonx.chat"
    operation = "chat"

    def __init__(self, chat: Dialect) -> None:
        self._chat = chat

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        path = request.path.rstrip("/")
        return request.method == "POST" and "/ml/" in path and path.endswith(CHAT)

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        return msgspec.structs.replace(self._chat.request_facts(body), model=_decode_request(body).model_id or None)

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return self._chat.reader(request, response)
