"""Killing or stopping any process of the sidecar hurts no request, and what was not observed is counted."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from .conftest import Metrics, Sidecar, Simulator, call, is_ok, is_running, wait_until
from .load import Load, requests

ANALYST, EMBEDDER, VALIDATOR = "collector.app", "collector.embedding.process", "collector.validation.process"
PROXY = "collector.proxy.worker"
HEADLINES = (
    "semantic_health_model_output_validity_rate",
    "semantic_health_context_relevance_score",
    "semantic_health_stream_continuity_index_seconds",
)
SLOW = 8.0  # seconds; the simulator answers in milliseconds, but the machine may be busy with restarts
FORWARDED, UNOBSERVED = "semantic_health_forwarded_total", "semantic_health_unobserved_total"


@pytest.fixture(scope="module")
def faulty(new_directory: Callable[[], Path]) -> Iterator[Simulator]:
    """A simulated API of its own, with every fault on that leaves the connection whole."""
    simulator = Simulator(new_directory(), "--fast", "--requests-per-minute", "1000000")
    simulator.switch(invalid_json=0.2, schema_drift=0.1, stutter=0.1, overload=0.1, error_event=0.05, cold_start=0.05)
    yield simulator
    simulator.end()


@pytest.fixture(scope="module")
def loaded(faulty: Simulator, new_directory: Callable[[], Path]) -> Iterator[Sidecar]:
    """One sidecar that lives through the kills; its embedder may use what it needs."""
    sidecar = Sidecar(new_directory(), "--upstream", faulty.base, "--set", "embedder.cpu_share=1")
    yield sidecar
    assert sidecar.end() == 0, sidecar.stderr


def total(sidecar: Sidecar, name: str, **labels: str) -> float:
    return sidecar.metrics().total(name, **labels)


def kill(sidecar: Sidecar, module: str) -> int:
    pid = sidecar.pid(module)
    os.kill(pid, signal.SIGKILL)
    return pid


def wait_for_another(sidecar: Sidecar, module: str, than: int) -> None:
    wait_until(lambda: sidecar.pids().get(module, than) != than, f"{module} is started again")


def nothing_was_hurt(load: Load) -> None:
    assert load.failures == []
    assert load.slowest() < SLOW


def all_headlines(metrics: Metrics) -> bool:
    return all(metrics.values(name) for name in HEADLINES)


def test_a_killed_analyst_hurts_no_request_and_its_metrics_come_back(loaded: Sidecar) -> None:
    with Load(loaded.base) as load:
        loaded.metrics_when(all_headlines, "the three headline metrics before")
        began = time.monotonic()
        killed = kill(loaded, ANALYST)
        wait_for_another(loaded, ANALYST, killed)
        loaded.metrics_when(all_headlines, "the three headline metrics are back")
        assert load.ended_between(began, time.monotonic()) > 0
    nothing_was_hurt(load)
    metrics = loaded.settled(len(load.outcomes))
    assert metrics.total("semantic_health_process_restarts_total", process="analyst") == 1
    lost = metrics.total(UNOBSERVED)
    assert lost == sum(metrics.total(UNOBSERVED, reason=reason) for reason in ("analyst_down", "analyst_lost"))
    assert 0 < lost < len(load.outcomes)


def test_what_a_killed_analyst_did_not_record_is_counted(start: Callable[..., Sidecar], faulty: Simulator) -> None:
    sidecar = start("--upstream", faulty.base)
    with Load(sidecar.base) as load:
        for _ in range(2):
            wait_until(lambda: call(f"{sidecar.admin}/summary").json()["totals"]["recorded"] > 20, "some are recorded")
            killed = kill(sidecar, ANALYST)
            wait_for_another(sidecar, ANALYST, killed)
            wait_until(lambda: is_ok(f"{sidecar.admin}/readyz"), "the analyst is back")
    nothing_was_hurt(load)
    metrics = sidecar.settled(len(load.outcomes))
    recorded = sidecar.logged()
    assert len({record["id"] for record in recorded}) == len(recorded)
    assert metrics.total(FORWARDED) == len(load.outcomes)
    assert len(recorded) + metrics.total(UNOBSERVED) == metrics.total(FORWARDED)
    assert metrics.total(UNOBSERVED, reason="analyst_lost") < metrics.total(FORWARDED)  # they do not lose everything


def test_a_killed_embedder_hurts_no_request_and_scoring_comes_back(loaded: Sidecar) -> None:
    loaded.metrics_when(lambda m: m.total("semantic_health_relevance_ready") == 1, "the embedder is ready")
    with Load(loaded.base) as load:
        killed = kill(loaded, EMBEDDER)
        wait_for_another(loaded, EMBEDDER, killed)
        loaded.metrics_when(
            lambda m: (
                m.total("semantic_health_process_restarts_total", process="embedder") == 1
                and m.total("semantic_health_relevance_ready") == 1
            ),
            "the embedder is ready again",
        )
        before = total(loaded, "semantic_health_context_relevance_count")
        loaded.metrics_when(
            lambda m: m.total("semantic_health_context_relevance_count") > before, "exchanges are scored again"
        )
    nothing_was_hurt(load)


def test_a_killed_validator_hurts_no_request_and_judging_comes_back(loaded: Sidecar) -> None:
    with Load(loaded.base) as load:
        killed = kill(loaded, VALIDATOR)
        wait_for_another(loaded, VALIDATOR, killed)
        before = total(loaded, "semantic_health_output_validations_total", result="valid")
        loaded.metrics_when(
            lambda m: (
                m.total("semantic_health_process_restarts_total", process="validator") >= 1
                and m.total("semantic_health_output_validations_total", result="valid") > before + 3
            ),
            "outputs are judged again",
        )
    nothing_was_hurt(load)


def test_exchanges_are_still_recorded_while_embedder_and_validator_are_away(
    start: Callable[..., Sidecar], faulty: Simulator
) -> None:
    sidecar = start("--upstream", faulty.base, embedder=True)
    with Load(sidecar.base) as load:
        for _ in range(3):
            killed = {module: kill(sidecar, module) for module in (EMBEDDER, VALIDATOR)}
            for module, pid in killed.items():
                wait_for_another(sidecar, module, pid)
    nothing_was_hurt(load)
    metrics = sidecar.settled(len(load.outcomes))
    assert metrics.total(UNOBSERVED) == 0
    wait_until(lambda: len(sidecar.logged()) == len(load.outcomes), "every exchange is in the log")


def test_a_stopped_analyst_holds_nothing_up_and_what_did_not_fit_is_counted(
    start: Callable[..., Sidecar], faulty: Simulator
) -> None:
    sidecar = start("--upstream", faulty.base, "--set", "proxy.queue=64KiB")
    analyst = sidecar.pid(ANALYST)
    with Load(sidecar.base) as load:
        time.sleep(0.5)
        os.kill(analyst, signal.SIGSTOP)
        began = time.monotonic()
        try:
            time.sleep(3)
            flowed = load.ended_between(began, time.monotonic())
        finally:
            os.kill(analyst, signal.SIGCONT)
    assert flowed > 20
    nothing_was_hurt(load)
    metrics = sidecar.settled(len(load.outcomes))
    assert metrics.total(UNOBSERVED, reason="queue_full") > 0
    assert metrics.total(FORWARDED) == len(sidecar.logged()) + metrics.total(UNOBSERVED)
    assert metrics.total("semantic_health_queue_bytes") <= 64 * 1024
    assert sidecar.pid(ANALYST) == analyst


async def test_a_killed_proxy_worker_comes_back_and_serves(start: Callable[..., Sidecar], simulator: Simulator) -> None:
    sidecar = start("--upstream", simulator.base)
    path, body = requests(2)
    assert call(f"{sidecar.base}{path}", body).status == 200
    sidecar.metrics_when(lambda m: m.total(FORWARDED) == 1, "the proxy told its totals")
    async with aiohttp.ClientSession() as session:
        killed = kill(sidecar, PROXY)
        wait_for_another(sidecar, PROXY, killed)
        # The listening socket never closed: what comes meanwhile waits for the new worker.
        async with session.post(f"{sidecar.base}{path}", json=body) as response:
            assert response.status == 200
    metrics = sidecar.metrics_when(lambda m: m.total(FORWARDED) == 2, "totals go on over the lives of a worker")
    assert metrics.total("semantic_health_process_restarts_total", process="proxy") == 1
    wait_until(lambda: len(sidecar.logged()) == 2, "both are recorded")


def test_an_exchange_that_died_with_its_proxy_is_counted(
    start: Callable[..., Sidecar], new_directory: Callable[[], Path]
) -> None:
    slow = Simulator(new_directory(), "--first-token", "30")
    try:
        sidecar = start("--upstream", slow.base)
        path, body = requests(2)
        with pytest.raises((OSError, http.client.HTTPException)):
            _ask_and(lambda: kill(sidecar, PROXY), sidecar, f"{sidecar.base}{path}", body)
        sidecar.metrics_when(lambda m: m.total(UNOBSERVED, reason="proxy_lost") == 1, "the exchange is counted as lost")
        assert wait_until(lambda: is_ok(f"{sidecar.base}/-/readyz"), "the proxy is back")
        assert sidecar.logged() == []
    finally:
        slow.end()


def _ask_and(do: Callable[[], object], sidecar: Sidecar, url: str, body: object) -> None:
    """Send a request, and do something while it is being answered."""

    def when_in_flight() -> None:
        sidecar.metrics_when(lambda m: m.total("semantic_health_in_flight") == 1, "the request is in flight")
        do()

    thread = threading.Thread(target=when_in_flight)
    thread.start()
    try:
        call(url, body)
    finally:
        thread.join()


def test_the_processes_end_when_the_supervisor_is_killed(start: Callable[..., Sidecar], simulator: Simulator) -> None:
    sidecar = start("--upstream", simulator.base, embedder=True)
    pids = sidecar.pids()
    assert set(pids) == {ANALYST, EMBEDDER, VALIDATOR, PROXY}
    sidecar.popen.kill()
    assert sidecar.wait() == -signal.SIGKILL
    wait_until(lambda: not any(is_running(pid) for pid in pids.values()), "every process has ended", 20)
    assert not is_ok(f"{sidecar.base}/-/healthz")


def test_processes_that_keep_dying_are_started_again_ever_more_slowly(
    start: Callable[..., Sidecar], simulator: Simulator
) -> None:
    sidecar = start("--upstream", simulator.base)
    for _ in range(4):
        killed = kill(sidecar, VALIDATOR)
        wait_for_another(sidecar, VALIDATOR, killed)
    waits = [line.split(" again in ")[1].split()[0] for line in sidecar.stderr.splitlines() if " again in " in line]
    assert waits == ["0.05", "0.1", "0.2", "0.4"]
    path, body = requests(0)
    assert call(f"{sidecar.base}{path}", body).status == 200
