"""Do two names of regions name places of the same kind?"""

from __future__ import annotations

import re
from functools import lru_cache

# Names that clouds and providers give to parts of the world → the part.
_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("uk", re.compile(r"uk.*|eu-west-2|europe-west2")),
    ("ch", re.compile(r"ch|switzerland.*|eu-central-2|europe-west6")),
    (
        "eu",
        re.compile(
            r"(?:north|west|central|south)?europe.*|eu(?:-.*)?|"
            r"(?:germany|france|sweden|italy|poland|spain|ireland|netherlands|belgium|finland|austria|denmark).*"
        ),
    ),
    ("us", re.compile(r"us(?:-.*)?|(?:north|south|west)?(?:east|west|central)us\d?.*")),
    ("ca", re.compile(r"canada.*|ca(?:-.*)?|northamerica-northeast.*")),
    ("jp", re.compile(r"jp|japan.*|ap-northeast-[13]|asia-northeast[12]")),
    ("in", re.compile(r"in|(?:central|south|west)?india.*|ap-south-.*|asia-south\d.*")),
    ("au", re.compile(r"au|australia.*|ap-southeast-[24]")),
    ("cn", re.compile(r"china.*|cn(?:-.*)?")),
)
_WHOLE = {
    "europe": "eu", "emea": "eu", "usa": "us", "unitedstates": "us", "gb": "uk", "unitedkingdom": "uk", "canada": "ca",
    "japan": "jp", "india": "in", "australia": "au", "china": "cn", "switzerland": "ch",
}  # fmt: skip


@lru_cache(maxsize=512)  # pairs of names; there are few regions
def is_elsewhere(asked: str, served: str) -> bool:
    """Whether data asked to stay in one region was served in another. False where the names do not tell.

    A part of the world (`eu`) holds each of its regions; a region (`eu-west-1`) is itself alone.
    """
    wanted, given = _plain(asked), _plain(served)
    wanted_part, given_part = _part(wanted), _part(given)
    if wanted_part is None or given_part is None:
        return False
    if wanted_part != given_part:
        return True
    is_within = given.replace("-", "").startswith(wanted.replace("-", ""))
    return not is_within and wanted != wanted_part and given != given_part


def _plain(name: str) -> str:
    plain = name.strip().lower().replace("_", "-").replace(" ", "")
    return _WHOLE.get(plain, plain)


def _part(name: str) -> str | None:
    return next((part for part, pattern in _PARTS if pattern.fullmatch(name)), None)
