"""The parts of a streamed answer, in the order in which they are sent."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

# `token`: one step of decoding, for which the client waits; `beside`: sent together with the part before it.
Kind = Literal["token", "beside"]


class Part(Struct, frozen=True, gc=False):
    """Bytes that are written at once."""

    payload: bytes
    kind: Kind


class Identity(Struct, frozen=True):
    """Who answers: the model that serves, the id of this request, and the time of the answer in Unix seconds."""

    model: str
    request_id: str
    created: int


class RequestError(ValueError):
    """A request that the API refuses; the message says why. `param` names the field, where one is to blame."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class Refusal(Struct, frozen=True):
    """An error answer. `kind` and `code` are OpenAI's words, or Anthropic's where it refuses."""

    status: int
    message: str
    request_id: str
    kind: str
    code: str | None = None
    param: str | None = None
