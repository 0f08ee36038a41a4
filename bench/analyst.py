"""What the analyst costs: frames and exchanges a second on one core, by stage, and memory per open exchange.

In process, without sockets: batches as a proxy worker encodes them, each decoded and taken in by a real analyst with
its Prometheus registry and ledger, without embedder, validator and log. Times are CPU time, medians over rounds.
"""

from __future__ import annotations

import argparse
import binascii
import gc
import random
import struct
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

import msgspec
from msgspec import Struct

from collector.analyst.accumulate import digest_of
from collector.analyst.analyst import AnalysedRoute, Analyst, Worker
from collector.analyst.fold import ExchangeFold, RouteFacts, Rules
from collector.analyst.ledger import Ledger
from collector.app import DIALECTS, SystemClock
from collector.model import (
    BytesSeen,
    Event,
    Exchange,
    ExchangeEnded,
    Exporter,
    Judgement,
    Meters,
    Place,
    Reading,
    Relevance,
    RequestSeen,
    ResponseSeen,
    ValidationTask,
    decode_events,
    encode_events,
)
from exporters.prometheus import PrometheusExporter

BATCH = 50  # events of one batch
FRAMES = 200  # of one stream
OPEN = 1000  # exchanges open at once, where memory is measured
LARGE_READ = 4000  # bytes
LEDGER = 2000
VARIES = b"@@@@"  # in a response head: another number for each exchange, since heads are not all the same
WORDS = (" the", " service", " answers", " with", " a", " stream", " of", " small", " pieces", ".")


class Traffic(Struct, frozen=True):
    """One kind of exchange. `pieces` are the body's bytes as they are read, in order."""

    name: str
    host: str
    request: bytes
    request_body: bytes
    response: bytes
    pieces: tuple[bytes, ...]
    frames: int

    def events(self, number: int) -> list[Event]:
        """Every event of one exchange; times are 20 ms apart, so that nothing stalls."""
        told: list[Event] = [RequestSeen(number, 0.0, 1.7e9, self.name, self.request)]
        told.append(BytesSeen(number, 0.0, False, self.request_body))
        told.append(
            ResponseSeen(number, 0.3, 0.001, None, self.response.replace(VARIES, b"%d" % (1000 + number % 1000)))
        )
        at = 0.3
        for piece in self.pieces:
            at += 0.02
            told.append(BytesSeen(number, at, True, piece))
        told.append(ExchangeEnded(number, at, "complete", 0.0001))
        return told


# ---------------------------------------------------------------- the traffic


def _head(first: str, *lines: str) -> bytes:
    return "\r\n".join((first, *lines, "", "")).encode()


def _request(path: str, host: str, *lines: str) -> bytes:
    return _head(
        f"POST {path} HTTP/1.1",
        f"Host: {host}",
        "Accept: application/json",
        "Accept-Encoding: identity",
        "Connection: keep-alive",
        "Content-Type: application/json",
        "User-Agent: a-client/1.0",
        "Content-Length: 500",
        *lines,
    )


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


def _words() -> Iterator[str]:
    """Each ten of them in another order, always the same: a text that goes round in circles is a finding."""
    order, orders = list(WORDS), random.Random(1)  # noqa: S311 - an order, not a secret
    for _ in range(FRAMES // len(WORDS)):
        yield from order
        orders.shuffle(order)


_QUESTION = "What does the service answer with, and how long may a client wait for it? " * 3
_CHAT_LINES = (
    "date: Tue, 14 Nov 2023 22:13:20 GMT",
    "connection: keep-alive",
    "x-request-id: req_0123456789abcdef0123456789ab@@@@",
    "openai-processing-ms: @@@@",
    "openai-version: 2020-10-01",
    "x-ratelimit-limit-requests: 10000",
    "x-ratelimit-limit-tokens: 2000000",
    "x-ratelimit-remaining-requests: @@@@",
    "x-ratelimit-remaining-tokens: 199@@@@",
    "x-ratelimit-reset-requests: 6ms",
    "x-ratelimit-reset-tokens: @@@@ms",
    "strict-transport-security: max-age=31536000; includeSubDomains; preload",
    "x-content-type-options: nosniff",
    "server: cloudflare",
)


def openai_stream() -> Traffic:
    """Chat completions over SSE, one event per chunk."""
    asked = {"model": "gpt-4o", "stream": True, "messages": [{"role": "user", "content": _QUESTION}]}
    common = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1_700_000_000}
    common |= {"model": "gpt-4o-2024-08-06", "service_tier": "default", "system_fingerprint": "fp_0123456789"}

    def event(delta: dict[str, str], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return b"data: " + _json(common | {"choices": [choice]}) + b"\n\n"

    used = {"prompt_tokens": 60, "completion_tokens": FRAMES - 3, "total_tokens": FRAMES + 57}
    events = [event({"role": "assistant", "content": ""}, None)]
    events += [event({"content": word}, None) for word in list(_words())[3:]]
    events += [event({}, "stop"), b"data: " + _json(common | {"choices": [], "usage": used}) + b"\n\n"]
    pieces = [_chunk(each) for each in events] + [_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"]
    lines = ("content-type: text/event-stream; charset=utf-8", "transfer-encoding: chunked", *_CHAT_LINES)
    return Traffic(
        "openai stream",
        "api.openai.com",
        _request("/v1/chat/completions", "api.openai.com", "Authorization: Bearer of-nothing"),
        _json(asked),
        _head("HTTP/1.1 200 OK", *lines),
        tuple(pieces),
        len(events) + 1,
    )


def recut(traffic: Traffic, size: int) -> Traffic:
    """The same stream as it comes where reads are late: several events in each, the last one cut."""
    body = b"".join(traffic.pieces)
    pieces = tuple(body[at : at + size] for at in range(0, len(body), size))
    return msgspec.structs.replace(traffic, name=f"{traffic.name}, {size} B a read", pieces=pieces)


def anthropic_stream() -> Traffic:
    """Messages over SSE, one named event per chunk."""

    def event(name: str, **fields: object) -> bytes:
        return f"event: {name}\ndata: ".encode() + _json({"type": name, **fields}) + b"\n\n"

    message: dict[str, object] = {
        "id": "msg_0123456789abcdef",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
    }
    message |= {"content": [], "stop_reason": None, "usage": {"input_tokens": 60, "output_tokens": 1}}
    events = [
        event("message_start", message=message),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("ping"),
    ]
    events += [
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in list(_words())[6:]
    ]
    events += [
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": FRAMES}),
        event("message_stop"),
    ]
    limits = [
        f"anthropic-ratelimit-{kind}-{part}: {value}"
        for kind in ("requests", "tokens", "input-tokens", "output-tokens")
        for part, value in (("limit", "4000"), ("remaining", "@@@@"), ("reset", "2023-11-14T22:13:21Z"))
    ]
    return Traffic(
        "anthropic stream",
        "api.anthropic.com",
        _request("/v1/messages", "api.anthropic.com", "anthropic-version: 2023-06-01", "x-api-key: of-nothing"),
        _json(
            {"model": "claude-sonnet-4-5", "max_tokens": 1024, "stream": True}
            | {"messages": [{"role": "user", "content": _QUESTION}]}
        ),
        _head(
            "HTTP/1.1 200 OK", "date: Tue, 14 Nov 2023 22:13:20 GMT", "content-type: text/event-stream; charset=utf-8",
            "transfer-encoding: chunked", "request-id: req_0123456789ab@@@@", *limits, "server: cloudflare",
            "strict-transport-security: max-age=31536000; includeSubDomains; preload",
        ),
        (*(_chunk(each) for each in events[:-1]), _chunk(events[-1]) + b"0\r\n\r\n"),
        len(events),
    )  # fmt: skip


def bedrock_stream() -> Traffic:
    """ConverseStream over AWS event streams, one message per chunk."""

    def message(name: str, payload: dict[str, object]) -> bytes:
        told = ((":event-type", name), (":content-type", "application/json"), (":message-type", "event"))
        headers = b"".join(
            bytes([len(key)]) + key.encode() + b"\x07" + len(value).to_bytes(2, "big") + value.encode()
            for key, value in told
        )
        body = _json(payload)
        start = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
        start += binascii.crc32(start).to_bytes(4, "big") + headers + body
        return start + binascii.crc32(start).to_bytes(4, "big")

    padding = "abcdefghijklmnopqrstuvwxyz"
    events = [message("messageStart", {"p": padding, "role": "assistant"})]
    events += [
        message("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": word}, "p": padding[: number % 26]})
        for number, word in enumerate(list(_words())[4:])
    ]
    used = {"inputTokens": 60, "outputTokens": FRAMES - 4, "totalTokens": FRAMES + 56}
    events += [
        message("contentBlockStop", {"contentBlockIndex": 0, "p": padding}),
        message("messageStop", {"p": padding, "stopReason": "end_turn"}),
        message("metadata", {"metrics": {"latencyMs": 4321}, "p": padding, "usage": used}),
    ]
    host = "bedrock-runtime.us-east-1.amazonaws.com"
    return Traffic(
        "bedrock stream",
        host,
        _request("/model/anthropic.claude-3-haiku-20240307-v1%3A0/converse-stream", host),
        _json({"messages": [{"role": "user", "content": [{"text": _QUESTION}]}]}),
        _head(
            "HTTP/1.1 200 OK", "Date: Tue, 14 Nov 2023 22:13:20 GMT",
            "Content-Type: application/vnd.amazon.eventstream", "Transfer-Encoding: chunked",
            "Connection: keep-alive", "x-amzn-RequestId: 01234567-89ab-cdef-0123-45678900@@@@",
        ),
        (*(_chunk(each) for each in events[:-1]), _chunk(events[-1]) + b"0\r\n\r\n"),
        len(events),
    )  # fmt: skip


def openai_json() -> Traffic:
    """A chat completion of about 1 KB, in one piece. No two of its sentences are the same."""
    said = " ".join(f"It answers with small piece {number:02}." for number in range(15))
    answer = {
        "id": "chatcmpl-0123456789abcdef", "object": "chat.completion", "created": 1_700_000_000,
        "model": "gpt-4o-2024-08-06",
        "choices": [{
            "index": 0, "logprobs": None, "finish_reason": "stop",
            "message": {"role": "assistant", "content": said, "refusal": None},
        }],
        "usage": {
            "prompt_tokens": 60, "completion_tokens": 96, "total_tokens": 156,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        },
        "service_tier": "default", "system_fingerprint": "fp_0123456789",
    }  # fmt: skip
    body = _json(answer)
    return Traffic(
        "openai json",
        "api.openai.com",
        _request("/v1/chat/completions", "api.openai.com", "Authorization: Bearer of-nothing"),
        _json({"model": "gpt-4o", "messages": [{"role": "user", "content": _QUESTION}]}),
        _head("HTTP/1.1 200 OK", "content-type: application/json", f"content-length: {len(body)}", *_CHAT_LINES),
        (body,),
        1,
    )


# ---------------------------------------------------------------- the analyst


class _Unasked:
    """Neither embedder nor validator."""

    ready = False

    languages = None

    def admit(self, exchange: Exchange) -> str | None:
        return "budget"

    async def score(self, exchange: Exchange) -> Relevance:
        return Relevance(False)

    async def judge(self, tasks: Sequence[ValidationTask]) -> Sequence[Judgement]:
        return ()


Taker = Callable[[float], object]
Key = str | tuple[str, ...]


class _Dropped(dict[Key, Taker]):
    """Meters and exporter in one, that drop what they are told."""

    def __missing__(self, key: Key) -> Taker:
        self[key] = taker = bool
        return taker

    def record(self, reading: Reading, trace_id: str | None = None) -> None:
        pass

    def record_all(self, readings: Iterable[Reading], extra: tuple[str, ...] = (), trace_id: str | None = None) -> None:
        pass

    def meters(self, place: Place, extra: tuple[str, ...] = (), trace_id: str | None = None) -> Meters:
        return self


class _Listed(_Dropped):
    """Keeps what it is told, exchange by exchange."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Place, list[tuple[Key, float]]]] = []
        self.others: list[Reading] = []

    def __missing__(self, key: Key) -> Taker:
        return lambda value: self.told[-1][1].append((key, value))

    def record_all(self, readings: Iterable[Reading], extra: tuple[str, ...] = (), trace_id: str | None = None) -> None:
        self.others += readings

    def meters(self, place: Place, extra: tuple[str, ...] = (), trace_id: str | None = None) -> Meters:
        self.told.append((place, []))
        return self

    def tell(self, exporter: Exporter) -> None:
        for place, told in self.told:
            meters = exporter.meters(place)
            for key, value in told:
                meters[key](value)
        exporter.record_all(self.others)


def analyst_of(traffic: Traffic, exporter: Exporter | None = None) -> Analyst:
    """An analyst with one route, and a registry of its own unless an exporter is given."""
    clock = SystemClock()
    route = AnalysedRoute(RouteFacts(traffic.name, traffic.host))
    unasked = _Unasked()
    return Analyst(
        rules(),
        {traffic.name: route},
        exporter if exporter is not None else PrometheusExporter((), 300.0, 5000, clock),
        Ledger(LEDGER),
        lambda record: None,
        unasked,
        unasked,
        clock,
    )


def rules() -> Rules:
    return Rules(DIALECTS, new_digest=digest_of("sha256", b""))


def worker() -> Worker:
    return Worker(lambda batches, ended: None)


def batches(traffic: Traffic, exchanges: int) -> list[bytes]:
    """Encoded batches of BATCH events, `exchanges` after one another."""
    events = [event for number in range(exchanges) for event in traffic.events(number)]
    return [encode_events(events[at : at + BATCH]) for at in range(0, len(events), BATCH)]


# ---------------------------------------------------------------- measuring


def timed(work: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def per_exchange(traffic: Traffic, exchanges: int, rounds: int) -> tuple[float, float]:
    """CPU seconds of one exchange, all in: the median of the rounds, and the best one."""
    encoded = batches(traffic, exchanges)
    analyst, told_by = analyst_of(traffic), worker()

    def take_all() -> None:
        for batch in encoded:
            analyst.take(told_by, decode_events(batch))

    take_all()
    spent = [timed(take_all) / exchanges for _ in range(rounds)]
    return median(spent), min(spent)


STAGES = ("decode", "begin", "bytes", "end", "readings", "record")


def by_stage(traffic: Traffic, exchanges: int, rounds: int) -> dict[str, float]:
    """CPU seconds of one exchange by stage; the medians of each, which need not add up to the whole.

    `decode` is the batch, `begin` the heads, `bytes` the bodies, `end` the record, `readings` what it is measured by
    and the ledger, `record` the registry.
    """
    found = [_stages(traffic, exchanges) for _ in range(rounds)]
    return {stage: median(each[stage] for each in found) / exchanges for stage in STAGES}


def _stages(traffic: Traffic, exchanges: int) -> dict[str, float]:
    encoded = batches(traffic, exchanges)
    spent = {"decode": timed(lambda: [decode_events(batch) for batch in encoded])}
    route, how = RouteFacts(traffic.name, traffic.host), rules()
    told = [traffic.events(number) for number in range(exchanges)]
    heads = [(events[0], events[2]) for events in told]
    bodies = [[event for event in events if isinstance(event, BytesSeen)] for events in told]
    ends = [events[-1] for events in told]
    folds: list[ExchangeFold] = []

    def begin() -> None:
        for request, response in heads:
            assert isinstance(request, RequestSeen) and isinstance(response, ResponseSeen)  # noqa: PT018
            fold = ExchangeFold("bench", request, route, how)
            fold.response_seen(response)
            folds.append(fold)

    def read() -> None:
        for fold, events in zip(folds, bodies, strict=True):
            for event in events:
                fold.bytes_seen(event)

    def end() -> None:
        for fold, event in zip(folds, ends, strict=True):
            assert isinstance(event, ExchangeEnded)
            fold.ended(event)

    spent["begin"], spent["bytes"], spent["end"] = timed(begin), timed(read), timed(end)
    analyst, told_by = analyst_of(traffic, _Dropped()), worker()
    for events in told:
        analyst.take(told_by, events[:-1])

    def finish() -> None:
        for event in ends:
            analyst.take(told_by, [event])

    spent["readings"] = max(0.0, timed(finish) - spent["end"])
    listed = _Listed()
    listening = analyst_of(traffic, listed)
    for events in told:
        listening.take(told_by, events)
    exporter = PrometheusExporter((), 300.0, 5000, SystemClock())

    listed.tell(exporter)  # makes the series
    spent["record"] = timed(lambda: listed.tell(exporter))
    return spent


def memory_per_open(traffic: Traffic) -> tuple[float, int]:
    """Bytes that one exchange holds shortly before its end, and how many of them are its kept text and request."""
    analyst, told_by = analyst_of(traffic), worker()
    analyst.take(told_by, traffic.events(-1))
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(OPEN):
        for batch in _one_by_one(traffic.events(number)[:-1]):
            analyst.take(told_by, decode_events(batch))
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    text = sum(map(len, list(_words()))) if len(traffic.pieces) > 1 else len(traffic.pieces[0])
    return (after - before) / OPEN, text + len(traffic.request_body)


def _one_by_one(events: list[Event]) -> Iterator[bytes]:
    for at in range(0, len(events), BATCH):
        yield encode_events(events[at : at + BATCH])


# ---------------------------------------------------------------- the table


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints tables in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.analyst", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="rounds, of which medians are taken")
    parser.add_argument("--only", default="", metavar="NAME", help="traffic whose name holds NAME")
    given = parser.parse_args(arguments)
    # As the analyst process sets it.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    streams = [openai_stream(), anthropic_stream(), bedrock_stream()]
    kinds = [*streams, *(recut(stream, LARGE_READ) for stream in streams), openai_json()]
    kinds = [traffic for traffic in kinds if given.only in traffic.name]
    heads = ("frames/s", "exchanges/s", "best frames/s", "µs/exchange", *STAGES, "KiB open", "of it text")
    lines = [f"| traffic | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    for traffic in kinds:
        exchanges = 1000 if traffic.frames == 1 else 20
        whole, best = per_exchange(traffic, exchanges, given.rounds)
        stages = by_stage(traffic, exchanges, given.rounds)
        held, text = memory_per_open(traffic)
        cells = [
            traffic.name, f"{traffic.frames / whole:,.0f}", f"{1.0 / whole:,.0f}", f"{traffic.frames / best:,.0f}",
            f"{whole * 1e6:.1f}",
            *(f"{stages[stage] * 1e6:.1f}" for stage in STAGES),
            f"{held / 1024:.1f}", f"{text / 1024:.1f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
