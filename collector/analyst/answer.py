"""The response of one exchange while it runs: bytes → frames → what was said, and when."""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import inf
from operator import sub
from typing import TypeGuard

from msgspec import Struct

from collector.analyst.accumulate import NewDigest, Rhythm
from collector.analyst.body import Body
from collector.analyst.said import Said
from collector.analyst.shape import Shape, shape_of
from collector.dialects.response_id import response_id
from collector.model import (
    BytesSeen,
    Codec,
    Delta,
    Dialect,
    Frame,
    FrameCounts,
    FrameSource,
    Headers,
    Listener,
    RateLimit,
    Reader,
    ReportedUsage,
    RequestFacts,
    RequestHead,
    ResponseHead,
    ResponseSeen,
    TextPiece,
    TextSource,
    WireError,
)
from collector.wire.eventstream import EventStreamCodec
from collector.wire.json_array import JsonArrayCodec
from collector.wire.length_prefixed import LengthPrefixedCodec
from collector.wire.ndjson import NdjsonCodec
from collector.wire.opaque import OpaqueCodec
from collector.wire.sniff import STREAMS, Sniffer, Transport
from collector.wire.sse import SseCodec
from collector.wire.websocket import WebSocketCodec, deflate_context
from collector.wire.whole import WholeCodec

MAX_MODEL = 256  # characters of a model's name; one that is longer is none
MAX_FRAME = 16 * 1024 * 1024  # bytes of one line, element or binary frame
MAX_LIMITS = 16  # rate limits that a body tells
HELD = 32  # reads of a stream of plain text that are read together
HELD_SIZE = 16 * 1024  # bytes of reads that wait for others; a read that passes it is the last
TOGETHER = 64  # events of plain text that are decoded together
MAX_SHAPES = 4  # looked for in one stream: where something else in it changes each time, none will do
_GIVEN_UP = frozenset({"event_over_cap", "frame_over_cap", "encoding_broken", "decompress_over_cap"})


_NO_HEAD = ResponseHead(0, Headers())
_STILL = Rhythm()  # of what is no stream: nothing beats in it
_NONE_TOLD: Mapping[str, float] = {}
_NO_LIMITS: Mapping[str, tuple[float, RateLimit]] = {}


class Limits(Struct, frozen=True):
    """How much of an exchange is read. Bytes, seconds."""

    stall: float = 1.0
    first_token_deadline: float = 1.0
    token_deadline: float = 0.1
    text: int = 256 * 1024
    request: int = 4 * 1024 * 1024
    body: int = 16 * 1024 * 1024
    event: int = 4 * 1024 * 1024
    decoded: int = 256 * 1024 * 1024


class Answer:
    """The response of one exchange while it runs."""

    # What most answers leave as it is and seldom ask stands here once, not in each of them.
    head = _NO_HEAD
    dialect: Dialect | None = None
    reader: Reader | None = None
    rhythm = _STILL
    first_visible: float | None = None
    response_id: str | None = None
    prompt_blocked = False
    phases: Mapping[str, float] = _NONE_TOLD  # in seconds
    retry_after: float | None = None
    limits: Mapping[str, tuple[float, RateLimit]] = _NO_LIMITS  # by scope, and when each was told
    token_start = 0.0  # from where the first token is waited for
    tunnelled = 0  # bytes from the client after the head
    _client_codec: WebSocketCodec | None = None
    _listener: Listener | None = None
    _client_closed = _server_closed = False
    _asked_at: float | None = None
    _is_asked = False  # whether an answer is asked for that has not begun
    _last_byte = 0.0
    _body: Body | None = None
    _sniffer: Sniffer | None = None
    _is_passed_by = False  # whether nothing of the body is read
    _plain: tuple[FrameSource, TextSource] | None = None  # where both can read many frames at once
    _before: tuple[str | None, int] | None = None  # name and choice of the last frame of plain text
    _shape: Shape | None = None  # of the reads that come
    _is_proven = False  # whether that, or that there is none, is known to hold until another frame comes
    _shapes = 0  # that were looked for, at most MAX_SHAPES
    _comments = _pings = _malformed = 0
    _done = False
    _bodiless = False
    _utf8: codecs.IncrementalDecoder | None = None
    _is_mislabelled = False  # whether the bytes are not what the head says

    def __init__(self, limits: Limits, new_digest: NewDigest, *, reads_id: bool = True) -> None:
        self._limits = limits
        self._reads_id = reads_id
        self.said = Said(limits.text, new_digest)
        self.transport: Transport | None = None
        self.is_stream = False
        self.blocked = 0.0
        self.first_byte: float | None = None
        self.model: str | None = None
        self.usage: ReportedUsage | None = None
        self.error: WireError | None = None
        self.terminal = False
        self._last_flowed = -inf  # when the last byte came, without the time blocked up to then
        self._longest_silence = -inf  # seconds between two reads
        self._start = b""
        self._codec: Codec | None = None
        self._data = self._content = 0
        self._holds = False  # whether what comes next is held, as it is probably plain text too
        self._held: list[BytesSeen] = []  # of the body, waiting to be read together; at most HELD
        self._held_size = 0  # bytes in these

    # ------------------------------------------------------------ events

    def begin(self, request: RequestHead, head: ResponseHead, event: ResponseSeen, dialects: Sequence[Dialect]) -> None:
        self.head = head
        self.token_start = event.forwarded_at
        self.dialect = dialect_of(request, head, dialects)
        self.reader = self.dialect.reader(request, head)
        self._body = Body(head.headers, self._limits.decoded)
        self._sniffer = Sniffer(head, request.path)
        if request.method == "HEAD" or head.status in (204, 304):
            self._bodiless = True
            self._open(self._sniffer.decide(b"", ended=True) or "opaque")
        elif self._sniffer.fixed is not None:
            self._open(self._sniffer.fixed)

    def bytes_seen(self, event: BytesSeen) -> None:
        """Bytes of the body. Where a stream is plain text, what comes is read together."""
        if self._holds:
            held = self._held
            held.append(event)
            self._held_size += len(event.data)
            if len(held) >= HELD or self._held_size > HELD_SIZE:
                self._read_held()
        else:
            self._read(event.data, event.at)

    def client_blocked(self, seconds: float) -> None:
        """The client did not read for so long, after what came before."""
        self._read_held()
        self.blocked += seconds

    def _read_held(self) -> None:
        held, body = self._held, self._body
        if not held or body is None:
            return
        self._held, self._held_size = [], 0
        reads, times = [event.data for event in held], [event.at for event in held]
        flowed = [at - self.blocked for at in times] if self.blocked else times
        silence = max(map(sub, flowed, [self._last_flowed, *flowed]))
        if silence > self._longest_silence:
            self._longest_silence = max(0.0, silence)
        self._last_byte, self._last_flowed = times[-1], flowed[-1]
        if not body.is_plain:
            for read, at in zip(reads, times, strict=True):
                for part in body.feed(read):
                    self._take_all([part], [at], self._take_back())
            return
        waits = self._take_back()
        if waits == b"" and self._is_proven and self._shape is not None and body.is_between_chunks:
            texts, size = self._shape.texts_in_chunks(reads)
            if texts:
                body.size += size
                self._take_texts(texts, times)
                return
        self._take_all(*body.feed_all(reads, times), waits)

    def _take_back(self) -> bytes | None:
        """What the codec was fed of an event that has not ended; None where the next bytes are to be read by it."""
        return self._plain[0].take_back() if self._plain is not None and self._holds else None

    def _take_all(self, parts: list[bytes], times: list[float], waits: bytes | None) -> None:
        """Bytes of the body that came at these times, after what waits. To the same end as `_take_in` of each, for a
        fraction of its cost as far as they are events of plain text."""
        if waits is None or self._plain is None:
            self._is_proven = False
            for part, at in zip(parts, times, strict=True):
                self._take_in(part, at)
            return
        codec = self._plain[0]
        if not parts:
            self._feed(codec, waits, self._last_byte)
            return
        if waits:
            parts[0] = waits + parts[0]
        if len(parts) > 1:
            count = self._take_events(parts, times)  # most parts are one event each
            parts, times = parts[count:], times[count:]
        if not parts:
            return
        data = b"".join(parts)
        arrived = list(accumulate(map(len, parts)))
        events = codec.split(data)
        ends = list(accumulate(map(len, events)))
        came = times * len(events) if len(times) == 1 else [times[bisect_left(arrived, end)] for end in ends]
        for start in range(0, len(events), TOGETHER):
            some, at_once = events[start : start + TOGETHER], came[start : start + TOGETHER]
            count = self._take_events(some, at_once) if self._holds else 0
            self._holds = self._holds and count == len(some)
            for event, at in zip(some[count:], at_once[count:], strict=True):
                self._feed(codec, event, at)
        done = ends[-1] if ends else 0
        for end, at in zip(arrived, times, strict=True):
            if end > done:
                self._feed(codec, data[done:end], at)
                done = end

    def _feed(self, codec: Codec, data: bytes, at: float) -> None:
        for frame in codec.feed(data):
            self._is_proven = False
            self._frame(frame, at)

    def _take_events(self, events: list[bytes], times: list[float]) -> int:
        """How many of the events, from the first, were plain text. To these it does what `_frame` does to each."""
        shape = self._shape if self._is_proven else self._prove_shape(events[0])
        texts = (shape.texts(events) if shape is not None else None) or self._tell(events)
        if texts:
            self._take_texts(texts, times[: len(texts)])
        return len(texts)

    def _take_texts(self, texts: list[str], times: list[float]) -> None:
        self._data += len(texts)
        self._content += len(texts)
        self.rhythm.beats([at - self.blocked for at in times] if self.blocked else times)
        self.said.texts[0].add_all(texts)

    def _prove_shape(self, event: bytes) -> Shape | None:
        """The shape that this event and those after it probably have; the last one, if it still holds."""
        if self._shape is None or not self._shape.is_told(self._tell):
            self._shape = None
            texts = self._tell([event]) if self._shapes < MAX_SHAPES else []
            if not texts:
                return None
            self._shapes += 1
            self._shape = shape_of(event, texts[0], self._limits.event, self._tell)
        self._is_proven = True
        return self._shape

    def _tell(self, events: list[bytes]) -> list[str]:
        """The texts of the first of these, as far as each is an event of plain text. Nothing of them is remembered."""
        if self._plain is None or self._before is None:
            return []
        codec, reader = self._plain
        return reader.texts(codec.payloads(events, self._before[0]))

    def _read(self, data: bytes, at: float) -> None:
        self._is_proven = False
        body = self._body
        if body is None:
            return
        flowed = at - self.blocked
        if flowed - self._last_flowed > self._longest_silence:
            self._silence(at, flowed - self._last_flowed)
        self._last_byte, self._last_flowed = at, flowed
        if body.is_plain:
            part = data if body.dechunk is None else body.dechunk(data)
            body.size += len(part)
            self._take_in(part, at)
        else:
            for part in body.feed(data):
                self._take_in(part, at)

    def _take_in(self, part: bytes, at: float) -> None:
        """Bytes of the body, all codings off."""
        if self._codec is not None:
            for frame in self._codec.feed(part) if part else ():
                self._frame(frame, at)
        elif self._sniffer is not None:
            self._start = self._start + part if self._start else part
            found = self._sniffer.decide(self._start)
            if found is not None:
                self._begin_with(found, at)

    def _silence(self, at: float, seconds: float) -> None:
        if self.first_byte is None:
            self.first_byte = at
        else:
            self._longest_silence = max(0.0, seconds)

    def close(self, at: float) -> None:
        """The body is over, however it ended."""
        self._read_held()
        # What only the end of the body ends had come with its last byte.
        came = at if self.first_byte is None else self._last_byte
        if self._codec is None and self._sniffer is not None:
            start = self._start
            found = self._sniffer.decide(start, ended=True)
            if found == "json" and len(start) <= self._limits.body:  # most: it is whole, and needs no codec
                self._start, self.transport = b"", found
                self._is_mislabelled = self._sniffer.mismatch and bool(start)
                if start and not start.isspace() and not self._is_bomb():
                    self._frame(Frame(start), came)
                return
            if found is not None:
                self._begin_with(found, came)
        if self._codec is not None and not (self.transport == "json" and self._is_bomb()):
            for frame in self._codec.close():
                self._frame(frame, came)

    def _is_bomb(self) -> bool:
        return self._body is not None and not self._body.is_plain and self._body.bursts

    # ------------------------------------------------------------ reading

    def _begin_with(self, transport: Transport, at: float) -> None:
        """The transport is known: what came before is read."""
        codec = self._open(transport)
        start, self._start = self._start, b""
        if start:
            self._is_mislabelled = self._sniffer is not None and self._sniffer.mismatch
            for frame in codec.feed(start):
                self._frame(frame, at)

    def _open(self, transport: Transport) -> Codec:
        self.transport = transport
        if transport == "json":  # most
            self._codec = WholeCodec(self._limits.body)
            return self._codec
        if transport in STREAMS:
            self.is_stream = True
            self.rhythm = Rhythm(self._limits.stall, self._limits.token_deadline)
        codec = self._codec = self._codec_of(transport)
        self._is_passed_by = isinstance(codec, OpaqueCodec)
        if isinstance(codec, SseCodec | EventStreamCodec):
            reader = self.reader
            self._plain = (codec, reader) if _reads_texts(reader) else None
        return codec

    def _codec_of(self, transport: Transport) -> Codec:
        frame_cap = min(self._limits.body, MAX_FRAME)
        match transport:
            case "sse":
                return SseCodec(self._limits.event)
            case "ndjson":
                return NdjsonCodec(frame_cap)
            case "json_array":
                return JsonArrayCodec(frame_cap)
            case "eventstream":
                return EventStreamCodec(frame_cap)
            case "length_prefixed":
                return LengthPrefixedCodec(frame_cap)
            case "websocket":
                return self._websocket(frame_cap)
        return WholeCodec(self._limits.body) if transport == "json" else OpaqueCodec()

    def _websocket(self, cap: int) -> Codec:
        headers = self.head.headers
        if (headers.first("upgrade") or "websocket").lower() != "websocket":
            return OpaqueCodec()
        extensions = headers.all("sec-websocket-extensions")
        self._client_codec = WebSocketCodec(cap, deflate_context(extensions, "client"))
        self._listener = self.reader if isinstance(self.reader, Listener) else None
        return WebSocketCodec(cap, deflate_context(extensions, "server"))

    # ------------------------------------------------------------ the client's side of a tunnel

    @property
    def is_tunnel(self) -> bool:
        return self.transport == "websocket"

    def client_bytes(self, data: bytes, at: float) -> None:
        """What the client sends after the connection became a tunnel."""
        self.tunnelled += len(data)
        if self._client_codec is None:
            return
        for frame in self._client_codec.feed(data):
            if frame.kind == "ping":
                self._pings += 1
            elif frame.kind == "close":
                self._client_closed = not self._server_closed
            elif self._listener is not None and self._listener.hear(frame) and not self._is_asked:
                self._asked_at, self._is_asked = at, True

    @property
    def client_left(self) -> bool:
        """Whether the client closed the tunnel while it was being answered."""
        return self._client_closed and self.reader is not None and not self.reader.ended_well()

    def asked(self) -> RequestFacts | None:
        """What the client asked for over a tunnel; None where its reader does not follow the client."""
        return self._listener.asked() if self._listener is not None else None

    def _frame(self, frame: Frame, at: float) -> None:
        if frame.kind != "data":
            if frame.kind == "comment":
                self._comments += 1
            elif frame.kind == "text":
                self._plain_text(frame.data, at)
            elif frame.kind == "ping":
                self._pings += 1
            elif frame.kind == "close":
                self._closed(frame)
            return
        if self._reads_id and self._data == 0 and self.dialect is not None and self.dialect.operation:
            self.response_id = response_id(frame.data)
        delta = self.reader.read(frame) if self.reader is not None else None
        if type(delta) is TextPiece and frame.terminated:  # most
            self._data += 1
            self._take_text(delta, at)
            # Two in a row: streams of several choices, which take turns, are read one by one.
            before, self._before = self._before, (frame.event, delta.choice)
            self._holds = self._plain is not None and before == self._before == (frame.event, 0)
            return
        if isinstance(delta, TextPiece):
            delta = Delta(text=(delta,))
        if delta is None:
            self._data += frame.terminated
        elif delta.marker:
            self._done = self.terminal = True
        elif frame.terminated or not delta.malformed:
            self._data += 1
            self._take(delta, at)

    def _closed(self, frame: Frame) -> None:
        """The server closes the tunnel, or answers the client's close."""
        self._server_closed = not self._client_closed
        said = self.reader.read(frame) if self.reader is not None and self._server_closed else None
        if isinstance(said, Delta):
            self._take_rest(said, self._last_byte)

    def _plain_text(self, data: bytes, at: float) -> None:
        """A frame that is text itself. A character may be cut in half between two of them."""
        self._data += 1
        self.said.shown = 1
        if self._utf8 is None:
            self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        text = self._utf8.decode(data)
        self._take(Delta(text=(TextPiece(0, text),)), at)

    def _take_text(self, piece: TextPiece, at: float) -> None:
        """What `_take` does with a delta that holds nothing but this."""
        self._content += 1
        if self.is_stream:
            if self.first_visible is None:
                self.first_visible = at
                if self.rhythm.first is None:
                    self._first_token(at)
            self.rhythm.beat(at, self.blocked)
        kept = self.said.texts.get(piece.choice)
        if kept is not None:
            kept.add(piece.text)
        else:
            self.said.text(piece.choice, piece.text)

    def _take(self, delta: Delta, at: float) -> None:
        text = delta.text
        if text or delta.reasoning or delta.tools or delta.refusal:
            self._content += 1
            if self.is_stream:
                if self.rhythm.first is None:
                    self._first_token(at)
                self.rhythm.beat(at, self.blocked)
                if self.first_visible is None and (text or delta.refusal):
                    self.first_visible = at
            for piece in text:
                self.said.text(piece.choice, piece.text)
            if delta.reasoning or delta.refusal or delta.tools:
                self.said.others(delta)
        if delta.model is not None:
            self.model = delta.model[: MAX_MODEL + 1]
        if (
            not text
            or delta.choices
            or delta.finish
            or delta.usage is not None
            or delta.error is not None
            or delta.terminal
            or delta.full_text
            or delta.sources is not None
        ):
            self._take_rest(delta, at)

    def _begin_again(self, at: float) -> None:
        """One of several answers begins: what was before it is no gap, and no wait for a token."""
        if self.rhythm.first is None:
            self.token_start = at if self._asked_at is None else self._asked_at
        else:
            self.rhythm.rest()
        self._asked_at, self._is_asked = None, False

    def _take_rest(self, delta: Delta, at: float) -> None:
        """What few frames say."""
        said = self.said
        if delta.finish or delta.choices > said.shown:
            said.ends(delta)
        if delta.usage is not None:
            self.usage = delta.usage if self.usage is None else _merge(self.usage, delta.usage)
        if delta.terminal:
            self.terminal = True
        if delta.phases:
            self.phases = {**self.phases, **dict(delta.phases)}
        if delta.full_text:
            said.repeats(delta)
        if delta.sources is not None:
            said.sources(delta.sources)
        if delta.error is not None and self.error is None:
            self.error = delta.error
        if delta.malformed or delta.ping or delta.begins or delta.blocked:
            self._malformed += delta.malformed
            self._pings += delta.ping
            self.prompt_blocked = self.prompt_blocked or delta.blocked
            if delta.begins:
                self._begin_again(at)
        for limit in delta.limits:
            if limit.scope in self.limits or len(self.limits) < MAX_LIMITS:
                self.limits = {**self.limits, limit.scope: (at, limit)}
        if delta.retry_after is not None:
            self.retry_after = delta.retry_after

    def _first_token(self, at: float) -> None:
        waited = at - self.token_start - self.blocked
        self.rhythm.wait(waited, self._limits.first_token_deadline)

    # ------------------------------------------------------------ facts

    @property
    def max_byte_gap(self) -> float | None:
        """The longest wait between two reads, in seconds; None where there were no two."""
        return self._longest_silence if self._longest_silence >= 0.0 else None

    @property
    def body_size(self) -> int:
        return self._body.size if self._body is not None else 0

    @property
    def unread(self) -> bool:
        """Whether the body, or the rest of it, was passed by: nothing is known of its end but what HTTP says."""
        body, codec = self._body, self._codec
        return (
            self._is_passed_by
            or (body is not None and not body.is_plain and body.stopped)
            or (codec is not None and bool(codec.anomalies) and not _GIVEN_UP.isdisjoint(codec.anomalies))
        )

    def is_whole(self, unread: bool) -> bool:
        """Whether the body ended as its dialect says it should; HTTP's own end is the caller's to know."""
        if self._body is not None and self._body.dechunk is not None and self._body.broken:
            return False
        if self._bodiless or unread:
            return True
        if self._utf8 is not None:
            # Text in frames has no end marker but its framing.
            return self._codec is not None and not self._codec.anomalies
        if self.is_stream:
            return self.terminal or (self.reader is not None and self.reader.ended_well())
        if self.transport == "json" and self.head.headers.first("content-length") is None:
            return not self._malformed  # a body that only the connection's end ends
        return True

    def bare_error(self) -> WireError:
        """The error of a status without a body that says more."""
        from_body = self.reader.read(Frame(b"{}")) if self.reader is not None else None
        if isinstance(from_body, Delta) and from_body.error is not None:
            return from_body.error
        return WireError(None, None, "unclassified")

    def anomalies(self) -> list[str]:
        words = []
        if self._is_mislabelled:
            words.append("content_type_mismatch")
        if self.said.is_over:
            words.append("choices_over_cap")
        if self._body is not None:
            words += self._body.anomalies if self._body.is_coded else ()
        if self._codec is not None and self._codec.anomalies:
            words += self._codec.anomalies
        if self._client_codec is not None:
            words += self._client_codec.anomalies
        if self.said.is_cut:
            words.append("text_over_cap")
        return words

    def frame_counts(self) -> FrameCounts:
        framed = self.is_stream and not self._is_passed_by
        return FrameCounts(
            data=self._data if framed else None,
            comments=self._comments,
            pings=self._pings,
            malformed=self._malformed,
            content=self._content,
            done_marker=self._done,
        )


def _reads_texts(reader: Reader | None) -> TypeGuard[TextSource]:
    return hasattr(reader, "texts")


def dialect_of(request: RequestHead, response: ResponseHead, dialects: Sequence[Dialect]) -> Dialect:
    """The dialect that the route names, else the first that speaks so. The last one, `unknown`, speaks anything."""
    for dialect in dialects:
        if request.dialect == dialect.name or (request.dialect is None and dialect.speaks(request, response)):
            return dialect
    return dialects[-1]


def _merge(old: ReportedUsage, new: ReportedUsage) -> ReportedUsage:
    """Usage is a snapshot: the last non-null value of each field (never a sum)."""
    return ReportedUsage(
        new.input_tokens if new.input_tokens is not None else old.input_tokens,
        new.output_tokens if new.output_tokens is not None else old.output_tokens,
        new.cached_input_tokens if new.cached_input_tokens is not None else old.cached_input_tokens,
        new.cache_creation_input_tokens
        if new.cache_creation_input_tokens is not None
        else old.cache_creation_input_tokens,
        new.reasoning_tokens if new.reasoning_tokens is not None else old.reasoning_tokens,
        new.cache_write_tokens if new.cache_write_tokens is not None else old.cache_write_tokens,
    )
