"""The real sidecar, as processes, in front of a scripted upstream; one serves all cases that need no settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from collector.config import parse_address
from tests.end_to_end.conftest import Sidecar

from .stage import ScriptedUpstream, Stage

Start = Callable[..., Sidecar]


@pytest.fixture(scope="session")
def start_sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a sidecar without an embedder, which nothing here needs; all are ended at last, and must end well."""
    started: list[Sidecar] = []

    def begin(*arguments: str, env: Mapping[str, str] | None = None) -> Sidecar:
        directory = tmp_path_factory.mktemp("sidecar")
        started.append(Sidecar(directory, *arguments, "--set", "embedder.kind=none", env=env))
        return started[-1]

    yield begin
    for each in started:
        assert each.end() == 0, each.stderr
        assert "unexpected" not in each.stderr, each.stderr


@pytest.fixture(scope="session")
def upstream() -> Iterator[ScriptedUpstream]:
    upstream = ScriptedUpstream()
    yield upstream
    upstream.close()


@pytest.fixture(scope="session")
def sidecar(start_sidecar: Start, upstream: ScriptedUpstream) -> Iterator[Sidecar]:
    """After all cases its account must be exact: what it forwarded is recorded, or unobserved for a reason."""
    sidecar = start_sidecar("--upstream", f"http://127.0.0.1:{upstream.port}")
    yield sidecar
    metrics = sidecar.settled()
    recorded = metrics.total("semantic_health_exchanges_total")
    unobserved = metrics.total("semantic_health_unobserved_total")
    assert metrics.total("semantic_health_forwarded_total") == recorded + unobserved


@pytest.fixture
def stage(upstream: ScriptedUpstream, sidecar: Sidecar) -> Stage:
    return Stage(upstream, address_of(sidecar))


def address_of(sidecar: Sidecar) -> tuple[str, int]:
    """Where a sidecar listens for the service."""
    return parse_address(sidecar.base.removeprefix("http://"))
