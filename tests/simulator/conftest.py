"""A fast simulated API on a free port, and clients of the vendors for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import anthropic
import openai
import pytest

from collector.simulator.api import Settings, serving
from collector.simulator.faults import FaultSetting
from collector.simulator.limits import Limits
from collector.simulator.pacing import FAST, Pacing

Serve = Callable[..., AbstractAsyncContextManager[str]]


@pytest.fixture
def serve() -> Serve:
    """Serve with these faults on: `async with serve("stall", ...) as base`."""

    @contextlib.asynccontextmanager
    async def start(
        *faults: str | FaultSetting, pacing: Pacing = FAST, limits: Limits | None = None, seed: int = 7
    ) -> AsyncIterator[str]:
        settings = Settings(
            seed=seed,
            pacing=pacing,
            limits=Limits() if limits is None else limits,
            faults=tuple(FaultSetting(fault) if isinstance(fault, str) else fault for fault in faults),
            created=1_760_000_000,
        )
        async with serving(settings) as base:
            yield base

    return start


@pytest.fixture
async def base(serve: Serve) -> AsyncIterator[str]:
    async with serve() as address:
        yield address


@pytest.fixture
def openai_client() -> Callable[[str], openai.AsyncOpenAI]:
    return lambda address: openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


@pytest.fixture
def anthropic_client() -> Callable[[str], anthropic.AsyncAnthropic]:
    return lambda address: anthropic.AsyncAnthropic(base_url=address, api_key="none", max_retries=0)
