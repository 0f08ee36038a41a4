"""What analyst and validator say to each other: 4-byte big-endian length and msgpack, one answer per question."""

from __future__ import annotations

from msgspec import Struct, msgpack

from collector.model import RuleResult

SOCKET = "validator.sock"
HEADER = 4  # bytes of length before a frame
FRAME_CAP = 64 * 1024 * 1024  # longer frames are not sent, and end the connection where they come

ENVELOPE = 1024  # bytes that a question may have beside its text and schema


class Hello(Struct, frozen=True, array_like=True):
    """The validator's first frame on a connection: who is to be killed when it hangs."""

    pid: int


class Question(Struct, frozen=True, array_like=True):
    """`text` is UTF-8 with surrogates let through, as an answer may hold half of a pair. `rules` are a RuleSet's."""

    kind: str
    text: bytes
    schema: bytes | None
    rules: bytes | None = None


class Answer(Struct, frozen=True, array_like=True):
    result: str
    keyword: str | None
    rules: tuple[RuleResult, ...] = ()


def frame(message: Hello | Question | Answer) -> bytes:
    """A message as it goes over the socket."""
    body = msgpack.encode(message)
    return len(body).to_bytes(HEADER, "big") + body


decode_hello = msgpack.Decoder(Hello).decode
decode_question = msgpack.Decoder(Question).decode
decode_answer = msgpack.Decoder(Answer).decode
