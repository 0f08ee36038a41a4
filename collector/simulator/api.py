"""A simulated LLM API: the dialects of seven vendors, rate limits, pacing, and faults switched while it runs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import functools
import itertools
import json
import math
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from random import Random
from urllib.parse import unquote

import msgspec
import uvloop
from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Struct

from collector.simulator import (
    anthropic_messages,
    bedrock_converse,
    cohere_chat,
    embeddings,
    gemini,
    mistral_chat,
    ollama_chat,
    openai_chat,
    tokens,
)
from collector.simulator.answers import Ask, compose
from collector.simulator.delivery import Identity, Part, Refusal, RequestError
from collector.simulator.dialects import (
    ANTHROPIC,
    BEDROCK,
    COHERE,
    DIALECTS,
    GEMINI,
    GEMINI_ARRAY,
    MISTRAL,
    OLLAMA,
    OPENAI,
    Dialect,
)
from collector.simulator.documents import SchemaError
from collector.simulator.faults import (
    FaultBoard,
    FaultError,
    FaultName,
    FaultSetting,
    Strike,
    setting_from_words,
    settings_from_json,
)
from collector.simulator.limits import Allowance, Buckets, Limits, Load
from collector.simulator.pacing import FAST, Metronome, Pacing, first_delay, gaps

DEFAULT_LISTEN = "127.0.0.1:8900"
# Any name is served; these are listed.
MODELS = ("sim-large", "sim-small", "sim-reasoner", "sim-opus", "sim-haiku", "sim-embedding")
MODELS_RELEASED = 1_735_689_600  # 2025-01-01
LARGEST_BODY = 32 * 1024 * 1024
# The head of a stream is sent when so much of the wait for the first token is over.
HEAD_AT = 0.85
# How long a stopping server lets answers run on.
SHUTDOWN_SECONDS = 2.0
MOST_EMBEDDED_TEXTS = 2048
DRAINED = 0.08  # of the allowance of requests, taken by each request that the fault `drain` strikes
LOADS = {"high": 0.9, "spare": 0.05}  # that the model reports under the fault `load`
ELSEWHERE = "ap-southeast-2"  # the region that serves what should stay in another

_SMALLER = (("large", "small"), ("opus", "haiku"), ("sonnet", "haiku"), ("pro", "flash"))


# Method, target and header lines as sent, and the body: the name of AWS's refusal and a message, or None.
SignatureCheck = Callable[[str, str, Sequence[tuple[str, str]], bytes], tuple[str, str] | None]


class Settings(Struct, frozen=True):
    """What a simulation is made from. `created` fixes the time in answers, so that two runs give the same bytes.

    With a `check_signature` requests in Bedrock's dialect have to be signed.
    """

    seed: int = 7
    pacing: Pacing = Pacing()
    limits: Limits = Limits()
    faults: tuple[FaultSetting, ...] = ()
    created: int | None = None
    check_signature: SignatureCheck | None = None


class Counts(Struct):
    """What happened since the start, as `GET /-/counts` answers."""

    requests: int = 0
    in_flight: int = 0
    completed: int = 0
    refused: int = 0
    cancelled: int = 0  # the client went away first
    faults: dict[str, int] = {}


Parse = Callable[[bytes], Ask]


class Plan(Struct, frozen=True):
    """When what happens in one answer. Seconds; `stall_at`, `cut_at` and `error_at` count tokens."""

    prefill: float  # as the headers state it
    load_time: float
    first: float  # as it is waited for
    gaps: list[float]
    stall_at: int | None = None
    stall: float = 0.0
    cut_at: int | None = None
    error_at: int | None = None

    @property
    def decode(self) -> float:
        return sum(self.gaps)


class Simulation:
    """The handlers of one simulated API, and all that they share."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self.board = FaultBoard(list(settings.faults))
        self.counts = Counts(faults={})
        self._clock = clock
        self._buckets = {dialect.name: Buckets(settings.limits, clock) for dialect in DIALECTS}
        self._load = Load(clock)
        self._numbers = itertools.count()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/chat/completions", self.chat),
            web.post("/v1/messages", self.messages),
            web.post("/v1/messages/count_tokens", self.count_tokens),
            web.post("/mistral/v1/chat/completions", self.mistral),
            web.post("/v2/chat", self.cohere),
            web.post("/api/chat", self.ollama),
            web.post(r"/{version:v1|v1beta}/models/{call:[^/]+}", self.gemini),
            web.post(r"/model/{model:[^/]+}/{call:converse|converse-stream}", self.bedrock),
            web.post("/v1/embeddings", self.embeddings),
            web.get("/v1/models", self.models),
            web.get("/v1/models/{model}", self.model),
            web.get("/health", self.health),
            web.get("/-/counts", self.counted),
            web.get("/-/faults", self.faults),
            web.post("/-/faults", self.switch_faults),
            web.delete("/-/faults", self.clear_faults),
            web.delete("/-/faults/{fault}", self.clear_faults),
        ]

    # -- the dialects

    async def chat(self, request: web.Request) -> web.StreamResponse:
        return await self._counting(request, OPENAI, openai_chat.parse)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        return await self._counting(request, ANTHROPIC, anthropic_messages.parse)

    async def mistral(self, request: web.Request) -> web.StreamResponse:
        return await self._counting(request, MISTRAL, mistral_chat.parse)

    async def cohere(self, request: web.Request) -> web.StreamResponse:
        return await self._counting(request, COHERE, cohere_chat.parse)

    async def ollama(self, request: web.Request) -> web.StreamResponse:
        return await self._counting(request, OLLAMA, ollama_chat.parse)

    async def gemini(self, request: web.Request) -> web.StreamResponse:
        model, _, verb = request.match_info["call"].rpartition(":")
        if verb not in ("generateContent", "streamGenerateContent"):
            return self._refusal(GEMINI, 404, f"req_{secrets.token_hex(12)}", f"unknown method {verb!r}", "not_found")
        is_stream = verb == "streamGenerateContent"
        dialect = GEMINI if request.query.get("alt") == "sse" else GEMINI_ARRAY
        return await self._counting(request, dialect, functools.partial(gemini.parse, model=model, is_stream=is_stream))

    async def bedrock(self, request: web.Request) -> web.StreamResponse:
        model, is_stream = unquote(request.match_info["model"]), request.match_info["call"] == "converse-stream"
        parse = functools.partial(bedrock_converse.parse, model=model, is_stream=is_stream)
        if self.settings.check_signature is not None:
            lines = list(request.headers.items())
            wrong = self.settings.check_signature(request.method, request.raw_path, lines, await request.read())
            if wrong is not None:
                exception, message = wrong
                response = self._refusal(BEDROCK, 403, f"req_{secrets.token_hex(12)}", message, exception)
                response.headers["x-amzn-ErrorType"] = exception
                return response
        return await self._counting(request, BEDROCK, parse)

    async def _counting(self, request: web.Request, dialect: Dialect, parse: Parse) -> web.StreamResponse:
        self.counts.requests += 1
        self.counts.in_flight += 1
        try:
            response = await self._answer(request, dialect, parse)
        except (asyncio.CancelledError, ConnectionError):
            self.counts.cancelled += 1
            raise
        finally:
            self.counts.in_flight -= 1
        if response.status < 400:
            self.counts.completed += 1
        else:
            self.counts.refused += 1
        return response

    async def _answer(self, request: web.Request, dialect: Dialect, parse: Parse) -> web.StreamResponse:
        body = await request.read()
        request_id = f"req_{secrets.token_hex(12)}"
        try:
            ask = parse(body)
        except RequestError as error:
            return self._refusal(dialect, 400, request_id, str(error), "invalid_request_error", param=error.param)
        # The number is part of the seed: a request sent again meets other faults, but gets the same answer.
        rng = Random(f"{self.settings.seed}:{next(self._numbers)}:{ask.digest.hex()}")
        strikes = self.board.strikes(rng)
        if (overload := strikes.get("overload")) is not None:
            self._note("overload")
            return self._overloaded(dialect, request_id, overload.mode, rng.randint(1, 3))
        buckets = self._buckets[dialect.name]
        if (short := buckets.admit(ask.input_tokens)) is not None:
            return self._limited(dialect, request_id, *short)
        if "drain" in strikes:
            buckets.drain(DRAINED)
        if "no_usage" in strikes and dialect.may_hide_usage and ask.is_stream:
            ask = msgspec.structs.replace(ask, wants_usage=False)
        if "cold_start" in strikes or "cache_loss" in strikes:  # nothing is in a cache that has just been filled
            ask = msgspec.structs.replace(ask, cached_tokens=0, cache_written_tokens=0)
        try:
            replies = compose(ask, self.settings.seed, strikes)
        except SchemaError as error:
            return self._refusal(dialect, 400, request_id, f"Invalid schema: {error}", "invalid_request_error")
        buckets.spend(sum(reply.token_count for reply in replies))
        created = int(time.time()) if self.settings.created is None else self.settings.created
        model = smaller_model(ask.model) if "downgrade" in strikes else ask.model
        if "diagnostic" in strikes:
            request_id = f"anthropic-internal-{request_id}"
        who = Identity(model, request_id, created)
        parts = list(dialect.stream(ask, replies, who)) if ask.is_stream else []
        steps = (
            sum(part.kind == "token" for part in parts)
            if ask.is_stream
            else max((reply.token_count for reply in replies), default=0)
        )
        plan = self._plan(ask, steps, strikes, rng)
        residency = request.headers.get("X-Data-Residency")
        self._note(*_effective(strikes, dialect, ask, plan, residency))
        headers = self._headers(dialect, request_id) | self._details(dialect, ask, who, plan, strikes, rng)
        headers |= _notices(residency, strikes)
        if ask.is_stream:
            return await self._send_stream(request, dialect, parts, plan, headers)
        return await self._send_whole(request, dialect.whole(ask, replies, who), plan, headers)

    def _note(self, *names: str) -> None:
        for name in names:
            self.counts.faults[name] = self.counts.faults.get(name, 0) + 1

    def _plan(self, ask: Ask, steps: int, strikes: Mapping[FaultName, Strike], rng: Random) -> Plan:
        pacing = self.settings.pacing
        scale = pacing.fault_scale
        prefill = first = first_delay(pacing, rng)
        load_time = 0.0
        if (cold := strikes.get("cold_start")) is not None:
            prefill, load_time, first = cold.seconds, cold.seconds * 0.9, cold.seconds * scale
        stutter = strikes.get("stutter")
        sigma = None if stutter is None else stutter.seconds * scale
        between = gaps(pacing, max(0, steps - 1), rng, sigma)
        middle = max(1, steps // 2)
        stall, cut = strikes.get("stall"), strikes.get("truncation")
        return Plan(
            prefill=prefill,
            load_time=load_time,
            first=first,
            gaps=between,
            stall_at=None if stall is None else middle,
            stall=0.0 if stall is None else stall.seconds * scale,
            cut_at=min(rng.randint(1, max(1, steps - 1)), steps) if cut is not None and cut.mode == "cut" else None,
            error_at=min(middle, steps) if "error_event" in strikes and ask.is_stream else None,
        )

    async def _send_stream(
        self, request: web.Request, dialect: Dialect, parts: list[Part], plan: Plan, headers: dict[str, str]
    ) -> web.StreamResponse:
        metronome = Metronome()
        await metronome.wait(plan.first * HEAD_AT)
        response = web.StreamResponse(headers=headers)
        response.headers["Content-Type"] = dialect.media
        response.headers["Cache-Control"] = "no-cache"
        await response.prepare(request)
        token = 0
        for part in parts:
            if token == plan.error_at:
                await response.write(dialect.error_event())
                break
            if token == plan.cut_at:
                _hang_up(request)
                break
            if part.kind == "token":
                await metronome.wait(plan.gaps[token - 1] if token else plan.first * (1 - HEAD_AT))
                if token == plan.stall_at:
                    await metronome.wait(plan.stall / 2)
                    if dialect.pause:  # a sign of life is no token: the pause stays a stall
                        await response.write(dialect.pause)
                    await metronome.wait(plan.stall / 2)
                token += 1
            await response.write(part.payload)
        return response

    async def _send_whole(
        self, request: web.Request, body: bytes, plan: Plan, headers: dict[str, str]
    ) -> web.StreamResponse:
        await asyncio.sleep(plan.first + plan.decode + plan.stall)
        if plan.cut_at is None:
            return web.Response(body=body, headers=headers, content_type="application/json")
        response = web.StreamResponse(headers=headers)
        response.content_type = "application/json"
        response.content_length = len(body)
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        _hang_up(request)
        return response

    # -- refusals

    def _overloaded(self, dialect: Dialect, request_id: str, mode: str, wait: int) -> web.Response:
        if mode == "gateway":
            return self._limited(dialect, request_id, "requests", wait)
        headers = {"Retry-After": str(wait), "X-RateLimit-Source": "model"}
        message = "The model is overloaded with other requests. Please try again later."
        status = dialect.overloaded
        if dialect is ANTHROPIC:
            return self._refusal(dialect, status, request_id, "Overloaded", "overloaded_error", headers=headers)
        return self._refusal(
            dialect, status, request_id, message, "engine_overloaded_error", code="engine_overloaded", headers=headers
        )

    def _limited(self, dialect: Dialect, request_id: str, what: str, wait: float) -> web.Response:
        seconds = max(1, math.ceil(wait))
        headers = {"Retry-After": str(seconds), "X-RateLimit-Source": "gateway", "X-RateLimit-Remaining": "0"}
        if dialect is ANTHROPIC:
            headers[f"anthropic-ratelimit-{what}-remaining"] = "0"
            message = f"This request would exceed your rate limit of {what} per minute."
            return self._refusal(dialect, 429, request_id, message, "rate_limit_error", headers=headers)
        if dialect is OPENAI:
            headers[f"x-ratelimit-remaining-{what}"] = "0"
        message = f"Rate limit reached on {what} per min. Please try again in {seconds}s."
        return self._refusal(dialect, 429, request_id, message, what, code="rate_limit_exceeded", headers=headers)

    def _refusal(
        self,
        dialect: Dialect,
        status: int,
        request_id: str,
        message: str,
        kind: str,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> web.Response:
        body = dialect.error_body(Refusal(status, message, request_id, kind, code, param))
        said = self._headers(dialect, request_id) | ({} if headers is None else dict(headers))
        if dialect is BEDROCK:
            said["x-amzn-ErrorType"] = bedrock_converse.exception_of(status)
        return web.Response(status=status, body=body, headers=said, content_type="application/json")

    # -- headers

    def _headers(self, dialect: Dialect, request_id: str) -> dict[str, str]:
        """The headers of every answer: ids, load and rate limits."""
        requests, inputs, outputs = self._buckets[dialect.name].allowances()
        load = self._load.level(self.counts.in_flight, self.board.share("overload"))
        if self.board.share("load") > 0:
            load = LOADS[self.board.mode("load") or "high"]
        headers = {
            "X-Request-ID": request_id,
            "X-Model-Load": f"{load:.2f}",
            "X-RateLimit-Limit": str(requests.limit),
            "X-RateLimit-Remaining": str(requests.remaining),
            "X-RateLimit-Reset": str(math.ceil(requests.reset)),  # seconds until it is full again
            "X-RateLimit-Source": "gateway",
        }
        if dialect is ANTHROPIC:
            both = Allowance(
                inputs.limit + outputs.limit, inputs.remaining + outputs.remaining, max(inputs.reset, outputs.reset)
            )
            headers |= {"request-id": request_id, "anthropic-organization-id": "org_simulated"}
            for name, allowance in (
                ("requests", requests),
                ("tokens", both),
                ("input-tokens", inputs),
                ("output-tokens", outputs),
            ):
                family = f"anthropic-ratelimit-{name}"
                headers[f"{family}-limit"] = str(allowance.limit)
                headers[f"{family}-remaining"] = str(allowance.remaining)
                headers[f"{family}-reset"] = _rfc_3339(time.time() + allowance.reset)
            return headers
        if dialect is BEDROCK:
            return headers | {"x-amzn-RequestId": request_id}
        if dialect is not OPENAI:
            return headers
        headers |= {"openai-version": "2020-10-01", "openai-organization": "org-simulated"}
        for name, allowance in (("requests", requests), ("tokens", inputs)):
            headers[f"x-ratelimit-limit-{name}"] = str(allowance.limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(allowance.remaining)
            headers[f"x-ratelimit-reset-{name}"] = go_duration(allowance.reset)
        return headers

    def _details(
        self,
        dialect: Dialect,
        ask: Ask,
        who: Identity,
        plan: Plan,
        strikes: Mapping[FaultName, Strike],
        rng: Random,
    ) -> dict[str, str]:
        """The headers of an answer that was generated: phases, caches and times."""
        is_cold = "cold_start" in strikes or "cache_loss" in strikes
        detail = {
            "prefill_time_ms": round(plan.prefill * 1000, 1),
            # Known before the answer is written, since the pacing is drawn beforehand; stalls are not in it.
            "decode_time_ms": round(plan.decode * 1000, 1),
            "kv_cache_hit_rate": 0.0 if is_cold else round(rng.uniform(0.95, 0.995), 4),
            "model_name": who.model,
            "load_time_ms": round(plan.load_time * 1000, 1),
        }
        headers = {
            "X-Trace-Detail": json.dumps(detail, separators=(",", ":")),
            "X-Cache-Hit": "true" if ask.cached_tokens > 0 else "false",
        }
        if dialect is OPENAI:
            seconds = plan.first if ask.is_stream else plan.first + plan.decode + plan.stall
            headers["openai-processing-ms"] = str(math.ceil(seconds * 1000))
        return headers

    # -- the other endpoints of the API

    async def count_tokens(self, request: web.Request) -> web.StreamResponse:
        request_id = f"req_{secrets.token_hex(12)}"
        try:
            ask = anthropic_messages.parse(await request.read(), needs_max_tokens=False)
        except RequestError as error:
            return self._refusal(ANTHROPIC, 400, request_id, str(error), "invalid_request_error")
        return web.json_response({"input_tokens": ask.input_tokens}, headers={"request-id": request_id})

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        request_id = f"req_{secrets.token_hex(12)}"
        try:
            asked = _decode_embedding(await request.read())
            texts = _embedded_texts(asked)
        except (msgspec.DecodeError, RequestError) as error:
            return self._refusal(OPENAI, 400, request_id, str(error), "invalid_request_error", param="input")
        dimensions = embeddings.DIMENSIONS if asked.dimensions is None else asked.dimensions
        if not 1 <= dimensions <= embeddings.MOST_DIMENSIONS:
            message = f"dimensions must be from 1 to {embeddings.MOST_DIMENSIONS}, got {dimensions}"
            return self._refusal(OPENAI, 400, request_id, message, "invalid_request_error", param="dimensions")
        vectors = [embeddings.embed(text, dimensions) for text in texts]
        is_base64 = asked.encoding_format == "base64"
        used = sum(tokens.count(text) for text in texts)
        return web.json_response(
            {
                "object": "list",
                "data": [
                    {
                        "object": "embedding",
                        "index": index,
                        "embedding": embeddings.as_base64(vector) if is_base64 else vector,
                    }
                    for index, vector in enumerate(vectors)
                ],
                "model": asked.model,
                "usage": {"prompt_tokens": used, "total_tokens": used},
            },
            headers=self._headers(OPENAI, request_id),
        )

    async def models(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(
            {
                "object": "list",
                "data": [_described_model(name) for name in MODELS],
                "has_more": False,
                "first_id": MODELS[0],
                "last_id": MODELS[-1],
            }
        )

    async def model(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["model"]
        if name not in MODELS:
            message = f"The model {name!r} does not exist."
            return self._refusal(
                ANTHROPIC if "anthropic-version" in request.headers else OPENAI,
                404,
                f"req_{secrets.token_hex(12)}",
                message,
                "not_found_error" if "anthropic-version" in request.headers else "invalid_request_error",
                code="model_not_found",
                param="model",
            )
        return web.json_response(_described_model(name))

    async def health(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"status": "ok"})

    # -- control

    async def counted(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=msgspec.json.encode(self.counts), content_type="application/json")

    async def faults(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self.board.described())

    async def switch_faults(self, request: web.Request) -> web.StreamResponse:
        try:
            self.board.switch(settings_from_json(await request.read()))
        except FaultError as error:
            return web.json_response({"error": {"message": str(error)}}, status=400)
        return web.json_response(self.board.described())

    async def clear_faults(self, request: web.Request) -> web.StreamResponse:
        try:
            cleared = request.match_info.get("fault", request.query.get("fault"))
            self.board.clear(cleared)
        except FaultError as error:
            return web.json_response({"error": {"message": str(error)}}, status=400)
        if cleared in {None, "drain"}:
            for buckets in self._buckets.values():
                buckets.refill()
        return web.json_response(self.board.described())


class _EmbeddingRequest(Struct):
    model: str
    input: str | list[str | int | list[int]]
    dimensions: int | None = None
    encoding_format: str | None = None


_decode_embedding = msgspec.json.Decoder(_EmbeddingRequest).decode


def _embedded_texts(asked: _EmbeddingRequest) -> list[str]:
    if isinstance(asked.input, str):
        texts = [asked.input]
    elif asked.input and all(isinstance(part, int) for part in asked.input):
        texts = [" ".join(f"token{part}" for part in asked.input)]
    else:
        texts = [
            part if isinstance(part, str) else " ".join(f"token{number}" for number in part)
            for part in asked.input
            if not isinstance(part, int)
        ]
        if len(texts) != len(asked.input):
            raise RequestError("input mixes texts and token numbers")
    if not texts or not all(texts):
        raise RequestError("input must not be empty")
    if len(texts) > MOST_EMBEDDED_TEXTS:
        raise RequestError(f"input may hold at most {MOST_EMBEDDED_TEXTS} texts, got {len(texts)}")
    return texts


def _effective(
    strikes: Mapping[FaultName, Strike], dialect: Dialect, ask: Ask, plan: Plan, residency: str | None
) -> Iterator[str]:
    """The faults that the client can see in this answer."""
    has_document = ask.wants_json or bool(ask.tools)
    for name in strikes:
        if name in ("invalid_json", "schema_drift") and not has_document:
            continue
        if name == "stutter" and not ask.is_stream:
            continue
        if name == "no_usage" and not (dialect.may_hide_usage and ask.is_stream):
            continue
        if name == "correction" and not (dialect.may_correct and ask.is_stream):
            continue
        if name == "wrong_region" and residency is None:
            continue
        if name == "error_event" and plan.error_at is None:
            continue
        yield name


def _notices(residency: str | None, strikes: Mapping[FaultName, Strike]) -> dict[str, str]:
    """Headers on where the answer was made, if that was asked, and on what goes away."""
    headers = {}
    if residency is not None:
        headers["X-Served-Region"] = ELSEWHERE if "wrong_region" in strikes else residency
    if "deprecation" in strikes:
        headers |= {"Deprecation": f"@{MODELS_RELEASED}", "Sunset": "Wed, 31 Dec 2031 23:59:59 GMT"}
    return headers


def _described_model(name: str) -> dict[str, object]:
    """One model, with the fields that either family of clients reads."""
    return {
        "id": name,
        "object": "model",
        "created": MODELS_RELEASED,
        "owned_by": "simulator",
        "type": "model",
        "display_name": name.replace("-", " ").title(),
        "created_at": _rfc_3339(MODELS_RELEASED),
        "lifecycle": "active",
    }


def smaller_model(model: str) -> str:
    """The model that answers in place of this one when it is downgraded."""
    for large, small in _SMALLER:
        if large in model:
            return model.replace(large, small)
    return f"{model}-mini"


def go_duration(seconds: float) -> str:
    """A duration as Go prints it, which is how OpenAI writes resets: 6ms, 8.64s, 1m3.2s, 1h0m2s."""
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    minutes, rest = divmod(milliseconds, 60_000)
    tail = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + tail


def _rfc_3339(unix: float) -> str:
    return datetime.datetime.fromtimestamp(unix, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _hang_up(request: web.Request) -> None:
    """Close the connection in the middle of the answer; what was written is sent."""
    if request.transport is not None:
        request.transport.close()


@web.middleware
async def _errors_in_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        message = f"{request.method} {request.path}: {error.reason}"
        body = openai_chat.error_body(message, "invalid_request_error")
        return web.Response(status=error.status, body=body, content_type="application/json")


SIMULATION = web.AppKey("SIMULATION", Simulation)


def create_app(settings: Settings | None = None) -> web.Application:
    """The API as an aiohttp application; `app[SIMULATION]` is its state."""
    app = web.Application(client_max_size=LARGEST_BODY, middlewares=[_errors_in_json])
    app[SIMULATION] = Simulation(Settings() if settings is None else settings)
    app.add_routes(app[SIMULATION].routes())
    return app


@contextlib.asynccontextmanager
async def serving(settings: Settings | None = None, listener: socket.socket | None = None) -> AsyncIterator[str]:
    """Serve on a listening socket, or on a free port of loopback, while the block runs; gives the base URL."""
    if listener is None:
        listener = listen("127.0.0.1", 0)
    # With cancellation a client that goes away ends its answer at once.
    runner = web.AppRunner(
        create_app(settings), access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS
    )
    await runner.setup()
    await web.SockSite(runner, listener).start()
    host, port = listener.getsockname()[:2]
    try:
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def listen(host: str, port: int) -> socket.socket:
    """A bound and listening socket; OSError where the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="collector.simulator.api", description=__doc__)
    parser.add_argument("--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT")
    parser.add_argument("--fd", type=int, help="take this inherited listening socket in place of --listen")
    parser.add_argument("--fast", action="store_true", help="answer at once, and let faults last a twentieth")
    parser.add_argument("--seed", type=int, default=Settings().seed)
    parser.add_argument(
        "--fault", action="append", default=[], metavar="NAME=SHARE", help="a fault that is on at start"
    )
    parser.add_argument("--first-token", type=float, metavar="SECONDS", help="median wait for the first token")
    parser.add_argument("--gap", type=float, metavar="SECONDS", help="mean gap between tokens")
    parser.add_argument("--gap-sigma", type=float, metavar="SECONDS", help="standard deviation of the gaps")
    parser.add_argument("--requests-per-minute", type=int, default=Limits().requests)
    parser.add_argument(
        "--sigv4",
        action="store_true",
        help="refuse what is not signed, or does not show the bearer key, in Bedrock's dialect; the keys are those of "
        "the environment (needs semhealth[aws])",
    )
    parsed = parser.parse_args(argv)
    try:
        parsed.faults = tuple(setting_from_words(words) for words in parsed.fault)
        parsed.host, parsed.port = _address(parsed.listen)
        parsed.check_signature = signature_check(os.environ) if parsed.sigv4 else None
    except ValueError as error:
        parser.error(str(error))
    return parsed


def _address(words: str) -> tuple[str, int]:
    host, colon, port = words.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"--listen: expected HOST:PORT, got {words!r}")
    return host.strip("[]"), int(port)


def settings_from(parsed: argparse.Namespace) -> Settings:
    base = FAST if parsed.fast else Pacing()
    pacing = Pacing(
        first=base.first if parsed.first_token is None else parsed.first_token,
        gap=base.gap if parsed.gap is None else parsed.gap,
        gap_sigma=base.gap_sigma if parsed.gap_sigma is None else parsed.gap_sigma,
        fault_scale=base.fault_scale,
    )
    limits = Limits(requests=parsed.requests_per_minute)
    return Settings(
        seed=parsed.seed, pacing=pacing, limits=limits, faults=parsed.faults, check_signature=parsed.check_signature
    )


def signature_check(environ: Mapping[str, str]) -> SignatureCheck:
    """A check by the environment's key pair and bearer key. ValueError without a key pair, or without botocore."""
    try:
        from collector.simulator import sigv4  # noqa: PLC0415 - botocore belongs to an extra
    except ImportError as error:
        raise ValueError("--sigv4: needs botocore, which `pip install 'semhealth[aws]'` brings") from error
    access_key, secret_key = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key:
        raise ValueError("--sigv4: needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment")
    keys = sigv4.Keys(
        access_key,
        secret_key,
        environ.get("AWS_SESSION_TOKEN") or None,  # an empty variable is none
        environ.get("AWS_BEARER_TOKEN_BEDROCK") or None,
    )

    def check(method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes) -> tuple[str, str] | None:
        try:
            sigv4.check(keys, method, target, headers, body, time.time())
        except sigv4.SignatureError as error:
            return error.exception, str(error)
        return None

    return check


async def _serve_until_stopped(parsed: argparse.Namespace, listener: socket.socket) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serving(settings_from(parsed), listener) as base:
        sys.stdout.write(f"simulated LLM API on {base}\n")
        sys.stdout.flush()
        await stop.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; 1 where the address cannot be had."""
    parsed = arguments(sys.argv[1:] if argv is None else argv)
    try:
        listener = socket.socket(fileno=parsed.fd) if parsed.fd is not None else listen(parsed.host, parsed.port)
    except OSError as error:
        where = f"descriptor {parsed.fd}" if parsed.fd is not None else parsed.listen
        why = str(error.strerror).partition(" (while")[0]  # socket names the address once more
        sys.stderr.write(f"simulated LLM API: cannot listen on {where}: {why}\n")
        return 1
    uvloop.run(_serve_until_stopped(parsed, listener))
    return 0


if __name__ == "__main__":
    sys.exit(main())
