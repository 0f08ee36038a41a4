"""The table and the last word, as a person sees them."""

from __future__ import annotations

import msgspec

from collector.analyst.summary import LimitSummary, RouteSummary, Summary, Totals
from collector.view import WIDTH, farewell, table

ROUTE = RouteSummary(
    route="default",
    model="sim-large",
    exchanges=12,
    outcomes={"completed": 11, "truncated": 1},
    validity_rate=0.9166,
    validity_checked=12,
    context_relevance=0.812,
    groundedness=0.75,
    relevance_scored=10,
    continuity_index=0.0123,
    streams=9,
    stalls=2,
    first_token_p50=0.25,
    first_token_p95=1.5,
)
UNKNOWN = RouteSummary("other", "unknown", 1, {"upstream_error": 1}, None, 0, None, None, 0, None, 0, 0, None, None)
SUMMARY = Summary(
    totals=Totals(
        recorded=13,
        outcomes={"truncated": 1, "completed": 11, "upstream_error": 1},
        forwarded=15,
        in_flight=3,
        unobserved={"queue_full": 2},
        refused={"no_route": 4},
        relevance_ready=True,
    ),
    overall=ROUTE,
    routes=(ROUTE, UNKNOWN),
    limits=(
        LimitSummary("openai", "requests", "minute", 6000.0, 5999.0),
        LimitSummary("openai", "tokens", None, None, None),
    ),
)
ADDRESSES = {"sidecar": "http://127.0.0.1:8080", "metrics": "http://127.0.0.1:9464/metrics"}


def test_the_table_shows_the_three_headline_numbers_of_each_route_and_model() -> None:
    [row] = [line for line in table(SUMMARY, ADDRESSES, 61.4).splitlines() if line.startswith("default / sim-large")]
    assert row.split()[3:] == ["12", "0.917", "0.812", "12.3", "ms", "250.0", "ms", "/", "1500.0", "ms", "2"]


def test_what_is_unknown_is_a_dash_and_not_a_zero() -> None:
    [row] = [line for line in table(SUMMARY, ADDRESSES, 1).splitlines() if line.startswith("other / unknown")]
    assert row.split()[3:] == ["1", "–", "–", "–", "–", "/", "–", "0"]


def test_the_table_shows_totals_limits_drops_and_addresses() -> None:
    shown = table(SUMMARY, ADDRESSES, 61.4)
    assert shown.startswith("semhealth ·    61 s · 13 exchanges recorded, 3 running, 2 not observed\n")
    assert "outcomes     11 completed, 1 truncated, 1 upstream_error" in shown
    assert "rate limits  openai requests/minute 5999 of 6000  openai tokens ? of ?" in shown
    assert "drops        2 queue_full   refused  4 no_route" in shown
    assert "metrics      http://127.0.0.1:9464/metrics" in shown
    assert "loading" not in shown


def test_the_table_says_that_the_embedding_model_is_loading() -> None:
    loading = msgspec.structs.replace(SUMMARY, totals=Totals())
    assert "relevance    the embedding model is loading" in table(loading, ADDRESSES, 0)


def test_columns_stay_in_line_whatever_the_names_are() -> None:
    long = msgspec.structs.replace(ROUTE, route="r" * 64, model="m" * 200)
    lines = table(msgspec.structs.replace(SUMMARY, routes=(long, ROUTE)), ADDRESSES, 1).splitlines()
    heading, rule, first, second = lines[2:6]
    assert set(rule) == {"-"}
    assert len(first) == len(second) == len(heading) <= WIDTH


def test_no_exchange_at_all_is_a_table_too() -> None:
    nothing = RouteSummary("", "", 0, {}, None, 0, None, None, 0, None, 0, 0, None, None)
    empty = Summary(Totals(), nothing, (), ())
    assert "outcomes     none" in table(empty, ADDRESSES, 0)
    assert "  validity     – of 0 checked outputs\n" in farewell(empty, 0)


def test_the_last_word_has_every_number_that_the_run_was_for() -> None:
    assert farewell(SUMMARY, 20.2).splitlines() == [
        "semhealth ran for 20 s",
        "  exchanges    13 recorded of 15 forwarded",
        "  outcomes     11 completed, 1 truncated, 1 upstream_error",
        "  validity     0.917 of 12 checked outputs",
        "  relevance    0.812 median context relevance, 0.750 groundedness, of 10 scored",
        "  continuity   12.3 ms median deviation of gaps, 2 stalls, in 9 streams",
        "  first token  250.0 ms median, 1500.0 ms 95th percentile",
        "  drops        2 queue_full",
    ]
