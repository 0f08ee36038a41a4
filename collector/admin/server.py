"""The admin port: metrics, records, health and a summary, all read-only, and one way to have the settings reloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from collector.analyst.analyst import Analyst
from collector.analyst.ledger import Wanted

DEFAULT_LIMIT = 100  # records in one answer
MAX_LIMIT = 1000
FILTERS = ("route", "model", "outcome", "finding", "validity")

Render = Callable[[str], tuple[bytes, str]]
Reload = Callable[[], Awaitable[tuple[int, str]]]

INDEX = """semhealth admin port
  /metrics        Prometheus text, or OpenMetrics where the scrape asks for it
  /records        recent records, newest first; ?route= &model= &outcome= &finding= &validity= &limit=
  /records/{id}   one record, by its own id, the upstream's request id or the client's
  /summary        totals and the state of each route and model
  /livez /readyz  health
  POST /-/reload  take the configuration as it is written now; an error says what is wrong, and nothing has changed
"""


async def no_reload() -> tuple[int, str]:
    """The answer where there is no supervisor."""
    return 503, "there is no supervisor that could reload the configuration"


def application(analyst: Analyst, render: Render, reload: Reload = no_reload) -> web.Application:
    """The aiohttp application. `render` gives the body and content type of /metrics for an `Accept` header.

    `reload` has the configuration read anew; its answer is a status and a text of a line for each problem.
    """

    async def index(_: web.Request) -> web.Response:
        return web.Response(text=INDEX)

    async def metrics(request: web.Request) -> web.Response:
        body, kind = await asyncio.to_thread(render, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": kind})

    async def records(request: web.Request) -> web.Response:
        unknown = sorted(set(request.query) - {*FILTERS, "limit"})
        if unknown:
            return _error(400, f"unknown parameter {unknown[0]!r}; known are {', '.join((*FILTERS, 'limit'))}")
        text = request.query.get("limit", str(DEFAULT_LIMIT))
        if not text.isdecimal() or not 1 <= int(text) <= MAX_LIMIT:
            return _error(400, f"limit: expected a number from 1 to {MAX_LIMIT}")
        found = analyst.ledger.find(Wanted(**{name: request.query.get(name) for name in FILTERS}), int(text))
        return _json({"records": found})

    async def record(request: web.Request) -> web.Response:
        found = analyst.ledger.look_up(request.match_info["id"])
        if found is None:
            return _error(404, "no such record here; it may be older than those that are kept")
        return _json(found)

    async def summary(_: web.Request) -> web.Response:
        return _json(analyst.summary())

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        if analyst.workers:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="no proxy worker is connected\n")

    async def ask_to_reload(_: web.Request) -> web.Response:
        status, text = await reload()
        return web.Response(status=status, text=text if text.endswith("\n") else f"{text}\n")

    app = web.Application()
    app.add_routes([
        web.get("/", index),
        web.get("/metrics", metrics),
        web.get("/records", records),
        web.get("/records/{id}", record),
        web.get("/summary", summary),
        web.get("/livez", alive),
        web.get("/readyz", ready),
        web.post("/-/reload", ask_to_reload),
    ])  # fmt: skip
    return app


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json")


def _error(status: int, message: str) -> web.Response:
    return _json({"error": {"message": message, "source": "semhealth"}}, status)
