"""Which outputs are judged, what needs no judging, and how judgements become one validity."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.catalogue import BY_NAME, LABELS, VALIDITY_CHECKED, VALIDITY_KINDS, VALIDITY_RESULTS, label_names
from collector.measures.validity import judgement, measure, tasks, validity
from collector.model import (
    Choice,
    Exchange,
    Expectation,
    FrameCounts,
    Judgement,
    Reading,
    Record,
    Relevance,
    ReportedUsage,
    RequestFacts,
    TextFacts,
    Timing,
    ToolCall,
    UpstreamFacts,
    ValidationTask,
    Validity,
)

from .records import Heard

SCHEMA = b'{"type":"object"}'
SCHEMA_ID = sha256(SCHEMA).hexdigest()[:12]


def exchange(
    *choices: Choice,
    tools: tuple[ToolCall, ...] = (),
    expectation: Expectation | None = None,
    tool_schemas: dict[str, bytes] | None = None,
    outcome: str = "completed",
) -> Exchange:
    record = Record(
        id="1", started_at="2026-01-01T00:00:00Z", route="default", method="POST", trace_id=None,
        client_request_id=None, retry_attempt=None, dialect="openai.chat", provider="openai", operation="chat",
        transport="json", stream=False, status=200, outcome=outcome, phase=None, request_model="m",
        response_model="m", finish_reasons=(), usage=None, usage_reported=ReportedUsage(), text=TextFacts(None, 0),
        correction_ratio=None, tool_calls=(), error=None, frames=FrameCounts(), timing=Timing(), bytes_in=0,
        bytes_out=0, rate_limits=(), retry_after=None, upstream=UpstreamFacts(), validity=None,
        relevance=Relevance(False), findings=(), anomalies=(),
    )  # fmt: skip
    request = RequestFacts("m", expectation=expectation, tool_schemas={} if tool_schemas is None else tool_schemas)
    return Exchange(record, request, choices, tools, ended_at=0.0, monotonic=0.0)


def choice(text: str = "{}", index: int = 0, **more: object) -> Choice:
    facts = {"text_complete": True, "finish": "stop", "ending": "completed"} | more
    return Choice(index, text, **facts)  # type: ignore[arg-type]


def call(arguments: str = "{}", name: str | None = "find", index: int = 0, complete: bool = True) -> ToolCall:
    return ToolCall(0, index, name, arguments, complete)


ASKED = Expectation("json_schema", SCHEMA, "city")


def test_nothing_is_judged_where_no_structured_output_was_asked_for() -> None:
    assert tasks(exchange(choice("Hello."))) == ()
    assert validity(()) is None


def test_every_choice_is_a_task_of_its_own() -> None:
    assert tasks(exchange(choice("{}"), choice("[]", 1), expectation=ASKED)) == (
        ValidationTask(0, None, "json_schema", "{}", SCHEMA, "city"),
        ValidationTask(1, None, "json_schema", "[]", SCHEMA, "city"),
    )


def test_json_mode_has_no_schema_and_no_schema_id() -> None:
    assert tasks(exchange(choice(), expectation=Expectation("json"))) == (ValidationTask(0, None, "json", "{}"),)


def test_a_bare_text_is_judged_as_the_json_string_of_it() -> None:
    wish = Expectation("json_schema", b'{"enum":["yes"]}', is_text=True)
    (task,) = tasks(exchange(choice('yes "so"\n'), expectation=wish))
    assert (task.text, task.kind, task.schema) == ('"yes \\"so\\"\\n"', "json_schema", b'{"enum":["yes"]}')
    (empty,) = tasks(exchange(choice(" "), expectation=wish))
    assert empty.result == "empty"


def test_the_contract_of_the_route_holds_where_the_request_asks_for_nothing() -> None:
    assert tasks(exchange(choice()), SCHEMA) == (ValidationTask(0, None, "contract", "{}", SCHEMA, SCHEMA_ID),)
    asked = tasks(exchange(choice(), expectation=Expectation("json")), SCHEMA)
    assert [task.kind for task in asked] == ["json"]


@pytest.mark.parametrize("name", ["a b", "", "ü", "x" * 65, "a\n"])
def test_a_name_that_is_no_plain_word_is_not_taken_as_schema_id(name: str) -> None:
    (task,) = tasks(exchange(choice(), expectation=Expectation("json_schema", SCHEMA, name)))
    assert task.schema_id == SCHEMA_ID


@pytest.mark.parametrize(
    ("answer", "outcome", "result"),
    [
        (choice("", finish="length", ending="incomplete"), "incomplete", "truncated"),
        (choice('{"a', finish="length", ending="incomplete"), "incomplete", "truncated"),
        (choice('{"a', finish=None, ending=None), "truncated", "truncated"),
        (choice('{"a', finish=None, ending=None), "client_disconnect", "truncated"),
        (choice('{"a', finish=None, ending=None), "error_event", "truncated"),
        (choice('{"a', finish="error", ending="error"), "completed", "truncated"),
        (choice('{"a', finish="content_filter", ending="blocked"), "blocked", "blocked"),
        (choice("", finish=None, ending=None), "blocked", "blocked"),
        (choice("", refusal_chars=12), "completed", "refusal"),
        (choice("No.", finish="refusal", ending="refusal"), "completed", "refusal"),
        (choice("No.", finish="refusal", ending="refusal"), "truncated", "refusal"),
        (choice(""), "completed", "empty"),
        (choice(" \n"), "completed", "empty"),
        (choice('{"a', text_complete=False), "completed", "output_over_cap"),
        (choice('{"a'), "completed", None),
    ],
)
def test_output_that_is_not_the_models_fault_is_decided_at_once(
    answer: Choice, outcome: str, result: str | None
) -> None:
    (task,) = tasks(exchange(answer, expectation=ASKED, outcome=outcome))
    assert task.result == result


def test_one_cut_choice_does_not_hide_its_neighbour() -> None:
    cut = choice('{"a', finish="length", ending="incomplete")
    decided = tasks(exchange(cut, choice("{}", 1), expectation=ASKED, outcome="incomplete"))
    assert [task.result for task in decided] == ["truncated", None]


def test_a_tool_call_is_judged_by_the_schema_of_its_tool() -> None:
    given = exchange(choice(""), tools=(call('{"q":1}'), call("{}", "unknown", 1)), tool_schemas={"find": SCHEMA})
    assert tasks(given) == (ValidationTask(0, 0, "tool_arguments", '{"q":1}', SCHEMA, "find"),)


@pytest.mark.parametrize("arguments", ["", " "])
def test_a_tool_without_parameters_may_be_called_with_nothing(arguments: str) -> None:
    (task,) = tasks(exchange(tools=(call(arguments),), tool_schemas={"find": SCHEMA}))
    assert (task.text, task.result) == ("{}", None)


def test_arguments_of_a_cut_or_overlong_call_are_not_judged() -> None:
    cut = choice("", finish="length", ending="incomplete")
    (truncated,) = tasks(exchange(cut, tools=(call('{"q'),), tool_schemas={"find": SCHEMA}))
    (capped,) = tasks(exchange(tools=(call('{"q', complete=False),), tool_schemas={"find": SCHEMA}))
    assert (truncated.result, capped.result) == ("truncated", "output_over_cap")


def test_an_answer_by_tool_call_is_no_empty_answer() -> None:
    asked = exchange(choice(""), tools=(call(),), expectation=ASKED)
    assert tasks(asked) == ()


def test_words_before_a_tool_call_are_no_final_answer() -> None:
    spoken = choice("Let me look.", finish="tool_calls")
    assert tasks(exchange(spoken, tools=(call(),), expectation=ASKED)) == ()
    done = choice("Let me look.", finish="stop")
    assert len(tasks(exchange(done, tools=(call(),), expectation=ASKED))) == 1


def judged(*results: str, keyword: str | None = None) -> tuple[Judgement, ...]:
    return tuple(Judgement(index, None, "json_schema", result, "s", keyword) for index, result in enumerate(results))


@pytest.mark.parametrize(
    ("results", "top", "checked", "valid"),
    [
        (("valid", "valid"), "valid", True, True),
        (("valid", "truncated", "not_json"), "not_json", True, False),
        (("valid", "truncated", "skipped"), "truncated", False, None),
        (("fenced", "not_json"), "fenced", True, False),
    ],
)
def test_the_first_failing_judgement_decides_then_the_first_unchecked(
    results: tuple[str, ...], top: str, checked: bool, valid: bool | None
) -> None:
    whole = validity(judged(*results))
    assert whole is not None
    assert (whole.result, whole.checked, whole.valid) == (top, checked, valid)
    assert [each.result for each in whole.judgements] == list(results)


def test_tool_arguments_are_found_by_the_index_of_the_call() -> None:
    first, second = ValidationTask(0, 0, "tool_arguments"), ValidationTask(0, 1, "tool_arguments")
    whole = validity([judgement(first, "valid"), judgement(second, "schema_violation", "required")])
    assert whole is not None
    assert whole.tool_arguments == {"0": "valid", "1": "schema_violation"}
    assert whole.kind == "tool_arguments"


def test_of_calls_under_one_index_the_broken_one_is_told() -> None:
    tasks_of_both = [ValidationTask(index, 0, "tool_arguments") for index in (0, 1, 2)]
    results = ("valid", "not_json", "valid")
    whole = validity([judgement(task, result) for task, result in zip(tasks_of_both, results, strict=True)])
    assert whole is not None
    assert whole.tool_arguments == {"0": "not_json"}


def heard(whole: Validity) -> list[Reading]:
    meters = Heard()
    measure(whole, meters)
    return meters.readings


def test_readings_count_all_and_rate_only_what_was_checked() -> None:
    whole = validity(
        (*judged("valid", "truncated"), Judgement(2, None, "json_schema", "schema_violation", "s", "required"))
    )
    assert whole is not None
    made = [(each.metric.removeprefix("semantic_health_"), each.value, each.labels) for each in heard(whole)]
    assert made == [
        ("output_validations_total", 1.0, ("main", "m-1", "json_schema", "valid")),
        ("model_output_validity_rate", 1.0, ("main", "m-1")),
        ("output_validations_total", 1.0, ("main", "m-1", "json_schema", "truncated")),
        ("output_validations_total", 1.0, ("main", "m-1", "json_schema", "schema_violation")),
        ("output_validation_failures_total", 1.0, ("main", "m-1", "required")),
        ("model_output_validity_rate", 0.0, ("main", "m-1")),
    ]


@given(st.lists(st.builds(
    Judgement, st.integers(0, 3), st.none() | st.integers(0, 3), st.sampled_from(VALIDITY_KINDS),
    st.sampled_from(VALIDITY_RESULTS), st.none(), st.none(),
)))  # fmt: skip
def test_readings_fit_the_catalogue_and_numerator_and_denominator_agree(judgements: list[Judgement]) -> None:
    whole = validity(judgements)
    made = [] if whole is None else heard(whole)
    for each in made:
        names = label_names(BY_NAME[each.metric])
        assert len(each.labels) == len(names)
        for name, value in zip(names, each.labels, strict=True):
            closed = LABELS[name].values
            assert closed is None or value in closed
    rated = [each.value for each in made if each.metric == "semantic_health_model_output_validity_rate"]
    checked = [each for each in judgements if each.result in VALIDITY_CHECKED]
    assert len(rated) == len(checked)
    assert sum(rated) == sum(each.result == "valid" for each in checked)
