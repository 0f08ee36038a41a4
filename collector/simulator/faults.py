"""Faults that can be switched while the simulation runs: their names, their settings, and what they do to a text."""

from __future__ import annotations

from random import Random
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from collector.simulator.documents import Json, is_of_type

FaultName = Literal[
    "invalid_json",
    "schema_drift",
    "stutter",
    "stall",
    "truncation",
    "overload",
    "downgrade",
    "cold_start",
    "error_event",
    "context_lost",
    "context_cut",
    "loop",
    "empty",
    "no_usage",
    "correction",
    "cache_loss",
    "diagnostic",
    "wrong_region",
    "deprecation",
    "drain",
    "load",
]
FAULT_NAMES: tuple[FaultName, ...] = get_args(FaultName)

# The faults that the traffic makes; the API only keeps their settings, so that one place knows them all.
OF_TRAFFIC: tuple[FaultName, ...] = ("context_lost", "context_cut")

MEANINGS: dict[FaultName, str] = {
    "invalid_json": "structured output or tool arguments are not JSON",
    "schema_drift": "a field of structured output or tool arguments is renamed, missing or of another type",
    "stutter": "the gaps between tokens vary widely; seconds is their standard deviation",
    "stall": "the answer pauses in the middle for so many seconds",
    "truncation": "the connection closes before the end (mode cut), or the answer stops by length (mode length)",
    "overload": "throttled by the model (429, 503 or 529, as its vendor does; mode model) or by the gateway (429)",
    "downgrade": "a smaller model answers",
    "cold_start": "prefill takes so many seconds and the trace names a model load",
    "error_event": "a stream that began with 200 ends in an error event",
    "context_lost": "traffic: the passages belong to another question of the same domain",
    "context_cut": "traffic: the sentence that holds the answer is removed from its passage",
    "loop": "the answer repeats one sentence to its end",
    "empty": "the answer ends as usual and says nothing",
    "no_usage": "a stream in OpenAI's dialect tells no usage although it was asked to",
    "correction": "a stream in OpenAI's dialect repeats its text at the end, and it is another",
    "cache_loss": "nothing of the prompt is found in a cache",
    "diagnostic": "request ids begin with anthropic-internal-",
    "wrong_region": "a request with X-Data-Residency is served in another region",
    "deprecation": "the answer has Deprecation and Sunset headers",
    "drain": "each request takes 8 % of the allowance of requests",
    "load": "the load that the model reports is 0.9 (mode high) or 0.05 (mode spare)",
}
MODES: dict[FaultName, tuple[str, ...]] = {
    "truncation": ("cut", "length"),
    "overload": ("model", "gateway"),
    "load": ("high", "spare"),
}
SECONDS: dict[FaultName, float] = {"stutter": 0.06, "stall": 3.0, "cold_start": 4.2}
MOST_SECONDS = 600.0


class FaultError(ValueError):
    """A fault setting that cannot be taken; the message says why and what would be."""


class FaultSetting(Struct, frozen=True, forbid_unknown_fields=True):
    """How often a fault strikes (0-1), which of its modes (None is any), and how long where it has a length."""

    fault: str
    share: float = 1.0
    mode: str | None = None
    seconds: float | None = None


class Strike(Struct, frozen=True):
    """What one fault does to one request. `mode` is empty and `seconds` 0 where the fault has none."""

    mode: str = ""
    seconds: float = 0.0


class FaultBoard:
    """The switched faults; each request draws from it once."""

    def __init__(self, settings: list[FaultSetting] | None = None) -> None:
        self._settings: dict[FaultName, FaultSetting] = {}
        self.switch([] if settings is None else settings)

    def switch(self, settings: list[FaultSetting]) -> None:
        """Take all of these, or raise FaultError and take none."""
        checked = [(_name(setting.fault), setting) for setting in settings]
        for name, setting in checked:
            _check(name, setting)
        for name, setting in checked:
            if setting.share > 0:
                self._settings[name] = setting
            else:
                self._settings.pop(name, None)

    def clear(self, name: str | None = None) -> None:
        """Switch one fault off, or all; FaultError for a name that is none."""
        if name is None:
            self._settings.clear()
        else:
            self._settings.pop(_name(name), None)

    def share(self, name: FaultName) -> float:
        """How often a fault strikes; 0 when it is off."""
        setting = self._settings.get(name)
        return 0.0 if setting is None else setting.share

    def mode(self, name: FaultName) -> str | None:
        """The mode that was asked for; None where the fault is off, or any of its modes may strike."""
        setting = self._settings.get(name)
        return None if setting is None else setting.mode

    def strikes(self, rng: Random) -> dict[FaultName, Strike]:
        """The faults that hit one request. Every name draws, so switching one does not move the draws of others."""
        struck: dict[FaultName, Strike] = {}
        for name in FAULT_NAMES:
            chance, choice = rng.random(), rng.random()
            setting = self._settings.get(name)
            if setting is None or name in OF_TRAFFIC or chance >= setting.share:
                continue
            modes = MODES.get(name, ("",))
            mode = setting.mode if setting.mode is not None else modes[int(choice * len(modes))]
            seconds = setting.seconds if setting.seconds is not None else SECONDS.get(name, 0.0)
            struck[name] = Strike(mode, seconds)
        return struck

    def described(self) -> dict[str, Any]:
        """Every fault with its setting, as the control endpoint answers."""
        rows = []
        for name in FAULT_NAMES:
            setting = self._settings.get(name)
            rows.append(
                {
                    "fault": name,
                    "share": self.share(name),
                    "mode": None if setting is None else setting.mode,
                    "modes": list(MODES.get(name, ())),
                    "seconds": SECONDS.get(name) if setting is None or setting.seconds is None else setting.seconds,
                    "where": "traffic" if name in OF_TRAFFIC else "api",
                    "meaning": MEANINGS[name],
                }
            )
        return {"faults": rows}


_decode_settings = msgspec.json.Decoder(FaultSetting | list[FaultSetting]).decode


def settings_from_json(body: bytes) -> list[FaultSetting]:
    """One setting or a list of them; FaultError for anything else."""
    try:
        decoded = _decode_settings(body)
    except msgspec.DecodeError as error:
        raise FaultError(f'expected {{"fault": NAME, "share": 0-1}} or a list of such: {error}') from error
    return decoded if isinstance(decoded, list) else [decoded]


def setting_from_words(words: str) -> FaultSetting:
    """A setting written NAME or NAME=SHARE, as on a command line; FaultError for anything else."""
    name, equals, share = words.partition("=")
    try:
        setting = FaultSetting(name, float(share) if equals else 1.0)
    except ValueError as error:
        raise FaultError(f"{words!r}: expected NAME=SHARE with a share from 0 to 1") from error
    _check(_name(name), setting)
    return setting


def _name(name: str) -> FaultName:
    for known in FAULT_NAMES:
        if name == known:
            return known
    raise FaultError(f"unknown fault {name!r}; known are {', '.join(FAULT_NAMES)}")


def _check(name: FaultName, setting: FaultSetting) -> None:
    if not 0 <= setting.share <= 1:
        raise FaultError(f"{name}: share must be from 0 to 1, got {setting.share}")
    if setting.mode is not None and setting.mode not in MODES.get(name, ()):
        known = ", ".join(MODES[name]) if name in MODES else "it has none"
        raise FaultError(f"{name}: unknown mode {setting.mode!r}; {known}")
    if setting.seconds is None:
        return
    if name not in SECONDS:
        raise FaultError(f"{name}: takes no seconds")
    if not 0 <= setting.seconds <= MOST_SECONDS:
        raise FaultError(f"{name}: seconds must be from 0 to {MOST_SECONDS:g}, got {setting.seconds}")


# ---------------------------------------------------------------- what the faults do to documents


def broken_json(text: str, rng: Random) -> str:
    """The text of a document, spoilt in one of the ways in which models spoil JSON; never JSON any more."""
    body = text.rstrip()
    if not body.startswith(("{", "[")):
        return f"```json\n{body}\n```"
    ways = (
        body[:-1],  # the last brace is missing
        f"```json\n{body}\n```",
        f"Sure! Here is the JSON you asked for: {body}",
        f"{body[:-1]},{body[-1]}",  # a comma before the last brace
        body.replace('"', "'") if '"' in body else f"{body}]",
        f"{body}\n\nLet me know if you need anything else.",
    )
    return rng.choice(ways)


def drifted(document: Json, schema: dict[str, Any] | bool, rng: Random) -> Json:
    """A document that no longer satisfies the schema: a required field renamed, dropped or of another type.

    Where the schema requires no field, a typed field gets another type, else the document one that is not asked for.
    """
    plain = schema if isinstance(schema, dict) else {}
    if isinstance(document, dict):
        required = [name for name in plain.get("required", []) if name in document]
        typed = [
            name
            for name, rule in plain.get("properties", {}).items()
            if name in document and isinstance(rule, dict) and isinstance(rule.get("type"), str)
        ]
        ways = [way for way, names in (("rename", required), ("drop", required), ("retype", typed)) if names]
        if ways:
            way = rng.choice(ways)
            name = rng.choice(typed if way == "retype" else required)
            if way == "drop":
                return {key: value for key, value in document.items() if key != name}
            if way == "rename":
                return {_renamed(key, document) if key == name else key: value for key, value in document.items()}
            word = plain["properties"][name]["type"]
            return document | {name: _of_another_type(document[name], word)}
        rules = plain.get("properties", {}).items()
        nested = [(name, rule) for name, rule in rules if isinstance(document.get(name), dict)]
        if nested:
            name, rule = rng.choice(nested)
            return document | {name: drifted(document[name], rule, rng)}
    said = plain.get("type")
    return _of_another_type(document, said if isinstance(said, str) else "object")


def _renamed(name: str, document: dict[str, Json]) -> str:
    renamed = name.title().replace("_", "") if "_" in name else f"{name}_value"
    while renamed in document:
        renamed += "_"
    return renamed


def _of_another_type(value: Json, word: str) -> Json:
    for other in (str(value), [value], 17, None):
        if not is_of_type(other, word):
            return other
    return None
