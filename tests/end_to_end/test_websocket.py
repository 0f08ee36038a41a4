"""A realtime connection passes a running sidecar as it is, deflated or not, and is one record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import ClientSession, WSMsgType, web

from .conftest import Sidecar, wait_until

EVENTS: list[dict[str, Any]] = [
    {"type": "session.created", "session": {"model": "made-up"}},
    {"type": "response.created", "response": {"id": "resp_1"}},
    {"type": "response.output_text.delta", "response_id": "resp_1", "delta": "Hel 🙂"},
    {"type": "response.output_text.delta", "response_id": "resp_1", "delta": "lo"},
    {"type": "response.done", "response": {
        "id": "resp_1", "status": "completed", "usage": {"input_tokens": 9, "output_tokens": 4},
    }},
]  # fmt: skip


async def _answer(request: web.Request) -> web.WebSocketResponse:
    connection = web.WebSocketResponse()
    await connection.prepare(request)
    async for asked in connection:
        if asked.type is WSMsgType.TEXT and asked.json()["type"] == "response.create":
            for event in EVENTS:
                await connection.send_json(event)
    return connection


async def _talk(start: Callable[..., Sidecar], compress: int) -> tuple[Sidecar, list[Any]]:
    application = web.Application()
    application.router.add_get("/v1/realtime", _answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        sidecar = await asyncio.to_thread(start, "--upstream", f"http://127.0.0.1:{port}")
        async with (
            ClientSession() as session,
            session.ws_connect(f"{sidecar.base}/v1/realtime?model=asked", compress=compress) as connection,
        ):
            await connection.ping()
            await connection.send_json({"type": "response.create"})
            told = [await connection.receive_json(timeout=10) for _ in EVENTS]
        return sidecar, told
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("compress", [0, 15])
def test_a_realtime_connection_is_one_record(start: Callable[..., Sidecar], compress: int) -> None:
    sidecar, told = asyncio.run(_talk(start, compress))
    assert told == EVENTS
    (record,) = wait_until(sidecar.logged, "the connection is recorded")
    assert (record["dialect"], record["transport"], record["status"]) == ("openai.realtime", "websocket", 101)
    assert (record["outcome"], record["anomalies"]) == ("completed", [])
    assert (record["request_model"], record["response_model"]) == ("asked", "made-up")
    assert (record["text"]["chars"], record["finish_reasons"]) == (7, ["completed"])
    assert (record["usage"]["input_tokens"], record["usage"]["output_tokens"]) == (9, 4)
    assert (record["frames"]["data"], record["frames"]["pings"]) == (5, 2)  # the ping and its answer
    assert 0.0 <= record["timing"]["first_token"] < record["timing"]["duration"]
    assert record["bytes_in"] > 0
