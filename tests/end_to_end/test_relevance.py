"""A real sidecar with the real embedder sees context that is lost or cut, in its medians and as a drift."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from collector.measures.drift import ENOUGH
from collector.simulator.traffic import PATHS, Shares, compose, query

from .conftest import ROOT, Sidecar, Simulator, call, wait_until

CONTEXT_GOOD = 0.75  # R2, and the rule SemhealthContextRelevanceLow
GROUNDED_GOOD = 0.75
TRAFFIC_SECONDS = 45  # of the two minutes in which a fault has to show
RATE = 2.0
PACE = 0.06  # seconds between requests that are sent as fast as they may be scored
OFFERED = 200  # requests of the mix, of every kind
SCORE = {"context_lost": ("context_relevance", CONTEXT_GOOD), "context_cut": ("groundedness", GROUNDED_GOOD)}


@pytest.fixture(scope="module")
def simulated(new_directory: Callable[[], Path]) -> Iterator[Simulator]:
    """A simulated API of this file's own, whose allowance of tokens nobody else uses up."""
    simulator = Simulator(new_directory(), "--fast", "--requests-per-minute", "1000000")
    yield simulator
    assert simulator.end() == 0


@pytest.fixture(scope="module")
def scoring(simulated: Simulator, new_directory: Callable[[], Path]) -> Iterator[Sidecar]:
    """A sidecar with a route for each part, so that none shows in the medians of another; all may be scored."""
    directory = new_directory()
    lines = ["embedder: {cpu_share: 1.0}", "exporters: {max_series: 50000}", "routes:"]
    lines += [f"- {{name: {name}, prefix: /{name}, upstream: '{simulated.base}'}}" for name in ("mix", "drift", *SCORE)]
    path = directory / "semhealth.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    sidecar = Sidecar(new_directory(), "--config", str(path))
    wait_until(lambda: sidecar.summary()["totals"]["relevance_ready"], "the embedding model is loaded", 60.0)
    yield sidecar
    assert sidecar.end() == 0, sidecar.stderr


def scores_of(sidecar: Sidecar, route: str, score: str) -> list[float]:
    told = [each["relevance"] for each in sidecar.records(f"&route={route}")]
    return [each[score] for each in told if each["scored"] and each[score] is not None]


@pytest.mark.parametrize("fault", SCORE)
def test_a_fault_of_the_context_moves_its_median_below_the_threshold_at_two_requests_a_second(
    fault: str, scoring: Sidecar, simulated: Simulator
) -> None:
    simulated.clear()
    simulated.switch(**{fault: 1.0})
    command = [
        sys.executable, "-m", "collector.simulator.traffic", "--base", f"{scoring.base}/{fault}", "--rate", f"{RATE}",
        "--duration", f"{TRAFFIC_SECONDS}", "--faults-from", simulated.base,
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, timeout=TRAFFIC_SECONDS + 40)
    score, threshold = SCORE[fault]
    found = wait_until(lambda: told if len(told := scores_of(scoring, fault, score)) >= 30 else None, "30 scores")
    assert found is not None
    assert statistics.median(found) < threshold - 0.1
    gauges = scoring.metrics().values("semantic_health_context_relevance_score", route=fault)
    assert gauges
    if score == "context_relevance":
        assert statistics.median(gauges) < threshold


def test_ordinary_traffic_of_every_kind_stays_above_both_thresholds(scoring: Sidecar) -> None:
    rng, kinds = Random(5), dict[str, str]()  # noqa: S311 - seeded draws are the point
    for number in range(OFFERED):
        message = compose(rng, Shares(), 0.5)
        kinds[f"mix-{number}"] = message.kind
        call(f"{scoring.base}/mix{PATHS[message.dialect]}", message.body, {"X-Client-Request-Id": f"mix-{number}"})
        time.sleep(PACE)
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: {"context_relevance": [], "groundedness": []})
    records = wait_until(
        lambda: told if len(told := scoring.records("&route=mix")) >= OFFERED else None, f"{OFFERED} records"
    )
    for record in records or ():
        told = record["relevance"]
        if told["scored"]:
            for score, values in found[kinds[record["client_request_id"]]].items():
                values.append(told[score])
    assert len(found) == 10, "every kind that has a context"
    for kind, values in found.items():
        assert statistics.median(values["context_relevance"]) > CONTEXT_GOOD, kind
        assert statistics.median(values["groundedness"]) > GROUNDED_GOOD, kind


def test_a_fall_is_told_as_a_drift_and_before_there_is_a_level_nothing_is(scoring: Sidecar) -> None:
    def ask(number: int, shares: Shares) -> None:
        asked = query(Random(number), shares)  # noqa: S311 - seeded draws are the point
        passages = "\n".join(f"<document>{title}: {passage}</document>" for title, passage in asked.passages)
        message = {"role": "user", "content": f"{passages}\n\n{asked.item.question}"}
        body = {"model": "sim-large", "max_tokens": 200, "messages": [message]}
        assert call(f"{scoring.base}/drift/v1/chat/completions", body).status == 200
        time.sleep(PACE)

    drift = "semantic_health_relevance_drift_"
    context = {"route": "drift", "score": "context_relevance"}
    for number in range(ENOUGH - 20):
        ask(number, Shares())
    scored = "semantic_health_relevance_eligible_total"
    metrics = scoring.metrics_when(lambda told: told.total(scored, route="drift") >= ENOUGH - 20, "they are scored")
    assert metrics.values(f"{drift}ratio", **context) == []
    for number in range(ENOUGH - 20, ENOUGH + 30):
        ask(number, Shares())
    metrics = scoring.metrics_when(lambda told: told.values(f"{drift}ratio", **context), "there is a level")
    assert abs(metrics.total(f"{drift}errors", **context)) < 4.0
    for number in range(60):
        ask(number, Shares(context_lost=1.0))
    scoring.metrics_when(lambda told: told.total(f"{drift}errors", **context) < -4.0, "it is more than chance")
    time.sleep(0.5)
    metrics = scoring.metrics()
    assert metrics.total(f"{drift}ratio", **context) < -0.04
    assert metrics.total(f"{drift}logits", **context) < -0.69
