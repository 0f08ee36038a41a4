"""Tests of collector.app: how settings become what the analyst works with."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest

from collector.app import DIALECTS, analysed_routes, rules_of
from collector.config import Analysis, Privacy, Route, RouteObjective, Settings


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
