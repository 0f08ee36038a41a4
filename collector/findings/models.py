"""Are two names of models those of one model?"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

Difference = Literal["family", "version", "size"]

FAMILIES = frozenset({
    "gpt", "chatgpt", "o", "claude", "gemini", "gemma", "llama", "mistral", "mixtral", "ministral", "codestral",
    "magistral", "devstral", "pixtral", "deepseek", "qwen", "qwq", "grok", "command", "nova", "titan", "phi", "jamba",
    "palmyra", "kimi", "glm", "sonar", "granite", "ernie", "hunyuan", "doubao", "minimax", "yi",
})  # fmt: skip
SMALL = frozenset({"mini", "nano", "small", "lite", "light", "haiku", "flash", "tiny", "micro", "8b", "7b"})
SIZES = SMALL | {"medium", "large", "opus", "sonnet", "pro", "ultra", "max", "plus", "premier", "big"}
MAX_NAME = 128  # characters that are compared

_PREFIX = re.compile(r"^(?:(?:us|eu|apac|global|us-gov|jp|au)\.)?(?:[a-z0-9]+\.)?(?=[a-z])")
_REVISION = re.compile(r"[-_]v\d$")  # of Bedrock's names, `anthropic.claude-opus-4-6-v1:0`
_DATE = re.compile(
    r"(?<![\d.])(?:20\d\d[-_]?[01]\d[-_]?[0-3]\d|\d\d[-_]20\d\d|[01]\d[-_][0-3]\d$|\d{6}|\d{3,4})(?![\d.])"
)
_WORD = re.compile(r"a?\d+(?:x\d+)?b(?![a-z])|\d+k(?![a-z])|\d+[a-z]?(?![a-z\d])|\d+|[a-z]+")
_WEIGHTS = re.compile(r"a?\d+(?:x\d+)?b")


class _Name(NamedTuple):
    families: frozenset[str]
    words: frozenset[str]
    version: str
    sizes: frozenset[str]


def difference(asked: str, served: str) -> Difference | None:
    """In what a served model is another than the one asked for; None for one model and where names do not tell.

    Provider prefixes, dates, `latest`, `preview` and further words are no difference. What a name does not say (a size,
    a version) is not compared, since such a name is an alias. A name of no known family, which shares no word with what
    was served, is that of a deployment.
    """
    return None if asked == served else _difference(asked[:MAX_NAME], served[:MAX_NAME])


@lru_cache(maxsize=2048)  # pairs; services ask for few models
def _difference(asked: str, served: str) -> Difference | None:
    wanted, given = _taken_apart(asked), _taken_apart(served)
    if not wanted.words & given.words:
        return "family" if wanted.families and given.families else None
    if wanted.families and given.families and not wanted.families & given.families:
        return "family"
    if wanted.sizes:
        if given.sizes and wanted.sizes != given.sizes and not wanted.sizes < given.sizes:
            return "size"
    elif wanted.version and given.sizes & SMALL:
        return "size"
    if wanted.version and given.version and wanted.version != given.version:
        return "version"
    return None


def _taken_apart(name: str) -> _Name:
    plain = name.lower().rsplit("/", 1)[-1].split(":", 1)[0]
    bare = _PREFIX.sub("", plain)
    plain = _DATE.sub("", bare if bare == plain else _REVISION.sub("", bare))
    words, sizes, version = set(), set(), []
    for word in _WORD.findall(plain):
        if word in SIZES or _WEIGHTS.fullmatch(word):
            sizes.add(word)
        elif word[0].isdigit():
            if not word.endswith("k"):  # a length of context
                version.append(word)
        elif word != "v":
            words.add(word)
    digits = "".join(version)
    return _Name(frozenset(words & FAMILIES), frozenset(words), digits.rstrip("0") or digits, frozenset(sizes))
