"""An exchange that breaks, at any point and from either side, breaks for the other side too, and never ends well."""

from __future__ import annotations

import threading
import time

import pytest

from .stage import Heard, Stage
from .test_messages import AGAIN, OK, asking, request_of
from .wires import PATIENCE, Body, End, Ended, Head, Wire

HOW: tuple[End, ...] = ("fin", "rst")

# ---------------------------------------------------------------- the upstream breaks

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"
CUT = {
    "after the head, with a length": LENGTH,
    "in the body, with a length": LENGTH + b"0123456789",
    "before the last byte, with a length": LENGTH + b"0123456789012345678",
    "after the head, in chunks": CHUNKED,
    "in a chunk's size": CHUNKED + b"5\r\nhello\r\n1",
    "after a chunk's size": CHUNKED + b"5\r\nhello\r\n10\r\n",
    "in a chunk": CHUNKED + b"5\r\nhello\r\n10\r\nabc",
    "after a chunk's content": CHUNKED + b"5\r\nhello",
    "between chunks": CHUNKED + b"5\r\nhello\r\n",
    "after the last chunk's size": CHUNKED + b"5\r\nhello\r\n0\r\n",
    "in a trailer": CHUNKED + b"5\r\nhello\r\n0\r\nX-Sum",
    "before the last byte, in chunks": CHUNKED + b"5\r\nhello\r\n0\r\n\r",
    "after an event of a stream": CHUNKED + b'10\r\ndata: {"a": 1}\n\n\r\n',
    "after the head, without an end": CLOSE,
    "in the body, without an end": CLOSE + b"hello",
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("where", CUT)
def test_an_answer_that_breaks_off_breaks_off_so_for_the_client(stage: Stage, where: str, how: End) -> None:
    def client(wire: Wire) -> None:
        wire.send(AGAIN)
        wire.head()
        wire.rest()

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(CUT[where])
        wire.leave(how)

    heard = stage.same(client, upstream)
    assert heard.client[-1] == Ended(how)


@pytest.mark.parametrize("how", HOW)
def test_a_stream_that_breaks_off_after_its_first_write_keeps_what_had_come(stage: Stage, how: End) -> None:
    def client(wire: Wire) -> None:
        wire.send(AGAIN)
        wire.head()
        wire.take(len(b"5\r\nhello\r\n") * 3)
        wire.rest()

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(CHUNKED, *[b"5\r\nhello\r\n"] * 3, pause=0.02)
        wire.leave(how)

    stage.same(client, upstream)


NO_ANSWER = {
    "before the head": b"",
    "in the status line": b"HTTP/1.",
    "in the head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "before the head's last byte": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r",
    "after an interim answer": b"HTTP/1.1 103 Early Hints\r\n\r\n",
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("where", NO_ANSWER)
def test_an_upstream_that_leaves_without_an_answer_is_a_502_that_names_the_sidecar(
    stage: Stage, where: str, how: End
) -> None:
    """The one place where the client is told more than the wire would tell it: which of the two was lost."""
    heads: list[bytes] = []

    def client(wire: Wire) -> None:
        wire.send(AGAIN)
        heads.append(wire.response())
        wire.send(AGAIN)
        heads.append(wire.response())

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(NO_ANSWER[where])
        wire.leave(how)

    heard = stage.through(client, upstream)
    assert [head[9:12] for head in heads] == [b"502", b"502"]
    assert all(b"\r\nx-semhealth-error: upstream_failed\r\n" in head for head in heads)
    assert sum(isinstance(told, Head) for told in heard.upstream) == 2  # each request was sent once


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("size", [0, 1000])
def test_an_upstream_that_leaves_during_an_upload_is_a_502_too(stage: Stage, how: End, size: int) -> None:
    def client(wire: Wire) -> None:
        wire.send(request_of(lines=b"Content-Length: 5000\r\n", body=b"x" * size))
        head = wire.head()
        assert b"\r\nx-semhealth-error: upstream_failed\r\n" in head
        wire.body(head)
        wire.rest()

    def upstream(wire: Wire) -> None:
        wire.head()
        wire.take(size)
        wire.leave(how)

    heard = stage.through(client, upstream)
    assert heard.client[-1] == Ended("fin")


@pytest.mark.parametrize("how", HOW)
def test_an_answer_that_is_complete_is_complete_however_the_upstream_leaves(stage: Stage, how: End) -> None:
    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(OK)
        wire.leave(how)

    stage.same(asking(AGAIN), upstream)


# ---------------------------------------------------------------- the client breaks

UPLOAD_LENGTH = request_of(lines=b"Content-Length: 20\r\n")
UPLOAD_CHUNKS = request_of(lines=b"Transfer-Encoding: chunked\r\n")
SENT = {
    "after the head, with a length": UPLOAD_LENGTH,
    "in the body, with a length": UPLOAD_LENGTH + b"0123456789",
    "before the last byte, with a length": UPLOAD_LENGTH + b"0123456789012345678",
    "after the head, in chunks": UPLOAD_CHUNKS,
    "in a chunk's size": UPLOAD_CHUNKS + b"5\r\nhello\r\n1",
    "in a chunk": UPLOAD_CHUNKS + b"5\r\nhello\r\n10\r\nabc",
    "between chunks": UPLOAD_CHUNKS + b"5\r\nhello\r\n",
    "in a trailer": UPLOAD_CHUNKS + b"5\r\nhello\r\n0\r\nX-Sum",
    "before the last byte, in chunks": UPLOAD_CHUNKS + b"5\r\nhello\r\n0\r\n\r",
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("where", SENT)
def test_a_request_that_breaks_off_breaks_off_for_the_upstream(stage: Stage, where: str, how: End) -> None:
    said = SENT[where]
    body = said[said.index(b"\r\n\r\n") + 4 :]
    arrived = threading.Semaphore(0)

    def client(wire: Wire) -> None:
        wire.send(said)
        assert arrived.acquire(timeout=PATIENCE)
        wire.leave(how)

    def upstream(wire: Wire) -> None:
        wire.head()
        wire.take(len(body))
        arrived.release()
        wire.gone()

    stage.same(client, upstream)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("cut", [0, 1, 10, 30, len(UPLOAD_LENGTH) - 2])
def test_a_head_that_breaks_off_never_becomes_a_request(stage: Stage, cut: int, how: End) -> None:
    def client(wire: Wire) -> None:
        wire.send(UPLOAD_LENGTH[:cut])
        wire.leave(how)

    def upstream(wire: Wire) -> None:
        raise AssertionError("there was no request")

    assert stage.through(client, upstream) == Heard([], [])


PLACES = ("before the answer", "after its head", "in a chunk", "between two events")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("where", PLACES)
def test_a_client_that_leaves_takes_the_upstream_along_at_once(stage: Stage, where: str, how: End) -> None:
    seconds: list[float] = []
    arrived = threading.Semaphore(0)
    sent = {"after its head": b"", "in a chunk": b"10\r\nabc", "between two events": b"8\r\ndata: a\n\r\n"}.get(where)

    def client(wire: Wire) -> None:
        wire.send(AGAIN)
        if sent is not None:
            wire.head()
            wire.take(len(sent))
        assert arrived.acquire(timeout=PATIENCE)
        wire.leave(how)

    def upstream(wire: Wire) -> None:
        wire.request()
        if sent is not None:
            wire.send(CHUNKED + sent)
        arrived.release()
        began = time.monotonic()
        wire.gone()
        seconds.append(time.monotonic() - began)

    stage.same(client, upstream)
    assert max(seconds) < PATIENCE / 4


@pytest.mark.parametrize("how", HOW)
def test_a_client_that_leaves_a_stream_that_goes_on_stops_it(stage: Stage, how: End) -> None:
    def client(wire: Wire) -> None:
        wire.send(AGAIN)
        wire.head()
        wire.take(5 * 12)
        wire.leave(how)

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(CHUNKED)
        deadline = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < deadline:
                wire.send(b"7\r\ndata: a\r\n", pause=0.01)
        except ConnectionError:
            wire.told.append(Ended("gone"))

    heard = stage.same(client, upstream)
    assert heard.upstream[-1] == Ended("gone")


@pytest.mark.parametrize("how", HOW)
def test_a_client_that_leaves_after_its_answer_leaves_the_upstreams_connection_to_the_next(
    stage: Stage, how: End
) -> None:
    accepted: list[int] = []

    def client(wire: Wire) -> None:
        wire.send(AGAIN)
        wire.response()
        with wire.another() as other:
            wire.leave(how)
            other.send(AGAIN)
            other.response()
        accepted.append(stage.upstream.accepted)

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(OK)

    before = stage.upstream.accepted
    stage.same(client, upstream)
    assert [accepted[0] - before, accepted[1] - accepted[0]] == [2, 1]


def test_the_sidecars_own_answers_are_json_in_the_shape_of_llm_apis(stage: Stage) -> None:
    def client(wire: Wire) -> None:
        wire.send(AGAIN)
        wire.response()

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.reset()

    heard = stage.through(client, upstream)
    head, body = heard.client
    assert isinstance(head, Head)
    assert isinstance(body, Body)
    assert b"Content-Type: application/json" in head.lines
    assert body.first.startswith(b'{"error":{"message":"')
