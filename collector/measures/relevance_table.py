"""The calibrations that are shipped, written by `python -m tools.fit_relevance`: do not edit."""

# fmt: off
# ruff: noqa: E501

from __future__ import annotations

from collector.measures.relevance_weights import Calibration, Logistic

USE = Calibration(
    model="use-multilingual-3",
    versions=("3",),
    context=Logistic(-3.69, {"closest": 7.286, "in_pair": 2.611, "in_whole": 5.097, "closest_unsaid": 6.722, "names_missing": -2.828}),
    groundedness=Logistic(-3.96, {"in_pair": 4.157, "drawn_closer": 16.917, "unknown_number": -3.743, "in_whole": 2.849, "closest_unsaid": 9.262}),
    answer=Logistic(-4.997, {"to_query": 6.431, "type_fit": 3.102, "drawn_closer": 15.653, "carried": 14.982, "both_unsaid": 15.77}),
    alone=Logistic(-2.469, {"to_query": 12.631, "type_fit": 3.935}),
    priors={"context": 0.68, "answer": 0.485},
)

MINILM = Calibration(
    model="all-MiniLM-L6-v2",
    versions=("53aa51172d14", "53aa51172d14-int8",),
    context=Logistic(-4.076, {"closest": 10.775, "in_pair": 0.0, "in_whole": 4.203, "closest_unsaid": 1.667, "names_missing": -1.922}),
    groundedness=Logistic(-3.579, {"in_pair": 4.994, "drawn_closer": 20.939, "unknown_number": -3.689, "in_whole": 2.909, "closest_unsaid": 8.037}),
    answer=Logistic(-5.063, {"to_query": 5.499, "type_fit": 2.557, "drawn_closer": 20.87, "carried": 14.51, "both_unsaid": 11.038}),
    alone=Logistic(-2.95, {"to_query": 12.104, "type_fit": 2.373}),
    priors={"context": 0.68, "answer": 0.485},
)

CALIBRATIONS = (USE, MINILM)
