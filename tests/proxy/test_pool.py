"""Idle connections: last in, first out, bounded in number and age."""

from __future__ import annotations

import asyncio

from collector.proxy.pool import Pool
from collector.proxy.routes import Origin

HERE = Origin("http", "here", 80)
THERE = Origin("https", "here", 443)


class Connection:
    def __init__(self, origin: Origin = HERE) -> None:
        self.origin = origin
        self.opened_at = asyncio.get_running_loop().time()
        self.idle_since = 0.0
        self.usable = True

    def is_usable(self) -> bool:
        return self.usable

    def abort(self) -> None:
        self.usable = False


async def test_the_last_one_put_back_is_the_first_one_taken_and_origins_do_not_mix() -> None:
    pool = Pool(asyncio.get_running_loop(), 10, 60.0, 300.0)
    first, last, other = Connection(), Connection(), Connection(THERE)
    for connection in (first, last, other):
        pool.put(connection)
    assert pool.take(HERE, Connection) is last
    assert pool.take(HERE, Connection) is first
    assert pool.take(HERE, Connection) is None
    assert pool.take(THERE, Connection) is other
    pool.close()


async def test_the_one_idle_for_longest_makes_room() -> None:
    pool = Pool(asyncio.get_running_loop(), 2, 60.0, 300.0)
    connections = [Connection() for _ in range(3)]
    for connection in connections:
        pool.put(connection)
    assert [connection.usable for connection in connections] == [False, True, True]
    pool.close()
    assert not any(connection.usable for connection in connections)
    late = Connection()
    pool.put(late)
    assert not late.usable


async def test_what_closed_meanwhile_is_not_given_out() -> None:
    pool = Pool(asyncio.get_running_loop(), 10, 60.0, 300.0)
    good, closed, gone = Connection(), Connection(), Connection()
    for connection in (good, closed, gone):
        pool.put(connection)
    closed.usable = False
    pool.forget(gone)
    assert pool.take(HERE, Connection) is good
    pool.close()


async def test_idle_connections_are_closed_after_their_time() -> None:
    pool = Pool(asyncio.get_running_loop(), 10, 0.1, 300.0)
    early, late = Connection(), Connection()
    pool.put(early)
    await asyncio.sleep(0.06)
    pool.put(late)
    async with asyncio.timeout(10):
        while late.usable:
            await asyncio.sleep(0.01)
            assert late.usable or not early.usable
    assert len(pool) == 0


async def test_a_connection_that_has_grown_old_is_not_kept_however_busy_it_was() -> None:
    pool = Pool(asyncio.get_running_loop(), 10, 60.0, 0.1)
    connection = Connection()
    for is_young in (True, False):
        pool.put(connection)
        assert pool.take(HERE, Connection) is (connection if is_young else None)
        await asyncio.sleep(0.12)
    assert not connection.usable
