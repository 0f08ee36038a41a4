"""The service of a drill: traffic of one model on one route, which can be changed while it runs."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import aiohttp

from collector.drill.faults import Asks
from collector.simulator.traffic import Shares, compose

MOST_IN_FLIGHT = 128
TIMEOUT = 60.0  # seconds for one answer
MODEL = "sim-large"
STREAM_SHARE = 0.7
RETRIES = 3
BODY_BYTES = 65_536
PATH = "/v1/chat/completions"


class Service:
    """Sends requests until it is stopped; what comes back does not matter. `rate` is in requests a second."""

    def __init__(self, session: aiohttp.ClientSession, base: str, rate: float, asks: Asks, seed: str) -> None:
        self.rate = rate
        self.asks: Asks = asks
        self.context_lost = 0.0
        self._session = session
        self._base = base
        self._rng = Random(seed)  # noqa: S311 - a seeded draw, nothing is secret
        self._in_flight: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until it is cancelled; requests in flight are given up then."""
        try:
            while True:
                await asyncio.sleep(self._rng.expovariate(self.rate))
                if len(self._in_flight) >= MOST_IN_FLIGHT:
                    continue
                task = asyncio.create_task(self._send(self._body()))
                self._in_flight.add(task)
                task.add_done_callback(self._in_flight.discard)
        finally:
            for task in self._in_flight:
                task.cancel()
            await asyncio.gather(*self._in_flight, return_exceptions=True)

    def _body(self) -> dict[str, Any]:
        match self.asks:
            case "structured":
                return _ticket(self._rng, ["question", "complaint", "request"])
            case "other_category":
                return _ticket(self._rng, ["other"])
            case "malformed":
                return {"model": MODEL}
            case _:
                while (message := compose(self._rng, Shares(self.context_lost), STREAM_SHARE)).dialect != "openai":
                    continue
                return message.body | {"model": MODEL}

    async def _send(self, body: dict[str, Any]) -> None:
        headers = {"User-Agent": "semhealth-drill", "Authorization": "Bearer simulated"}
        if self.asks == "resident":
            headers["X-Data-Residency"] = "eu-central-1"
        for _ in range(RETRIES if self.asks == "retrying" else 1):
            try:
                async with self._session.post(self._base + PATH, json=body, headers=headers) as response:
                    async for _ in response.content.iter_chunked(BODY_BYTES):
                        pass
            except (aiohttp.ClientError, TimeoutError, OSError):
                return
            if response.status != 429:
                return


def _ticket(rng: Random, categories: list[str]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"summary": {"type": "string"}, "category": {"enum": categories}},
        "required": ["summary", "category"],
        "additionalProperties": False,
    }
    question = f"Sort ticket {rng.randrange(10**9)}: the berth was taken when we came in."
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": question}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "ticket", "schema": schema, "strict": True}},
    }
