"""Upgrades: after a 101 bytes pass both ways until both sides have ended, WebSocket's frames among them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from tests.end_to_end.conftest import Sidecar

from .conftest import Start
from .stage import Stage
from .test_messages import AGAIN, KIB, OK
from .wires import End, Wire

# ---------------------------------------------------------------- any protocol

UPGRADE = b"GET /tunnel HTTP/1.1\r\nHost: <host>\r\nUpgrade: made-up/1\r\nConnection: Upgrade\r\nX-A: 1\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: made-up/1\r\nConnection: Upgrade\r\nX-B: 2\r\n\r\n"


def _both(stage: Stage, client: Callable[[Wire], None], upstream: Callable[[Wire], None]) -> None:
    def dials(wire: Wire) -> None:
        wire.send(UPGRADE)
        head = wire.head()
        assert b"\r\nUpgrade: made-up/1\r\n" in head
        assert b"\r\nConnection: Upgrade\r\n" in head
        client(wire)

    def answers(wire: Wire) -> None:
        head = wire.head()
        assert b"\r\nUpgrade: made-up/1\r\n" in head
        assert b"\r\nConnection: Upgrade\r\n" in head
        wire.send(SWITCHED)
        upstream(wire)

    stage.same(dials, answers)


def test_bytes_pass_both_ways_whatever_they_are(stage: Stage) -> None:
    blob = bytes(range(256)) * 64 + b"\r\n\r\nGET / HTTP/1.1\r\n\r\n0\r\n\r\n"

    def client(wire: Wire) -> None:
        wire.send(b"\x00", blob, pause=0.01)
        wire.take(len(blob))
        wire.send(b"\xff")

    def upstream(wire: Wire) -> None:
        wire.take(1 + len(blob))
        wire.send(blob)
        wire.take(1)

    _both(stage, client, upstream)


def test_the_upstream_may_speak_in_the_same_write_as_its_answer(stage: Stage) -> None:
    def client(wire: Wire) -> None:
        wire.send(UPGRADE)
        wire.head()
        wire.take(5)
        wire.send(b"bye")

    def upstream(wire: Wire) -> None:
        wire.head()
        wire.send(SWITCHED + b"hello")
        wire.take(3)

    stage.same(client, upstream)


def test_the_client_may_speak_before_it_is_answered(stage: Stage) -> None:
    def client(wire: Wire) -> None:
        wire.send(UPGRADE + b"early")
        wire.head()
        wire.send(b"late")
        wire.take(2)

    def upstream(wire: Wire) -> None:
        wire.head()
        wire.send(SWITCHED)
        wire.take(9)
        wire.send(b"ok")

    stage.same(client, upstream)


@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad Request", b"403 Forbidden", b"426 Upgrade Required"])
def test_an_upgrade_that_is_refused_is_an_answer_like_any_other(stage: Stage, status: bytes) -> None:
    def client(wire: Wire) -> None:
        wire.send(UPGRADE)
        wire.response()
        wire.send(AGAIN)
        wire.response()

    def upstream(wire: Wire) -> None:
        refused = b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\nno"
        wire.send(OK if wire.request().startswith(b"GET /again ") else refused)

    stage.same(client, upstream)


@pytest.mark.parametrize("lines", [b"upgrade: MADE-UP/1\r\nconnection: upgrade\r\n",
                                   b"Connection: keep-alive, Upgrade\r\nUpgrade: a/1, b\r\n"])  # fmt: skip
def test_an_upgrade_is_known_however_it_is_written(stage: Stage, lines: bytes) -> None:
    def client(wire: Wire) -> None:
        wire.send(b"POST /t HTTP/1.1\r\nHost: <host>\r\n" + lines + b"\r\n")
        wire.head()
        wire.take(2)

    def upstream(wire: Wire) -> None:
        wire.head()
        wire.send(SWITCHED + b"ok")

    stage.same(client, upstream)


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("who", ["client", "upstream"])
def test_a_tunnel_ends_for_both_when_one_side_leaves(stage: Stage, who: str, how: End) -> None:
    def leaves(wire: Wire) -> None:
        wire.take(2)
        wire.leave(how)

    def stays(wire: Wire) -> None:
        wire.send(b"go")
        wire.gone()

    _both(stage, *((leaves, stays) if who == "client" else (stays, leaves)))


def test_a_client_that_sends_no_more_hears_the_rest_of_a_tunnel(stage: Stage) -> None:
    def client(wire: Wire) -> None:
        wire.send(b"question")
        wire.finish()
        wire.rest()

    def upstream(wire: Wire) -> None:
        wire.rest()
        wire.send(b"ans", b"wer", pause=0.05)
        wire.leave("fin")

    _both(stage, client, upstream)


def test_an_upstream_that_sends_no_more_hears_the_rest_of_a_tunnel(stage: Stage) -> None:
    def client(wire: Wire) -> None:
        wire.rest()
        wire.send(b"last ", b"words", pause=0.05)
        wire.leave("fin")

    def upstream(wire: Wire) -> None:
        wire.send(b"that is all")
        wire.finish()
        wire.rest()

    _both(stage, client, upstream)


def test_a_tunnel_that_both_have_finished_is_over(stage: Stage) -> None:
    def client(wire: Wire) -> None:
        wire.rest()
        wire.send(b"more")
        wire.finish()

    def upstream(wire: Wire) -> None:
        wire.finish()
        wire.rest()

    _both(stage, client, upstream)


@pytest.mark.parametrize("who", ["client", "upstream"])
def test_what_was_sent_into_a_tunnel_before_leaving_arrives(stage: Stage, who: str) -> None:
    """More than the buffers of the kernel hold, to a side that reads late."""
    size = 6 * KIB * KIB

    def leaves(wire: Wire) -> None:
        wire.take(2)
        wire.send(b"x" * size)
        wire.close()

    def stays(wire: Wire) -> None:
        wire.send(b"go")
        time.sleep(1.5)
        wire.rest()

    _both(stage, *((leaves, stays) if who == "client" else (stays, leaves)))


# ---------------------------------------------------------------- WebSocket

Talk = Callable[[ClientConnection], list[Any]]


def _serve_one(connection: ServerConnection) -> None:
    """Says back what it is told, in the way that the path asks for."""
    path = connection.request.path if connection.request is not None else ""
    try:
        if path == "/hello":
            connection.send(f"{connection.subprotocol} {connection.protocol.extensions}")
        for message in connection:
            match message:
                case "close":
                    connection.close(4321, "as asked")
                case "in parts":
                    connection.send(iter(["one ", "two ", "thrée 🙂"]))
                case "ping":
                    connection.ping(b"from the server").wait(10)
                    connection.send("ponged")
                case "lose":
                    connection.socket.close()
                case _:
                    connection.send(message)
    except ConnectionClosed:
        pass


@pytest.fixture(scope="module")
def websocket() -> Iterator[Server]:
    def choose(_: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        return Subprotocol("realtime") if "realtime" in offered else None

    with serve(_serve_one, "127.0.0.1", 0, select_subprotocol=choose, max_size=None) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def bases(websocket: Server, start_sidecar: Start) -> tuple[str, str]:
    port = websocket.socket.getsockname()[1]
    sidecar: Sidecar = start_sidecar("--upstream", f"http://127.0.0.1:{port}")
    return f"ws://127.0.0.1:{port}", "ws" + sidecar.base.removeprefix("http")


def _echo(*messages: str | bytes) -> Talk:
    def talk(connection: ClientConnection) -> list[Any]:
        heard = []
        for message in messages:
            connection.send(message)
            heard.append(connection.recv(20))
        return heard

    return talk


def _in_parts(connection: ClientConnection) -> list[Any]:
    connection.send(iter([b"a" * 70_000, b"", b"b"]))
    heard: list[Any] = list(connection.recv_streaming())
    connection.send("in parts")
    return [heard, *connection.recv_streaming()]


def _pings(connection: ClientConnection) -> list[Any]:
    return [connection.ping(b"from the client").wait(10), *_echo("ping")(connection)]


def _hello(connection: ClientConnection) -> list[Any]:
    return [connection.recv(20)]


def _closed_by_upstream(connection: ClientConnection) -> list[Any]:
    connection.send("close")
    return _end_of(connection)


def _lost(connection: ClientConnection) -> list[Any]:
    connection.send("lose")
    return _end_of(connection)


def _closing(code: int) -> Talk:
    def talk(connection: ClientConnection) -> list[Any]:
        connection.close(code, "enough")
        return _end_of(connection)

    return talk


def _end_of(connection: ClientConnection) -> list[Any]:
    with pytest.raises(ConnectionClosed) as ended:
        connection.recv(20)
    return [ended.value.rcvd, ended.value.sent]


TALKS: dict[str, tuple[str, Talk, dict[str, Any]]] = {
    "text": ("/", _echo("hello", "", "naïve 🙂"), {}),
    "binary": ("/", _echo(b"", bytes(range(256))), {}),
    "1 MiB, deflated": ("/", _echo("wort " * 200_000), {}),
    "1 MiB, as it is": ("/", _echo(bytes(range(256)) * 4096), {"compression": None}),
    "many": ("/", _echo(*[f"message {number}" for number in range(200)]), {}),
    "fragments": ("/", _in_parts, {}),
    "fragments, as they are": ("/", _in_parts, {"compression": None}),
    "pings": ("/", _pings, {}),
    "a subprotocol, deflated": ("/hello", _hello, {"subprotocols": ["chat", "realtime"]}),
    "no subprotocol, as it is": ("/hello", _hello, {"compression": None}),
    "closed with 1000": ("/", _closing(1000), {}),
    "closed with 4999": ("/", _closing(4999), {}),
    "closed by the upstream": ("/", _closed_by_upstream, {}),
    "lost": ("/", _lost, {}),
    "a path with a query": ("/v1/realtime?model=a%2Fb&x", _echo("hello"), {}),
}


@pytest.mark.parametrize("name", TALKS)
def test_a_websocket_is_the_same(bases: tuple[str, str], name: str) -> None:
    path, talk, options = TALKS[name]
    direct, through = ([], [])  # type: ignore[var-annotated]
    for base, heard in zip(bases, (direct, through), strict=True):
        with connect(base + path, max_size=None, proxy=None, **options) as connection:
            heard += [connection.subprotocol, [str(each) for each in connection.protocol.extensions]]
            heard += talk(connection)
    assert through == direct


def test_a_handshake_that_is_refused_is_the_same(bases: tuple[str, str]) -> None:
    refusals = []
    for base in bases:
        with pytest.raises(InvalidStatus) as refused:
            connect(base, proxy=None, additional_headers={"Sec-WebSocket-Version": "12"})
        refusals.append((refused.value.response.status_code, refused.value.response.body))
    assert refusals[0] == refusals[1]
    assert refusals[0][0] == 400
