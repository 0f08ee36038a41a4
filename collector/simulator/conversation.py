"""What requests of every dialect have in common: turns in order, and the Ask that they come to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from collector.simulator import tokens
from collector.simulator.answers import Ask, Call, Tool, ToolChoice
from collector.simulator.delivery import RequestError

Role = Literal["system", "user", "assistant", "tool"]

_encode_in_order = msgspec.json.Encoder(order="deterministic").encode


class Turn(Struct, frozen=True):
    """One text of a prompt, and whose it is."""

    role: Role
    text: str


class Wishes(Struct, frozen=True):
    """What a request wants beside an answer; each field is as in Ask."""

    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    tool_named: str | None = None
    wants_json: bool = False
    schema: dict[str, Any] | None = None
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    choices: int = 1
    thinks: bool = False
    arguments_must_parse: bool = False


def ask_of(model: str, turns: Sequence[Turn], digest: bytes, wishes: Wishes, *, is_stream: bool) -> Ask:
    """The Ask of a conversation. RequestError where it has no turn, its limit is none, or a named tool is missing."""
    if not any(turn.role != "system" for turn in turns):
        raise RequestError("the request has no message")
    if wishes.max_tokens is not None and wishes.max_tokens < 1:
        raise RequestError(f"the limit of tokens must be at least 1, got {wishes.max_tokens}")
    if wishes.tool_named is not None and all(tool.name != wishes.tool_named for tool in wishes.tools):
        raise RequestError(f"the tool {wishes.tool_named!r} is not among the tools")
    prompt = "\n".join(turn.text for turn in turns)
    results = []
    for turn in reversed(turns):
        if turn.role != "tool":
            break
        results.append(turn.text)
    return Ask(
        model=model,
        is_stream=is_stream,
        prompt=prompt,
        question=next((turn.text for turn in reversed(turns) if turn.role == "user"), ""),
        digest=digest,
        input_tokens=3 + 4 * len(turns) + tokens.count(prompt),
        tool_result="\n".join(reversed(results)) if results else None,
        tools=wishes.tools,
        tool_choice=wishes.tool_choice,
        tool_named=wishes.tool_named,
        wants_json=wishes.wants_json,
        schema=wishes.schema,
        max_tokens=wishes.max_tokens,
        stops=wishes.stops,
        choices=wishes.choices,
        thinks=wishes.thinks,
        arguments_must_parse=wishes.arguments_must_parse,
    )


def digest_of(body: bytes, *beside: str, left_out: tuple[str, ...] = ()) -> bytes:
    """A digest of a JSON object and of what the path says beside it; keys count in any order, some not at all."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    kept = {key: value for key, value in fields.items() if key not in left_out}
    return hashlib.blake2b(_encode_in_order([kept, *beside]), digest_size=16).digest()


def arguments_of(call: Call) -> dict[str, Any]:
    """The arguments of a call as an object; empty where the answer was cut inside them."""
    try:
        decoded = msgspec.json.decode(call.arguments.encode())
    except msgspec.DecodeError:
        return {}
    return decoded if isinstance(decoded, dict) else {}
