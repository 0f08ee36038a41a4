"""OpenAI's older text completions, as vLLM, Together, Azure, llama.cpp and Writer still speak them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError
from collector.dialects.errors import ErrorBody, error_of_body, says_limits, wire_error
from collector.dialects.openai_usage import Account, CompletionUsage, PerfMetrics, TimeInfo, Timings, phases_of
from collector.dialects.structured import Guided, expected
from collector.model import (
    MAX_CHOICES,
    Delta,
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

DONE = b"[DONE]"

# ---------------------------------------------------------------- the response on the wire


class _Choice(Struct, gc=False):
    index: int | None = None
    text: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    finish_reason: str | int | None = None
    error: ErrorBody | None = None


class _Body(Struct, gc=False):
    """A chunk of a stream or a whole answer. `value` is all that a chunk of Writer's has."""

    object: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    value: str | None = None
    usage: CompletionUsage | None = None
    timings: Timings | None = None
    time_info: TimeInfo | None = None
    perf_metrics: PerfMetrics | None = None
    error: ErrorBody | str | None = None
    type: str | None = None
    code: str | int | None = None


_decode = Decoder(_Body)


class CompletionsReader:
    """Chunks of a stream, or one whole answer."""

    def __init__(self, request: RequestHead, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._account = Account(request)
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._only_values = True  # nothing but Writer's frames so far

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if len(frame.data) < 32 and frame.data.strip() == DONE:
            return Delta(terminal=True, marker=True)
        if frame.event == "ping":
            return Delta(ping=True)
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True, error=wire_error(ErrorBody()) if frame.event == "error" else None)
        return self._delta(body, frame.event)

    def ended_well(self) -> bool:
        """Whether every choice has said how it finished. Writer's frames say nothing of their end but by ending."""
        return bool(self._seen) and (self._seen == self._finished or self._only_values)

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """As with chat completions."""
        return self._account.normal(reported)

    def _delta(self, body: _Body, event: str | None) -> Delta:
        text, reasoning, finish = [], [], []
        error = None
        if isinstance(body.error, ErrorBody) and body.error.says_something:
            error = wire_error(body.error)
        elif (isinstance(body.error, str) and body.error) or event == "error" or body.object == "error":
            named = body.error if isinstance(body.error, str) and body.error else body.type
            error = wire_error(ErrorBody(type=named, code=body.code))
        if body.value is not None:
            self._seen.add(0)
            if body.value:
                text.append(TextPiece(0, body.value))
        for position, choice in enumerate(body.choices or ()):
            index = choice.index if choice.index is not None else position
            if 0 <= index < MAX_CHOICES:
                self._seen.add(index)
            self._only_values = False
            if choice.text:
                text.append(TextPiece(index, choice.text))
            thought = choice.reasoning_content or choice.reasoning
            if thought:
                reasoning.append(TextPiece(index, thought))
            # Some stream an empty word where there is none yet.
            if choice.finish_reason is not None and choice.finish_reason != "":
                if 0 <= index < MAX_CHOICES:
                    self._finished.add(index)
                finish.append(Finish(index, str(choice.finish_reason)))
            if choice.error is not None and choice.error.says_something and error is None:
                error = wire_error(choice.error)
        usage = body.usage
        return Delta(
            text=tuple(text),
            reasoning=tuple(reasoning),
            finish=tuple(finish),
            choices=0 if self._only_values else max(self._seen, default=-1) + 1,
            model=body.model or None,
            usage=self._account.take(usage) if usage is not None else None,
            phases=phases_of(usage, body.timings, body.time_info, body.perf_metrics),
            error=error,
            ping=body.type == "ping",
        )


# ---------------------------------------------------------------- the request


class _StreamOptions(Struct, gc=False):
    include_usage: bool | None = None


class _Request(Guided, gc=False):
    model: str | None = None
    stream: bool | None = None
    prompt: str | list[Any] | None = None  # a text, several, or token numbers
    max_tokens: int | None = None
    stream_options: _StreamOptions | None = None


_decode_request = Decoder(_Request)


class OpenAiCompletions:
    """POST …/completions that are not chat."""

    name = "openai.completions"
    operation = "text_completion"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        path = request.path.rstrip("/")
        return request.method == "POST" and path.endswith("/completions") and not path.endswith("/chat/completions")

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt or ()
        query, context = split([Turn("user", "text", prompt) for prompt in prompts if isinstance(prompt, str)])
        return RequestFacts(
            model=asked.model or None,
            stream=asked.stream is True,
            expectation=expected(asked),
            query=query,
            context=context,
            max_output_tokens=asked.max_tokens,
            include_usage=asked.stream_options.include_usage if asked.stream_options is not None else None,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return CompletionsReader(request, response)
