"""Connections that are kept, pipelined, old, slow, silent or closed on one side serve as if nothing were between."""

from __future__ import annotations

import time

import pytest

from .stage import Stage
from .test_messages import AGAIN, CHUNKS, KIB, OK, answering, chunked, request_of
from .wires import Body, Ended, Head, Wire

SILENCE = 0.4  # seconds in which a peer says nothing

# ---------------------------------------------------------------- kept and pipelined

MIXED = (
    request_of(b"GET"),
    request_of(b"POST", lines=b"Content-Length: 5\r\n", body=b"hello"),
    request_of(b"PUT", lines=b"Transfer-Encoding: chunked\r\n", body=CHUNKS["trailers"]),
    request_of(b"DELETE", b"/a?b", lines=b"Content-Length: 0\r\n"),
    request_of(b"POST", lines=b"Content-Length: 2000\r\n", body=b"GET / HTTP/1.1\r\n\r\n" + b"x" * 1982),
)
ANSWERS = {
    b"GET": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"HTTP/1.1 200 OK\r\n\r\n" * 9, 7),
    b"POST": OK,
    b"PUT": b"HTTP/1.1 204 No Content\r\n\r\n",
    b"DELETE": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
}


def _answer(wire: Wire) -> None:
    wire.send(ANSWERS[wire.request().split(b" ")[0]])


@pytest.mark.parametrize("times", [1, 20])
def test_one_connection_carries_many_requests(stage: Stage, times: int) -> None:
    def client(wire: Wire) -> None:
        for request in MIXED * times:
            wire.send(request)
            wire.response()

    heard = stage.same(client, _answer)
    assert sum(isinstance(each, Head) for each in heard.upstream) == len(MIXED) * times


@pytest.mark.parametrize("how", ["in one write", "cut in two", "byte by byte"])
@pytest.mark.parametrize("number", [2, 5, 50])
def test_pipelined_requests_are_answered_in_order(stage: Stage, number: int, how: str) -> None:
    requests = (MIXED * number)[:number] if how != "byte by byte" else (MIXED * 2)[:number]

    def client(wire: Wire) -> None:
        whole = b"".join(request.replace(b"<host>", wire.host) for request in requests)
        if how == "in one write":
            wire.send(whole)
        elif how == "cut in two":
            wire.send(whole[: len(whole) * 2 // 3], whole[len(whole) * 2 // 3 :], pause=0.02)
        else:
            wire.drip(whole, 0)
        for _ in requests:
            wire.response()

    stage.same(client, _answer)


def test_empty_lines_between_requests_are_passed_over(stage: Stage) -> None:
    """RFC 9112, 2.2. They are no part of a message, so the upstream is not told of them."""

    def client(wire: Wire) -> None:
        wire.send(b"\r\n" + request_of(b"GET"), b"\r\n\r\n" + AGAIN)
        wire.response()
        wire.response()

    heard = stage.through(client, answering(OK))
    assert [told.lines[0] for told in heard.upstream if isinstance(told, Head)] == [
        b"GET /v1/x HTTP/1.1",
        b"GET /again HTTP/1.1",
    ]


@pytest.mark.parametrize("who", ["the client", "both"])
def test_a_client_that_asks_to_close_is_closed(stage: Stage, who: str) -> None:
    close = b"Connection: close\r\n"

    def client(wire: Wire) -> None:
        wire.send(request_of(lines=close))
        wire.response()
        wire.rest()

    def upstream(wire: Wire) -> None:
        wire.request()
        line = close if who != "the client" else b""
        wire.send(b"HTTP/1.1 200 OK\r\n" + line + b"Content-Length: 2\r\n\r\nok")
        wire.leave("fin")

    heard = stage.same(client, upstream)
    assert heard.client[-1] == Ended("fin")


def test_an_upstream_that_asks_to_close_closes_its_own_connection_only(stage: Stage) -> None:
    def client(wire: Wire) -> None:
        for _ in range(2):
            wire.send(AGAIN)
            wire.response()

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
        wire.leave("fin")

    heard = stage.through(client, upstream)
    assert heard.client[:2] == heard.client[2:]
    assert heard.upstream[:1] == heard.upstream[1:]


# ---------------------------------------------------------------- HTTP/1.0

OLD = b"GET /v1/x HTTP/1.0\r\nX-A: 1\r\n"
OLD_REQUESTS = {
    "without a Host": OLD + b"\r\n",
    "with a Host": OLD + b"Host: <host>\r\n\r\n",
    "that asks to keep": OLD + b"Host: <host>\r\nConnection: keep-alive\r\n\r\n",
    "with a body": OLD.replace(b"GET", b"POST") + b"Host: <host>\r\nContent-Length: 5\r\n\r\nhello",
    "HEAD": OLD.replace(b"GET", b"HEAD") + b"Host: <host>\r\n\r\n",
}
OLD_ANSWERS = {
    "of a length": b"Content-Length: 5\r\n\r\nhello",
    "in chunks": b"Transfer-Encoding: chunked\r\nTrailer: X-S\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nX-S: 1\r\n\r\n",
    "that ends with the connection": b"\r\nhello",
}


@pytest.mark.parametrize("answer", OLD_ANSWERS)
@pytest.mark.parametrize("request_", OLD_REQUESTS)
def test_a_client_of_http_1_0_gets_the_content_and_the_end(stage: Stage, request_: str, answer: str) -> None:
    """The upstream is asked in HTTP/1.1 (RFC 9110, 6.2), so what the client gets is compared by its content."""
    method = b"HEAD" if request_ == "HEAD" else b"GET"
    response = b"HTTP/1.1 200 OK\r\n" + OLD_ANSWERS[answer]

    def client(wire: Wire) -> None:
        wire.send(OLD_REQUESTS[request_])
        head = wire.head()
        assert b"ransfer-" not in head
        assert wire.rest() == "fin"

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(response.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == b"HEAD" else response)
        wire.leave("fin")

    heard = stage.through(client, upstream)
    sent = heard.upstream[0]
    assert isinstance(sent, Head)
    assert sent.lines[0].endswith(b" HTTP/1.1")
    assert b"Host: " + stage.upstream.authority in sent.lines
    assert b"X-A: 1" in sent.lines
    body = heard.client[1]
    assert isinstance(body, Body)
    assert body.first == (b"" if method == b"HEAD" else b"hello")


def test_an_upstream_of_http_1_0_is_passed_on(stage: Stage) -> None:
    def client(wire: Wire) -> None:
        wire.send(request_of(b"GET"))
        wire.response()

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(b"HTTP/1.0 200 OK\r\nX-A: 1\r\n\r\nhello")
        wire.leave("fin")

    stage.same(client, upstream)


# ---------------------------------------------------------------- slow and silent

UPLOAD = request_of(b"POST", b"/v1/x?y", b"Transfer-Encoding: chunked\r\n", CHUNKS["trailers"])


def test_a_request_that_comes_byte_by_byte(stage: Stage) -> None:
    def client(wire: Wire) -> None:
        wire.drip(UPLOAD)
        wire.response()
        wire.drip(AGAIN)
        wire.response()

    stage.same(client, answering(OK))


@pytest.mark.parametrize("answer", [*OLD_ANSWERS.values(), b"Content-Length: 0\r\n\r\n"], ids=[*OLD_ANSWERS, "empty"])
def test_an_answer_that_comes_byte_by_byte(stage: Stage, answer: bytes) -> None:
    def client(wire: Wire) -> None:
        wire.send(UPLOAD)
        wire.response()

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.drip(b"HTTP/1.1 200 OK\r\nX-A: 1\r\n" + answer)
        wire.leave("fin")

    stage.same(client, upstream)


@pytest.mark.parametrize(
    "where", ["in its head", "after its head", "in its body", "in a chunk's head", "before its end"]
)
def test_a_client_that_falls_silent(stage: Stage, where: str) -> None:
    at = _place(UPLOAD, where)

    def client(wire: Wire) -> None:
        wire.send(UPLOAD[:at], UPLOAD[at:], pause=SILENCE / 2)
        wire.response()

    stage.same(client, answering(OK))


@pytest.mark.parametrize(
    "where", ["before its head", "in its head", "after its head", "in its body", "in a chunk's head", "before its end"]
)
def test_an_upstream_that_falls_silent(stage: Stage, where: str) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS["trailers"]
    at = 0 if where == "before its head" else _place(answer, where)
    arrived: list[float] = []

    def client(wire: Wire) -> None:
        wire.send(AGAIN)
        head = wire.head()
        arrived.append(time.monotonic())
        wire.body(head)

    def upstream(wire: Wire) -> None:
        wire.request()
        arrived.append(time.monotonic())
        wire.send(answer[:at])
        time.sleep(SILENCE)
        wire.send(answer[at:])

    stage.same(client, upstream)
    if where in ("after its head", "in its body", "in a chunk's head", "before its end"):
        # What has come is passed on while the rest is waited for.
        assert all(head - asked < SILENCE * 0.8 for asked, head in zip(arrived[::2], arrived[1::2], strict=True))


def _place(message: bytes, where: str) -> int:
    head = message.index(b"\r\n\r\n") + 4
    places = {
        "in its head": 20, "after its head": head, "in a chunk's head": head + 1, "in its body": head + 4,
        "before its end": len(message) - 1,
    }  # fmt: skip
    return places[where]


# ---------------------------------------------------------------- half-close


@pytest.mark.parametrize("request_", [AGAIN, UPLOAD], ids=["GET", "upload"])
@pytest.mark.parametrize("seconds", [0.0, SILENCE])
def test_a_client_that_sends_no_more_gets_its_answer(stage: Stage, request_: bytes, seconds: float) -> None:
    def client(wire: Wire) -> None:
        wire.send(request_)
        wire.finish()
        wire.response()
        wire.rest()

    def upstream(wire: Wire) -> None:
        wire.request()
        time.sleep(seconds)
        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", CHUNKS["extensions"], pause=0.02)

    heard = stage.same(client, upstream)
    assert heard.client[-1] == Ended("fin")


def test_a_client_that_sends_no_more_gets_all_pipelined_answers(stage: Stage) -> None:
    def client(wire: Wire) -> None:
        wire.send(AGAIN.replace(b"<host>", wire.host) * 3)
        wire.finish()
        for _ in range(3):
            wire.response()
        wire.rest()

    stage.same(client, answering(OK))


@pytest.mark.parametrize("answer", OLD_ANSWERS)
def test_an_upstream_that_sends_no_more_has_its_answer_passed_on(stage: Stage, answer: str) -> None:
    def client(wire: Wire) -> None:
        wire.send(AGAIN)
        wire.response()

    def upstream(wire: Wire) -> None:
        wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\n" + OLD_ANSWERS[answer])
        wire.finish()

    stage.same(client, upstream)


# ---------------------------------------------------------------- answers before the end of the request

EARLY = (
    b"413 Content Too Large",
    b"429 Too Many Requests",
    b"401 Unauthorized",
    b"500 Oh",
    b"200 OK",
    b"303 Elsewhere",
)


@pytest.mark.parametrize("size", [0, 100 * KIB])
@pytest.mark.parametrize("status", EARLY, ids=lambda status: status[:3].decode())
def test_an_answer_may_come_while_the_request_is_being_sent(stage: Stage, status: bytes, size: int) -> None:
    def client(wire: Wire) -> None:
        wire.send(request_of(lines=b"Content-Length: 10000000\r\n", body=b"x" * 1000))
        wire.response()
        wire.rest()

    def upstream(wire: Wire) -> None:
        wire.head()
        wire.take(1000)
        head = b"HTTP/1.1 " + status + b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size
        wire.send(head + b"e" * size)
        wire.leave("fin")

    stage.same(client, upstream)


def test_answer_and_upload_run_beside_one_another(stage: Stage) -> None:
    """As a transcription API does: each piece that is sent is answered at once."""

    def client(wire: Wire) -> None:
        wire.send(request_of(lines=b"Transfer-Encoding: chunked\r\n"))
        wire.head()
        for _ in range(20):
            wire.send(b"4\r\nping\r\n")
            wire.take(9)
        wire.send(b"0\r\n\r\n")
        wire.chunks()

    def upstream(wire: Wire) -> None:
        wire.head()
        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(20):
            wire.take(9)
            wire.send(b"4\r\npong\r\n")
        wire.chunks()
        wire.send(b"0\r\n\r\n")

    stage.same(client, upstream)


def test_an_early_answer_does_not_stop_an_upload_that_the_upstream_still_reads(stage: Stage) -> None:
    def client(wire: Wire) -> None:
        wire.send(request_of(lines=b"Content-Length: 3000\r\n", body=b"x" * 1000))
        wire.response()
        wire.send(b"y" * 1000, b"z" * 1000, pause=0.02)
        wire.gone()

    def upstream(wire: Wire) -> None:
        wire.head()
        wire.take(1000)
        wire.send(b"HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
        wire.socket.settimeout(2.0)
        wire.take(2000)
        wire.leave("fin")

    stage.same(client, upstream)
