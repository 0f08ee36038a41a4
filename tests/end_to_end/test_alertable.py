"""What alerts need of a sidecar from its first scrape on: counters at 0, objectives, and no embedder that is missed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .conftest import Sidecar

OBJECTIVE = "{name: quick, measure: first_token, at_most: 300ms, share: 0.9}"


def test_the_first_scrape_has_restarts_at_zero_and_what_the_route_promises(new_directory: Callable[[], Path]) -> None:
    directory = new_directory()
    config = directory / "semhealth.yaml"
    config.write_text(
        "routes: [{name: chat, upstream: http://127.0.0.1:1, cost_per_hour: 2.5, "
        f"objective_profile: strict, objectives: [{OBJECTIVE}]}}]\nembedder: {{kind: none}}\n"
    )
    sidecar = Sidecar(directory, "--config", str(config))
    metrics = sidecar.metrics()
    restarts = {
        process: metrics.values("semantic_health_process_restarts_total", process=process)
        for process in ("proxy", "analyst", "embedder", "validator")
    }
    assert restarts == {process: [0.0] for process in restarts}
    assert metrics.values("semantic_health_relevance_ready") == [], "there is no embedder that could be missed"
    assert metrics.values("semantic_health_slo_objective_ratio", route="chat", slo="errors") == [0.995]
    assert metrics.values("semantic_health_slo_threshold", slo="quick", measure="first_token") == [0.3]
    assert metrics.values("semantic_health_slo_threshold", slo="jitter", measure="jitter") == [0.015]
    assert metrics.values("semantic_health_cost_budget_usd_per_hour", route="chat") == [2.5]
    assert sidecar.end() == 0, sidecar.stderr
