"""Calibrations: what the features of relevance weigh with the vectors of one embedding model."""

from __future__ import annotations

import math

from msgspec import Struct

from collector.measures.relevance_features import (
    AloneFeatures,
    AnswerFeatures,
    ContextFeatures,
    Features,
    GroundednessFeatures,
)


class CalibrationError(ValueError):
    """The weights are not those of the features. The message names them."""


class Logistic(Struct, frozen=True, forbid_unknown_fields=True):
    """A logit that is linear in the features; `weights` by their names."""

    bias: float
    weights: dict[str, float]

    def logit(self, features: Features) -> float:
        logit = self.bias
        for name, weight in self.weights.items():
            logit += weight * float(getattr(features, name))
        return logit


class Calibration(Struct, frozen=True, forbid_unknown_fields=True):
    """Weights that hold for one embedding model, by its name and the versions of its weights, and for no other.

    They assume the labelled rows' share of relevant contexts and of right answers (`priors`).
    """

    model: str
    versions: tuple[str, ...]
    context: Logistic
    groundedness: Logistic
    answer: Logistic
    alone: Logistic
    priors: dict[str, float] = {}

    def __post_init__(self) -> None:
        for name, features in FEATURES.items():
            given, wanted = set(getattr(self, name).weights), set(features.__struct_fields__)
            if given != wanted:
                raise CalibrationError(f"{name}: expected weights {sorted(wanted)}, got {sorted(given)}")
            numbers = (getattr(self, name).bias, *getattr(self, name).weights.values())
            if not all(map(math.isfinite, numbers)):
                raise CalibrationError(f"{name}: expected finite weights")


FEATURES: dict[str, type[Features]] = {
    "context": ContextFeatures,
    "groundedness": GroundednessFeatures,
    "answer": AnswerFeatures,
    "alone": AloneFeatures,
}
# What each weight may be: more of these never raises a score, more of all others never lowers one.
LOWERING = frozenset(("names_missing", "unknown_number"))


def sigmoid(logit: float) -> float:
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    power = math.exp(logit)
    return power / (1 + power)
