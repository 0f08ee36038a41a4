"""The response of one exchange while it runs: bytes → frames → what was said, and when."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from math import inf
from operator import sub
from typing import TypeGuard

from msgspec import Struct

from collector import catalogue
from collector.analyst.accumulate import NewDigest, Rhythm, Room, TextSum, well_formed
from collector.analyst.correction import correction_ratio
from collector.analyst.shape import Shape, shape_of
from collector.dialects.response_id import response_id
from collector.model import (
    MAX_CALLS,
    MAX_CHOICES,
    BytesSeen,
    Choice,
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
    Sources,
    TextFact,
    TextFacts,
    TextPiece,
    TextSource,
    ToolCall,
    ToolCallFact,
    ToolPiece,
    WireError,
)
from collector.wire.content_coding import ContentDecoder
from collector.wire.eventstream import EventStreamCodec
from collector.wire.json_array import JsonArrayCodec
from collector.wire.length_prefixed import LengthPrefixedCodec
from collector.wire.ndjson import NdjsonCodec
from collector.wire.opaque import OpaqueCodec
from collector.wire.sniff import STREAMS, Sniffer, Transport
from collector.wire.sse import SseCodec
from collector.wire.transfer import Dechunker
from collector.wire.websocket import WebSocketCodec, deflate_context
from collector.wire.whole import WholeCodec

MAX_NAME = 128  # characters of a tool's name
MAX_WORD = 64  # and of the word for a finish
MAX_MODEL = 256  # and of a model's name; one that is longer is none
MAX_FRAME = 16 * 1024 * 1024  # bytes of one line, element or binary frame
MAX_LIMITS = 16  # rate limits that a body tells
MAX_SOURCES = 64  # texts that an answer cites, and as many that the provider retrieved
MAX_SOURCE_CHARS = 65_536  # of all of them together, of either kind
HELD = 32  # reads of a stream of plain text that are read together
MAX_SHAPES = 4  # looked for in one stream: where something else in it changes each time, none will do
HELD_SIZE = 1024  # bytes of a read that waits for others
_GIVEN_UP = frozenset({"event_over_cap", "frame_over_cap", "encoding_broken", "decompress_over_cap"})


_ONE = frozenset({0})  # the only choice of most answers
_NO_HEAD = ResponseHead(0, Headers())
_STILL = Rhythm()  # of what is no stream: nothing beats in it


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


class Body:
    """One direction's bytes: transfer coding and content coding off, counted.

    Where no content coding is on (`is_plain`), `dechunk` is all there is to do, or `whole_chunks` for several reads;
    None where the bytes are the body.
    """

    def __init__(self, headers: Headers, cap: int) -> None:
        transfer = headers.first("transfer-encoding")
        chunked = transfer is not None and transfer.lower().rstrip().endswith("chunked")
        self._dechunker = Dechunker() if chunked else None
        self.dechunk = None if self._dechunker is None else self._dechunker.feed
        self.whole_chunks = None if self._dechunker is None else self._dechunker.whole_chunks
        codings = headers.all("content-encoding")
        self._decoder = ContentDecoder(codings, cap) if codings else None
        self.is_plain = self._decoder is None or self._decoder.plain
        self.size = 0

    def feed(self, data: bytes) -> Iterable[bytes]:
        if self.dechunk is not None:
            data = self.dechunk(data)
        self.size += len(data)
        if not data:
            return ()
        return (data,) if self._decoder is None else self._decoder.feed(data)

    @property
    def stopped(self) -> bool:
        """Whether the rest is passed by, since its content coding cannot be taken off."""
        return self._decoder is not None and self._decoder.stopped

    @property
    def bursts(self) -> bool:
        """Whether more came out of its coding than may; what came before is part of a bomb."""
        return self._decoder is not None and "decompress_over_cap" in self._decoder.anomalies

    @property
    def broken(self) -> bool:
        return self._dechunker is not None and self._dechunker.broken

    @property
    def anomalies(self) -> list[str]:
        words = [] if self._decoder is None else list(self._decoder.anomalies)
        return [*words, "framing_broken"] if self.broken else words


class Answer:
    """The response of one exchange while it runs."""

    def __init__(self, limits: Limits, new_digest: NewDigest, *, reads_id: bool = True) -> None:
        self._limits = limits
        self._reads_id = reads_id
        self._new_digest = new_digest
        self.head = _NO_HEAD
        self.dialect: Dialect | None = None
        self.reader: Reader | None = None
        self.transport: Transport | None = None
        self.rhythm = _STILL
        self.blocked = 0.0
        self.first_byte: float | None = None
        self.first_visible: float | None = None
        self.model: str | None = None
        self.response_id: str | None = None
        self.usage: ReportedUsage | None = None
        self.error: WireError | None = None
        self.prompt_blocked = False
        self.terminal = False
        self.phases: dict[str, float] = {}
        self.retry_after: float | None = None
        self.limits: dict[str, tuple[float, RateLimit]] = {}  # by scope, and when each was told
        self.token_start = 0.0  # from where the first token is waited for
        self.tunnelled = 0  # bytes from the client after the head
        self._client_codec: WebSocketCodec | None = None
        self._listener: Listener | None = None
        self._client_closed = self._server_closed = False
        self._asked_at: float | None = None
        self._is_asked = False  # whether an answer is asked for that has not begun
        self._last_byte = 0.0
        self._last_flowed = -inf  # the same without the time blocked up to then
        self._longest_silence = -inf  # seconds between two reads
        self._body: Body | None = None
        self._sniffer: Sniffer | None = None
        self._start = b""
        self._codec: Codec | None = None
        self._plain: tuple[FrameSource, TextSource] | None = None  # where both can read many frames at once
        self._before: tuple[str | None, int] | None = None  # name and choice of the last frame of plain text
        self._holds = False  # whether what comes next is held, as it is probably plain text too
        self._shape: Shape | None = None  # of the reads that come
        self._is_proven = False  # whether that, or that there is none, is known to hold until another frame comes
        self._shapes = 0  # that were looked for, at most MAX_SHAPES
        self._held: list[BytesSeen] = []  # of the body, waiting to be read together; at most HELD
        self._texts: dict[int, TextSum] = {}
        self._spoken, self._called = Room(limits.text), Room(limits.text)  # for all choices; for all calls' arguments
        self._repeats: dict[int, str | None] = {}  # None: more than is kept
        self._repeated = 0  # characters of them
        self._finish: dict[int, str] = {}
        self._refusals: dict[int, int] = {}
        self._reasoning: dict[int, int] = {}
        self._quoted: dict[str, None] = {}
        self._retrieved: dict[str, None] = {}
        self._choices = 0
        self._calls: dict[tuple[int, int], tuple[str | None, TextSum]] = {}
        self._data = self._comments = self._pings = self._malformed = self._content = 0
        self._done = False
        self._streamed = False
        self._bodiless = False
        self._utf8: codecs.IncrementalDecoder | None = None
        self._odd: list[str] = []

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
        """Bytes of the body. Where a stream is plain text, HELD reads are read together."""
        if self._holds:
            held = self._held
            held.append(event)
            if len(held) >= HELD or len(event.data) > HELD_SIZE:
                self._read_held()
        else:
            self._read(event.data, event.at)

    def client_blocked(self, seconds: float) -> None:
        """The client did not read for so long, after what came before."""
        self._read_held()
        self.blocked += seconds

    def _read_held(self) -> None:
        """Reads what is held: together as far as each read is one frame of plain text, then one by one."""
        held = self._held
        if not held:
            return
        self._held = []
        taken = self._read_together([event.data for event in held], [event.at for event in held])
        self._holds = taken == len(held)
        for event in held[taken:]:
            self._read(event.data, event.at)

    def _read_together(self, reads: list[bytes], times: list[float]) -> int:
        """How many of the reads, from the first, were frames of plain text. To these it does what `_read` does to each,
        for a fraction of its cost."""
        if self._body is None:
            return 0
        texts: list[str] = []
        shape = self._shape if self._is_proven else self._prove_shape(self._body, reads[0])
        if shape is not None:
            texts, size = shape.texts(reads)
            self._body.size += size
        if not texts:
            bodies = reads if self._body.whole_chunks is None else self._body.whole_chunks(reads)
            texts = self._tell(bodies)
            self._body.size += sum(map(len, bodies[: len(texts)]))
        count = len(texts)
        if not count:
            return 0
        self._data += count
        self._content += count
        flowed = [at - self.blocked for at in times[:count]] if self.blocked else times[:count]
        gaps = list(map(sub, flowed, [self._last_flowed, *flowed]))
        silence = max(gaps)
        if silence > self._longest_silence:
            self._longest_silence = max(0.0, silence)
        self._last_byte, self._last_flowed = times[count - 1], flowed[-1]
        self.rhythm.beats(flowed, gaps)
        self._texts[0].add_all(texts)
        return count

    def _prove_shape(self, body: Body, read: bytes) -> Shape | None:
        """The shape that this read and those after it probably have; the last one, if it still holds."""
        bodies = [read] if body.whole_chunks is None else body.whole_chunks([read])
        self._is_proven = True
        if bodies and (self._shape is None or not self._shape.is_told(self._tell)):
            self._shape = None
            texts = self._tell(bodies) if self._shapes < MAX_SHAPES else []
            if texts:
                self._shapes += 1
                self._shape = shape_of(read, bodies[0], texts[0], self._limits.event, self._tell)
        return self._shape if bodies else None

    def _tell(self, bodies: list[bytes]) -> list[str]:
        """The texts of the first of these, as far as each is an event of plain text. Nothing of them is remembered."""
        if self._plain is None or self._before is None:
            return []
        codec, reader = self._plain
        return reader.texts(codec.payloads(bodies, self._before[0]))

    def _read(self, data: bytes, at: float) -> None:
        self._is_proven = False
        body, codec = self._body, self._codec
        if body is None:
            return
        flowed = at - self.blocked
        if flowed - self._last_flowed > self._longest_silence:
            self._silence(at, flowed - self._last_flowed)
        self._last_byte, self._last_flowed = at, flowed
        if codec is not None and body.is_plain:
            part = data if body.dechunk is None else body.dechunk(data)
            body.size += len(part)
            for frame in codec.feed(part) if part else ():
                self._frame(frame, at)
            return
        for part in body.feed(data):
            if self._codec is None:
                self._start += part
                self._decide(at, ended=False)
            else:
                for frame in self._codec.feed(part):
                    self._frame(frame, at)

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
        if self._sniffer is not None and self._codec is None:
            self._decide(came, ended=True)
        if self._codec is not None:
            for frame in self._codec.close():
                if self.transport != "json" or self._body is None or not self._body.bursts:
                    self._frame(frame, came)

    # ------------------------------------------------------------ reading

    def _decide(self, at: float, ended: bool) -> None:
        if self._sniffer is None:
            return
        found = self._sniffer.decide(self._start, ended)
        if found is None:
            return
        if self._sniffer.mismatch and self._start:
            self._odd.append("content_type_mismatch")
        self._open(found)
        start, self._start = self._start, b""
        if start and self._codec is not None:
            for frame in self._codec.feed(start):
                self._frame(frame, at)

    def _open(self, transport: Transport) -> None:
        self.transport = transport
        self._streamed = transport in STREAMS
        if self._streamed:
            self.rhythm = Rhythm(self._limits.stall, self._limits.token_deadline)
        frame_cap = min(self._limits.body, MAX_FRAME)
        match transport:
            case "sse":
                self._codec = SseCodec(self._limits.event)
            case "json":
                self._codec = WholeCodec(self._limits.body)
            case "ndjson":
                self._codec = NdjsonCodec(frame_cap)
            case "json_array":
                self._codec = JsonArrayCodec(frame_cap)
            case "eventstream":
                self._codec = EventStreamCodec(frame_cap)
            case "length_prefixed":
                self._codec = LengthPrefixedCodec(frame_cap)
            case "websocket":
                self._open_websocket(frame_cap)
            case "opaque":
                self._codec = OpaqueCodec()
        if isinstance(self._codec, SseCodec | EventStreamCodec) and self._body is not None and self._body.is_plain:
            reader = self.reader
            self._plain = (self._codec, reader) if _reads_texts(reader) else None

    def _open_websocket(self, cap: int) -> None:
        headers = self.head.headers
        if (headers.first("upgrade") or "websocket").lower() != "websocket":
            self._codec = OpaqueCodec()
            return
        extensions = headers.all("sec-websocket-extensions")
        self._codec = WebSocketCodec(cap, deflate_context(extensions, "server"))
        self._client_codec = WebSocketCodec(cap, deflate_context(extensions, "client"))
        self._listener = self.reader if isinstance(self.reader, Listener) else None

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
            self._take_rest(said)

    def _plain_text(self, data: bytes, at: float) -> None:
        """A frame that is text itself. A character may be cut in half between two of them."""
        self._data += 1
        self._choices = 1
        if self._utf8 is None:
            self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        text = self._utf8.decode(data)
        self._take(Delta(text=(TextPiece(0, text),)), at)

    def _take_text(self, piece: TextPiece, at: float) -> None:
        """What `_take` does with a delta that holds nothing but this."""
        self._content += 1
        if self._streamed:
            if self.first_visible is None:
                self.first_visible = at
                if self.rhythm.first is None:
                    self._first_token(at)
            self.rhythm.beat(at, self.blocked)
        kept = self._texts.get(piece.choice)
        if kept is None and self._is_followed(piece.choice):
            kept = self._texts[piece.choice] = TextSum(self._spoken, self._new_digest)
        if kept is not None:
            kept.add(piece.text)

    def _take(self, delta: Delta, at: float) -> None:
        text = delta.text
        if text or delta.reasoning or delta.tools or delta.refusal:
            self._content += 1
            if self._streamed:
                if self.rhythm.first is None:
                    self._first_token(at)
                self.rhythm.beat(at, self.blocked)
                if self.first_visible is None and (text or delta.refusal):
                    self.first_visible = at
            for piece in text:
                kept = self._texts.get(piece.choice)
                if kept is None and self._is_followed(piece.choice):
                    kept = self._texts[piece.choice] = TextSum(self._spoken, self._new_digest)
                if kept is not None:
                    kept.add(piece.text)
            if delta.reasoning or delta.refusal or delta.tools:
                self._take_others(delta)
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
            if delta.begins:
                self._begin_again(at)
            for limit in delta.limits:
                if limit.scope in self.limits or len(self.limits) < MAX_LIMITS:
                    self.limits[limit.scope] = (at, limit)
            self._take_rest(delta)

    def _begin_again(self, at: float) -> None:
        """One of several answers begins: what was before it is no gap, and no wait for a token."""
        if self.rhythm.first is None:
            self.token_start = at if self._asked_at is None else self._asked_at
        else:
            self.rhythm.rest()
        self._asked_at, self._is_asked = None, False

    def _take_rest(self, delta: Delta) -> None:
        """What few frames say."""
        if delta.malformed:
            self._malformed += 1
        if delta.ping:
            self._pings += 1
        for end in delta.finish:
            if self._is_followed(end.choice):
                self._finish[end.choice] = end.reason[:MAX_WORD]
        if delta.choices > self._choices:
            self._choices = min(delta.choices, MAX_CHOICES)
        if delta.usage is not None:
            self.usage = _merge(self.usage, delta.usage)
        for phase, seconds in delta.phases:
            self.phases[phase] = seconds
        for piece in delta.full_text:
            if self._is_followed(piece.choice):
                self._repeated += len(piece.text) - len(self._repeats.get(piece.choice) or "")
                fits = self._repeated <= self._limits.text
                self._repeats[piece.choice] = piece.text if fits else None
                self._repeated -= 0 if fits else len(piece.text)
        if delta.sources is not None:
            _keep_texts(self._quoted, delta.sources.quoted)
            _keep_texts(self._retrieved, delta.sources.retrieved)
        if delta.retry_after is not None:
            self.retry_after = delta.retry_after
        if delta.error is not None and self.error is None:
            self.error = delta.error
        self.prompt_blocked = self.prompt_blocked or delta.blocked
        self.terminal = self.terminal or delta.terminal

    def _is_followed(self, choice: int) -> bool:
        if 0 <= choice < MAX_CHOICES:
            return True
        self._many()
        return False

    def _many(self) -> None:
        if "choices_over_cap" not in self._odd:
            self._odd.append("choices_over_cap")

    def _take_others(self, delta: Delta) -> None:
        """What was generated besides text."""
        for piece in delta.reasoning:
            if self._is_followed(piece.choice):
                self._reasoning[piece.choice] = self._reasoning.get(piece.choice, 0) + len(piece.text)
        for piece in delta.refusal:
            if self._is_followed(piece.choice):
                self._refusals[piece.choice] = self._refusals.get(piece.choice, 0) + len(piece.text)
        for call in delta.tools:
            self._take_call(call)

    def _take_call(self, call: ToolPiece) -> None:
        key = (call.choice, call.index)
        known = self._calls.get(key)
        if known is None:
            if not self._is_followed(call.choice):
                return
            if len(self._calls) >= MAX_CALLS or call.index >= MAX_CALLS:
                self._many()
                return
            known = self._calls[key] = (_name(call.name), TextSum(self._called, self._new_digest))
        elif call.name is not None and known[0] is None:
            known = self._calls[key] = (_name(call.name), known[1])
        if call.arguments:
            known[1].add(call.arguments)

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
        return (
            (self._body is not None and self._body.stopped)
            or isinstance(self._codec, OpaqueCodec)
            or (self._codec is not None and not _GIVEN_UP.isdisjoint(self._codec.anomalies))
        )

    @property
    def whole(self) -> bool:
        """Whether the body ended as its dialect says it should; HTTP's own end is the caller's to know."""
        if self._body is not None and self._body.broken:
            return False
        if self._bodiless or self.unread:
            return True
        if self._utf8 is not None:
            # Text in frames has no end marker but its framing.
            return self._codec is not None and not self._codec.anomalies
        if self._streamed:
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
        words = list(self._odd)
        if self._body is not None:
            words += self._body.anomalies
        if self._codec is not None:
            words += self._codec.anomalies
        if self._client_codec is not None:
            words += self._client_codec.anomalies
        if any(not text.complete for text in self._texts.values()):
            words.append("text_over_cap")
        return words

    @property
    def shows_choices(self) -> bool:
        """Whether the body is made of choices that could say how they finished; bare pieces of text are not."""
        return self._choices > 0 or bool(self._finish)

    def _indexes(self) -> Sequence[int]:
        if self._choices <= 1 and not (self._calls or self._refusals or self._reasoning):  # most answers are one text
            said = self._texts.keys() | self._finish.keys()
            if not said - _ONE:
                return range(1 if said else self._choices)
        named = {*range(self._choices), *self._texts, *self._finish, *self._refusals, *self._reasoning}
        if self._calls:
            named.update(choice for choice, _ in self._calls)
        return sorted(named)[:MAX_CHOICES]

    def all_choices(self) -> tuple[Choice, ...]:
        found = []
        sources = Sources(tuple(self._quoted), tuple(self._retrieved))
        for index in self._indexes():
            text = self._texts.get(index)
            finish = self._finish.get(index)
            found.append(
                Choice(
                    index,
                    text.text() if text is not None else "",
                    text.complete if text is not None else True,
                    finish,
                    catalogue.ending_of(finish),
                    self._refusals.get(index, 0),
                    self._reasoning.get(index, 0),
                    sources if index == 0 else Sources(),
                )
            )
        return tuple(found)

    def all_calls(self) -> tuple[ToolCall, ...]:
        if not self._calls:
            return ()
        return tuple(
            ToolCall(choice, index, name, arguments.text(), arguments.complete)
            for (choice, index), (name, arguments) in sorted(self._calls.items(), key=lambda item: item[0])
        )

    def call_facts(self) -> tuple[ToolCallFact, ...]:
        if not self._calls:
            return ()
        facts = []
        for (choice, index), (name, arguments) in sorted(self._calls.items(), key=lambda item: item[0]):
            fact = arguments.fact()
            named = well_formed(name) if name else name
            facts.append(ToolCallFact(choice, index, named, fact.sha256, fact.chars))
        return tuple(facts)

    def text_facts(self) -> TextFacts:
        """Per choice and joined in index order; the joined hash of several is unknown where one was not kept whole."""
        if self._texts.keys() == _ONE and len(self._indexes()) == 1:
            fact = self._texts[0].fact()
            return TextFacts(fact.sha256, fact.chars, (fact,))
        facts = {index: text.fact() for index, text in sorted(self._texts.items())}
        each = tuple(facts.get(index, TextFact(None, 0)) for index in self._indexes())
        chars = sum(fact.chars for fact in facts.values())
        spoken = [fact for fact in facts.values() if fact.chars]
        if len(spoken) <= 1:
            return TextFacts(spoken[0].sha256 if spoken else None, chars, each)
        joined = None
        if self._new_digest is not None and all(text.complete for text in self._texts.values()):
            digest = self._new_digest()
            for _, text in sorted(self._texts.items()):
                digest.update(text.text().encode())
            joined = digest.hexdigest()
        return TextFacts(joined, chars, each)

    def correction(self) -> float | None:
        """Share of characters that differ between what was streamed and what was repeated; None where unknown."""
        if not self._repeats:
            return None
        pairs = []
        for choice, repeated in self._repeats.items():
            streamed = self._texts.get(choice)
            if repeated is None or (streamed is not None and not streamed.complete):
                return None
            pairs.append((streamed.text() if streamed is not None else "", well_formed(repeated)))
        return correction_ratio(pairs)

    def frame_counts(self) -> FrameCounts:
        framed = self._streamed and not isinstance(self._codec, OpaqueCodec)
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


def _name(told: str | None) -> str | None:
    return told[:MAX_NAME] if told is not None else None


def dialect_of(request: RequestHead, response: ResponseHead, dialects: Sequence[Dialect]) -> Dialect:
    """The dialect that the route names, else the first that speaks so. The last one, `unknown`, speaks anything."""
    for dialect in dialects:
        if request.dialect == dialect.name or (request.dialect is None and dialect.speaks(request, response)):
            return dialect
    return dialects[-1]


def _keep_texts(kept: dict[str, None], more: Iterable[str]) -> None:
    """Adds texts in their order and once each, as far as there is room."""
    room = MAX_SOURCE_CHARS - sum(map(len, kept))
    for text in more:
        if text in kept or len(kept) >= MAX_SOURCES or len(text) > room:
            continue
        kept[text] = None
        room -= len(text)


def _merge(old: ReportedUsage | None, new: ReportedUsage) -> ReportedUsage:
    """Usage is a snapshot: the last non-null value of each field (never a sum)."""
    if old is None:
        return new
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
