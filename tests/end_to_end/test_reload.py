"""Reloads and hand-overs to new code under load: no request fails, streams stay whole, every exchange is counted."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from .conftest import Answer, Metrics, Sidecar, call, is_running, wait_until

PROXY, ANALYST = "collector.proxy.worker", "collector.app"
FORWARDED, UNOBSERVED = "semantic_health_forwarded_total", "semantic_health_unobserved_total"
SUCCESSFUL = "semantic_health_config_last_reload_successful"
SUCCEEDED_AT = "semantic_health_config_last_reload_success_timestamp_seconds"
PAUSE = 0.1  # seconds between the events of a stream
PATIENCE = 60.0  # seconds; a busy machine starts processes slowly
CONFIG = """
proxy: {{keep_alive: 300s, workers: {workers}}}
embedder: {{kind: none}}
{more}
routes:
  - name: api
    prefix: /
    upstream: {base}{path}
    labels: {{team: search}}
    {promise}
"""


class Api:
    """An upstream in a thread of its own. Its answers say on which path they were asked; `/stream` goes on for long.

    A stream sends an event every PAUSE seconds until `enough` is set, which lets those that run come to their end.
    """

    def __init__(self) -> None:
        self.enough = threading.Event()
        self._up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._up.wait(20)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=1 << 20)
        app.router.add_post("/{base}/json", self._json)
        app.router.add_post("/{base}/stream", self._stream)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        self.base = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        self._end = asyncio.Event()
        self._up.set()
        await self._end.wait()
        await runner.cleanup()

    async def _json(self, request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({"base": request.match_info["base"]})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        number = 0
        while not self.enough.is_set():
            await answer.write(b"data: %d\n\n" % number)
            await asyncio.sleep(PAUSE)
            number += 1
        await answer.write(b"data: [DONE]\n\n")
        return answer

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


class Traffic:
    """Clients in a thread: short requests on kept connections one after the other, and streams that run throughout."""

    def __init__(self, base: str, clients: int = 8, streams: int = 3) -> None:
        self.base = base
        self.failures: list[str] = []
        self.seen: Counter[str] = Counter()  # by the path that the upstream was asked on
        self.exchanges = 0
        self.streams_whole = 0
        self.streams_open = 0
        self._clients, self._streams = clients, streams
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Traffic:
        self._thread.start()
        wait_until(lambda: self.streams_open == self._streams and self.exchanges > 50, "traffic flows", PATIENCE)
        return self

    def takes(self, path: str) -> None:
        """Wait until requests are answered by way of this path."""
        wait_until(lambda: self.seen[path] > 5, f"requests go to {path}", PATIENCE)

    def stop(self) -> None:
        """No further request; those that run end."""
        self._stop.set()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "requests did not end"

    async def _run(self) -> None:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(sock_read=PATIENCE)) as session,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(self._clients):
                group.create_task(self._ask(session))
            for _ in range(self._streams):
                group.create_task(self._read(session))

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        while not self._stop.is_set():
            try:
                async with session.post(f"{self.base}/json", json={"a": 1}) as response:
                    body = await response.read()
                    if response.status == 200:
                        self.seen[json.loads(body)["base"]] += 1
                    else:
                        self.failures.append(f"{response.status}: {body[:200]!r}")
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
            self.exchanges += 1
            await asyncio.sleep(0.005)

    async def _read(self, session: aiohttp.ClientSession) -> None:
        try:
            async with session.post(f"{self.base}/stream", json={"stream": True}) as response:
                received = await response.content.readany()
                self.streams_open += 1
                received += await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.failures.append(f"a stream: {type(error).__name__}: {error}")
        else:
            events = received.split(b"\n\n")
            numbered = [b"data: %d" % number for number in range(len(events) - 2)]
            self.streams_whole += events == [*numbered, b"data: [DONE]", b""]
        self.exchanges += 1


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    yield api
    api.close()


class Configured:
    """A sidecar with a configuration file that can be written anew."""

    def __init__(self, start: Callable[..., Sidecar], file: Path, api: Api) -> None:
        self.file, self.api = file, api
        self.write("a")
        self.sidecar = start("--config", str(file))

    def write(self, path: str, *, workers: int = 1, more: str = "", promise: str = "") -> None:
        base = self.api.base
        self.file.write_text(CONFIG.format(base=base, path=path, workers=workers, more=more, promise=promise))

    def signal(self, number: signal.Signals) -> None:
        self.sidecar.popen.send_signal(number)

    def said(self, text: str, times: int = 1) -> None:
        wait_until(lambda: self.sidecar.stderr.count(text) >= times, f"the log says {text!r} {times} times", PATIENCE)

    def reload_by_request(self) -> Answer:
        return call(f"{self.sidecar.admin}/-/reload", b"", method="POST", timeout=PATIENCE)

    def asked(self) -> str:
        """On which path the upstream is asked now."""
        answer = call(f"{self.sidecar.base}/json", {})
        assert answer.status == 200
        return str(answer.json()["base"])


@pytest.fixture
def configured(start: Callable[..., Sidecar], tmp_path: Path, api: Api) -> Configured:
    return Configured(start, tmp_path / "semhealth.yaml", api)


RELOADED, REFUSED = "the configuration is reloaded", "the configuration is not reloaded"


def adds_up(sidecar: Sidecar, metrics: Metrics) -> None:
    """Over the log and the metrics together, every exchange that was forwarded is accounted for, and none twice."""
    logged = sidecar.logged()
    assert len({record["id"] for record in logged}) == len(logged)
    assert len(logged) + metrics.total(UNOBSERVED) == metrics.total(FORWARDED)


def test_no_request_fails_and_all_are_counted_while_all_of_it_is_reloaded_and_handed_over(
    configured: Configured, record_property: Callable[[str, object], None]
) -> None:
    sidecar, api = configured.sidecar, configured.api
    with Traffic(sidecar.base) as traffic:
        began = time.monotonic()
        for number in range(5):
            configured.write(f"hup{number}")
            configured.signal(signal.SIGHUP)
            configured.said(RELOADED, number + 1)
            traffic.takes(f"hup{number}")
        for number in range(3):
            configured.write(f"post{number}")
            assert configured.reload_by_request().status == 200
            traffic.takes(f"post{number}")
        configured.file.write_text("routes: [{name: api, upstream: nowhere}]")
        refused = configured.reload_by_request()
        assert refused.status == 400
        assert b"routes[0].upstream" in refused.body
        time.sleep(1.5)  # the proxy tells its totals once a second
        assert sidecar.metrics().total(UNOBSERVED) == 0  # reloads leave nothing out, streams neither
        for number in range(2):
            configured.write(f"usr{number}")
            configured.signal(signal.SIGUSR2)
            traffic.takes(f"usr{number}")
        spent = time.monotonic() - began
        assert traffic.streams_whole == 0
        during = traffic.exchanges
        api.enough.set()
        wait_until(lambda: traffic.streams_whole == 3, "the streams end in the processes that began them", PATIENCE)
    record_property("requests_a_second", during / spent)
    assert traffic.failures == []
    metrics = sidecar.settled(traffic.exchanges)
    unobserved = metrics.total(UNOBSERVED)
    record_property("unobserved", unobserved)
    adds_up(sidecar, metrics)
    assert unobserved == sum(metrics.total(UNOBSERVED, reason=why) for why in ("analyst_down", "analyst_lost"))
    assert unobserved < 0.1 * traffic.exchanges
    assert metrics.total("semantic_health_process_restarts_total") == 0
    wait_until(lambda: len(sidecar.pids_of_all()) == 3, "old workers have ended", PATIENCE)
    assert sidecar.end() == 0


class Kept:
    """One connection of a client, kept for all its requests."""

    def __init__(self, base: str) -> None:
        host, _, port = base.removeprefix("http://").partition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        self._connection.connect()
        self._connection.auto_open = 0  # a connection that is lost is an error

    def asked(self) -> str:
        self._connection.request("POST", "/json", b"{}", {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        assert response.status == 200
        assert response.getheader("Connection") != "close"
        return str(json.loads(response.read())["base"])

    def comes_to(self, path: str) -> None:
        """Ask until the upstream is asked on this path."""
        wait_until(lambda: self.asked() == path, f"this connection goes to {path}", PATIENCE)


def test_a_connection_that_is_kept_outlives_reloads_and_hand_overs(configured: Configured) -> None:
    busy, idle, fresh = (Kept(configured.sidecar.base) for _ in range(3))  # the last has asked nothing yet
    assert busy.asked() == idle.asked() == "a"
    for path, number in (("b", signal.SIGHUP), ("c", signal.SIGUSR2), ("d", signal.SIGHUP)):
        configured.write(path)
        configured.signal(number)
        busy.comes_to(path)
    assert idle.asked() == fresh.asked() == "d"
    assert configured.sidecar.settled().total(UNOBSERVED, reason="analysis_failed") == 0


def test_a_configuration_that_is_wrong_is_refused_whole_and_said(configured: Configured) -> None:
    sidecar = configured.sidecar
    before = sidecar.metrics_when(lambda m: m.values(SUCCESSFUL) == [1.0], "the first one is in force")
    pids = sidecar.pids()
    configured.write("b", more="analysis: {stall_threshold: soon}")
    configured.signal(signal.SIGHUP)
    metrics = sidecar.metrics_when(lambda m: m.values(SUCCESSFUL) == [0.0], "it is refused")
    assert metrics.values(SUCCEEDED_AT) == before.values(SUCCEEDED_AT)
    [line] = [line for line in sidecar.stderr.splitlines() if REFUSED in line]
    assert "analysis.stall_threshold: expected a duration" in line
    assert "(line 4)" in line
    assert configured.asked() == "a"
    answer = configured.reload_by_request()
    assert answer.status == 400
    assert answer.body.decode().startswith("analysis.stall_threshold: expected a duration")
    assert sidecar.pids() == pids
    configured.write("b")
    assert configured.reload_by_request().status == 200
    metrics = sidecar.metrics_when(lambda m: m.values(SUCCESSFUL) == [1.0], "it is in force")
    assert metrics.total(SUCCEEDED_AT) > before.total(SUCCEEDED_AT)
    wait_until(lambda: configured.asked() == "b", "the new route is taken", PATIENCE)
    assert sidecar.pid(ANALYST) == pids[ANALYST]


def test_a_reload_that_changes_nothing_for_the_workers_leaves_them_alone(configured: Configured) -> None:
    pids = configured.sidecar.pids()
    configured.write("a", promise="objectives: [{name: quick, measure: duration, share: 0.9, at_most: 1s}]")
    answer = configured.reload_by_request()
    assert answer.body == b"reloaded: the analyst has taken it, the workers stay\n"
    objective = "semantic_health_slo_objective_ratio"
    configured.sidecar.metrics_when(lambda m: m.values(objective, slo="quick") == [0.9], "the promise is stated")
    assert configured.asked() == "a"
    configured.sidecar.metrics_when(
        lambda m: m.total("semantic_health_slo_events_total", slo="quick") == 1, "and held against what follows"
    )
    assert configured.sidecar.pids() == pids


def test_what_a_running_analyst_cannot_take_is_taken_by_another_and_the_account_goes_on(configured: Configured) -> None:
    sidecar = configured.sidecar
    analyst = sidecar.pid(ANALYST)
    with Traffic(sidecar.base, streams=1) as traffic:
        configured.write("b", workers=2, more="analysis: {window: 60s}")
        answer = configured.reload_by_request()
        assert answer.body == b"reloaded: a new analyst is started (analysis differs), 2 new workers are started\n"
        traffic.takes("b")
        assert sidecar.pid(ANALYST) != analyst
        assert not is_running(analyst)
        configured.api.enough.set()
        wait_until(lambda: traffic.streams_whole == 1, "the stream ends", PATIENCE)
    assert traffic.failures == []
    metrics = sidecar.settled(traffic.exchanges)
    adds_up(sidecar, metrics)
    assert metrics.total(UNOBSERVED, reason="analyst_lost") >= 1  # the stream that ran meanwhile
    assert metrics.total("semantic_health_process_restarts_total") == 0


def test_new_code_that_cannot_start_leaves_the_old_in_charge(configured: Configured) -> None:
    sidecar = configured.sidecar
    pids = sidecar.pids()
    kept = Kept(sidecar.base)
    broken = sidecar.directory / "collector"  # python -m looks into its working directory first
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('half an installation')")
    configured.write("b")
    configured.signal(signal.SIGUSR2)
    configured.said("the hand-over is refused, nothing has changed: it ended with 1: ImportError: half an installation")
    sidecar.metrics_when(lambda m: m.values(SUCCESSFUL) == [0.0], "it is told")
    assert kept.asked() == configured.asked() == "a"
    assert sidecar.pids() == pids
    (broken / "__init__.py").unlink()
    broken.rmdir()
    configured.write("b", more="no_such_key: 1")
    configured.signal(signal.SIGUSR2)
    configured.said("it ended with 2: semhealth: no_such_key: unknown key")
    assert sidecar.pids() == pids
    configured.write("b")
    configured.signal(signal.SIGUSR2)
    kept.comes_to("b")
    assert not set(pids.values()) & set(sidecar.pids().values())
    assert sidecar.popen.poll() is None


def test_the_exchange_log_is_opened_anew_even_where_the_configuration_is_refused(configured: Configured) -> None:
    sidecar = configured.sidecar
    assert configured.asked() == "a"
    wait_until(sidecar.logged, "the first record")
    sidecar.log_path.rename(sidecar.log_path.with_suffix(".moved"))
    configured.file.write_text("nothing: good")
    configured.signal(signal.SIGHUP)
    wait_until(sidecar.log_path.exists, "the log is opened anew")
    configured.said(REFUSED)


def test_prices_that_are_broken_after_the_start_do_not_keep_the_analyst_from_coming_back(
    start: Callable[..., Sidecar], tmp_path: Path, api: Api
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("tables: {ours: {models: {big: {input: 1, output: 2}}}}")
    sidecar = start("--upstream", f"{api.base}a", "--set", f"prices={prices}")
    prices.write_text("tables: [")
    killed = sidecar.pid(ANALYST)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: sidecar.pids().get(ANALYST, killed) != killed, "another analyst", PATIENCE)
    sidecar.metrics_when(lambda m: m.values(SUCCESSFUL) == [1.0], "it is at work", PATIENCE)
    assert sidecar.metrics().total("semantic_health_process_restarts_total", process="analyst") == 1
    answer = call(f"{sidecar.admin}/-/reload", b"", method="POST", timeout=PATIENCE)
    assert answer.status == 400
    assert b"prices" in answer.body


def test_stopping_ends_old_workers_too(configured: Configured) -> None:
    sidecar = configured.sidecar
    with Traffic(sidecar.base, clients=1, streams=2) as traffic:
        configured.write("b")
        configured.signal(signal.SIGHUP)
        traffic.takes("b")
        old = sidecar.pids_of_all()
        assert len(old) == 4  # two workers, the analyst and the validator
        configured.api.enough.set()
        traffic.stop()
    assert sidecar.end() == 0
    assert not any(is_running(pid) for pid in old)
    assert traffic.failures == []
    assert traffic.streams_whole == 2
