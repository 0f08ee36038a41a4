"""One end of a TCP connection, written and read as a test says, and a list of all that it was told."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import struct
import time
import zlib
from collections.abc import Iterable
from typing import Literal, NamedTuple

from .hop import end_to_end

PATIENCE = 20.0  # seconds after which a wire that says nothing fails its test
READ = 1 << 18
SHOWN = 48  # bytes at either end of a body that a failure shows

End = Literal["fin", "rst"]


class Head(NamedTuple):
    """The end-to-end lines of a head, byte for byte and in order."""

    lines: tuple[bytes, ...]


class Body(NamedTuple):
    """A body as it came, transfer coding included."""

    size: int
    checksum: int
    first: bytes
    last: bytes


class Ended(NamedTuple):
    how: str


Told = Head | Body | Ended


class Wire:
    """A socket with a buffer. All that is read is also appended to `told`."""

    def __init__(self, connection: socket.socket, told: list[Told], host: bytes = b"") -> None:
        connection.settimeout(PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self.told = told
        self.host = host  # what a client writes into its Host line
        self.is_closed = False
        self._unread, self._at = b"", 0  # what was received, and how much of it was read

    def another(self) -> Wire:
        """A further connection to the same place, for a `with`; what it is told goes to the same list."""
        further = socket.socket(self.socket.family, socket.SOCK_STREAM)
        further.connect(self.socket.getpeername())
        return Wire(further, self.told, self.host)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ writing

    def send(self, *pieces: bytes, pause: float = 0.0) -> None:
        """Send each piece; `<host>` in it becomes the host that this client dialled."""
        for piece in pieces:
            self.socket.sendall(piece.replace(b"<host>", self.host, 1))
            if pause:
                time.sleep(pause)

    def send_all(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self.socket.sendall(piece)

    def drip(self, data: bytes, pause: float = 0.0005) -> None:
        """Each byte in a segment of its own."""
        data = data.replace(b"<host>", self.host)
        self.send(*(data[at : at + 1] for at in range(len(data))), pause=pause)

    def finish(self) -> None:
        """Say that no more comes, and go on reading; the other side may have left meanwhile."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_WR)  # under TLS too, which knows no half-closed state

    def close(self) -> None:
        self.is_closed = True
        self.socket.close()

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def leave(self, how: End) -> None:
        """Close well, or with a reset, once what was sent has had time to arrive."""
        time.sleep(0.03)
        if how == "rst":
            self.reset()
        else:
            self.close()

    # ------------------------------------------------------------ reading

    def is_at_end(self) -> bool:
        """Whether all that was received has been read."""
        return self._at == len(self._unread)

    def has_more(self) -> bool:
        """Wait, however long, for a byte or the end."""
        self.socket.settimeout(None)
        try:
            self._unread, self._at = self.socket.recv(READ), 0
        except OSError:
            return False
        self.socket.settimeout(PATIENCE)
        return bool(self._unread)

    def request(self) -> bytes:
        """One request with its body; gives the raw head."""
        head = self.head()
        self.body(head)
        return head

    def response(self, method: bytes = b"GET") -> bytes:
        """One final response with its body, and the interim ones before it; gives the raw final head."""
        while (head := self.head())[9:10] == b"1" and head[9:12] != b"101":
            pass
        if method != b"HEAD" and head[9:12] not in (b"101", b"204", b"304"):
            self.body(head, is_response=True)
        return head

    def head(self) -> bytes:
        head = self._until(b"\r\n\r\n")
        self.told.append(Head(end_to_end(head)))
        return head

    def body(self, head: bytes, *, is_response: bool = False) -> None:
        """The body that a head announces; to the end of the connection where a response announces none."""
        if re.search(rb"(?im)^transfer-encoding:.*chunked\r$", head):
            self.chunks()
            return
        length = re.search(rb"(?im)^content-length: *(\d+)", head)
        if length is not None:
            self.take(int(length[1]))
        elif is_response:
            self.rest()

    def take(self, size: int) -> None:
        """So many bytes of a body."""
        tally = _Tally()
        while tally.size < size:
            part = self._some(size - tally.size)
            assert part, f"the other side ended after {tally.size} of {size} bytes"
            tally.add(part)
        self.told.append(tally.body())

    def chunks(self) -> None:
        """A chunked body to its last byte, trailers included."""
        tally = _Tally()
        while True:
            tally.add(line := self._until(b"\r\n"))
            left = int(line.split(b";")[0], 16)
            if left == 0:
                break
            left += 2
            while left:
                part = self._some(left)
                assert part, f"the other side ended after {tally.size} bytes, in a chunk"
                tally.add(part)
                left -= len(part)
        while True:
            tally.add(line := self._until(b"\r\n"))
            if line == b"\r\n":
                break
        self.told.append(tally.body())

    def rest(self) -> End:
        """Everything until the other side ends, and how it ends."""
        tally = _Tally()
        how: End = "fin"
        try:
            while part := self._some(READ):
                tally.add(part)
        except ConnectionResetError:
            how = "rst"
        self.told += [tally.body(), Ended(how)]
        return how

    def gone(self) -> None:
        """Read until the other side has ended in either way: a hop may turn a reset into a plain end."""
        with contextlib.suppress(ConnectionError):
            while self._some(READ):
                pass
        self.told.append(Ended("gone"))

    def is_quiet(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        return self.is_at_end() and not select.select([self.socket], [], [], seconds)[0]

    def _until(self, end: bytes) -> bytes:
        while (at := self._unread.find(end, self._at)) < 0:
            more = self.socket.recv(READ)
            assert more, f"the other side ended after {self._unread[self._at :][:200]!r}"
            self._unread, self._at = self._unread[self._at :] + more, 0
        begin, self._at = self._at, at + len(end)
        return self._unread[begin : self._at]

    def _some(self, most: int) -> bytes:
        if self.is_at_end():
            return self.socket.recv(min(READ, most))
        part = self._unread[self._at : self._at + most]
        self._at += len(part)
        return part


class _Tally:
    """Adds up a body of any size."""

    def __init__(self) -> None:
        self.size = self.checksum = 0
        self._first = self._last = b""

    def add(self, part: bytes) -> None:
        self.size += len(part)
        self.checksum = zlib.crc32(part, self.checksum)
        if len(self._first) < SHOWN:
            self._first = (self._first + part)[:SHOWN]
        self._last = (self._last + part[-SHOWN:])[-SHOWN:]

    def body(self) -> Body:
        return Body(self.size, self.checksum, self._first, self._last)
