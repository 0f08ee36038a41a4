"""Objectives of a configuration, and those that are suggested."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
import yaml

from collector.catalogue import PROMPT_CLASSES, SLO_MEASURES
from collector.cli import main
from collector.config import PromptClass, Route, RouteObjective, Settings
from collector.config_file import load
from collector.model import ChunkGaps, ErrorFact, Timing
from collector.objectives import LEAST_OF_BURN_RATES, STRICT, alerts_of, described, objectives_of
from collector.suggestion import SuggestionError, cost_per_hour, fetch, proposals

from .measures.test_objectives import record
from .shipped.files import ROOT, alerts

OWN = RouteObjective(name="jitter", measure="jitter", at_most=0.1, share=0.9)


def route(**changes: object) -> Route:
    return Route(name="chat", upstream="http://a.example", **changes)


def test_no_route_has_an_objective_that_nobody_stated() -> None:
    assert objectives_of(Settings(), route()) == ()


def test_the_profile_fills_in_what_the_route_does_not_state_itself() -> None:
    settings = Settings(objective_profile="strict")
    assert objectives_of(settings, route()) == STRICT
    assert objectives_of(settings, route(objective_profile="none")) == ()
    with_own = objectives_of(Settings(), route(objective_profile="strict", objectives=(OWN,)))
    assert [each.at_most for each in with_own if each.name == "jitter"] == [0.1]
    assert {each.name for each in with_own} == {each.name for each in STRICT}


def test_the_strict_profile_is_a_configuration_that_is_taken() -> None:
    stated = [
        ", ".join(f"{key}: {value}" for key, value in msgspec.to_builtins(each).items() if value is not None)
        for each in STRICT
    ]
    settings = load(None, {}, [f"routes[0].objectives=[{{{'}, {'.join(stated)}}}]", "routes[0].name=a",
                               "routes[0].upstream=http://a.example"])  # fmt: skip
    assert settings.routes[0].objectives == STRICT


def test_measures_and_prompt_classes_are_those_of_the_catalogue() -> None:
    measures = next(each for each in msgspec.inspect.type_info(RouteObjective).fields if each.name == "measure")
    assert set(measures.type.values) == set(SLO_MEASURES)
    assert set(msgspec.inspect.type_info(PromptClass).values) == set(PROMPT_CLASSES)


def test_check_names_alerts_that_exist_for_every_objective(tmp_path, capsys) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "routes: [{name: chat, upstream: http://a.example, objective_profile: strict, cost_per_hour: 2}]\n"
        "analysis: {long_context_tokens: 900}\n"
    )
    assert main(["check", str(file)]) == 0
    said = capsys.readouterr().out
    assert "short_prompt up to 900 input tokens" in said
    named = set(re.findall(r"Semhealth\w+", said))
    assert named == {"SemhealthObjectiveBurnsFast", "SemhealthObjectiveBurnsSlowly", "SemhealthObjectiveMissed",
                     "SemhealthStreamsUneven", "SemhealthCostAboveBudget"}  # fmt: skip
    assert named <= set(alerts())
    for objective in STRICT:
        assert f"  {objective.name}: " in said


def test_the_share_at_which_burn_rates_begin_is_that_of_the_rules() -> None:
    strong = RouteObjective(name="a", measure="errors", share=LEAST_OF_BURN_RATES)
    weak = msgspec.structs.replace(strong, share=0.969)
    assert alerts_of(strong) == ("SemhealthObjectiveBurnsFast", "SemhealthObjectiveBurnsSlowly")
    assert alerts_of(weak) == ("SemhealthObjectiveMissed",)
    for name in (*alerts_of(strong), *alerts_of(weak)):
        assert f"{LEAST_OF_BURN_RATES:g}" in alerts()[name]["expr"]


def test_a_route_without_objectives_is_told_what_cannot_be_raised() -> None:
    assert "no objectives" in described(Settings(), (route(),))


def test_the_page_of_objectives_has_the_strict_values() -> None:
    page = (ROOT / "docs" / "objectives.md").read_text(encoding="utf-8")
    for each in STRICT:
        assert re.search(rf"^\| `{each.name}` \| `{each.measure}` .*\| {each.share:g} \|", page, re.MULTILINE), (
            each.name
        )


# ---------------------------------------------------------------- suggest

SLOW = Timing(duration=9.0, first_token=0.4, chunk_gaps=ChunkGaps(5, 0.02, 0.02, 0.1))
FAILED = ErrorFact(None, None, "server_error", "upstream", None, mid_stream=False)


def test_what_is_proposed_would_have_left_some_of_its_budget() -> None:
    seen = [record() for _ in range(97)] + [record(timing=SLOW) for _ in range(3)]
    made = {each.objective.name: each for each in proposals(seen, 4000)}
    assert made["errors"].objective.share == 0.999
    assert made["short_prompt"].objective.prompts == "short_prompt"
    assert made["short_prompt"].objective.at_most == 1.3  # 1 s and a quarter, to two digits upwards
    assert (made["short_prompt"].judged, made["short_prompt"].bad) == (100, 3)
    assert made["short_prompt"].burnt == pytest.approx(0.6)
    assert made["first_token"].objective.at_most == 0.25
    assert made["groundedness"].objective.at_least == 0.4
    assert "long_context" not in made
    assert "validity" not in made


def test_a_share_is_proposed_that_was_kept() -> None:
    seen = [record() for _ in range(98)] + [record(outcome="upstream_error", error=FAILED) for _ in range(2)]
    errors = next(each for each in proposals(seen, 4000) if each.objective.name == "errors")
    assert errors.objective.share == 0.95
    assert errors.burnt == pytest.approx(0.4)


def test_nothing_is_proposed_from_a_handful() -> None:
    assert proposals([record() for _ in range(19)], 4000) == []


def test_a_cost_needs_a_minute_of_records_with_prices() -> None:
    early, late = "2026-01-01T00:00:00Z", "2026-01-01T00:02:00Z"
    assert cost_per_hour([record(cost_usd=0.1, started_at=early)] * 2) is None
    assert cost_per_hour([record(started_at=early), record(started_at=late)]) is None
    assert cost_per_hour([record(cost_usd=0.1, started_at=early), record(cost_usd=0.1, started_at=late)]) == 9.0


@contextmanager
def admin(status: int, body: bytes) -> Iterator[str]:
    class Records(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Records)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_what_is_suggested_can_be_put_into_a_configuration(capsys) -> None:
    with admin(200, msgspec.json.encode({"records": [record()] * 30})) as url:
        assert main(["objectives", "suggest", "--url", url]) == 0
    [proposed] = yaml.safe_load(capsys.readouterr().out)["routes"]
    settings = load(None, {}, [f"routes=[{json.dumps({**proposed, 'upstream': 'http://a.example'})}]"])
    assert {each.name for each in settings.routes[0].objectives} >= {"errors", "short_prompt", "first_token", "jitter"}


@pytest.mark.parametrize(("status", "body"), [(404, b"{}"), (200, b"<html>"), (200, b'{"records": [{}]}')])
def test_what_gives_no_records_is_said_in_one_sentence(status: int, body: bytes, capsys) -> None:
    with admin(status, body) as url:
        assert main(["objectives", "suggest", "--url", url]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("url", ["127.0.0.1:9464", "ftp://a.example", "http://127.0.0.1:1", "http://a.example:port"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SuggestionError):
        fetch(url)
