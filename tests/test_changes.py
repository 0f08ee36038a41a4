"""What of a configuration concerns whom, and the copies that processes are started again with."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from collector.changes import (
    files_of_admin,
    files_of_workers,
    for_workers,
    forget_files,
    keep_files,
    why_a_new_analyst,
)
from collector.config import (
    AdminTls,
    Analysis,
    ConfigError,
    EmbedderSettings,
    ExchangeLog,
    Exporters,
    FindingSettings,
    Privacy,
    Proxy,
    Route,
    RouteObjective,
    Settings,
    Tls,
    ValidatorSettings,
)

ROUTE = Route(name="a", upstream="http://127.0.0.1:1")
SETTINGS = Settings(routes=(ROUTE,))
PROMISE = RouteObjective(name="quick", measure="duration", share=0.9, at_most=1.0)


def with_route(**changed: Any) -> Settings:
    return replace(SETTINGS, routes=(replace(ROUTE, **changed),))


@pytest.mark.parametrize(
    "changed",
    [
        with_route(upstream="http://127.0.0.1:2"),
        with_route(prefix="/v1"),
        with_route(strip_prefix=False),
        with_route(orca="JSON"),
        replace(SETTINGS, listen="127.0.0.1:1"),
        replace(SETTINGS, health="127.0.0.1:2"),
        replace(SETTINGS, log_level="debug"),
        replace(SETTINGS, proxy=Proxy(workers=2)),
        replace(SETTINGS, routes=(ROUTE, replace(ROUTE, name="b", prefix="/b"))),
    ],
)
def test_what_workers_read_brings_new_workers_and_no_new_analyst(changed: Settings) -> None:
    assert for_workers(changed) != for_workers(SETTINGS)
    assert why_a_new_analyst(SETTINGS, changed) == ""


@pytest.mark.parametrize(
    "changed",
    [
        with_route(contract="/contract.yaml"),
        with_route(objectives=(PROMISE,)),
        with_route(cost_per_hour=1.0),
        with_route(findings=FindingSettings(profile="strict")),
        with_route(dialect="ollama", provider="vllm"),
        replace(SETTINGS, analysis=Analysis(stall_threshold=0.3, text_cap=1000)),
        replace(SETTINGS, findings=FindingSettings(profile="strict")),
        replace(SETTINGS, objective_profile="strict"),
        replace(SETTINGS, prices="/prices.yaml"),
        replace(SETTINGS, privacy=Privacy(text_hash="none")),
    ],
)
def test_what_an_analyst_takes_while_it_runs_changes_no_process(changed: Settings) -> None:
    assert for_workers(changed) == for_workers(SETTINGS)
    assert why_a_new_analyst(SETTINGS, changed) == ""


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (replace(SETTINGS, admin="127.0.0.1:1"), "admin differs"),
        (replace(SETTINGS, analysis=Analysis(window=60.0)), "analysis differs"),
        (replace(SETTINGS, analysis=Analysis(records=1)), "analysis differs"),
        (replace(SETTINGS, embedder=EmbedderSettings(kind="none")), "embedder differs"),
        (replace(SETTINGS, validator=ValidatorSettings(timeout=9.0)), "validator differs"),
        (replace(SETTINGS, exporters=Exporters(exchange_log=ExchangeLog(path="/log"))), "exporters differs"),
        (with_route(labels={"team": "search"}), "the labels differ"),
        (replace(SETTINGS, label_headers={"team": "X-Team"}), "the labels differ"),
    ],
)
def test_what_a_running_analyst_cannot_take_is_named(changed: Settings, reason: str) -> None:
    assert why_a_new_analyst(SETTINGS, changed) == reason
    assert for_workers(changed) == for_workers(SETTINGS)


def test_files_that_were_renewed_are_noticed_by_their_contents(tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    file.write_text("one")
    settings = replace(
        SETTINGS,
        proxy=Proxy(tls=Tls(ca_file=str(file), client_cert=str(tmp_path / "none.pem"))),
        admin_tls=AdminTls(cert_file=str(file)),
    )
    before = files_of_workers(settings), files_of_admin(settings)
    assert len(before[0]) == 2
    assert before == (files_of_workers(settings), files_of_admin(settings))
    file.write_text("two")
    after = files_of_workers(settings), files_of_admin(settings)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_prices_and_ca_are_kept_as_they_were_when_they_were_sound(tmp_path: Path, certificates: Path) -> None:
    prices = tmp_path / "prices.yaml"
    sound = "tables: {ours: {models: {big: {input: 1, output: 2}}}}"
    prices.write_text(sound)
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    settings = replace(SETTINGS, prices=str(prices), proxy=Proxy(tls=Tls(ca_file=str(certificates))))
    kept = keep_files(settings, runtime, 3)
    prices.write_text("broken: [")
    assert kept.prices is not None
    assert kept.proxy.tls.ca_file is not None
    assert Path(kept.prices).read_text() == sound
    assert Path(kept.proxy.tls.ca_file).read_bytes() == certificates.read_bytes()
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in runtime.iterdir())
    (runtime / "settings.json").touch()
    forget_files(runtime, 4)
    assert [path.name for path in runtime.iterdir()] == ["settings.json"]


def test_without_such_files_nothing_is_kept(tmp_path: Path) -> None:
    assert keep_files(SETTINGS, tmp_path, 1) == SETTINGS
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["tables: [", None])
def test_prices_that_cannot_be_used_are_refused(tmp_path: Path, content: str | None) -> None:
    prices = tmp_path / "prices.yaml"
    if content is not None:
        prices.write_text(content)
    with pytest.raises(ConfigError, match="prices"):
        keep_files(replace(SETTINGS, prices=str(prices)), tmp_path, 1)


def test_tls_files_that_cannot_be_used_are_refused_by_the_name_of_their_section(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"proxy\.tls: these files cannot be used"):
        keep_files(replace(SETTINGS, proxy=Proxy(tls=Tls(ca_file=str(file)))), tmp_path, 1)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A certificate of its own making."""
    file = tmp_path / "ca-source.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=Test CA",
         "-keyout", str(tmp_path / "key.pem"), "-out", str(file)],
        check=True, capture_output=True,
    )  # fmt: skip
    return file
