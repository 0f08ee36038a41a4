"""One half of the soak's load, in a process of its own: short JSON requests at a rate, or paced streams side by side.

Every answer is judged by its client; what the clients saw is told as one line of JSON when all of them have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec
import uvloop
from msgspec import Struct

PATIENCE = 60.0  # seconds after which a request counts as stuck
MOST_TOLD = 20  # failures that are told in words; all are counted
MOST_AT_ONCE = 256  # JSON requests in flight; what the rate asks for beyond it is counted as not begun
LEAVES = 40  # one stream in so many is left by its client after some frames
BREATH = 0.5  # seconds that a stream's client waits after a refusal
OUR_MARK = "x-semhealth-error"  # header of an answer that the sidecar made itself

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


class Seen(Struct):
    """What the clients saw. Seconds; `broken` ended early, by their connection or with the sidecar's word for it.

    `ours` are other errors that the sidecar made, `failures` all that no client should see, in words.
    """

    asked: int = 0
    refused: int = 0
    broken: int = 0
    ours: int = 0
    left: int = 0
    not_begun: int = 0
    frames: int = 0
    failed: int = 0
    failures: list[str] = []
    statuses: dict[str, int] = {}
    marks: dict[str, int] = {}  # what the sidecar called the errors that it made
    whole: list[float] = []
    first: list[float] = []
    elapsed: float = 0.0

    def fail(self, what: str) -> None:
        self.failed += 1
        if len(self.failures) < MOST_TOLD:
            self.failures.append(what)


class Told(Struct, frozen=True):
    """`Seen` without its lists of times: median, 99th percentile and maximum of each, None where there are none."""

    seen: Seen
    whole: tuple[float, float, float] | None
    first: tuple[float, float, float] | None


def question(number: int, *, is_stream: bool) -> tuple[str, dict[str, Any]]:
    """The path and body of the n-th request, in either of two dialects."""
    asks = f"Context:\n{PASSAGES}\n\nQuestion: How long does Tarn Blue ripen, says guest {number}?"
    system = "You are a careful assistant. Answer from the passages that are given."
    if number % 2:
        user = {"role": "user", "content": asks}
        body = {"model": "sim-opus", "max_tokens": 300, "system": system, "messages": [user], "stream": is_stream}
        return "/v1/messages", body
    messages = [{"role": "system", "content": system}, {"role": "user", "content": asks}]
    body = {"model": "sim-large", "messages": messages}
    if is_stream:
        return "/v1/chat/completions", body | {"stream": True, "stream_options": {"include_usage": True}}
    named = {"name": "answer", "strict": True, "schema": SCHEMA}
    return "/v1/chat/completions", body | {"response_format": {"type": "json_schema", "json_schema": named}}


async def ask(session: aiohttp.ClientSession, seen: Seen, url: str, number: int, *, is_stream: bool) -> bool:
    """One request, judged; whether it was answered with 200."""
    path, body = question(number, is_stream=is_stream)
    seen.asked += 1
    began = time.monotonic()
    try:
        async with session.post(f"{url}{path}", json=body) as response:
            status = response.status
            seen.statuses[str(status)] = seen.statuses.get(str(status), 0) + 1
            if status != 200:
                _judge_error(seen, response)
                await response.read()
            elif is_stream:
                await _read_stream(seen, response, number, began)
            else:
                json.loads(await response.read())
            if status == 200:
                seen.whole.append(time.monotonic() - began)
            return status == 200
    except aiohttp.ClientError:
        # Which of these the upstream made is counted there.
        seen.broken += 1
    except TimeoutError:
        seen.fail(f"no end within {PATIENCE:g} s: {path}, stream: {is_stream}")
    except ValueError as error:
        seen.fail(f"an answer that is no JSON: {error}")
    return False


def _judge_error(seen: Seen, response: aiohttp.ClientResponse) -> None:
    """An error is the upstream's if it bears the upstream's id and not the sidecar's mark."""
    mark = response.headers.get(OUR_MARK)
    if mark is not None:
        seen.marks[mark] = seen.marks.get(mark, 0) + 1
    if mark is None and "x-request-id" in response.headers:
        seen.refused += 1
    elif response.status in (502, 504):
        seen.broken += 1  # allowed where the upstream broke its connection, which is counted there
    else:
        seen.ours += 1
        seen.fail(f"status {response.status} that the upstream did not send ({mark})")


async def _read_stream(seen: Seen, response: aiohttp.ClientResponse, number: int, began: float) -> None:
    leaves_after = number // LEAVES % 7 + 1 if number % LEAVES == 0 else None
    tail, frames = b"", 0
    async for piece in response.content.iter_any():
        if not frames:
            seen.first.append(time.monotonic() - began)
        frames += 1
        tail = (tail + piece)[-512:]
        if frames == leaves_after:
            response.close()
            seen.left += 1
            break
    else:
        if not any(end in tail for end in (b"[DONE]", b"message_stop", b'"error"')):
            seen.fail(f"a stream whose end is missing although its connection ended well: …{tail[-80:]!r}")
    seen.frames += frames


async def json_load(session: aiohttp.ClientSession, seen: Seen, url: str, rate: float, seconds: float) -> None:
    """Requests begun at a steady rate, whatever becomes of those before."""
    running: set[asyncio.Task[bool]] = set()
    began = time.monotonic()
    for number in range(int(rate * seconds)):
        wait = began + number / rate - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        if len(running) >= MOST_AT_ONCE:
            seen.not_begun += 1
            continue
        task = asyncio.create_task(ask(session, seen, url, number, is_stream=False))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)


async def stream_load(session: aiohttp.ClientSession, seen: Seen, url: str, streams: int, seconds: float) -> None:
    """So many clients, each with one stream after another."""
    numbers = itertools.count()
    began = time.monotonic()

    async def client(order: int) -> None:
        await asyncio.sleep(5.0 * order / streams)
        while time.monotonic() < began + seconds:
            if not await ask(session, seen, url, next(numbers), is_stream=True):
                await asyncio.sleep(BREATH)

    await asyncio.gather(*(client(order) for order in range(streams)))


async def run(given: argparse.Namespace) -> Told:
    seen = Seen()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    began = time.monotonic()
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        if given.streams:
            await stream_load(session, seen, given.url, given.streams, given.seconds)
        else:
            await json_load(session, seen, given.url, given.rate, given.seconds)
    seen.elapsed = time.monotonic() - began
    whole, first = spread(seen.whole), spread(seen.first)
    seen.whole, seen.first = [], []
    return Told(seen, whole, first)


def spread(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Median, 99th percentile and maximum; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--url", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=0.0, help="JSON requests a second")
    parser.add_argument("--streams", type=int, default=0, help="streams at once")
    given = parser.parse_args(argv)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(run(given))) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
