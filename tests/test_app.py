"""Tests of collector.app: how settings become what the analyst works with."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import msgspec
import pytest

from collector.app import DIALECTS, AnalystProcess, analysed_routes, rules_of
from collector.config import Analysis, EmbedderSettings, Privacy, Route, RouteObjective, Settings


def settings(**more: object) -> Settings:
    return Settings(routes=(Route(name="a", upstream="http://api.example:8000/v1", prefix="/a"),), **more)  # type: ignore[arg-type]


def test_the_last_dialect_speaks_anything() -> None:
    assert DIALECTS[-1].name == "unknown"
    assert len({dialect.name for dialect in DIALECTS}) == len(DIALECTS)


def test_limits_are_those_of_the_settings() -> None:
    limits = rules_of(settings(analysis=Analysis(stall_threshold=0.3, text_cap=77))).limits
    assert (limits.stall, limits.text) == (0.3, 77)


def test_texts_are_hashed_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_OURS", "secret")
    plain = rules_of(settings()).new_digest
    keyed = rules_of(settings(privacy=Privacy(text_hash="hmac", hmac_key_env="KEY_OF_OURS"))).new_digest
    assert plain is not None
    assert keyed is not None
    one, other = plain(), keyed()
    one.update(b"hi")
    other.update(b"hi")
    assert one.hexdigest() == hashlib.sha256(b"hi").hexdigest()
    assert other.hexdigest() == hmac.new(b"secret", b"hi", hashlib.sha256).hexdigest()
    assert rules_of(settings(privacy=Privacy(text_hash="none"))).new_digest is None


def test_a_route_brings_its_host_contract_labels_and_objectives(tmp_path: Path) -> None:
    contract = tmp_path / "contract.json"
    contract.write_text("{}", encoding="utf-8")
    promised = RouteObjective(name="quick", measure="duration", share=0.9, at_most=1.0)
    route = Route(
        name="a",
        upstream="http://api.example:8000/v1",
        prefix="/a",
        contract=str(contract),
        labels={"team": "search"},
        objectives=(promised,),
    )
    made = analysed_routes(Settings(routes=(route,), label_headers={"app": "X-App"}))["a"]
    assert made.facts.host == "api.example:8000"
    assert made.contract == b"{}"
    assert made.extra == ("", "search")  # app, team: sorted by name
    assert made.header_labels == ((0, "x-app"),)
    assert (made.objectives[0].name, made.objectives[0].at_most) == ("quick", 1.0)


PROMISED = RouteObjective(name="quick", measure="duration", share=0.9, at_most=1.0)


def promising(*objectives: RouteObjective, **more: object) -> Settings:
    route = Route(name="a", upstream="http://api.example", objectives=objectives)
    return Settings(routes=(route,), embedder=EmbedderSettings(kind="none"), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (promising(PROMISED, msgspec.structs.replace(PROMISED, name="other")), ""),
        (promising(msgspec.structs.replace(PROMISED, share=0.5, at_most=9.0)), ""),
        (promising(PROMISED, analysis=Analysis(stall_threshold=9.0)), ""),
        (promising(), "route a no longer promises what it did"),
        (promising(PROMISED, analysis=Analysis(window=9.0)), "analysis differs"),
    ],
)
async def test_an_analyst_takes_other_settings_or_says_why_not(after: Settings, reason: str, tmp_path: Path) -> None:
    process = AnalystProcess(promising(PROMISED), tmp_path)
    process._analyst.state_objectives()
    assert process.take(after, workers_stay=True) == reason
    told = process._prometheus.render("")[0].decode()
    now = (after if not reason else promising(PROMISED)).routes[0].objectives
    stated = [line for line in told.splitlines() if line.startswith("semantic_health_slo_objective_ratio{")]
    assert len(stated) == len(now)
    assert {line.split()[1] for line in stated} == {str(each.share) for each in now}


async def test_settings_that_cannot_be_taken_change_nothing(tmp_path: Path) -> None:
    process = AnalystProcess(promising(PROMISED), tmp_path)
    before = process._analyst._rules
    (tmp_path / "settings.json").write_bytes(msgspec.json.encode(promising(PROMISED, prices="/no/such/file")))
    assert process._taken(workers_stay=True) == "it could not take them: ConfigError"
    assert process._analyst._rules is before
