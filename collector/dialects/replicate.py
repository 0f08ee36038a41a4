"""Replicate's predictions: what was started, waited for or fetched, and the streams of their output."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from collector.dialects.conversation import Turn, split
from collector.dialects.decoding import Decoder, UnreadableError, count, read_json
from collector.dialects.errors import ErrorBody, bounded, error_of_body, says_limits, wire_error
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
    WireError,
)

MAX_PHASE = 1e6  # seconds; what says more is no duration

# ---------------------------------------------------------------- the response on the wire


class _Metrics(Struct, gc=False):
    input_token_count: int | float | None = None
    output_token_count: int | float | None = None
    predict_time: float | int | None = None
    total_time: float | int | None = None
    time_to_first_token: float | int | None = None


class _Body(Struct, gc=False):
    model: str | None = None
    status: str | None = None
    output: Any = None
    error: Any = None
    metrics: _Metrics | None = None


_decode = Decoder(_Body)


def _text(output: Any) -> str:
    """The text of an output: a string, or the strings of a list. Files and structures are none."""
    if isinstance(output, str):
        return output
    if isinstance(output, list) and all(isinstance(piece, str) for piece in output):
        return "".join(output)
    return ""


def _error(told: Any) -> WireError:
    """Errors are sentences: only an identifier is kept of one."""
    return wire_error(ErrorBody(type=bounded(told) if isinstance(told, str) else None))


class PredictionReader:
    """A prediction as it stands, or the events of its stream, whose data is the bare text."""

    def __init__(self, response: ResponseHead) -> None:
        self._status = response.status
        self._limited = says_limits(response.headers)

    def read(self, frame: Frame) -> Delta | None:
        if frame.kind != "data":
            return None
        if self._status >= 400:
            return Delta(error=error_of_body(frame.data, self._status, self._limited))
        if frame.event is not None:
            return self._event(frame)
        try:
            body = _decode(frame.data)
        except UnreadableError:
            return Delta(malformed=True)
        text, metrics = _text(body.output), body.metrics
        return Delta(
            text=(TextPiece(0, text),) if text else (),
            finish=(Finish(0, body.status),) if body.status else (),
            choices=1 if body.status else 0,
            model=body.model or None,
            usage=_reported(metrics),
            phases=_phases(metrics),
            error=_error(body.error) if body.error and body.status == "failed" else None,
        )

    def ended_well(self) -> bool:
        """Only the event `done` or `error` ends a stream."""
        return False

    def normal_usage(self, reported: ReportedUsage) -> Usage:
        return Usage(reported.input_tokens, reported.output_tokens)

    def _event(self, frame: Frame) -> Delta:
        match frame.event:
            case "output":
                text = frame.data.decode("utf-8", "replace")
                return Delta(text=(TextPiece(0, text),) if text else (), choices=1)
            case "error":
                return Delta(error=_error(frame.data.decode("utf-8", "replace")), terminal=True)
            case "done":
                # `{}`, or a reason: `canceled`, `error`.
                try:
                    told = read_json(frame.data)
                except UnreadableError:
                    told = None
                reason = told.get("reason") if isinstance(told, dict) else None
                word = reason if isinstance(reason, str) and reason else "succeeded"
                return Delta(finish=(Finish(0, word),), choices=1, terminal=True)
        return Delta()


def _reported(metrics: _Metrics | None) -> ReportedUsage | None:
    if metrics is None:
        return None
    told = ReportedUsage(count(metrics.input_token_count), count(metrics.output_token_count))
    return told if told != ReportedUsage() else None


def _phases(metrics: _Metrics | None) -> tuple[tuple[str, float], ...]:
    if metrics is None:
        return ()
    named = (
        ("inference", metrics.predict_time),
        ("total", metrics.total_time),
        ("first_token", metrics.time_to_first_token),
    )
    return tuple((name, seconds) for name, seconds in named if seconds is not None and 0 <= seconds < MAX_PHASE)


# ---------------------------------------------------------------- the request


class _Input(Struct, gc=False):
    prompt: str | None = None
    system_prompt: str | None = None
    max_tokens: int | None = None
    max_new_tokens: int | None = None


class _Request(Struct, gc=False):
    """`version` is a hash, or `owner/name:hash`."""

    version: str | None = None
    stream: bool | None = None
    input: _Input | None = None


_decode_request = Decoder(_Request)


class Replicate:
    """POST …/predictions, GET …/predictions/{id}, and the streams of Replicate's own hosts."""

    name = "replicate"
    operation = "text_completion"

    def speaks(self, request: RequestHead, response: ResponseHead) -> bool:
        if request.hint != "replicate" and not request.host.split(":", 1)[0].endswith(
            ("replicate.com", "replicate.net")
        ):
            return False
        path = request.path.rstrip("/")
        if request.method == "POST":
            return path.endswith("/predictions")
        return request.method == "GET" and ("/predictions/" in path or "/streams/" in path or "/stream/" in path)

    def request_facts(self, body: bytes) -> RequestFacts:
        """Raises UnreadableError when the body is not JSON."""
        asked = _decode_request(body)
        told = asked.input or _Input()
        turns = [Turn("system", "text", told.system_prompt)] if told.system_prompt else []
        turns += [Turn("user", "text", told.prompt)] if told.prompt else []
        query, context = split(turns)
        named, colon, _ = (asked.version or "").partition(":")
        return RequestFacts(
            model=named if colon and "/" in named else None,
            stream=asked.stream is True,
            query=query,
            context=context,
            prompt=prompt_facts(turns),
            max_output_tokens=told.max_new_tokens if told.max_tokens is None else told.max_tokens,
        )

    def reader(self, request: RequestHead, response: ResponseHead) -> Reader:
        return PredictionReader(response)
