"""The texts of an exchange that relevance compares: query, answer, and the sentences of context, in bounds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from collector.measures import relevance_lexicon as lexicon

MAX_CONTEXT_CHARS = 32_768  # of all passages together; what lies beyond is not looked at
MAX_CONTEXT_PIECES = 96  # sentences of context that are embedded: those with most words of query and answer
MAX_ANSWER_CHARS = 8_192
MAX_ANSWER_PIECES = 12  # sentences of the answer that are judged one by one; the rest goes unjudged
MAX_QUERY_CHARS = 2_000
MAX_QUOTES = 32  # texts that an answer cites
MAX_QUOTE_CHARS = 4_000  # of each
GRAM_OF_QUOTE = 12  # characters that a quote has to have to be looked for in a sentence

# What an answer to each kind of question looks like. Language neutral, since the encoder is.
ANSWER_TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "time": (
        ("When did it happen?", "In which year?", "On what date?", "What year was it?"),
        ("1987", "In March 1990", "On 5 June 2004", "the 19th century", "1920s"),
    ),
    "number": (
        ("How many are there?", "How much does it cost?", "What percentage?", "What is the number of?"),
        ("4", "3,500", "twelve", "25%", "$1.9 million"),
    ),
    "person": (
        ("Who did it?", "Who is the person?", "What is the name of the actor?"),
        ("John Smith", "Maria Lopez", "King Henry", "Dr. Anna Weber", "the actor"),
    ),
    "place": (
        ("Where is it?", "In which city or country?", "What is the location?"),
        ("Paris, France", "New York City", "in the north of Germany", "California", "China"),
    ),
    "reason": (
        ("Why did it happen?", "What is the reason?", "What is the purpose?"),
        (
            "Because it was too expensive.", "To protect people from harm.", "It was caused by a lack of water.",
            "in order to improve.",
        ),
    ),
    "kind": (
        ("What kind of thing is it?", "What type of?", "What is it called?"),
        ("a type of music", "wood", "a car", "saxophone", "a disease", "The Lost World"),
    ),
}  # fmt: skip
PROTOTYPES = tuple(dict.fromkeys(text for pair in ANSWER_TYPES.values() for texts in pair for text in texts))
_LETTER = re.compile(r"[A-Za-z]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Texts(Struct, frozen=True):
    """What is embedded for one exchange. `pieces` are without repeats; the other fields are what they are for.

    `joined` are query and answer as one text: for the whole answer, then for each of its sentences if they are several.
    """

    pieces: tuple[str, ...]
    query: str
    answer: str
    answer_sentences: tuple[str, ...]
    joined: tuple[str, ...]
    context: tuple[str, ...]  # sentences that are embedded
    passages: tuple[tuple[str, ...], ...]  # all sentences, by passage; compared by their words only
    whole_context: str
    language: str
    truncated: bool
    cited: tuple[int, ...] = ()  # of `context`, those that the answer cites


def language(text: str) -> str:
    """`latin`, `cjk` or `other` where at least 80 % of the letters are of that script, else `mixed`."""
    sample = text[: lexicon.LANGUAGE_SAMPLE]
    if sample.isascii():  # as many are
        return "latin" if _LETTER.search(sample) else "other"
    counts = lexicon.scripts(sample)
    if counts.total == 0:
        return "other"
    for name, count in (("latin", counts.latin), ("cjk", counts.cjk), ("other", counts.other)):
        if count >= lexicon.DOMINANT * counts.total:
            return name
    return "mixed"


def compose(query: str, answer: str, passages: Sequence[str], quoted: Sequence[str] = ()) -> Texts:
    """The texts to embed for a query, an answer and passages of context.

    `quoted` are what the answer cites, word for word. Marks such as `[2]` in the answer cite the second passage.
    """
    marks = lexicon.cited_numbers(answer[:MAX_ANSWER_CHARS])
    query, answer, passages = _encodable(query), _encodable(answer), [_encodable(passage) for passage in passages]
    script = language(f"{query[:MAX_QUERY_CHARS]} {answer[:MAX_ANSWER_CHARS]}")
    truncated = len(query) > MAX_QUERY_CHARS or len(answer) > MAX_ANSWER_CHARS
    query = " ".join(query[:MAX_QUERY_CHARS].split())
    answer = lexicon.answer_text(answer[:MAX_ANSWER_CHARS])
    told = lexicon.sentences(answer)
    answer = " ".join(told)
    truncated = truncated or len(told) > MAX_ANSWER_PIECES

    room = MAX_CONTEXT_CHARS
    held: list[tuple[str, ...]] = []
    for passage in passages:
        truncated = truncated or len(passage) > room
        held.append(lexicon.sentences(passage[:room]))
        room -= min(len(passage), room)
    sentences = tuple(dict.fromkeys(sentence for passage in held for sentence in passage))
    if len(sentences) > MAX_CONTEXT_PIECES:
        truncated = True
        wanted = lexicon.words(lexicon.normal(f"{query} {answer}"))
        sentences = tuple(sentences[index] for index in lexicon.strongest(sentences, wanted, MAX_CONTEXT_PIECES))

    told = told[:MAX_ANSWER_PIECES]
    joined = tuple(f"{query} {part}" for part in ((answer, *told) if len(told) > 1 else (answer,))) if answer else ()
    needed = (query, answer, *told, *joined, *sentences, *PROTOTYPES)
    return Texts(
        pieces=tuple(dict.fromkeys(text for text in needed if text)),
        query=query,
        answer=answer,
        answer_sentences=told,
        joined=joined,
        context=sentences,
        passages=tuple(passage for passage in held if passage),
        whole_context=lexicon.normal(" ".join(passages)[:MAX_CONTEXT_CHARS]),
        language=script,
        truncated=truncated,
        cited=_cited(sentences, held, marks, quoted),
    )


def _cited(
    sentences: Sequence[str], held: Sequence[Sequence[str]], marks: frozenset[int], quoted: Sequence[str]
) -> tuple[int, ...]:
    """Indices of the sentences that are cited. Marks count only where there is a passage for each of them."""
    named: set[str] = set()
    if marks and max(marks) <= len(held) > 1:
        named.update(sentence for number in marks if number > 0 for sentence in held[number - 1])
    quotes = [lexicon.normal(_encodable(quote[:MAX_QUOTE_CHARS])) for quote in quoted[:MAX_QUOTES] if quote.strip()]
    found: list[int] = []
    for index, sentence in enumerate(sentences):
        plain = lexicon.normal(sentence) if quotes else ""
        if sentence in named or any(
            plain in quote or (len(quote) >= GRAM_OF_QUOTE and quote in plain) for quote in quotes
        ):
            found.append(index)
    return tuple(found)


def _encodable(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced, which JSON may hold and UTF-8 may not."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
