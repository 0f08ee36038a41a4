"""Each attempt of the corpus has its one outcome, whole and cut anywhere, by what a second parser reads behind us."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

import h11
import pytest

from collector.config import Route

from .smuggling import (
    GET,
    KINDS,
    MAX_CUT,
    REPLIES,
    SECOND,
    Attempt,
    BrokenOff,
    Forwarded,
    Given,
    Reading,
    Refused,
    Reply,
)

AFTER = b"GET /after HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
AT_ONCE = 64  # connections
END = b"\r\n\r\n"
PATIENCE = 10.0  # seconds
PAUSE = 0.02  # seconds between two pieces, so that they are read apart
FRAMING_LINES = re.compile(rb"\r\n(?:content-length|transfer-encoding):", re.IGNORECASE)
SINGLE_LINE_END = re.compile(rb"(?<!\r)\n|\r(?!\n)")


class Recorder:
    """An upstream that reads every connection with h11, answers each whole request, and keeps what it read."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.hosts: set[bytes] = set()
        self.heads: list[bytes] = []

    async def serve(self, peer: Any) -> None:
        reader = h11.Connection(h11.SERVER)
        request, body, data = None, b"", b" "
        while True:
            try:
                event = reader.next_event()
            except h11.RemoteProtocolError as error:
                if data:  # else it only ended too early
                    raise AssertionError("h11 refuses what was forwarded") from error
                return
            if event is h11.NEED_DATA:
                data = await peer.reader.read(65536)
                reader.receive_data(data)
            elif isinstance(event, h11.Request):
                request, body = event, b""
                self.hosts.update(value for name, value in event.headers if name == b"host")
                self.heads.append(b"".join(b"\r\n%b: %b" % line for line in event.headers.raw_items()))
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                self.readings.append(Reading(request.method, request.target, bytes(body)))
                await peer.send(reader.send(h11.Response(status_code=200, headers=[("Content-Length", "0")])))
                reader.send(h11.EndOfMessage())
                if reader.our_state is not h11.DONE:
                    return
                reader.start_next_cycle()
            else:
                return


async def _statuses(side: Any, pieces: Sequence[bytes]) -> list[bytes]:
    """Those of what is answered until the sidecar closes the connection."""
    peer = await side.dial()
    try:
        await peer.send(*pieces, pause=PAUSE)
        answer = await peer.everything()
    finally:
        peer.close()
    return re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", answer)


def _expected(attempt: Attempt) -> tuple[list[bytes], list[Reading]]:
    """The statuses that the client sees, and what the upstream reads."""
    match attempt.outcome:
        case Refused(status):
            return [b"%d" % status], []
        case BrokenOff():
            return [b"400"], []
        case Forwarded(readings, closes):
            read = [*readings, *([] if closes else [Reading(b"GET", b"/after")])]
            return [b"200"] * len(read), read


async def _few_at_once(tries: Iterable[Awaitable[None]]) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(each: Awaitable[None]) -> None:
        async with room:
            await each

    await asyncio.gather(*map(one, tries))


async def _each_has_its_outcome(side: Any, tries: Sequence[tuple[Attempt, Sequence[bytes]]]) -> None:
    """All tries share one pool, so that what one of them left behind would be read as another's."""
    recorder = Recorder()
    upstream = await side.serve(recorder.serve)
    surprises: list[tuple[str, Sequence[bytes], list[bytes]]] = []
    should_be_read: Counter[Reading] = Counter()

    async def one(attempt: Attempt, pieces: Sequence[bytes]) -> None:
        statuses, readings = _expected(attempt)
        should_be_read.update(readings)
        try:
            seen = await _statuses(side, pieces)
        except (TimeoutError, ConnectionError) as error:
            seen = [type(error).__name__.encode()]
        if seen != statuses:
            surprises.append((attempt.name, pieces, seen))

    await _few_at_once(one(*each) for each in tries)
    assert surprises == []
    assert Counter(recorder.readings) == should_be_read
    assert recorder.hosts <= {b"127.0.0.1:%d" % upstream.port}
    assert [head for head in recorder.heads if len(FRAMING_LINES.findall(head)) > 1] == []
    assert [head for head in recorder.heads if SINGLE_LINE_END.search(head)] == []
    assert side.balance()[0] == side.balance()[1]
    if all(isinstance(attempt.outcome, Refused) for attempt, _ in tries):
        assert upstream.connections == []


def _cuts(raw: bytes) -> range:
    """Every place, but for the beginning that most attempts share."""
    shared = len(GET) - 2 if raw.startswith((GET, b"POST / HTTP/1.1\r\nHost: a\r\n")) else 1
    return range(shared, len(raw))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_attempt_that_comes_whole_has_its_one_outcome(side: Any, kind: str) -> None:
    await _each_has_its_outcome(side, [(attempt, (attempt.raw + AFTER,)) for attempt in KINDS[kind]])


@pytest.mark.parametrize("kind", KINDS)
async def test_an_attempt_that_is_refused_reaches_no_upstream(side: Any, kind: str) -> None:
    refused = [attempt for attempt in KINDS[kind] if isinstance(attempt.outcome, Refused)]
    await _each_has_its_outcome(side, [(attempt, (attempt.raw + AFTER,)) for attempt in refused])


@pytest.mark.parametrize("kind", KINDS)
async def test_an_attempt_that_is_cut_at_any_byte_has_the_same_outcome(side: Any, kind: str) -> None:
    tries = [
        (attempt, (attempt.raw[:at], attempt.raw[at:] + AFTER))
        for attempt in KINDS[kind]
        if len(attempt.raw) <= MAX_CUT
        for at in _cuts(attempt.raw)
    ]
    await _each_has_its_outcome(side, tries)


async def test_the_path_of_an_upstream_is_a_prefix_and_no_fence(side: Any) -> None:
    """What dot segments mean is the upstream's to say: they pass as they are, to that upstream alone."""
    recorder = Recorder()
    upstream = await side.upstream(recorder.serve)
    await side.start(routes=(Route(name="a", upstream=f"http://127.0.0.1:{upstream.port}/base", prefix="/a"),))
    for target in (b"/a/../x", b"/a/%2e%2e/x", b"/a//x", b"/a/..;/x"):
        await side.ask(b"GET %b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % target)
    for target in (b"/../a/x", b"/./a/x", b"//a/x", b"/A/x", b"/%61/x", b"/a%2fx", b"/ab"):
        answer = await side.ask(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target)
        assert answer.startswith(b"HTTP/1.1 404 ")
    targets = [reading.target for reading in recorder.readings]
    assert targets == [b"/base/../x", b"/base/%2e%2e/x", b"/base//x", b"/base/..;/x"]


def test_the_corpus_names_each_attempt_once() -> None:
    names = [attempt.name for kind in KINDS.values() for attempt in kind] + [reply.name for reply in REPLIES]
    assert len(set(names)) == len(names) > 200


# ---------------------------------------------------------------- answers


def _end(reply: Reply) -> int:
    """Where the answer that the client is given ends."""
    has_no_body = reply.method == b"HEAD" or reply.outcome in (Given(204), Given(304))
    return reply.raw.find(END) + len(END) if has_no_body else len(reply.raw.removesuffix(SECOND))


class Replies:
    """An upstream that answers `/N/AT` with the Nth reply, cut at AT, and `/next` with three bytes of its own."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.replies = replies

    async def serve(self, peer: Any) -> None:
        while True:
            word = (await peer.head()).split()[1].strip(b"/")
            if word == b"next":
                await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown")
                continue
            number, at = map(int, word.split(b"/"))
            reply = self.replies[number]
            await peer.send(*filter(None, (reply.raw[:at], reply.raw[at:])), pause=PAUSE)
            if reply.closes:
                return


async def _read(peer: Any, method: bytes, target: bytes) -> tuple[int, bytes] | None:
    """Status and body of an answer as h11 reads them; None where it is cut short."""
    reader = h11.Connection(h11.CLIENT)
    await peer.send(reader.send(h11.Request(method=method, target=target, headers=[("Host", "a")])))
    reader.send(h11.EndOfMessage())
    status, body, data = 0, b"", b" "
    while True:
        try:
            event = reader.next_event()
            if event is h11.NEED_DATA:
                data = await asyncio.wait_for(peer.reader.read(65536), PATIENCE)
                reader.receive_data(data)
                continue
        except ConnectionError:
            return None
        except h11.RemoteProtocolError as error:
            if data:  # else it only ended too early
                raise AssertionError("h11 refuses what the client was given") from error
            return None
        if isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return status, bytes(body)


@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "cut"])
async def test_an_answer_is_read_in_one_way_and_the_next_one_is_its_own(side: Any, is_cut: bool) -> None:
    await side.serve(Replies(REPLIES).serve)
    surprises: list[tuple[str, int, object]] = []

    async def one(number: int, at: int) -> None:
        reply = REPLIES[number]
        peer = await side.dial()
        read = await _read(peer, reply.method, b"/%d/%d" % (number, at))
        is_expected = (
            read == tuple(reply.outcome) if isinstance(reply.outcome, Given) else read is None or read[0] == 502
        )
        if not is_expected:
            surprises.append((reply.name, at, read))
        peer.close()
        answer = await side.ask(b"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        if not answer.endswith(b"\r\n\r\nown"):
            surprises.append((reply.name, at, answer))

    def places(reply: Reply) -> Sequence[int]:
        if not is_cut:
            return [0]
        if len(reply.raw) > MAX_CUT:
            return [len(reply.raw) // 2]
        # What comes later than a whole answer may come after the next request: then it is an answer to that.
        return [at for at in range(1, len(reply.raw)) if at != _end(reply)]

    await _few_at_once(one(number, at) for number, reply in enumerate(REPLIES) for at in places(reply))
    assert surprises == []
