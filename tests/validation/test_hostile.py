"""Every kind of hostile output and schema ends in its own result, in time, and nothing beside it is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from collector.catalogue import VALIDITY_RESULTS
from collector.config import ValidatorSettings
from collector.model import ValidationTask
from collector.validation.client import ValidatorClient

from .conftest import Room
from .hostile import KINDS

pytestmark = pytest.mark.asyncio(loop_scope="module")
SCHEMA = b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'
GOOD = ValidationTask(0, None, "json_schema", '{"city": "Rome"}', SCHEMA)
TIMEOUT = 1.0  # seconds, as by default
SLACK = 3.0  # for the way of a large question, and for what else the machine does


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[ValidatorClient]:
    """One validator for all, killed and brought back as often as need be."""
    with TemporaryDirectory(prefix="validator-") as directory:
        room = Room(Path(directory), ValidatorSettings(timeout=TIMEOUT))
        made = ValidatorClient(room.path, room.settings)
        running = asyncio.create_task(made.run())
        room.keep_alive()
        yield made
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await room.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_it_ends_in_a_result_of_its_own_and_its_neighbours_in_theirs(client: ValidatorClient, kind: str) -> None:
    hostile = KINDS[kind]()
    assert hostile.results <= set(VALIDITY_RESULTS)
    task = ValidationTask(0, None, "json_schema", hostile.text, hostile.schema)
    started = time.monotonic()
    async with asyncio.timeout(30):
        before, found, after = await asyncio.gather(
            client.judge([GOOD] * 3), client.judge([task]), client.judge([GOOD] * 3)
        )
    assert found[0].result in hostile.results
    assert {each.result for each in (*before, *after)} == {"valid"}
    assert time.monotonic() - started < TIMEOUT + SLACK


async def test_there_are_at_least_25_kinds() -> None:
    assert len(KINDS) >= 25
