"""What does a structured answer say in sentences?

Keys, codes, figures of confidence and indexes of sources are of the form and not of the answer: no passage holds them,
and they would make a grounded answer look made up. Figures that are fields of their own are not judged for relevance.
"""

from __future__ import annotations

import re

import msgspec

LEAST_WORDS = 4  # of a text that is a sentence and no code or name
LEAST_CHARACTERS = 8  # the same where words are not parted by spaces
MOST_VALUES = 2000  # of a document that are looked at

_FENCE = re.compile(r"\A```[a-zA-Z]*\s*\n(.*?)\n?```\s*\Z", re.DOTALL)
_UNPARTED = re.compile("[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]")


def spoken(text: str) -> str:
    """The sentences of a JSON object or list, a line each, in their order; any other text, or one without, as it is."""
    stripped = text.strip()
    fenced = _FENCE.match(stripped)
    body = fenced[1].strip() if fenced is not None else stripped
    if not body.startswith(("{", "[")):
        return text
    try:
        document = msgspec.json.decode(body.encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        return text
    return "\n".join(_sentences(document)) or text


def _sentences(document: object) -> list[str]:
    found: list[str] = []
    waiting = [document]
    for _ in range(MOST_VALUES):
        if not waiting:
            break
        match waiting.pop():
            case str() as said if _is_sentence(said):
                found.append(said)
            case dict() as fields:
                waiting.extend(reversed(list(fields.values())))
            case list() as values:
                waiting.extend(reversed(values))
    return found


def _is_sentence(said: str) -> bool:
    return len(said.split()) >= LEAST_WORDS or len(_UNPARTED.findall(said)) >= LEAST_CHARACTERS
