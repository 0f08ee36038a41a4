"""The simulated API over real sockets: headers, limits, pacing, control, and each fault as a client sees it."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import json
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from collector.simulator import corpus
from collector.simulator.api import arguments, go_duration, settings_from, smaller_model
from collector.simulator.faults import FaultSetting
from collector.simulator.limits import Limits
from collector.simulator.pacing import Pacing

ITEM = corpus.CORPUS[0]
CHAT: dict[str, Any] = {
    "model": "sim-large",
    "messages": [{"role": "system", "content": ITEM.passage}, {"role": "user", "content": ITEM.question}],
}
MESSAGE: dict[str, Any] = {
    "model": "sim-opus",
    "max_tokens": 500,
    "system": ITEM.passage,
    "messages": [{"role": "user", "content": ITEM.question}],
}
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
STRUCTURED = CHAT | {
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}
}
TOOL = {"name": "search", "input_schema": SCHEMA}


async def _post(base: str, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    path = "/v1/messages" if body is MESSAGE or "max_tokens" in body else "/v1/chat/completions"
    async with aiohttp.ClientSession() as session, session.post(base + path, json=body) as response:
        return response.status, {name.lower(): value for name, value in response.headers.items()}, await response.read()


async def _gather(content: aiohttp.StreamReader, received: bytearray) -> None:
    """Read to the end, keeping what came before an error."""
    async for piece in content.iter_any():
        received += piece


# ---------------------------------------------------------------- headers and limits


async def test_the_openai_dialect_carries_its_headers(serve):
    async with serve(limits=Limits(requests=6)) as base:  # so few that none comes back while the test runs
        status, headers, _ = await _post(base, CHAT)
    detail = json.loads(headers["x-trace-detail"])
    assert status == 200
    assert detail["model_name"] == "sim-large"
    assert detail["prefill_time_ms"] > 0
    assert detail["load_time_ms"] == 0
    assert detail["kv_cache_hit_rate"] >= 0.95
    assert {"decode_time_ms", "load_time_ms"} <= set(detail)
    assert 0 <= float(headers["x-model-load"]) <= 1
    assert int(headers["x-ratelimit-remaining"]) == int(headers["x-ratelimit-limit"]) - 1
    assert headers["x-ratelimit-source"] == "gateway"
    assert int(headers["x-ratelimit-reset"]) >= 0
    assert headers["x-cache-hit"] in ("true", "false")
    assert int(headers["openai-processing-ms"]) > 0
    assert int(headers["x-ratelimit-remaining-tokens"]) < int(headers["x-ratelimit-limit-tokens"])
    assert re.fullmatch(r"(\d+m)?[\d.]+m?s", headers["x-ratelimit-reset-requests"])
    assert "retry-after" not in headers


async def test_the_anthropic_dialect_carries_its_headers(base):
    status, headers, _ = await _post(base, MESSAGE)
    assert status == 200
    assert headers["request-id"] == headers["x-request-id"]
    for name in ("requests", "tokens", "input-tokens", "output-tokens"):
        family = f"anthropic-ratelimit-{name}"
        assert 0 < int(headers[f"{family}-remaining"]) <= int(headers[f"{family}-limit"])
        reset = datetime.datetime.fromisoformat(headers[f"{family}-reset"])
        assert abs(reset - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(minutes=2)
    assert "x-ratelimit-limit-requests" not in headers


async def test_request_ids_differ_though_answers_do_not(base):
    first, second = await _post(base, CHAT), await _post(base, CHAT)
    assert first[1]["x-request-id"] != second[1]["x-request-id"]
    assert first[2] == second[2]


async def test_two_simulations_of_one_seed_give_the_same_bytes(serve):
    async with serve() as one, serve() as other, serve(seed=8) as third:
        bodies = [CHAT, MESSAGE, STRUCTURED, CHAT | {"stream": True}, MESSAGE | {"stream": True, "tools": [TOOL]}]
        first = [(await _post(one, body))[2] for body in bodies]
        assert first == [(await _post(other, body))[2] for body in bodies]
        assert first != [(await _post(third, body))[2] for body in bodies]


async def test_a_real_limit_refuses_with_a_hint_and_then_lets_pass_again(serve):
    async with serve(limits=Limits(requests=60)) as base:
        answers = [await _post(base, CHAT) for _ in range(64)]
        refused = next(answer for answer in answers if answer[0] != 200)
        status, headers, body = refused
        assert status == 429
        assert headers["x-ratelimit-source"] == "gateway"
        assert headers["x-ratelimit-remaining"] == headers["x-ratelimit-remaining-requests"] == "0"
        assert json.loads(body)["error"]["code"] == "rate_limit_exceeded"
        await asyncio.sleep(int(headers["retry-after"]) + 0.1)
        assert (await _post(base, CHAT))[0] == 200


async def test_unknown_paths_and_methods_are_refused_in_json(base):
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{base}/v1/nothing") as response:
            assert response.status == 404
            assert "GET /v1/nothing" in (await response.json())["error"]["message"]
        async with session.get(f"{base}/v1/messages") as response:
            assert response.status == 405
        async with session.get(f"{base}/health") as response:
            assert (await response.json()) == {"status": "ok"}


async def test_a_schema_that_is_none_is_refused(base, openai_client, anthropic_client):
    wrong = {"type": "object", "properties": ["answer"]}
    with pytest.raises(openai.BadRequestError, match="Invalid schema"):
        await openai_client(base).chat.completions.create(
            **CHAT, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": wrong}}
        )
    with pytest.raises(anthropic.BadRequestError, match="Invalid schema"):
        await anthropic_client(base).messages.create(
            **MESSAGE, output_config={"format": {"type": "json_schema", "schema": wrong}}
        )


@pytest.mark.parametrize(
    "asked", [{"input": []}, {"input": ""}, {"input": ["a", 1]}, {"input": "a", "dimensions": 0}, {"input": 5}]
)
async def test_wrong_embedding_requests_are_refused(base, asked):
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{base}/v1/embeddings", json={"model": "m"} | asked) as response,
    ):
        assert response.status == 400
        assert (await response.json())["error"]["type"] == "invalid_request_error"


# ---------------------------------------------------------------- pacing


async def _arrivals(base: str, body: dict[str, Any]) -> tuple[float, list[float]]:
    """Seconds to the first content frame, and the gaps between content frames."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{base}/v1/chat/completions", json=body | {"stream": True}) as response,
    ):
        times = [
            loop.time() async for line in response.content if b'"content":"' in line and b'"content":""' not in line
        ]
    return times[0] - began, [later - earlier for earlier, later in itertools.pairwise(times)]


async def test_tokens_come_at_the_stated_pace(serve):
    async with serve(pacing=Pacing(first=0.15, gap=0.03, gap_sigma=0.0)) as base:
        first, between = await _arrivals(base, CHAT)
    assert 0.08 < first < 1.0
    assert 0.028 < statistics.median(between) < 0.08


async def test_an_answer_that_is_not_streamed_takes_as_long_as_its_tokens(serve):
    async with serve(pacing=Pacing(first=0.05, gap=0.02, gap_sigma=0.0)) as base:
        began = time.monotonic()
        _, _, body = await _post(base, CHAT)
        took = time.monotonic() - began
    assert took >= (json.loads(body)["usage"]["completion_tokens"] - 1) * 0.02


# ---------------------------------------------------------------- faults


async def test_stutter_widens_the_gaps(serve):
    pacing = Pacing(first=0.01, gap=0.01, gap_sigma=0.001)
    async with serve(pacing=pacing) as calm, serve("stutter", pacing=pacing) as stuttering:
        _, even = await _arrivals(calm, CHAT)
        _, uneven = await _arrivals(stuttering, CHAT)
    assert statistics.stdev(uneven) > 0.02
    assert statistics.stdev(uneven) > 2 * statistics.stdev(even)


async def test_a_stall_pauses_in_the_middle_and_only_a_sign_of_life_comes(serve):
    pacing = Pacing(first=0.01, gap=0.005, gap_sigma=0.0)
    async with serve(FaultSetting("stall", seconds=0.8), pacing=pacing) as base:
        _, between = await _arrivals(base, CHAT)
        _, _, body = await _post(base, CHAT | {"stream": True})
        _, _, events = await _post(base, MESSAGE | {"stream": True})
    assert 0.75 < max(between) < 3
    assert sum(gap > 0.7 for gap in between) == 1
    assert body.count(b": keep-alive\n\n") == 1
    assert events.count(b"event: ping\n") == 2


@pytest.mark.parametrize("body", [CHAT, MESSAGE], ids=["openai", "anthropic"])
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_truncation_closes_the_connection_before_the_end(serve, body, is_stream):
    async with serve(FaultSetting("truncation", mode="cut")) as base, aiohttp.ClientSession() as session:
        path = "/v1/messages" if body is MESSAGE else "/v1/chat/completions"
        async with session.post(base + path, json=body | {"stream": is_stream}) as response:
            received = bytearray()
            with pytest.raises(aiohttp.ClientPayloadError):
                await _gather(response.content, received)
    assert received
    assert b"[DONE]" not in received
    assert b"message_stop" not in received


async def test_an_answer_of_one_token_is_cut_before_its_end_marker(serve, openai_client):
    async with serve(FaultSetting("truncation", mode="cut")) as base:
        stream = await openai_client(base).chat.completions.create(**CHAT, max_tokens=1, stream=True)
        with pytest.raises((openai.APIConnectionError, openai.APIError)):
            _ = [chunk async for chunk in stream]


async def test_truncation_by_length_is_said_by_the_finish_reason(serve, openai_client, anthropic_client):
    async with serve(FaultSetting("truncation", mode="length")) as base:
        completion = await openai_client(base).chat.completions.create(**CHAT)
        message = await anthropic_client(base).messages.create(**MESSAGE)
    assert completion.choices[0].finish_reason == "length"
    assert message.stop_reason == "max_tokens"


async def test_overload_by_the_model(serve, openai_client, anthropic_client):
    async with serve(FaultSetting("overload", mode="model")) as base:
        with pytest.raises(openai.RateLimitError) as throttled:
            await openai_client(base).chat.completions.create(**CHAT)
        with pytest.raises(anthropic.APIStatusError) as overloaded:
            await anthropic_client(base).messages.create(**MESSAGE)
    assert throttled.value.response.headers["x-ratelimit-source"] == "model"
    assert int(throttled.value.response.headers["retry-after"]) >= 1
    assert float(throttled.value.response.headers["x-model-load"]) >= 0.95
    assert overloaded.value.status_code == 529
    assert overloaded.value.body["error"]["type"] == "overloaded_error"
    assert overloaded.value.response.headers["x-ratelimit-source"] == "model"


async def test_overload_by_the_gateway(serve, openai_client, anthropic_client):
    async with serve(FaultSetting("overload", mode="gateway")) as base:
        with pytest.raises(openai.RateLimitError) as throttled:
            await openai_client(base).chat.completions.create(**CHAT)
        with pytest.raises(anthropic.RateLimitError) as limited:
            await anthropic_client(base).messages.create(**MESSAGE)
    assert throttled.value.response.headers["x-ratelimit-source"] == "gateway"
    assert throttled.value.response.headers["x-ratelimit-remaining"] == "0"
    assert limited.value.body["error"]["type"] == "rate_limit_error"
    assert limited.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"


async def test_downgrade_answers_with_a_smaller_model(serve, openai_client, anthropic_client):
    async with serve("downgrade") as base:
        completion = await openai_client(base).chat.completions.create(**CHAT)
        message = await anthropic_client(base).messages.create(**MESSAGE)
        _, headers, _ = await _post(base, CHAT)
    assert completion.model == "sim-small"
    assert message.model == "sim-haiku"
    assert json.loads(headers["x-trace-detail"])["model_name"] == "sim-small"


async def test_a_cold_start_shows_in_the_trace_and_in_the_wait_while_the_load_is_normal(serve):
    async with serve("cold_start") as base:
        began = time.monotonic()
        _, headers, _ = await _post(base, CHAT)
    detail = json.loads(headers["x-trace-detail"])
    assert detail["prefill_time_ms"] == 4200
    assert detail["load_time_ms"] > 3000
    assert detail["kv_cache_hit_rate"] == 0
    assert headers["x-cache-hit"] == "false"
    assert float(headers["x-model-load"]) < 0.8
    assert time.monotonic() - began > 0.2  # a twentieth, since the pacing is fast


async def test_an_error_ends_a_stream_that_began_well(serve, openai_client, anthropic_client):
    async with serve("error_event") as base:
        stream = await openai_client(base).chat.completions.create(**CHAT, stream=True)
        first = await anext(stream)
        with pytest.raises(openai.APIError, match="The server had an error"):
            _ = [chunk async for chunk in stream]
        async with anthropic_client(base).messages.stream(**MESSAGE) as events:
            with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
                await events.get_final_message()
        status, _, body = await _post(base, CHAT | {"stream": True})
    assert first.choices[0].delta.role == "assistant"
    assert status == 200
    assert body.count(b'"content":"') > 3
    assert b"[DONE]" not in body


async def test_invalid_json_spoils_structured_output_and_streamed_arguments(serve, openai_client):
    async with serve("invalid_json") as base:
        client = openai_client(base)
        structured = await client.chat.completions.create(**STRUCTURED)
        called = await client.chat.completions.create(
            **CHAT,
            tools=[{"type": "function", "function": {"name": "search", "parameters": SCHEMA}}],
            tool_choice="required",
        )
        _, _, events = await _post(base, MESSAGE | {"stream": True, "tools": [TOOL], "tool_choice": {"type": "any"}})
    deltas = [json.loads(line[6:]) for line in events.decode().splitlines() if line.startswith("data: ")]
    streamed = "".join(delta.get("delta", {}).get("partial_json", "") for delta in deltas)
    for text in (
        structured.choices[0].message.content,
        called.choices[0].message.tool_calls[0].function.arguments,
        streamed,
    ):
        assert text
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)


async def test_schema_drift_is_json_that_does_not_fit(serve, openai_client, anthropic_client):
    async with serve("schema_drift") as base:
        structured = await openai_client(base).chat.completions.create(**STRUCTURED)
        message = await anthropic_client(base).messages.create(**MESSAGE, tools=[TOOL], tool_choice={"type": "any"})
    for drifted in (json.loads(structured.choices[0].message.content), message.content[-1].input):
        assert not isinstance(drifted.get("answer"), str)


async def test_faults_are_switched_while_it_runs(base):
    async with aiohttp.ClientSession() as session:

        async def call(method: str, path: str = "/-/faults", **more: Any) -> tuple[int, Any]:
            async with session.request(method, base + path, **more) as response:
                return response.status, await response.json()

        def shares(answer: Any) -> dict[str, float]:
            return {row["fault"]: row["share"] for row in answer["faults"] if row["share"]}

        assert shares((await call("GET"))[1]) == {}
        status, answer = await call("POST", json={"fault": "overload", "share": 1, "mode": "gateway"})
        assert (status, shares(answer)) == (200, {"overload": 1})
        assert (await _post(base, CHAT))[0] == 429
        await call("POST", json=[{"fault": "stall", "share": 0.5}, {"fault": "context_cut", "share": 0.25}])
        assert shares((await call("GET"))[1]) == {"overload": 1, "stall": 0.5, "context_cut": 0.25}
        assert shares((await call("DELETE", "/-/faults/overload"))[1]) == {"stall": 0.5, "context_cut": 0.25}
        assert shares((await call("DELETE", "/-/faults?fault=stall"))[1]) == {"context_cut": 0.25}
        assert (await _post(base, CHAT))[0] == 200
        for method, path, more in (
            ("POST", "/-/faults", {"json": {"fault": "nonsense"}}),
            ("DELETE", "/-/faults/nonsense", {}),
        ):
            status, answer = await call(method, path, **more)
            assert status == 400
            assert "unknown fault 'nonsense'; known are invalid_json" in answer["error"]["message"]
        assert shares((await call("DELETE"))[1]) == {}
        _, counts = await call("GET", "/-/counts")
        assert counts["faults"] == {"overload": 1}
        assert (counts["requests"], counts["completed"], counts["refused"]) == (2, 1, 1)


async def test_a_client_that_goes_away_ends_its_answer(serve):
    async with serve(pacing=Pacing(first=0.01, gap=30.0, gap_sigma=0.0)) as base, aiohttp.ClientSession() as session:

        async def counts() -> dict[str, int]:
            async with session.get(f"{base}/-/counts") as response:
                return dict(await response.json())

        response = await session.post(f"{base}/v1/chat/completions", json=CHAT | {"stream": True})
        await response.content.readany()
        assert (await counts())["in_flight"] == 1
        response.close()
        async with asyncio.timeout(10):  # much less than the gap to the next token
            while (await counts())["in_flight"]:
                await asyncio.sleep(0.02)
        assert (await counts())["cancelled"] == 1


# ---------------------------------------------------------------- small things, and the process


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (0.006, "6ms"), (8.64, "8.64s"), (60, "1m0s"), (63.2, "1m3.2s"), (3602, "1h0m2s"), (59.9999, "1m0s")],
)
def test_durations_are_written_as_go_does(seconds, words):
    assert go_duration(seconds) == words


def test_a_smaller_model_is_never_the_model_itself():
    assert smaller_model("sim-large") == "sim-small"
    assert smaller_model("claude-opus-4") == "claude-haiku-4"
    assert smaller_model("tiny") == "tiny-mini"


def test_the_command_line_sets_pacing_and_faults():
    parsed = arguments(["--fast", "--gap", "0.5", "--fault", "stall=0.5", "--seed", "3", "--listen", "[::1]:90"])
    settings = settings_from(parsed)
    assert (settings.pacing.gap, settings.pacing.fault_scale, settings.seed) == (0.5, 0.05, 3)
    assert settings.faults == (FaultSetting("stall", 0.5),)
    assert (parsed.host, parsed.port) == ("::1", 90)


@pytest.mark.parametrize(
    ("argv", "why"),
    [(["--fault", "nonsense"], "unknown fault"), (["--listen", "here"], "expected HOST:PORT")],
)
def test_a_wrong_command_line_is_refused_with_its_reason(argv, why, capsys):
    with pytest.raises(SystemExit):
        arguments(argv)
    assert why in capsys.readouterr().err


def _start(*argv: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "collector.simulator.api", "--fast", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_serves_an_inherited_socket_and_ends_by_a_signal(number):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = _start("--fd", str(listener.fileno()), pass_fds=[listener.fileno()])
        port = listener.getsockname()[1]
    try:
        line = await asyncio.to_thread(process.stdout.readline)
        assert line == f"simulated LLM API on http://127.0.0.1:{port}\n"
        assert (await _post(f"http://127.0.0.1:{port}", CHAT))[0] == 200
        process.send_signal(number)
        assert await asyncio.to_thread(process.wait, 20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


def test_a_taken_port_is_one_clear_sentence():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        process = _start("--listen", address)
        out, error = process.communicate(timeout=30)
    assert process.returncode == 1
    assert out == ""
    assert error == f"simulated LLM API: cannot listen on {address}: Address already in use\n"


async def test_what_was_drained_is_given_back_when_the_fault_is_switched_off(serve):
    async with serve("drain") as base, aiohttp.ClientSession() as session:

        async def left() -> int:
            async with session.post(f"{base}/v1/chat/completions", json=CHAT) as response:
                await response.read()
                return int(response.headers["x-ratelimit-remaining-requests"])

        most = await left()
        assert (await left()) < most
        async with session.delete(f"{base}/-/faults") as response:
            assert response.status == 200
        assert await left() > most
