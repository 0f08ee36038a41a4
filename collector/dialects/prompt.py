"""What the words of a prompt are like: their length in tokens, comments, line ends, and constraints placed late."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from collector.dialects.conversation import Turn
from collector.model import NO_WORDS, PromptFacts

MAX_SYSTEM_CHARS = 65_536  # of the system prompt that are looked at
LONG = 4000  # characters of a system prompt, beyond which a constraint can stand late
MAX_LATE = 4096  # characters at its end that are searched for one
MAX_EARLY = 8192  # characters at its beginning that it may conflict with
MAX_COUNTED = 4096  # characters of a text that are told apart; the rest is taken to be alike
MAX_VAGUE = 20  # vague words there that are looked at
MAX_SENTENCE = 200  # characters to either side of one

_WIDE = re.compile(r"[ᄀ-ᇿ⺀-鿿가-힯豈-﫿＀-￯\U00020000-\U0003ffff]+")

_END = re.compile(r"[.!?。！？\n;；]")
_GLOBAL = re.compile(
    r"\b(?:always|never|must(?: not)?|only|do not|don't|ensure|make sure|in all cases)\b|"
    r"必须|始终|总是|一律|务必|不要|禁止|仅用|只能",
)
_VAGUE = re.compile(
    r"\b(?:as (?:appropriate|needed|necessary)|"
    r"(?:if|when|where(?:ver)?) (?:appropriate|necessary|needed|possible|reasonable)|"
    r"to a reasonable (?:degree|extent)|try (?:your best )?to)\b|尽量|适当|酌情|视情况|如有必要|合理地",
)
_VAGUE_WORDS = (
    "appropriate", "needed", "necessary", "possible", "reasonable", "try ", "尽量", "适当", "酌情", "视情况",
    "如有必要", "合理",
)  # fmt: skip
_ANSWER = re.compile(r"\b(?:answers?|responses?|repl(?:y|ies)|output)\b|回答|回复|输出|答案")
_LANGUAGES = {
    "english": "en", "英文": "en", "英语": "en", "chinese": "zh", "中文": "zh", "汉语": "zh", "french": "fr",
    "法语": "fr", "german": "de", "德语": "de", "spanish": "es", "西班牙语": "es", "japanese": "ja", "日语": "ja",
    "日文": "ja", "korean": "ko", "韩语": "ko", "portuguese": "pt", "italian": "it", "russian": "ru", "俄语": "ru",
}  # fmt: skip
_ANSWER_IN = re.compile(
    r"\b(?:always|only|must)\b[^.!?\n]{0,30}\b(?:answer|respond|reply|write)\b[^.!?\n]{0,20}\bin\s+([a-z]+)\b|"
    r"\b(?:answer|respond|reply|write)\s+(?:only|always|exclusively|strictly)\s+in\s+([a-z]+)\b|"
    r"(?:必须|始终|一律|只能|仅|务必)(?:使用|用|以)?(中文|英文|英语|汉语|日语|日文|法语|德语|韩语|俄语|西班牙语)(?:回答|回复|作答|输出)",
)
_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "json",
        re.compile(
            r"\b(?:respond|answer|reply|output|return)\s+(?:only|always)\s+(?:in|with|as)?\s*(?:valid\s+)?json\b|"
            r"(?:只|仅|必须)(?:输出|返回)\s*json",
        ),
    ),
    (
        "plain",
        re.compile(
            r"\b(?:never|do not|don't)\s+(?:respond|answer|reply|output|return|use)\s+(?:in|with|as)?\s*json\b|"
            r"\b(?:respond|answer|reply)\s+(?:only|always)\s+in\s+(?:plain text|markdown)\b|"
            r"不要(?:输出|返回|使用)\s*json",
        ),
    ),
)


class _System(NamedTuple):
    tokens: int
    comments: int
    late_constraint: str | None


def prompt_facts(turns: Sequence[Turn]) -> PromptFacts:
    """Facts of a prompt's turns. Roles and kinds are those of `conversation.Turn`; documents count for no system text.

    A late constraint is judged in system turns alone: users may wish what they like.
    """
    if len(turns) == 1 and turns[0].role == "user":  # as many are
        return NO_WORDS
    system = [turn.text for turn in turns if turn.role == "system" and turn.kind == "text"]
    answers = [turn.text for turn in turns if turn.role == "assistant" and turn.kind == "text"]
    longest = max(map(estimated_tokens, answers)) if answers else None
    if not system:
        return PromptFacts(longest_answer_tokens=longest)
    text = system[0] if len(system) == 1 else "\n".join(system)
    read = _read_system(text[:MAX_SYSTEM_CHARS])
    return PromptFacts(
        system_tokens=read.tokens + estimated_tokens(text[MAX_SYSTEM_CHARS:]),
        system_comments=read.comments,
        has_cr_lf="\r\n" in text,
        late_constraint=read.late_constraint,
        longest_answer_tokens=longest,
    )


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has: one per 4 characters, and one per character of Chinese, Japanese or Korean.

    An estimate for limits, not for cost: tokenizers differ by a third and more.
    """
    if text.isascii():
        return (len(text) + 3) // 4
    part = text[:MAX_COUNTED]
    wide = len(part) - len(_WIDE.sub("", part))
    if len(text) > MAX_COUNTED:
        wide = wide * len(text) // MAX_COUNTED
    return wide + (len(text) - wide + 3) // 4


@lru_cache(maxsize=32)  # system prompts come again; each of at most MAX_SYSTEM_CHARS
def _read_system(text: str) -> _System:
    comments = min(text.count("<!--"), text.count("-->"))
    return _System(estimated_tokens(text), comments, _late_constraint(text) if len(text) > LONG else None)


def _late_constraint(text: str) -> str | None:
    """`conflict` or `vague` where a sentence in the last half of a long system prompt is such a global constraint."""
    begins = max(len(text) // 2, len(text) - MAX_LATE)
    early, late = text[: min(begins, MAX_EARLY)].lower(), text[begins:].lower()
    languages, forms = _languages(late), _forms(late)
    if languages and len(_languages(early) | languages) > 1:
        return "conflict"
    if forms and len(_forms(early) | forms) > 1:
        return "conflict"
    for found in islice(_VAGUE.finditer(late), MAX_VAGUE) if _mentions(late, _VAGUE_WORDS) else ():
        sentence = _sentence(late, found)
        if _GLOBAL.search(sentence) and _ANSWER.search(sentence):
            return "vague"
    return None


def _mentions(text: str, words: Iterable[str]) -> bool:
    """Whether one of the words stands anywhere: a cheap question before a dear one."""
    return any(word in text for word in words)


def _sentence(text: str, found: re.Match[str]) -> str:
    """The sentence that holds a match, as far as MAX_SENTENCE characters to either side."""
    before = _END.split(text[max(0, found.start() - MAX_SENTENCE) : found.start()])[-1]
    after = _END.split(text[found.start() : found.end() + MAX_SENTENCE], maxsplit=1)[0]
    return before + after


def _languages(text: str) -> set[str]:
    if not _mentions(text, _LANGUAGES):
        return set()
    named = (name for found in _ANSWER_IN.findall(text) for name in found if name)
    return {_LANGUAGES[name] for name in named if name in _LANGUAGES}


def _forms(text: str) -> set[str]:
    if not _mentions(text, ("json", "plain text", "markdown")):
        return set()
    return {form for form, pattern in _FORMS if pattern.search(text)}
