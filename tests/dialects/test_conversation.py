"""Query and context, told apart in the prompts that services really send."""

# ruff: noqa: E501 - prompt templates stand here as services send them

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.dialects.conversation import MAX_PASSAGES, MAX_TEXT_CHARS, Turn, split

ONE = "The lighthouse of Marrow Point was built in 1871 by Edda Finch. It stands 42 metres tall."
TWO = "Boats from Tarn to Marrow Point leave every day at nine. The crossing takes two hours."
ASK = "Who built the lighthouse of Marrow Point?"

ZH_ONE = "青石桥建于1871年，由工匠林远山设计。全桥长四十二米。"
ZH_TWO = "从东港到青石镇的渡船每天九点开出，航程两个小时。"
ZH_ASK = "青石桥是谁设计的？"


def user(text: str) -> list[Turn]:
    return [Turn("user", "text", text)]


def system(text: str, question: str = ASK) -> list[Turn]:
    return [Turn("system", "text", text), Turn("user", "text", question)]


FORMATS: dict[str, list[Turn]] = {
    "langchain stuff": user(
        "Use the following pieces of context to answer the question at the end. If you don't know the answer, just say "
        f"that you don't know, don't try to make up an answer.\n\n{ONE}\n\n{TWO}\n\nQuestion: {ASK}\nHelpful Answer:"
    ),
    "langchain chat system": system(
        "Use the following pieces of context to answer the user's question. \nIf you don't know the answer, just say that "
        f"you don't know, don't try to make up an answer.\n----------------\n{ONE}\n\n{TWO}"
    ),
    "langchain hub rag-prompt": user(
        "You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer the "
        "question. If you don't know the answer, just say that you don't know. Use three sentences maximum and keep the "
        f"answer concise.\nQuestion: {ASK} \nContext: {ONE}\n\n{TWO} \nAnswer:"
    ),
    "langchain tutorial system": system(
        "You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer the "
        "question. If you don't know the answer, say that you don't know. Use three sentences maximum and keep the answer "
        f"concise.\n\n{ONE}\n\n{TWO}"
    ),
    "langchain only the context": user(
        f"Answer the question based only on the following context:\n{ONE}\n{TWO}\n\nQuestion: {ASK}\n"
    ),
    "langchain context tag": system(
        f"Answer any use questions based solely on the context below:\n\n<context>\n{ONE}\n\n{TWO}\n</context>"
    ),
    "llamaindex text qa": user(
        f"Context information is below.\n---------------------\n{ONE}\n\n{TWO}\n---------------------\nGiven the context "
        f"information and not prior knowledge, answer the query.\nQuery: {ASK}\nAnswer: "
    ),
    "llamaindex refine": user(
        f"The original query is as follows: {ASK}\nWe have provided an existing answer: unknown\nWe have the opportunity "
        "to refine the existing answer (only if needed) with some more context below.\n------------\n"
        f"{ONE}\n{TWO}\n------------\nGiven the new context, refine the original answer to better answer the query.\n"
        f"Query: {ASK}\nRefined Answer: "
    ),
    "haystack": user(
        f"Given the following information, answer the question.\n\nContext:\n\n    {ONE}\n\n    {TWO}\n\n\n"
        f"Question: {ASK}\nAnswer:"
    ),
    "openai cookbook triple quotes": user(
        "Use the below articles on lighthouses to answer the subsequent question. If the answer cannot be found in the "
        f'articles, write "I could not find an answer."\n\nWikipedia article section:\n"""\n{ONE}\n"""\n\nWikipedia '
        f'article section:\n"""\n{TWO}\n"""\n\nQuestion: {ASK}'
    ),
    "openai cookbook context and q": user(
        "Answer the question as truthfully as possible using the provided context, and if the answer is not contained "
        f'within the text below, say "I don\'t know."\n\nContext:\n\n* {ONE}\n* {TWO}\n\n Q: {ASK}\n A:'
    ),
    "anthropic documents": user(
        f'<documents>\n<document index="1">\n<source>lighthouses.pdf</source>\n<document_content>\n{ONE}\n'
        f'</document_content>\n</document>\n<document index="2">\n<source>boats.txt</source>\n<document_content>\n{TWO}\n'
        f"</document_content>\n</document>\n</documents>\n\n{ASK}"
    ),
    "anthropic question tag": user(
        f"Here are the documents, inside <documents></documents> tags:\n<documents>\n{ONE}\n{TWO}\n</documents>\n"
        f"Find the quotes that are most relevant, then answer.\n<question>{ASK}</question>"
    ),
    "open webui": user(
        "### Task:\nRespond to the user query using the provided context, incorporating inline citations in the format "
        "[id] **only when the <source> tag includes an explicit id attribute**.\n\n### Guidelines:\n- If you don't know "
        "the answer, clearly state that.\n- Do not use XML tags in your response.\n\n### Output:\nProvide a clear and "
        f'direct response.\n\n<context>\n<source id="1" name="a.md">{ONE}</source>\n<source id="2" name="b.md">{TWO}'
        f"</source>\n</context>\n\n<user_query>\n{ASK}\n</user_query>\n"
    ),
    "dify": system(
        "Use the following context as your learned knowledge, inside <context></context> XML tags.\n\n<context>\n"
        f"{ONE}\n{TWO}\n</context>\n\nWhen answer to user:\n- If you don't know, just say that you don't know.\n"
    ),
    "azure search demo": user(f"{ASK}\n\nSources:\n lighthouses.txt: {ONE}\nboats.txt: {TWO}"),
    "markdown headings": user(f"## Context\n\n{ONE}\n\n{TWO}\n\n## Question\n\n{ASK}\n"),
    "markdown system": system(f"# Role\nYou are a guide.\n\n# Documents\n\n{ONE}\n\n{TWO}\n\n# Rules\n- Be brief.\n- Cite."),
    "bold labels": user(f"**Context:**\n{ONE}\n{TWO}\n\n**Question:** {ASK}"),
    "numbered in brackets": user(f"Answer with the search results.\n\n[1] {ONE}\n[2] {TWO}\n\nQuestion: {ASK}"),
    "lost in the middle": user(
        "Write a high-quality answer for the given question using only the provided search results (some of which might "
        f"be irrelevant).\n\nDocument [1](Title: Lighthouses) {ONE}\nDocument [2](Title: Boats) {TWO}\n\n"
        f"Question: {ASK}\nAnswer:"
    ),
    "numbered documents, question unlabelled": user(f"Document 1: {ONE}\n\nDocument 2: {TWO}\n\n{ASK}"),
    "context, question unlabelled": user(f"Context:\n{ONE}\n\n{TWO}\n\n{ASK}"),
    "json object": user(json.dumps({"question": ASK, "documents": [{"text": ONE, "score": 0.9}, {"text": TWO}]})),
    "json list under a label": user(f"Context: {json.dumps([ONE, TWO])}\n\nQuestion: {ASK}"),
    "json objects in system": system(
        "You are a guide. Answer from these passages.\n\nPassages:\n"
        + json.dumps([{"id": 1, "page_content": ONE}, {"id": 2, "page_content": TWO}])
    ),
    "passages in a message of their own": [
        Turn("system", "text", "You are a guide."),
        Turn("user", "text", f"<passages>\n<passage>{ONE}</passage>\n<passage>{TWO}</passage>\n</passages>"),
        Turn("user", "text", ASK),
    ],
    "document blocks": [Turn("user", "document", ONE), Turn("user", "document", TWO), Turn("user", "text", ASK)],
    "tool result of passages": [
        Turn("user", "text", ASK),
        Turn("assistant", "text", "Let me look."),
        Turn("tool", "tool_result", json.dumps({"results": [{"title": "a", "content": ONE}, {"title": "b", "content": TWO}]})),
    ],
    "tool results as text": [
        Turn("user", "text", ASK),
        Turn("tool", "tool_result", ONE),
        Turn("user", "tool_result", TWO),
    ],
    "a second question": [
        Turn("system", "text", f"Context:\n{ONE}\n\n{TWO}"),
        Turn("user", "text", "How tall is it?"),
        Turn("assistant", "text", "42 metres."),
        Turn("user", "text", ASK),
    ],
    "spanish labels": user(f"Contexto: {ONE} {TWO}\n\nPregunta: {ASK}\nRespuesta:"),
    "german labels": user(f"Kontext:\n{ONE}\n{TWO}\n\nFrage: {ASK}\nAntwort:"),
    "text and question": user(f"Text: {ONE} {TWO}\nQuestion: {ASK}"),
}  # fmt: skip

CHINESE: dict[str, list[Turn]] = {
    "chatglm": user(
        f"已知信息：\n{ZH_ONE}\n{ZH_TWO}\n\n根据上述已知信息，简洁和专业的来回答用户的问题。如果无法从中得到答案，请说“没有提供足够的相关信息”，"
        f"不允许在答案中添加编造成分，答案请使用中文。\n问题是：{ZH_ASK}"
    ),
    "labels": user(f"已知信息：{ZH_ONE}{ZH_TWO}\n问题：{ZH_ASK}"),
    "chatchat tags": user(
        f"<指令>根据已知信息，简洁和专业的来回答问题。</指令>\n<已知信息>{ZH_ONE}\n{ZH_TWO}</已知信息>\n<问题>{ZH_ASK}</问题>"
    ),
    "fastgpt": user(
        f"使用 <Data></Data> 标记中的内容作为你的知识:\n\n<Data>\n{ZH_ONE}\n{ZH_TWO}\n</Data>\n\n回答要求：\n- 如果你不清楚答案，你需要澄清。\n\n"
        f'问题:"""{ZH_ASK}"""'
    ),
    "qanything": user(
        f"参考信息：\n{ZH_ONE}\n{ZH_TWO}\n---\n我的问题或指令：\n{ZH_ASK}\n---\n请根据上述参考信息回答我的问题。"
    ),
    "brackets": user(f"【背景知识】\n{ZH_ONE}\n{ZH_TWO}\n\n【问题】\n{ZH_ASK}\n【回答】"),
    "system": system(f"你是一个助手。请根据以下资料回答用户的问题：\n\n{ZH_ONE}\n{ZH_TWO}", ZH_ASK),
    "numbered": user(f"请参考下列文档：\n文档1：{ZH_ONE}\n文档2：{ZH_TWO}\n\n问题：{ZH_ASK}"),
}

BOILERPLATE = (
    "Question", "Context", "Answer", "don't know", "You are", "prior knowledge", "Sources", "Query", "Be brief", "Rules",
    "问题", "已知信息", "根据", "回答", "<", "Guidelines", "three sentences", "Pregunta", "Frage", "Cite",
)  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_the_passages_are_the_context_and_the_question_is_the_query(name: str) -> None:
    query, context = split(FORMATS[name])
    assert query == ASK
    whole = " ".join(" ".join(context).split())
    for passage in (ONE, TWO):
        for sentence in passage.split(". "):
            assert sentence in whole
    assert ASK not in whole
    assert [word for word in BOILERPLATE if word in whole] == []


@pytest.mark.parametrize("name", CHINESE)
def test_chinese_templates_are_split_as_well(name: str) -> None:
    query, context = split(CHINESE[name])
    assert query == ZH_ASK
    whole = "".join(context)
    assert ZH_ONE in whole
    assert ZH_TWO in whole
    assert ZH_ASK not in whole
    assert [word for word in BOILERPLATE if word in whole] == []


NO_CONTEXT = {
    "hi": user("hi"),
    "a question": user(ASK),
    "instructions": system("You are a helpful assistant. Answer in one sentence.\n\nRules:\n- Be brief.\n- Be kind."),
    "code": user("Why does this fail?\n```python\nfor x in sources:\n    print(x)\n```"),
    "markup in code": user("What is wrong here?\n```html\n<article><p>Hello there</p></article>\n```"),
    "citation in a sentence": user("What does the author mean by the term in [1] and [2]?"),
    "a list": user("Compare these:\n1. apples\n2. pears"),
    "context meant elsewhere": system(
        "You answer with the provided context. If there is none, say so.\n\nTone: friendly."
    ),
    "tags only named": system("Passages will come in <context></context> tags, and the answer goes in <answer> tags."),
    "earlier answer": [Turn("user", "text", "Hello"), Turn("assistant", "text", ONE), Turn("user", "text", ASK)],
    "colon": user("Note: the source of the Nile is where?"),
    "json of a form": user('{"name": "Edda", "age": 42}'),
}


@pytest.mark.parametrize("name", NO_CONTEXT)
def test_instructions_and_plain_chats_hold_no_context(name: str) -> None:
    query, context = split(NO_CONTEXT[name])
    assert context == ()
    assert query == NO_CONTEXT[name][-1].text


def test_a_prompt_without_words_has_no_query() -> None:
    assert split([]) == (None, ())
    assert split([Turn("user", "text", " \n")]) == (None, ())
    assert split([Turn("system", "text", "You are a guide.")]) == (None, ())


def test_a_tool_result_is_context_and_never_the_query() -> None:
    turns = [
        Turn("user", "text", "What's the weather in Florence?"),
        Turn("tool", "tool_result", '{"place": "Florence", "temperature_celsius": 22, "sky": null}'),
    ]
    assert split(turns) == ("What's the weather in Florence?", ("place: Florence\ntemperature celsius: 22",))


def test_context_of_an_earlier_question_is_left_out_when_the_last_one_has_its_own() -> None:
    turns = [
        Turn("user", "text", f"Context: {TWO}\n\nQuestion: When does the boat leave?"),
        Turn("assistant", "text", "At nine."),
        Turn("user", "text", f"Context: {ONE}\n\nQuestion: {ASK}"),
    ]
    assert split(turns) == (ASK, (ONE,))


def test_questions_inside_a_passage_stay_there() -> None:
    faq = "Q: How tall is it?\nA: It is 42 metres tall.\nQ: When was it built?\nA: It was built in 1871."
    query, context = split(user(f"Context:\n{faq}\n\nQuestion: {ASK}\nAnswer:"))
    assert query == ASK
    assert context == (faq,)


def test_numbered_passages_are_told_apart() -> None:
    _, context = split(user(f"Sources:\n[1] {ONE}\n[2] {TWO}\n\nQuestion: {ASK}"))
    assert context == (ONE, TWO)


def test_a_request_about_the_passages_is_the_query_where_nothing_else_is_asked() -> None:
    query, context = split(user(f"Please summarise the article below.\n\n<article>{ONE}</article>"))
    assert query == "Please summarise the article below."
    assert context == (ONE,)


_PIECES = st.sampled_from(
    [
        "Context:", "Question:", "Answer:", '"""', "```", "---", "<context>", "</context>", "<document>", "</document>",
        "<question>", "</question>", "[1] ", "Document 2: ", "\n", "\n\n", "Use the following context:", "已知信息：", "问题：", "{", "[",
        '"text":', "word ", "？", "Is it? ", "\ud800", "\x00", "# Sources\n", "**Context**",
    ]
)  # fmt: skip


@given(
    st.text(max_size=60) | st.from_regex(r"(Question|Context|Text)?:? ?[a-z <>\\[{1.)-]{0,30}\??\s?", fullmatch=True)
)
def test_one_plain_line_is_read_as_it_is_among_other_turns(text: str) -> None:
    turn = Turn("user", "text", text)
    assert split([turn]) == split([Turn("assistant", "text", ""), turn])


@given(
    st.lists(
        st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.lists(_PIECES, max_size=12)), max_size=5
    )
)
def test_whatever_is_sent_the_split_holds_only_what_was_sent(turns: list[tuple[str, list[str]]]) -> None:
    sent = [Turn(role, "tool_result" if role == "tool" else "text", "".join(pieces)) for role, pieces in turns]
    query, context = split(sent)
    assert query is None or query.strip() == query != ""
    assert all(passage.strip() == passage != "" for passage in context)
    letters = {character for turn in sent for character in turn.text}
    assert {character for text in (*context, query or "") for character in text} <= letters | set(" \n:")


@pytest.mark.parametrize(
    "text",
    [
        "<context>" * 40_000,
        "<a" * 100_000,
        "Context:\n" * 40_000,
        "Use the following " * 20_000,
        "[" * 100_000,
        "word " * 60_000,
        "a-" * 100_000,
        "\n \n" * 60_000,
        "Question: " + "x" * 200_000,
        "```\n" * 50_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_takes_no_unreasonable_time(text: str) -> None:
    began = time.process_time()
    _, context = split(user(text))
    assert time.process_time() - began < 5.0
    assert len(context) <= MAX_PASSAGES


def test_of_a_huge_text_its_beginning_and_its_end_are_read() -> None:
    query, context = split(user(f"Context:\n{ONE}\n" + "filler words here.\n" * 40_000 + f"\n\nQuestion: {ASK}"))
    assert query == ASK
    assert context[0].startswith(ONE)
    assert sum(map(len, context)) <= MAX_TEXT_CHARS
