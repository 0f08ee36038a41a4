"""A server on a real socket that answers embedding requests as a script says, one request a connection."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Play = Callable[["Asked", socket.socket], None]


@dataclass
class Asked:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, object]

    @property
    def texts(self) -> list[str]:
        texts = self.body.get("input", self.body.get("inputs"))
        assert isinstance(texts, list)
        return texts


@dataclass
class Scripted:
    """`play` answers each request until it is replaced."""

    play: Play
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def serve(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError):
            connection.settimeout(20)
            read = b""
            while b"\r\n\r\n" not in read:
                part = connection.recv(65536)
                if not part:
                    return
                read += part
            head, body = read.split(b"\r\n\r\n", 1)
            first, *lines = head.decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
            while len(body) < int(headers["content-length"]):
                body += connection.recv(65536)
            one = Asked(first.split()[1], headers, json.loads(body))
            self.asked.append(one)
            self.play(one, connection)


def answered(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join((*lines, *headers, "", "")).encode() + body


def vector(text: str, dimensions: int = 4) -> list[float]:
    """Of the text's length and first letter, and not of length one."""
    return [float(len(text)), float(ord(text[0])), 1.0, *[0.5] * (dimensions - 3)]


def openai(asked: Asked, connection: socket.socket, dimensions: int = 4) -> None:
    """As the API reference shows it, in reverse order: `index` says which text a vector is of."""
    items = [
        {"object": "embedding", "index": index, "embedding": vector(text, dimensions)}
        for index, text in reversed(list(enumerate(asked.texts)))
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    told = {"object": "list", "data": items, "model": "served-1", "usage": usage}
    connection.sendall(answered(json.dumps(told).encode()))


def tei(asked: Asked, connection: socket.socket) -> None:
    connection.sendall(answered(json.dumps([vector(text) for text in asked.texts]).encode()))


def saying(reply: bytes) -> Play:
    return lambda _, connection: connection.sendall(reply)


def hanging(_: Asked, connection: socket.socket) -> None:
    """Says nothing until the client hangs up."""
    connection.recv(1)


def dripping(_: Asked, connection: socket.socket) -> None:
    """A byte now and then, so that no single read takes long."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.05)


def flooding(_: Asked, connection: socket.socket) -> None:
    """A body without an end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
    while True:
        connection.sendall(b"[0.1," * 100_000)


def hanging_up(_: Asked, connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[[")


@contextlib.contextmanager
def server(play: Play) -> Iterator[Scripted]:
    listening = socket.create_server(("127.0.0.1", 0))
    one = Scripted(play)
    one.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    threading.Thread(target=one.serve, args=(listening,), daemon=True).start()
    try:
        yield one
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
