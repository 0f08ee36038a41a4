"""How exchanges end when one side leaves, breaks, is slow, or was never there."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from collector.config import Tls
from collector.model import ClientBlocked, ResponseSeen

GET = b"GET /v1 HTTP/1.1\r\nHost: api.test\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def _resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def _error(peer: Any) -> tuple[bytes, dict[str, Any]]:
    head = await peer.head()
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head, json.loads(await peer.exactly(length))["error"]


# ---------------------------------------------------------------- the client leaves


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("phase", ["before the first byte", "in the stream", "while uploading", "while connecting"])
async def test_a_client_that_leaves_takes_its_upstream_along_at_once(
    side: Any, how: str, phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    reached, gone = asyncio.Event(), asyncio.Event()

    async def serve(peer: Any) -> None:
        await peer.head()
        if phase == "in the stream":
            await peer.send(CHUNKED + b"2\r\nhi\r\n")
        reached.set()
        await peer.is_gone()
        gone.set()

    if phase == "while connecting":
        deaf = socket.socket()
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fill = [socket.socket() for _ in range(3)]
        for waiting in fill:
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        await side.start(deaf.getsockname()[1])
        reached.set()
        gone.set()
    else:
        await side.serve(serve)
    peer = await side.dial()
    if phase == "while uploading":
        await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
    else:
        await peer.send(GET)
    await asyncio.wait_for(reached.wait(), side.PATIENCE)
    if phase == "in the stream":
        await peer.until(b"hi\r\n")
    await asyncio.sleep(0.05)
    with caplog.at_level(logging.DEBUG):
        getattr(peer, how)()
        async with asyncio.timeout(1.0):
            await gone.wait()
        assert (await side.analyst.ended()).how == "client_disconnect"
        await asyncio.sleep(0.05)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert len(side.worker.plane.pool) == 0
    assert side.worker.plane.in_flight == 0


async def test_a_client_that_only_finished_sending_gets_its_answer(side: Any) -> None:
    async def serve(peer: Any) -> None:
        await peer.head()
        await asyncio.sleep(0.4)
        await peer.send(OK)

    await side.serve(serve)
    peer = await side.dial()
    await peer.send(GET)
    peer.finish()
    assert await peer.everything() == OK
    assert (await side.analyst.ended()).how == "complete"


async def test_a_client_that_finished_sending_and_then_closes_is_noticed(side: Any) -> None:
    gone = asyncio.Event()

    async def serve(peer: Any) -> None:
        await peer.head()
        await peer.is_gone()
        gone.set()

    await side.serve(serve)
    peer = await side.dial()
    await peer.send(GET)
    peer.finish()
    await asyncio.sleep(0.2)
    assert not gone.is_set()
    peer.close()
    await asyncio.wait_for(gone.wait(), side.PATIENCE)
    assert (await side.analyst.ended()).how == "client_disconnect"


# ---------------------------------------------------------------- the upstream breaks


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize(
    ("head", "body"),
    [(CHUNKED, b"2\r\nhi\r\n"), (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"hi"), (CHUNKED, b"f\r\nhi")],
    ids=["chunked", "length", "inside a chunk"],
)
async def test_a_cut_answer_never_ends_well(side: Any, how: str, head: bytes, body: bytes) -> None:
    async def serve(peer: Any) -> None:
        await peer.head()
        await peer.send(head + body)
        await asyncio.sleep(0.05)
        getattr(peer, how)()

    await side.serve(serve)
    peer = await side.dial()
    await peer.send(GET)
    assert await peer.head() == head
    received = await peer.exactly(len(body))
    if how == "close":
        assert await peer.everything() == b""
    else:
        with pytest.raises(ConnectionError):
            await peer.everything()
    assert received == body
    assert (await side.analyst.ended()).how == "upstream_cut"


@pytest.mark.parametrize(
    ("version", "answer"), [(b"1.1", b"HTTP/1.1 200 OK\r\n\r\nhalf"), (b"1.0", CHUNKED + b"4\r\nhalf\r\n")]
)
async def test_an_answer_without_a_stated_end_is_reset_when_it_is_cut(side: Any, version: bytes, answer: bytes) -> None:
    async def serve(peer: Any) -> None:
        await peer.head()
        await peer.send(answer)
        await asyncio.sleep(0.05)
        peer.reset()

    await side.serve(serve)
    peer = await side.dial()
    await peer.send(b"GET / HTTP/%b\r\nHost: a\r\n\r\n" % version)
    await peer.until(b"half")
    with pytest.raises(ConnectionError):
        await peer.everything()
    assert (await side.analyst.ended()).how == "upstream_cut"


async def test_broken_chunks_of_an_answer_are_not_passed_on(side: Any) -> None:
    async def serve(peer: Any) -> None:
        await peer.head()
        await peer.send(CHUNKED + b"2\r\nhi\r\n", b"XX\r\nbad", pause=0.05)
        await peer.is_gone()

    await side.serve(serve)
    peer = await side.dial()
    await peer.send(GET)
    await peer.until(b"hi\r\n")
    with pytest.raises(ConnectionError):
        await peer.everything()
    assert (await side.analyst.ended()).how == "upstream_cut"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nConte",
        b"SSH-2.0-x\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 101 X\r\n\r\n",
        CHUNKED + b"zz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
    ],
    ids=["nothing", "half a head", "no HTTP", "a folded line", "unasked upgrade", "no chunk", "long head"],
)
async def test_no_answer_or_a_broken_one_is_a_502_in_json(side: Any, answer: bytes) -> None:
    async def serve(peer: Any) -> None:
        await peer.head()
        await peer.send(answer)

    upstream = await side.serve(serve)
    peer = await side.dial()
    await peer.send(GET)
    head, error = await _error(peer)
    assert head.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert (error["type"], error["source"]) == ("upstream_failed", "semhealth")
    assert "127.0.0.1" in error["message"]
    ended = await side.analyst.ended()
    assert (ended.how, ended.status) == ("upstream_failed", 502)
    assert not any(isinstance(event, ResponseSeen) for event in side.analyst.of(1))
    assert len(upstream.connections) == 1, "a fresh connection is not tried again"
    await peer.send(b"GET /-/healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await peer.head()).startswith(b"HTTP/1.1 200"), "the client's connection lives on"


async def test_a_stale_pooled_connection_is_replaced_once(side: Any) -> None:
    async def serve(peer: Any) -> None:
        _, body = await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await peer.reader.read(1)  # the next request gets no answer here
        peer.reset()

    upstream = await side.serve(serve)
    peer = await side.dial()
    for body in (b"one", b"two"):
        await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n" + body)
        await peer.head()
        assert await peer.exactly(3) == body
    assert len(upstream.connections) == 2
    ended = await side.analyst.ended(2)
    assert ended.connect is not None


@pytest.mark.parametrize(
    ("begun", "size"),
    [(b"HTTP/1.1 200 OK\r\nX:", 3), (b"HTTP/1.1 102 Processing\r\n\r\n", 3), (b"", 300_000)],
    ids=["half a head", "an interim answer", "a request too large to be held"],
)
async def test_a_pooled_connection_that_dies_is_not_replaced_once_it_may_have_worked(
    side: Any, begun: bytes, size: int
) -> None:
    async def serve(peer: Any) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()
        if begun:
            await peer.send(begun)
            await asyncio.sleep(0.05)
        peer.reset()

    upstream = await side.serve(serve)
    peer = await side.dial()
    for body in (b"one", b"x" * size):
        await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        if body == b"one":
            assert await peer.exactly(len(OK)) == OK
    if begun.endswith(b"\r\n\r\n"):
        assert await peer.head() == begun
    head, error = await _error(peer)
    assert head.startswith(b"HTTP/1.1 502 ")
    assert error["type"] == "upstream_failed"
    assert len(upstream.connections) == 1
    assert (await side.analyst.ended(2)).how == "upstream_failed"


async def test_a_fresh_connection_that_dies_is_not_tried_again(side: Any) -> None:
    async def serve(peer: Any) -> None:
        await peer.head()
        peer.reset()

    upstream = await side.serve(serve)
    peer = await side.dial()
    await peer.send(GET)
    _, error = await _error(peer)
    assert error["type"] == "upstream_failed"
    assert len(upstream.connections) == 1


async def test_idle_pooled_connections_are_dropped_when_they_end_speak_or_age(side: Any) -> None:
    async def serve(peer: Any) -> None:
        await peer.request()
        await peer.send(OK)
        if len(upstream.connections) == 1:
            return
        if len(upstream.connections) == 2:
            await asyncio.sleep(0.05)
            await peer.send(b"unasked")
        await peer.is_gone()

    upstream = await side.serve(serve, pool_idle=0.4)
    peer = await side.dial()
    for _ in range(3):
        await peer.send(GET)
        assert await peer.exactly(len(OK)) == OK
        await side.until(lambda: len(side.worker.plane.pool) == 0)
    assert len(upstream.connections) == 3


# ---------------------------------------------------------------- the upstream is not there


async def test_a_refused_connection_is_a_502_that_names_only_the_host(side: Any) -> None:
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    await side.start(f"http://localhost:{free.getsockname()[1]}/secret-path")
    peer = await side.dial()
    for number in (1, 2):
        await peer.send(b"POST /x?key=CANARY HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
        head, error = await _error(peer)
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b"\r\nx-semhealth-error: upstream_unreachable\r\n" in head
        assert error["message"].startswith("cannot connect to localhost: ")
        assert "CANARY" not in str(error)
        assert "secret" not in str(error)
        ended = await side.analyst.ended(number)
        assert (ended.how, ended.status) == ("connect_failed", 502)
        assert side.analyst.body(number, from_upstream=False) == b"hi"


async def test_an_unreachable_upstream_is_said_once_and_names_only_route_and_host(
    side: Any, caplog: pytest.LogCaptureFixture
) -> None:
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    await side.start(f"http://localhost:{free.getsockname()[1]}/secret-path")
    peer = await side.dial()
    for _ in range(3):
        await peer.send(b"POST /x?key=CANARY HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
        await _error(peer)
    said = [record.getMessage() for record in caplog.records if "cannot connect to localhost" in record.getMessage()]
    assert len(said) == 1
    assert "route default" in said[0]
    assert "CANARY" not in said[0]
    assert "secret" not in said[0]


async def test_a_name_that_does_not_resolve_is_a_502(side: Any) -> None:
    await side.start("http://nothing.invalid")
    peer = await side.dial()
    await peer.send(GET)
    _, error = await _error(peer)
    assert error["message"] == "cannot connect to nothing.invalid: its name could not be resolved"


async def test_connecting_too_long_is_a_504(side: Any) -> None:
    deaf = socket.socket()
    deaf.bind(("127.0.0.1", 0))
    deaf.listen(0)
    waiting = [socket.socket() for _ in range(3)]
    for client in waiting:
        client.setblocking(False)
        client.connect_ex(deaf.getsockname())
    await side.start(deaf.getsockname()[1], connect_timeout=0.2)
    peer = await side.dial()
    await peer.send(GET)
    head, error = await _error(peer)
    assert head.startswith(b"HTTP/1.1 504 ")
    assert error["type"] == "upstream_timeout"
    ended = await side.analyst.ended()
    assert (ended.how, ended.status) == ("upstream_timeout", 504)
    assert ended.added < 0.15, "waiting for the upstream is not the sidecar's own time"


async def test_response_timeout_counts_to_the_head_and_no_further(side: Any) -> None:
    async def serve(peer: Any) -> None:
        head, _ = await peer.request()
        if b"/slow" in head:
            await peer.is_gone()
        await peer.send(CHUNKED)
        await asyncio.sleep(0.6)
        await peer.send(b"0\r\n\r\n")

    await side.serve(serve, response_timeout=0.3)
    peer = await side.dial()
    await peer.send(GET)
    assert await peer.head() == CHUNKED
    assert await peer.until(b"0\r\n\r\n") == b"0\r\n\r\n"
    await peer.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
    head, error = await _error(peer)
    assert head.startswith(b"HTTP/1.1 504 ")
    assert error["type"] == "upstream_timeout"
    assert (await side.analyst.ended(2)).how == "upstream_timeout"


# ---------------------------------------------------------------- slow sides


async def test_a_client_that_does_not_read_stops_the_upstream_and_memory_stays_bounded(side: Any) -> None:
    total, piece = 128 * 1024 * 1024, b"10000\r\n" + b"x" * 65536 + b"\r\n"
    written = 0

    async def serve(peer: Any) -> None:
        nonlocal written
        await peer.head()
        await peer.send(CHUNKED)
        while written < total:
            await peer.send(piece)
            written += 65536
        await peer.send(b"0\r\n\r\n")

    side.analyst.keeps_bytes = False
    await side.serve(serve)
    before = _resident()
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, ("127.0.0.1", side.port))
    await loop.sock_sendall(raw, GET)
    stuck = -1
    while stuck != written:
        stuck = written
        await asyncio.sleep(0.5)
    assert written < total / 2
    assert _resident() - before < 24 * 1024 * 1024
    received = 0
    while received < total:
        received += len(await loop.sock_recv(raw, 1 << 20))
    await side.analyst.ended()
    (blocked, *_) = [event for event in side.analyst.of(1) if isinstance(event, ClientBlocked)]
    assert 0.4 < blocked.seconds < 20
    raw.close()


async def test_an_upstream_that_does_not_read_stops_the_client(side: Any) -> None:
    release = asyncio.Event()
    body = 48 * 1024 * 1024

    async def serve(peer: Any) -> None:
        await peer.head()
        peer.writer.transport.pause_reading()
        await release.wait()
        peer.writer.transport.resume_reading()
        left = body
        while left:
            left -= len(await peer.reader.read(1 << 20))
        await peer.send(OK)

    await side.serve(serve)
    peer = await side.dial()
    sent = 0

    async def upload() -> None:
        nonlocal sent
        await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % body)
        while sent < body:
            await peer.send(b"x" * 65536)
            sent += 65536

    task = asyncio.ensure_future(upload())
    stuck = -1
    while stuck != sent:
        stuck = sent
        await asyncio.sleep(0.4)
    assert sent < body
    release.set()
    assert await peer.exactly(len(OK)) == OK
    await task


async def test_a_client_that_leaves_while_it_is_not_read_is_noticed(side: Any) -> None:
    gone = asyncio.Event()

    async def serve(peer: Any) -> None:
        await peer.head()
        peer.reader._transport.pause_reading()
        while not peer.writer.transport.is_closing():
            await asyncio.sleep(0.05)
            peer.writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        gone.set()

    await side.serve(serve)
    peer = await side.dial()
    await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
    peer.writer.write(b"x" * 50_000_000)
    await asyncio.sleep(0.3)
    peer.reset()
    await asyncio.wait_for(gone.wait(), side.PATIENCE)
    assert (await side.analyst.ended()).how == "client_disconnect"


async def test_a_client_that_never_takes_its_last_bytes_is_not_waited_for(side: Any) -> None:
    body = b"x" * 32_000_000  # more than the kernel's buffers take

    async def serve(peer: Any) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + body)

    await side.serve(serve, keep_alive=0.3)
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, ("127.0.0.1", side.port))
    await loop.sock_sendall(raw, GET)
    await side.until(lambda: len(side.worker.plane.clients) == 1)
    await asyncio.sleep(0.2)
    (client,) = side.worker.plane.clients
    client._exchange.upstream_closed(reset=False)
    assert not client.is_flushed() or client._transport.is_closing()
    await side.until(lambda: len(side.worker.plane.clients) == 0)
    raw.close()


async def test_a_connection_left_paused_by_a_slow_client_serves_the_next(side: Any) -> None:
    size = 4 * 1024 * 1024

    async def serve(peer: Any) -> None:
        while True:
            await peer.request()
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)

    upstream = await side.serve(serve)
    slow, quick = await side.dial(), await side.dial()
    await slow.send(GET)
    await asyncio.sleep(0.3)
    for peer in (slow, quick, quick):
        if peer is quick:
            await peer.send(GET)
        await peer.head()
        assert (await peer.exactly(size)).count(b"x") == size
    assert len(upstream.connections) == 1


# ---------------------------------------------------------------- TLS and addresses


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a CA and a certificate of it for localhost."""
    home = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=home, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Test CA", "-days", "2")
    openssl("req", *key, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=localhost")
    (home / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-out", "cert.pem", "-days", "2",
            "-extfile", "names")  # fmt: skip
    return home


async def test_an_upstream_over_tls_is_verified_named_and_pooled(side: Any, authority: Path) -> None:
    names: list[str | None] = []

    async def serve(peer: Any) -> None:
        while True:
            await peer.request()
            await peer.send(CHUNKED, b"2\r\nhi\r\n", b"0\r\n\r\n", pause=0.01)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    context.sni_callback = lambda _, name, __: names.append(name)
    upstream = await side.upstream(serve, ssl=context, host="localhost")
    await side.start(f"https://localhost:{upstream.port}", tls=Tls(ca_file=str(authority / "ca.pem")))
    peer = await side.dial()
    for _ in range(2):
        await peer.send(GET)
        assert await peer.head() == CHUNKED
        assert await peer.until(b"0\r\n\r\n") == b"2\r\nhi\r\n0\r\n\r\n"
    assert names == ["localhost"]
    assert (await side.analyst.ended(2)).connect is None


async def test_a_client_that_leaves_takes_its_upstream_over_tls_along_without_waiting_for_its_farewell(
    side: Any, authority: Path
) -> None:
    gone = asyncio.Event()

    async def serve(peer: Any) -> None:
        await peer.request()
        await peer.send(CHUNKED, b"2\r\nhi\r\n")
        await peer.is_gone()
        gone.set()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    upstream = await side.upstream(serve, ssl=context, host="localhost")
    await side.start(f"https://localhost:{upstream.port}", tls=Tls(ca_file=str(authority / "ca.pem")))
    peer = await side.dial()
    await peer.send(GET)
    await peer.until(b"hi\r\n")
    peer.close()
    async with asyncio.timeout(1.0):
        await gone.wait()
    assert (await side.analyst.ended()).how == "client_disconnect"
    assert len(side.worker.plane.pool) == 0


async def test_a_certificate_that_cannot_be_verified_is_a_502_that_says_so(side: Any, authority: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")

    async def serve(peer: Any) -> None:
        raise AssertionError("no request may come through")

    upstream = await side.upstream(serve, ssl=context, host="localhost")
    await side.start(f"https://localhost:{upstream.port}")
    peer = await side.dial()
    await peer.send(GET)
    _, error = await _error(peer)
    assert error["message"] == "cannot connect to localhost: its certificate could not be verified"


async def test_an_upstream_with_an_ipv6_address_is_reached(side: Any) -> None:
    seen: list[bytes] = []

    async def serve(peer: Any) -> None:
        seen.append(await peer.head())
        await peer.send(OK)

    upstream = await side.upstream(serve, host="::1")
    await side.start(f"http://[::1]:{upstream.port}")
    peer = await side.dial()
    await peer.send(GET)
    assert await peer.exactly(len(OK)) == OK
    assert b"\r\nHost: [::1]:%d\r\n" % upstream.port in seen[0]


# ---------------------------------------------------------------- shutdown


async def test_draining_finishes_answers_and_takes_no_new_ones(side: Any) -> None:
    release = asyncio.Event()

    async def serve(peer: Any) -> None:
        await peer.head()
        await peer.send(CHUNKED + b"2\r\nhi\r\n")
        await release.wait()
        await peer.send(b"0\r\n\r\n")

    await side.serve(serve, drain_timeout=10.0)
    busy, idle = await side.dial(), await side.dial()
    await busy.send(GET)
    await busy.until(b"hi\r\n")
    draining = asyncio.ensure_future(side.worker.drain())
    assert await idle.everything() == b""
    with pytest.raises(ConnectionError):
        await side.dial()
    probe = await side.dial(side.health_port)
    await probe.send(b"GET /-/readyz HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await probe.everything()).startswith(b"HTTP/1.1 503 ")
    release.set()
    await busy.send(GET)  # it comes too late
    assert await busy.everything() == b"0\r\n\r\n"
    await draining
    assert (await side.analyst.ended()).how == "complete"


async def test_what_is_not_finished_by_the_deadline_is_cut(side: Any) -> None:
    async def serve(peer: Any) -> None:
        await peer.head()
        await peer.send(CHUNKED + b"2\r\nhi\r\n")
        await peer.is_gone()

    await side.serve(serve, drain_timeout=0.2)
    peer = await side.dial()
    await peer.send(GET)
    await peer.until(b"hi\r\n")
    await side.worker.drain()
    with pytest.raises(ConnectionError):
        await peer.everything()
    assert (await side.analyst.ended()).how == "shutdown"


# ---------------------------------------------------------------- faults of our own


async def test_a_fault_of_our_own_costs_one_connection_and_one_line_without_content(
    side: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(peer: Any) -> None:
        while True:
            await peer.request()
            await peer.send(OK)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("CANARY in an exception's text")

    await side.serve(serve)
    with monkeypatch.context() as patch:
        patch.setattr("collector.proxy.exchange.read_response", broken)
        peer = await side.dial()
        await peer.send(b"GET /CANARY HTTP/1.1\r\nHost: a\r\n\r\n")
        with pytest.raises(ConnectionError):
            await peer.everything()
    (record,) = [record for record in caplog.records if record.name == "semhealth.proxy"]
    assert "RuntimeError" in record.getMessage()
    assert "CANARY" not in caplog.text
    peer = await side.dial()
    await peer.send(GET)
    assert await peer.exactly(len(OK)) == OK
