"""Anthropic's older text completions."""

from __future__ import annotations

import re

from msgspec import Struct

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError
from collector.dialects.errors import ErrorBody, error_of_body, says_limits, wire_error
from collector.dialects.prompt import prompt_facts
from collector.model import (
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
MAX_SAID = 1024 * 1024  # characters of an answer in which what is told again is looked for
JOINED = 64  # pieces of it are joined when there are so many: a piece takes more than its characters
_TURN = re.compile(r"\n\n(Human|Assistant):[ \t]*")


class _Body(Struct, gc=False):
    type: str | None = None
    completion: str | None = None
    stop_reason: str | None = None
    model: str | None = None
    error: ErrorBody | None = None


_decode = Decoder(_Body)


class CompleteReader:
    """Events of a stream, or one whole answer.

    Before the version 2023-06-01 every event told all of the text again, without a type (Anthropic docs, versions).
    """

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)
        self._said: list[str] = []
        self._pieces: list[str] = []  # the last of what was said
        self._chars = 0
        self._finished = False

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if len(frame.data) < 32 and frame.data.strip() == DONE:
            return Delta(terminal=True, marker=True)
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True, error=wire_error(ErrorBody()) if frame.event == "error" else None)
        kind = body.type or frame.event
        if kind == "ping":
            return Delta(ping=True)
        if kind == "error" or body.error is not None:
            return Delta(error=wire_error(body.error or ErrorBody()))
        if body.completion is None:
            return Delta()
        self._finished = self._finished or bool(body.stop_reason)
        text = self._new(body.completion) if body.type is None else body.completion
        return Delta(
            text=(TextPiece(0, text),) if text else (),
            finish=(Finish(0, body.stop_reason),) if body.stop_reason else (),
            choices=1,
            model=body.model or None,
        )

    def _new(self, completion: str) -> str:
        # What is shorter than all that was said cannot tell it again: joining it then would cost its square in time.
        if self._chars and len(completion) >= self._chars:
            said = "".join(self._said + self._pieces)
            self._said, self._pieces = [said], []
            completion = completion.removeprefix(said)
        self._keep(completion)
        return completion

    def _keep(self, piece: str) -> None:
        if not piece or self._chars + len(piece) > MAX_SAID:
            return
        self._chars += len(piece)
        self._pieces.append(piece)
        if len(self._pieces) == JOINED:
            self._said.append("".join(self._pieces))
            self._pieces = []

    def ended_well(self) -> bool:
        """Whether it has said why it stopped."""
        return self._finished

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        """These answers tell no usage."""
        return Usage()


class _Request(Struct, gc=False):
    model: str | None = None
    stream: bool | None = None
    prompt: str | None = None
    max_tokens_to_sample: int | None = None


_decode_request = Decoder(_Request)


def _turns(prompt: str) -> list[Turn]:
    """The turns of a prompt in which `Human:` and `Assistant:` open them; what comes before is the system's."""
    before, *rest = _TURN.split(prompt)
    turns = [Turn("system", "text", before)] if before.strip() else []
    for who, said in zip(rest[::2], rest[1::2], strict=True):
        if said.strip():
            turns.append(Turn("user" if who == "Human" else "assistant", "text", said))
    return turns


class AnthropicCompletions:
    """POST …/v1/complete."""

    name = "anthropic.completions"
    operation = "text_completion"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        return request.method == "POST" and request.path.rstrip("/").endswith("/v1/complete")

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        turns = _turns(asked.prompt or "")
        query, context = split(turns)
        return RequestFacts(
            model=asked.model or None,
            stream=asked.stream is True,
            query=query,
            context=context,
            prompt=prompt_facts(turns),
            max_output_tokens=asked.max_tokens_to_sample,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return CompleteReader(response)
