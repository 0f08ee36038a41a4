"""Load for the survival tests: streams and JSON in both dialects, every request timed and judged by its client."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp

EXPECTED = frozenset({200, 429, 529})  # what the simulated API answers with its faults on
PASSAGES = (
    "[1] Quay Nine has twelve berths, and each of them has water and power.\n\n"
    "[2] The Morwenna is a cheese boat that calls on Thursdays.\n\n"
    "[3] Tarn Blue is a cheese that ripens for sixty days in a slate cellar."
)
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}, "sources": {"type": "array", "items": {"type": "integer"}}},
    "required": ["answer", "sources"],
    "additionalProperties": False,
}


def _messages(number: int) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": "You are a careful assistant. Answer from the passages that are given."},
        {
            "role": "user",
            "content": f"Context:\n{PASSAGES}\n\nQuestion: How long does Tarn Blue ripen, says guest {number}?",
        },
    ]


def requests(number: int) -> tuple[str, dict[str, Any]]:
    """The path and body of the n-th request."""
    kind = number % 5
    if kind < 3:
        body: dict[str, Any] = {"model": "sim-large", "messages": _messages(number)}
        if kind > 0:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if kind < 2:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA},
            }
        return "/v1/chat/completions", body
    system, user = _messages(number)
    return "/v1/messages", {
        "model": "sim-opus",
        "max_tokens": 300,
        "system": system["content"],
        "messages": [user],
        "stream": kind == 3,
    }


@dataclass
class Outcome:
    """One request as its client saw it. Monotonic seconds; `failure` says what no client should see."""

    began: float
    seconds: float
    failure: str | None


@dataclass
class Load:
    """Runs in a thread of its own from `with` to its end; whatever was begun is finished."""

    base: str
    clients: int = 6
    pause: float = 0.02
    outcomes: list[Outcome] = field(default_factory=list)

    def __enter__(self) -> Load:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "requests did not end"

    async def _run(self) -> None:
        numbers = itertools.count()
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            await asyncio.gather(*(self._client(session, numbers) for _ in range(self.clients)))

    async def _client(self, session: aiohttp.ClientSession, numbers: itertools.count[int]) -> None:
        while not self._stop.is_set():
            path, body = requests(next(numbers))
            began = time.monotonic()
            failure = await self._ask(session, path, body)
            self.outcomes.append(Outcome(began, time.monotonic() - began, failure))
            await asyncio.sleep(self.pause)

    async def _ask(self, session: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> str | None:
        try:
            async with session.post(f"{self.base}{path}", json=body) as response:
                told = await response.read()
                if response.status not in EXPECTED:
                    return f"status {response.status}: {told[:200]!r}"
                if body.get("stream") and response.status == 200:
                    # The fault `error_event` ends a stream with an error, which is an end too.
                    if b"[DONE]" not in told and b"message_stop" not in told and b'"error"' not in told:
                        return f"a stream without an end: …{told[-200:]!r}"
                else:
                    json.loads(told)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    @property
    def failures(self) -> list[str]:
        return [outcome.failure for outcome in self.outcomes if outcome.failure is not None]

    def slowest(self) -> float:
        return max(outcome.seconds for outcome in self.outcomes)

    def ended_between(self, start: float, end: float) -> int:
        return sum(start <= outcome.began + outcome.seconds <= end for outcome in self.outcomes)
