"""What the supervisor and its processes say to each other."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from collector.control import LONGEST_LINE, Control, Note, wait_to_go


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


async def test_notes_arrive_whole_and_in_order(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = await Control.on(ends[0]), await Control.on(ends[1])
    notes = [Note("ready"), Note("taken", "the labels differ"), Note("answer", "a\nb\n", 400)]
    for note in notes:
        one.say(note)
    assert [await other.hear() for _ in notes] == notes
    one.close()
    assert await other.hear() is None
    other.say(Note("go"))  # nobody is there to hear it
    other.close()


@pytest.mark.parametrize("line", [b"hello\n", b'{"kind": "sing"}\n', b"x" * (LONGEST_LINE + 1) + b"\n", b"half"])
async def test_who_does_not_speak_as_agreed_is_as_good_as_gone(
    line: bytes, ends: tuple[socket.socket, socket.socket]
) -> None:
    control = await Control.on(ends[0])
    ends[1].setblocking(False)
    await asyncio.get_running_loop().sock_sendall(ends[1], line)
    ends[1].shutdown(socket.SHUT_WR)
    assert await control.hear() is None
    control.close()


async def test_what_is_waited_for_may_come_after_other_notes(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = await Control.on(ends[0]), await Control.on(ends[1])
    one.say(Note("take"))
    one.say(Note("go"))
    assert await other.has_heard("go")
    one.close()
    assert not await other.has_heard("go")
    other.close()


def test_a_process_waits_until_it_may_go(ends: tuple[socket.socket, socket.socket]) -> None:
    went: list[bool] = []
    waiting = threading.Thread(target=lambda: went.append(wait_to_go(ends[0])))
    waiting.start()
    assert ends[1].recv(100) == b'{"kind":"ready"}\n'
    assert went == []
    ends[1].sendall(b'{"kind":"go"}\n{"kind":"take"}\n')
    waiting.join(10)
    assert went == [True]
    assert ends[0].recv(100) == b'{"kind":"take"}\n'  # what follows is still there


def test_a_process_whose_supervisor_has_gone_does_not_go(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[1].close()
    assert wait_to_go(ends[0]) is False
