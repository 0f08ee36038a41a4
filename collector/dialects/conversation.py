"""What the user asked, and the passages that the service put beside it, told apart from the turns of a conversation.

Services put retrieved passages wherever their templates do: in tags, under headings and labels, numbered, as JSON,
between rules or quotes, in system and in user messages, in document blocks and in tool results. Instructions are no
context, and a plain chat has none. What no template marks is not guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

MAX_TEXT_CHARS = 65_536  # of one turn that are looked at: its beginning and, since questions come last, its end
MAX_TAIL_CHARS = 16_384  # of those, taken from the end
MAX_CONVERSATION_CHARS = 262_144  # looked at in all; the last turns come first
MAX_PASSAGES = 1000  # kept in all
MAX_DEPTH = 12  # of JSON
MAX_QUESTION_CHARS = 600  # of a closing paragraph that is taken for the question although nothing says so


class Turn(NamedTuple):
    """One part of a message. `role` is system, user, assistant or tool; `kind` is text, document or tool_result."""

    role: str
    kind: str
    text: str


def split(turns: Sequence[Turn]) -> tuple[str | None, tuple[str, ...]]:
    """The query, None where the user asked nothing in words, and the passages of context in their order.

    The query is what is asked in the last user turn that has text. Context comes from that turn and those after it, and
    from system turns; where they hold none, from earlier turns.
    """
    if len(turns) == 1 and _is_plain_question(turns[0]):  # as many are
        return turns[0].text.strip() or None, ()
    first, last = _last_user_turn(turns)
    room = MAX_CONVERSATION_CHARS
    asked: list[_Parsed] = []
    current: list[str] = []
    for index in range(len(turns) - 1, first - 1, -1):
        passages, parsed, room = _read(turns[index], room)
        current = passages + current if turns[index].role != "system" else current
        if parsed is not None and turns[index].role == "user" and index <= last:
            asked.insert(0, parsed)
    system: list[str] = []
    for turn in turns:
        if turn.role == "system":
            passages, _, room = _read(turn, room)
            system += passages
    earlier: list[str] = []
    if not current:
        for turn in reversed(turns[:first]):
            if turn.role != "system":
                passages, _, room = _read(turn, room)
                earlier = passages + earlier
    found = [*earlier, *system, *current]
    marked = [parsed.question for parsed in asked if parsed.question is not None]
    requests = (parsed.request(bool(found)) for parsed in asked)
    query = marked[-1] if marked else "\n".join(request for request in requests if request).strip()
    context = tuple(dict.fromkeys(passage.strip() for passage in found if passage.strip()))
    return query or None, context[:MAX_PASSAGES]


def _last_user_turn(turns: Sequence[Turn]) -> tuple[int, int]:
    """First and last index of the user's parts that end with the last one of text; past the end if there is none."""
    last = max((i for i, turn in enumerate(turns) if turn.role == "user" and _is_text(turn)), default=None)
    if last is None:
        return len(turns), len(turns)
    first = last
    while first > 0 and turns[first - 1].role == "user":
        first -= 1
    return first, last


def _is_plain_question(turn: Turn) -> bool:
    """Whether this is one line of a user with no mark of a template in it."""
    text = turn.text
    return (
        turn.role == "user"
        and turn.kind == "text"
        and len(text) <= MAX_TEXT_CHARS
        and "\n" not in text
        and _is_plain_line(text)
    )


def _is_text(turn: Turn) -> bool:
    return turn.kind == "text" and bool(turn.text.strip())


def _read(turn: Turn, room: int) -> tuple[list[str], _Parsed | None, int]:
    """Passages of a turn, its parts if it is one of text, and how many characters may still be read after it."""
    text = _bounded(turn.text, min(room, MAX_TEXT_CHARS))
    if turn.role == "assistant" or not text.strip():
        return [], None, room
    room -= len(text)
    if turn.kind == "document":
        return [text], None, room
    if turn.kind == "tool_result" or turn.role == "tool":
        return _result_passages(text), None, room
    parsed = _parse(text, may_ask=turn.role == "user")
    return parsed.passages, parsed, room


def _bounded(text: str, limit: int) -> str:
    """At most `limit` characters, with `\\n` for line ends."""
    if len(text) > limit:
        tail = min(MAX_TAIL_CHARS, limit // 4)
        text = f"{text[: limit - tail]}\n\n{text[len(text) - tail :]}"
    return text.replace("\r\n", "\n")


# ---------------------------------------------------------------- one text


class _Parsed(NamedTuple):
    """One text, taken apart. `rest` is what is neither passage nor question nor answer."""

    whole: str
    passages: list[str]
    question: str | None
    rest: str

    def request(self, has_context: bool) -> str | None:
        """What is asked where no mark says so."""
        if not has_context:
            *before, last = self.whole.strip().split("\n")
            label = _label(last)  # "Answer:", as the start that the model is to go on from
            return "\n".join(before if before and label == ("answer", "") else (*before, last)).strip()
        paragraphs = _paragraphs(self.rest)
        asking = [paragraph for paragraph in paragraphs if paragraph.endswith(_QUESTION_MARKS)]
        if asking and len(paragraphs) > 1:
            return asking[-1]
        wanted = [paragraph for paragraph in paragraphs if not _is_instruction(paragraph)]
        return "\n".join(wanted or paragraphs).strip()


def _parse(text: str, *, may_ask: bool) -> _Parsed:
    if "\n" not in text and _is_plain_line(text):
        return _Parsed(text, [], None, text.strip())
    from_json = _parse_json(text)
    if from_json is not None:
        return from_json
    plain, tagged, tagged_questions = _take_elements(text)
    sections = _Sections(plain, may_ask=may_ask)
    passages = sections.passages()
    question = tagged_questions[-1] if tagged_questions else sections.question()
    rest = sections.rest()
    if question is None and may_ask and passages and all(map(_is_instruction, _paragraphs(rest))):
        question = sections.closing_question()
        if question is not None:
            passages = sections.passages(without=question)
    return _Parsed(text, [*tagged, *passages], question, rest)


def _is_plain_line(line: str) -> bool:
    """Whether a text of one line holds nothing that the rest of this module looks for; most questions do not."""
    return not (
        "<" in line
        or line.lstrip().startswith(("{", "[", '"""', "'''", "```"))
        or _label(line) is not None
        or _MARKER.match(line)
    )


def _paragraphs(text: str) -> list[str]:
    return [paragraph.strip() for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]


# ---------------------------------------------------------------- tags

_TAG = re.compile(r"<(/?)([^\W\d][\w.-]{0,40})((?:\s[^<>]{0,400})?)>")
_PASSAGE_NAME = re.compile(
    r"(?:[a-z]{2,20}[_-])?"
    r"(?:documents?|docs?|contexts?|passages?|sources?|snippets?|chunks?|excerpts?|articles?|references?|"
    r"results?|search_?results?|knowledge(?:_?base)?|background|evidence|web_?pages?|pages?|files?|transcripts?|reports?|papers?|"
    r"books?|manuals?|polic(?:y|ies)|contracts?|emails?|faqs?|kb|quotes?|data|materials?|paragraphs?|"
    r"已知信息|背景(?:知识|信息)?|参考(?:资料|信息|内容|文献)?|资料|文档|上下文|知识(?:库)?|检索结果|检索内容|内容)"
    r"(?:_(?:info|information|documents?|text|content|data|items?|chunks?|passages?))?"
    r"(?:[_-]?\d{1,4})?",
    re.IGNORECASE,
)
_QUESTION_NAME = re.compile(
    r"(?:user|my|customer|current|final|input|the)?[_-]?(?:questions?|query|queries|request|prompt|input|message)|"
    r"(?:用户)?(?:问题|提问|输入)",
    re.IGNORECASE,
)
_CONTENT_NAME = re.compile(r"(?:document_?|page_?|passage_?|source_?)?(?:contents?|text|body)|正文|内容", re.IGNORECASE)
_FENCED = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)


class _Element(NamedTuple):
    name: str
    start: int
    inner_start: int
    inner_end: int
    end: int


def _elements(text: str) -> list[_Element]:
    """Elements whose opening and closing tags match, in the order of closing; a tag that is only mentioned is none."""
    open_tags: dict[str, list[re.Match[str]]] = {}
    found: list[_Element] = []
    for match in _TAG.finditer(text):
        name = match.group(2).lower()
        if match.group(1):
            waiting = open_tags.get(name)
            if waiting:
                opened = waiting.pop()
                found.append(_Element(name, opened.start(), opened.end(), match.start(), match.end()))
        elif not match.group(3).endswith("/"):
            open_tags.setdefault(name, []).append(match)
    return found


def _outermost(elements: Iterable[_Element]) -> list[_Element]:
    kept: list[_Element] = []
    for element in sorted(elements, key=lambda one: (one.start, -one.end)):
        if not kept or element.start >= kept[-1].end:
            kept.append(element)
    return kept


def _take_elements(text: str) -> tuple[str, list[str], list[str]]:
    """The text without its elements of passages and questions; the passages; the questions."""
    if "<" not in text:
        return text, [], []
    code = [match.span() for match in _FENCED.finditer(text)]
    wanted = _outermost(
        element
        for element in _elements(text)
        if (_PASSAGE_NAME.fullmatch(element.name) or _QUESTION_NAME.fullmatch(element.name))
        and not any(start < element.start and element.end < end for start, end in code)
    )
    passages: list[str] = []
    questions: list[str] = []
    left: list[str] = []
    at = 0
    for element in wanted:
        inner = text[element.inner_start : element.inner_end]
        if not inner.strip():  # mentioned: "inside <context></context> tags"
            continue
        left.append(text[at : element.start])
        at = element.end
        if _PASSAGE_NAME.fullmatch(element.name):
            passages += _element_passages(inner)
        else:
            questions.append(inner.strip())
    left.append(text[at:])
    return "\n\n".join(left), passages, questions


def _element_passages(inner: str, depth: int = 0) -> list[str]:
    """Passages inside an element: those of the elements of content or of passages in it, else its text."""
    elements = _elements(inner) if depth < MAX_DEPTH else []
    content = _outermost(one for one in elements if _CONTENT_NAME.fullmatch(one.name))
    if content:
        return [_without_tags(inner[one.inner_start : one.inner_end]) for one in content]
    nested = _outermost(one for one in elements if _PASSAGE_NAME.fullmatch(one.name))
    if not nested:
        return _block_passages(_without_tags(inner))
    found: list[str] = []
    at = 0
    for one in nested:
        found += _block_passages(_without_tags(inner[at : one.start]))
        found += _element_passages(inner[one.inner_start : one.inner_end], depth + 1)
        at = one.end
    return [*found, *_block_passages(_without_tags(inner[at:]))]


def _without_tags(text: str) -> str:
    return _TAG.sub(" ", text).strip()


# ---------------------------------------------------------------- labels and lines

_Kind = Literal["rest", "context", "weak", "question", "answer", "instructions"]
_LABEL_CHARS = 400  # of a line in which a label or an announcement is looked for
_HEADING_SIGNS = ("#", "**", "==", "__", "--", ">", "【", "[", "「")
_QUESTION_MARKS = ("?", "？", "؟")

# The words that end a label, by what stands under it. `weak` is context only where a label names the question too.
_TABLE: tuple[tuple[_Kind, str], ...] = (
    (
        "context",
        "context, contexts, context information, context documents, context passages, source, sources, document, "
        "documents, docs, passage, passages, excerpt, excerpts, snippet, snippets, chunks, article, articles, "
        "article section, article sections, reference, references, reference material, reference materials, "
        "reference text, search result, search results, background, background information, background knowledge, "
        "evidence, knowledge, knowledge base, retrieved information, retrieved content, retrieved text, "
        "retrieved results, material, materials, transcript, contexto, contextos, fuente, fuentes, documento, "
        "documentos, kontext, dokument, dokumente, quelle, quellen, contexte, contesto, fonti, documenti, контекст",
    ),
    (
        "question",
        "question, questions, query, request, input, q, pregunta, consulta, frage, pergunta, domanda, вопрос",
    ),
    (
        "answer",
        "answer, response, reply, output, a, assistant, ai, respuesta, antwort, réponse, resposta, risposta, ответ",
    ),
    (
        "instructions",
        "instruction, instructions, guideline, guidelines, rule, rules, task, tasks, constraints, requirements, "
        "example, examples, output format, response format, chat history, conversation, conversation history, "
        "conversation so far, history",
    ),
    (
        "weak",
        "text, information, data, content, contents, facts, results, paragraph, paragraphs, story, notes, texto",
    ),
)
_NAMES: dict[str, _Kind] = {name: kind for kind, names in _TABLE for name in names.split(", ")}
_LONGEST_NAME = 3  # words
_MOST_WORDS_BEFORE = 5  # a name on a line of its own
# Words before a name that text follows on the same line: "Use the context: …" is a sentence, "The context: …" a label.
_WORDS_BEFORE: dict[_Kind, int] = {"context": 3, "question": 2, "answer": 1, "instructions": 0, "weak": 1}
_DENSE_NAMES: tuple[tuple[_Kind, re.Pattern[str]], ...] = (
    (
        "question",
        re.compile(r".{0,8}?(?:问题|提问|查询|输入|問題|質問|질문)(?:或指令|是|如下)?|问|問"),
    ),
    ("answer", re.compile(r".{0,4}?(?:回答|答案|答复|答え|답변)(?:是)?|答")),
    (
        "context",
        re.compile(
            r".{0,8}?(?:(?:已知|参考|背景|相关|检索|上下文|补充|知识库?)(?:信息|资料|内容|知识|文档|文献|结果|材料|片段|段落)|"
            r"上下文(?:信息)?|资料|文档(?:内容)?|背景|参考|知识库|コンテキスト|参考(?:情報|資料|文献)|文脈|資料|背景情報|"
            r"문맥|컨텍스트|참고\s?자료|배경)(?:如下)?"
        ),
    ),
    (
        "instructions",
        re.compile(r"(?:回答|输出)?(?:要求|规则|指令|任务|格式|注意事项|示例)|历史(?:对话|记录)|聊天记录|任务描述"),
    ),
)
_HEAD = re.compile(
    r"\s{0,8}(?P<mark>#{1,6}|>|={2,}|-{2,})?\s*(?:\d{1,2}[.)]\s+)?(?P<open>\*{1,3}|_{2}|【|\[|「)?\s*"
    r"(?P<name>[^\W\d_][^:：*_#=()【】\[\]「」]{0,80}?)\s*(?:\([^()]{0,80}\))?\s*(?:】|\]|」)?\s*(?:\*{1,3}|_{2})?\s*"
    r"(?:(?P<colon>[:：])\s*(?:\*{1,3}|_{2})?(?P<text>.*)|(?:={2,}|-{2,}|#{1,6})?\s*$)",
)

_RULE = re.compile(r"^\s*(?:[-=_*~]\s?){3,}\s*$")
_QUOTES = re.compile(r'^\s*("{3}|\'{3}|`{3,})\w*\s*$')
_QUOTED_TEXT = re.compile(r'\s*("{3}|\'{3})(.*)$')
# "Use the following pieces of context to answer the question at the end."
_ANNOUNCED = re.compile(
    r"\b(?:following|below|next)\b.{0,60}?\b(?:contexts?|documents?|docs|passages?|sources?|excerpts?|articles?|snippets?|"
    r"chunks?|(?:search\s+)?results|extracted\s+parts|pieces\s+of|knowledge|transcripts?)\b|"
    r"\b(?:contexts?|documents?|passages?|sources?|excerpts?|articles?|search\s+results|context\s+information)\b.{0,30}?"
    r"\b(?:below|as\s+follows)\b|"
    r"\b(?:following|below)\b.{0,40}?\b(?:information|text|data|content|paragraphs?|facts)\b.{0,80}:\s*$|"
    r"(?:以下|下面|下列|如下).{0,20}(?:资料|文档|上下文|信息|内容|材料|知识|片段|段落|文章|参考)|"
    r"以下の.{0,20}(?:文脈|コンテキスト|情報|資料|文書)",
    re.IGNORECASE,
)
_ANNOUNCING = ("follow", "below", "next", "以下", "下面", "下列", "如下")  # one of them is in what _ANNOUNCED finds
# "Given the context information and not prior knowledge, answer the query."
_BACK_TO_TASK = re.compile(
    r"^\s*(?:please\s+)?(?:given|based\s+on|using|according\s+to|considering|with|from|use)\b.{0,80}"
    r"\b(?:above|contexts?|provided|these|this|information|documents?|passages?|sources?|articles?)\b.{0,200}"
    r"\b(?:answer|respond|reply|questions?|query|refine|write|summari[sz]e)\b|"
    r"^\s*(?:请|請)?(?:根据|基于|依据|结合|參考|参考).{0,40}(?:回答|问题|作答|总结)|"
    r"^\s*(?:please\s+)?answer\b.{0,120}\b(?:above|contexts?|documents?|passages?|sources?)\b",
    re.IGNORECASE,
)
_INSTRUCTION = re.compile(
    r"^\s*[-*•\d.)]{0,3}\s*(?:if\s+(?:you|the|it|there|no)\b|use\b|keep\b|don['’]?t\b|do\s+not\b|always\b|never\b|please\b|"
    r"you\s+(?:are|must|should|will|have)\b|answer\b|respond\b|reply\b|only\b|say\b|your\b|when\b|be\s+\w+|cite\b|return\b|"
    r"given\b|based\s+on\b|ensure\b|avoid\b|think\b|just\s+say\b|make\s+sure\b|"
    r"如果|若|请|不要|不允许|回答|你是|根据|使用|基于|避免|保持)",
    re.IGNORECASE,
)
_MARKER = re.compile(
    # "Document 1: …", "**Source [2]** (title)", "[3] …", "[doc4]: …"
    r"^\s*(?:(?:#{1,6}\s*|\*{1,2})?(?:document|doc|passage|source|context|excerpt|snippet|chunk|article|reference|result|"
    r"search\s+result|文档|文献|资料|段落|片段|参考|来源|出处|ドキュメント|資料)s?\s*(?:#|no\.?\s*)?"
    r"(?:[\[(]?\s*(?:\d{1,4}|[A-Z])\s*[\])]?\s*(?:\([^()\n]{0,200}\))?\s*(?:\*{1,2})?\s*(?:[:：.)\-–]|$)|"
    r"\[\d{1,4}\]\s*(?:\([^()\n]{0,200}\))?)"
    r"|[\[【(](?:(?:doc(?:ument)?|source|passage|ref|资料|文档)\s*)?\d{1,4}[\]】)]\s*[:：.]?)\s*(?:\*{1,2})?[ \t]*",
    re.IGNORECASE,
)


def _announces(line: str) -> bool:
    lower = line.lower()
    if not any(hint in lower for hint in _ANNOUNCING):
        return False
    starts = range(0, min(len(line), MAX_TAIL_CHARS), _LABEL_CHARS // 2)
    return any(_ANNOUNCED.search(line[at : at + _LABEL_CHARS]) for at in starts)


def _is_instruction(paragraph: str) -> bool:
    return bool(_INSTRUCTION.match(paragraph) or _announces(paragraph) or _BACK_TO_TASK.match(paragraph))


def _label(line: str) -> tuple[_Kind, str] | None:
    """What a label at the start of a line names, and the text after it; None where there is no label.

    A label ends in a colon, or stands alone on a line that is marked as a heading.
    """
    head = line[:_LABEL_CHARS]
    if ":" not in head and "：" not in head and not head.lstrip().startswith(_HEADING_SIGNS):
        return None
    match = _HEAD.match(head)
    if match is None or not (match["colon"] or match["mark"] or match["open"]):
        return None
    text = line[match.start("text") :] if match["colon"] else ""
    name = match["name"]
    words = name.lower().split()
    for size in range(min(_LONGEST_NAME, len(words)), 0, -1):
        kind = _NAMES.get(" ".join(words[-size:]))
        if kind is not None:
            before = len(words) - size
            return (kind, text) if before <= (_WORDS_BEFORE[kind] if text.strip() else _MOST_WORDS_BEFORE) else None
    if not name.isascii():
        return next(((kind, text) for kind, names in _DENSE_NAMES if names.fullmatch(name)), None)
    return None


class _Block(NamedTuple):
    kind: _Kind
    lines: list[str]
    quoted: bool = False  # between quotes: its end is known


class _Sections:
    """The lines of a text, sorted into blocks by labels, announcements, quotes and numbers."""

    def __init__(self, text: str, *, may_ask: bool) -> None:
        self._blocks: list[_Block] = [_Block("rest", [])]
        self._announced = False  # passages follow, at the next paragraph that is no instruction
        self._after_label = False
        self._quote: str | None = None
        lines = text.split("\n")
        # Passages may hold questions and answers of their own (an FAQ): in a passage only the text's last one counts.
        self._may_ask = may_ask
        labels = {index: label for index, line in enumerate(lines) if (label := _label(line)) is not None}
        asking = (index for index, (kind, _) in labels.items() if may_ask and kind == "question")
        self._last_question = max(asking, default=-1)
        fences = _FENCED.finditer(text) if "```" in text or "~~~" in text else ()
        self._sort(lines, labels, {line for match in fences for line in _lines_of(text, match)})

    def _sort(self, lines: list[str], labels: dict[int, tuple[_Kind, str]], code: set[int]) -> None:
        for index, line in enumerate(lines):
            if self._quote is not None:
                self._take_quoted(line, self._quote)
            elif self._opens_quote(line):
                continue
            elif index in code:
                self._blocks[-1].lines.append(line)
            elif index in labels and self._is_label_here(labels[index][0], index, line):
                self._open_label(*labels[index])
            else:
                self._take_plain(line)

    def _open(self, kind: _Kind, first: str = "", *, quoted: bool = False) -> None:
        self._blocks.append(_Block(kind, [first] if first.strip() else [], quoted))
        self._announced = False
        self._after_label = False

    def _take_quoted(self, line: str, quote: str) -> None:
        before, closed, after = line.partition(quote)
        self._blocks[-1].lines.append(before)
        if closed:
            self._quote = None
            self._open("rest", after)

    def _opens_quote(self, line: str) -> bool:
        """Triple quotes hold a passage or a question; a code fence does so right after a label only."""
        match = _QUOTES.match(line)
        if match is None or (line.lstrip().startswith("`") and not self._after_label):
            return False
        self._open("question" if self._blocks[-1].kind == "question" and self._after_label else "context", quoted=True)
        self._quote = match.group(1)
        return True

    def _is_label_here(self, kind: _Kind, index: int, line: str) -> bool:
        block = self._blocks[-1]
        in_passage = block.kind == "context" or (block.kind == "rest" and self._announced)
        if kind == "question":
            return self._may_ask and (not in_passage or index == self._last_question)
        if kind == "answer":
            return self._may_ask and (not in_passage or index > self._last_question)
        if block.kind != "context":
            return True
        if kind == "context":
            return _MARKER.match(line) is None
        return kind == "instructions" and not (block.lines and block.lines[-1].strip())

    def _open_label(self, kind: _Kind, text: str) -> None:
        quoted = _QUOTED_TEXT.match(text)
        if quoted is None or kind not in ("question", "context"):
            self._open(kind, text)
            self._after_label = not text.strip()
            return
        self._open(kind, quoted=True)
        self._quote = quoted.group(1)
        self._take_quoted(quoted.group(2), self._quote)

    def _take_plain(self, line: str) -> None:
        kind = self._blocks[-1].kind
        if kind == "context" and _BACK_TO_TASK.match(line):
            self._open("rest", line)
        elif (kind not in ("context", "question") and _MARKER.match(line)) or (
            self._announced and kind == "rest" and self._begins_unmarked(line)
        ):
            self._open("context", line)
        elif kind in ("rest", "instructions") and _announces(line):
            if kind == "instructions":
                self._open("rest")
            ends_in_colon = line.rstrip().endswith((":", "："))
            self._blocks[-1].lines.extend((line, "") if ends_in_colon else (line,))
            self._announced = True
            self._after_label = ends_in_colon
        else:
            self._blocks[-1].lines.append(line)
            if line.strip():
                self._after_label = False

    def _begins_unmarked(self, line: str) -> bool:
        """After the announcement: the first paragraph that is no instruction."""
        if not line.strip() or _RULE.match(line):
            return False
        lines = self._blocks[-1].lines
        after_break = not lines or not lines[-1].strip() or _RULE.match(lines[-1]) is not None
        return after_break and not _is_instruction(line)

    # What came of it.

    def question(self) -> str | None:
        """The last one that a label names, without instructions that follow it."""
        for block in reversed(self._blocks):
            text = "\n".join("" if _RULE.match(line) else line for line in block.lines).strip().strip("\"'").strip()
            if block.kind == "question" and text:
                first, *more = _paragraphs(text)
                return "\n\n".join([first, *(paragraph for paragraph in more if not _is_instruction(paragraph))])
        return None

    def passages(self, without: str = "") -> list[str]:
        """In their order; `without` is left out at the end of the last block."""
        found: list[str] = []
        for block in self._blocks:
            if self._is_context(block):
                text = "\n".join(block.lines).strip()
                found += _block_passages(text.removesuffix(without) if block is self._blocks[-1] else text)
        return found

    def rest(self) -> str:
        """What is neither passage, question nor answer, nor under a label for instructions."""
        kept = (block for block in self._blocks if block.kind in ("rest", "weak") and not self._is_context(block))
        return "\n\n".join("\n".join(block.lines) for block in kept).strip()

    def closing_question(self) -> str | None:
        """The last paragraph, or line, of a passage at the end, where it is a question."""
        block = self._blocks[-1]
        if block.kind != "context" or block.quoted:
            return None
        text = "\n".join(block.lines).strip()
        for parts in (_paragraphs(text), text.split("\n")):
            last = parts[-1].strip() if parts else ""
            if len(parts) > 1 and last.endswith(_QUESTION_MARKS) and len(last) <= MAX_QUESTION_CHARS:
                return last
        return None

    def _is_context(self, block: _Block) -> bool:
        """Under a weak label ("Text:") only where a label names the question too."""
        return block.kind == "context" or (block.kind == "weak" and self.question() is not None)


def _lines_of(text: str, match: re.Match[str]) -> range:
    """Indices of the lines that a match covers."""
    first = text.count("\n", 0, match.start())
    return range(first, first + match.group().count("\n") + 1)


def _block_passages(text: str) -> list[str]:
    """The passages of a block: of JSON, between rules, or by their numbers; else the block is one passage."""
    text = text.strip()
    if not text:
        return []
    from_json = _json_passages(text)
    if from_json is not None:
        return from_json
    groups: list[list[str]] = [[]]
    for line in text.split("\n"):
        if _RULE.match(line):
            groups.append([])
            continue
        marker = _MARKER.match(line)
        if marker is not None:
            groups.append([])
            line = line[marker.end() :]
        groups[-1].append(line)
    return [passage for group in groups if (passage := "\n".join(group).strip())]


# ---------------------------------------------------------------- JSON

_TEXT_KEYS = (
    "page_content", "content", "text", "passage", "snippet", "body", "chunk", "document", "summary", "abstract",
    "description", "paragraph", "contents",
)  # fmt: skip
_LIST_KEYS = (
    "documents", "docs", "context", "contexts", "passages", "sources", "results", "search_results", "chunks",
    "snippets", "articles", "references", "items", "data", "hits", "matches", "organic", "organic_results", "knowledge",
)  # fmt: skip
_QUERY_KEYS = ("question", "query", "user_query", "user_question", "input", "prompt", "问题")

_Json = str | int | float | bool | None | list["_Json"] | dict[str, "_Json"]


class _Unread:
    """Text that is no JSON object or list."""


def _decode(text: str) -> _Json | _Unread:
    text = text.strip()
    if not text.startswith(("{", "[")):
        return _Unread()
    try:
        value: _Json = msgspec.json.decode(text.encode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError):
        return _Unread()
    return value


def _parse_json(text: str) -> _Parsed | None:
    """A user message that is a JSON object with a question and passages, or a list of passages."""
    value = _decode(text)
    if isinstance(value, dict):
        asked = next((found for key in _QUERY_KEYS if isinstance(found := value.get(key), str) and found.strip()), None)
        passages = [passage for key in _LIST_KEYS for passage in _texts_of(value.get(key))]
        if passages:
            return _Parsed(text, passages, asked, "")
    elif isinstance(value, list):
        listed = _json_passages(text)
        if listed is not None:
            return _Parsed(text, listed, None, "")
    return None


def _json_passages(text: str) -> list[str] | None:
    """The passages of a JSON value; None where the text is no JSON or holds none."""
    value = _decode(text)
    if isinstance(value, list):
        found = list(_texts_of(value))
    elif isinstance(value, dict):
        found = [passage for key in _LIST_KEYS for passage in _texts_of(value.get(key))]
        found = found or [passage for key in _TEXT_KEYS for passage in _texts_of(value.get(key))]
    else:
        return None
    return found or None


def _texts_of(value: _Json, depth: int = 0) -> Iterator[str]:
    """Strings that are passages: list items, and what the usual keys of an object hold."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts_of(item, depth + 1)
    elif isinstance(value, dict):
        for key in (*_TEXT_KEYS, *_LIST_KEYS):
            found = list(_texts_of(value.get(key), depth + 1))
            if found:
                yield from found
                return


def _result_passages(text: str) -> list[str]:
    """What a tool told: its passages, or its facts, one a line (`temperature: 22`)."""
    found = _json_passages(text)
    if found is not None:
        return found
    value = _decode(text)
    if isinstance(value, list | dict):
        facts = "\n".join(_facts(value))
        return [facts] if facts else []
    plain, passages, _ = _take_elements(text)
    return [*passages, *_block_passages(plain)]


def _facts(value: _Json, name: str = "", depth: int = 0) -> Iterator[str]:
    if depth > MAX_DEPTH or value is None:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _facts(inner, key.replace("_", " "), depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _facts(inner, name, depth + 1)
    else:
        yield f"{name}: {value}" if name else str(value)
