"""The admin port over real HTTP, in front of an analyst that was told of real exchanges."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from collector.admin.server import INDEX, application
from collector.analyst.analyst import AnalysedRoute, Analyst, Worker
from collector.analyst.fold import RouteFacts
from collector.analyst.ledger import Ledger
from collector.app import SystemClock, rules_of
from collector.config import Settings
from collector.measures import validity
from collector.model import (
    BytesSeen,
    Event,
    Exchange,
    ExchangeEnded,
    Judgement,
    ProxyVitals,
    Relevance,
    RequestSeen,
    ResponseSeen,
    ValidationTask,
)
from exporters.prometheus import PrometheusExporter

Client = TestClient[Any, Any]
SCHEMA = {"type": "object", "required": ["berths"]}


class StrictJudge:
    """Finds what is JSON valid, and all else not."""

    async def judge(self, tasks: Sequence[ValidationTask]) -> Sequence[Judgement]:
        return [validity.judgement(task, "valid" if task.text.startswith("{") else "not_json") for task in tasks]


class NoScorer:
    ready = False

    languages = None

    def admit(self, exchange: Exchange) -> str | None:
        return "model_not_ready"

    async def score(self, exchange: Exchange) -> Relevance:
        raise AssertionError("is not asked while it is not ready")


def exchange(
    number: int, route: str = "chat", model: str = "gpt", status: int = 200, text: str | None = None
) -> list[Event]:
    """The events of one exchange with the ids `up-N` and `client-N`; with a `text`, structured output was asked for."""
    asked: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "How many?"}]}
    if text is not None:
        asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "harbour", "schema": SCHEMA}}
    choice = {"index": 0, "message": {"role": "assistant", "content": text or "Twelve."}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    answered: dict[str, Any] = {"model": model, "choices": [choice], "usage": usage}
    if status >= 400:
        answered = {"error": {"message": "no", "type": "invalid_request_error"}}
    request, response = json.dumps(asked).encode(), json.dumps(answered).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(request)}\r\n"
        f"X-Client-Request-Id: client-{number}\r\n\r\n"
    )
    told = (
        f"HTTP/1.1 {status} Told\r\nContent-Type: application/json\r\nContent-Length: {len(response)}\r\n"
        f"x-request-id: up-{number}\r\n\r\n"
    )
    return [
        RequestSeen(number, 1.0, 1_700_000_000.0 + number, route, head.encode()),
        BytesSeen(number, 1.0, False, request),
        ResponseSeen(number, 1.1, 1.0, None, told.encode()),
        BytesSeen(number, 1.1, True, response),
        ExchangeEnded(number, 1.2, "complete", 0.0001),
    ]


@pytest.fixture
def exporter() -> PrometheusExporter:
    return PrometheusExporter((), 300.0, 5000, SystemClock())


@pytest.fixture
def analyst(exporter: PrometheusExporter) -> Analyst:
    routes = {name: AnalysedRoute(RouteFacts(name, "api.example", None, None)) for name in ("chat", "search")}
    rules = rules_of(Settings(upstream="http://api.example"))
    return Analyst(rules, routes, exporter, Ledger(1000), lambda _: None, StrictJudge(), NoScorer(), SystemClock())


@pytest.fixture
async def worker(analyst: Analyst) -> Worker:
    """A connected proxy worker of the boot `life`."""
    worker = Worker(lambda batches, ended: None)
    analyst.connected(worker)
    analyst.take(worker, [ProxyVitals(0, "life", 1.0, 0, {}, {}, 0, 0, 0.0)])
    return worker


@pytest.fixture
async def client(analyst: Analyst, exporter: PrometheusExporter) -> AsyncIterator[Client]:
    async with TestClient(TestServer(application(analyst, exporter.render))) as client:
        yield client


async def told(analyst: Analyst, worker: Worker, *exchanges: list[Event]) -> None:
    for events in exchanges:
        analyst.take(worker, events)
        await analyst.settle(5.0)  # in order, although some wait for their judge


async def records(client: Client, query: str = "") -> list[dict[str, Any]]:
    async with client.get(f"/records{query}") as response:
        assert response.status == 200
        assert response.content_type == "application/json"
        found: list[dict[str, Any]] = (await response.json())["records"]
        return found


# ---------------------------------------------------------------- records


async def test_records_come_newest_first_and_as_many_as_asked(client: Client, analyst: Analyst, worker: Worker) -> None:
    await told(analyst, worker, *(exchange(number) for number in range(1, 8)))
    assert [record["id"] for record in await records(client)] == [f"life-{number}" for number in range(7, 0, -1)]
    assert [record["id"] for record in await records(client, "?limit=2")] == ["life-7", "life-6"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?route=search", [2]),
        ("?model=claude", [3]),
        ("?outcome=upstream_error", [4]),
        ("?outcome=completed&route=chat", [6, 5, 3, 1]),
        ("?validity=valid", [5]),
        ("?validity=not_json", [6]),
        ("?finding=nothing", []),
        ("?route=chat&limit=1", [6]),
    ],
)
async def test_records_are_filtered(
    query: str, found: list[int], client: Client, analyst: Analyst, worker: Worker
) -> None:
    await told(
        analyst,
        worker,
        exchange(1),
        exchange(2, route="search"),
        exchange(3, model="claude"),
        exchange(4, status=400),
        exchange(5, text='{"berths": 12}'),
        exchange(6, text="Twelve, I think."),
    )
    assert [record["id"] for record in await records(client, query)] == [f"life-{number}" for number in found]


async def test_no_record_is_an_empty_list(client: Client) -> None:
    assert await records(client) == []


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "many", "", "1.5", "²"])
async def test_a_limit_that_is_none_is_refused(limit: str, client: Client) -> None:
    async with client.get("/records", params={"limit": limit}) as response:
        assert response.status == 400
        assert (await response.json())["error"] == {
            "message": "limit: expected a number from 1 to 1000",
            "source": "semhealth",
        }


async def test_an_unknown_filter_is_refused_with_those_that_are_known(client: Client) -> None:
    async with client.get("/records?colour=red") as response:
        assert response.status == 400
        message = (await response.json())["error"]["message"]
    assert message == ("unknown parameter 'colour'; known are route, model, outcome, finding, validity, limit")


@pytest.mark.parametrize("asked", ["life-2", "up-2", "client-2"])
async def test_a_record_is_found_by_its_id_the_upstreams_or_the_clients(
    asked: str, client: Client, analyst: Analyst, worker: Worker
) -> None:
    await told(analyst, worker, exchange(1), exchange(2), exchange(3))
    async with client.get(f"/records/{asked}") as response:
        assert response.status == 200
        record = await response.json()
    assert (record["id"], record["upstream"]["request_id"], record["client_request_id"]) == (
        "life-2",
        "up-2",
        "client-2",
    )


async def test_a_record_that_is_not_there_is_a_404_that_says_why(client: Client) -> None:
    async with client.get("/records/none") as response:
        assert response.status == 404
        error = (await response.json())["error"]
    assert error["source"] == "semhealth"
    assert "older than those that are kept" in error["message"]


# ---------------------------------------------------------------- metrics, summary, health


async def test_metrics_are_text_or_openmetrics_as_the_scrape_asks(
    client: Client, analyst: Analyst, worker: Worker
) -> None:
    await told(analyst, worker, exchange(1))
    async with client.get("/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        text = await response.text()
    assert "semantic_health_exchanges_total{" in text
    assert 'outcome="completed"' in text
    async with client.get("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"}) as response:
        assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        assert (await response.text()).endswith("# EOF\n")


async def test_a_slow_scrape_holds_no_other_answer_up(analyst: Analyst) -> None:
    import threading

    may_end = threading.Event()

    def render(_accept: str) -> tuple[bytes, str]:
        assert may_end.wait(30)
        return b"done", "text/plain"

    async with TestClient(TestServer(application(analyst, render))) as client:
        scrape = asyncio.create_task(client.get("/metrics"))
        try:
            async with client.get("/livez", timeout=aiohttp.ClientTimeout(total=20)) as response:
                assert response.status == 200
            assert not scrape.done()
        finally:
            may_end.set()
        assert await (await scrape).text() == "done"


async def test_the_summary_has_totals_and_routes(client: Client, analyst: Analyst, worker: Worker) -> None:
    await told(analyst, worker, exchange(1), exchange(2, route="search"), exchange(3, status=500))
    analyst.take(worker, [ProxyVitals(0, "life", 2.0, 5, {"queue_full": 2}, {"no_route": 1}, 4, 100, 0.0)])
    async with client.get("/summary") as response:
        summary = await response.json()
    totals = summary["totals"]
    assert (totals["recorded"], totals["forwarded"], totals["in_flight"]) == (3, 5, 4)
    assert totals["outcomes"] == {"completed": 2, "upstream_error": 1}
    assert totals["unobserved"] == {"queue_full": 2}
    assert totals["refused"] == {"no_route": 1}
    assert [(route["route"], route["model"]) for route in summary["routes"]] == [
        ("chat", "gpt"),
        ("chat", "unknown"),
        ("search", "gpt"),
    ]


async def test_it_is_alive_at_once_and_ready_with_a_proxy_worker(client: Client, analyst: Analyst) -> None:
    async with client.get("/livez") as response:
        assert response.status == 200
    async with client.get("/readyz") as response:
        assert response.status == 503
        assert await response.text() == "no proxy worker is connected\n"
    worker = Worker(lambda batches, ended: None)
    analyst.connected(worker)
    async with client.get("/readyz") as response:
        assert response.status == 200
    analyst.disconnected(worker)
    async with client.get("/readyz") as response:
        assert response.status == 503


async def test_the_first_page_lists_what_is_there(client: Client) -> None:
    async with client.get("/") as response:
        assert await response.text() == INDEX
    for path in ("/metrics", "/records", "/summary", "/livez"):
        assert path in INDEX
        async with client.get(path) as response:
            assert response.status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_everything_is_read_only(method: str, client: Client) -> None:
    for path in ("/", "/metrics", "/records", "/summary", "/records/one"):
        async with client.request(method, path) as response:
            assert response.status == 405


async def test_a_reload_is_asked_for_and_its_answer_handed_on(analyst: Analyst, exporter: PrometheusExporter) -> None:
    answers = [(200, "reloaded\n"), (400, "upstream: missing\nlisten: wrong")]

    async def reload() -> tuple[int, str]:
        return answers.pop(0)

    async with TestClient(TestServer(application(analyst, exporter.render, reload))) as client:
        for status, text in ((200, "reloaded\n"), (400, "upstream: missing\nlisten: wrong\n")):
            async with client.post("/-/reload") as response:
                assert (response.status, await response.text()) == (status, text)
        async with client.get("/-/reload") as response:
            assert response.status == 405
    assert answers == []


async def test_without_a_supervisor_there_is_no_reload(client: Client) -> None:
    async with client.post("/-/reload") as response:
        assert response.status == 503
        assert "no supervisor" in await response.text()
