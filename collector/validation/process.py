"""The validator process: judges one output after the other, and may be killed at any time.

    python -m collector.validation.process --runtime DIR --fd requests=N

`DIR/settings.json` holds the settings, N is the listening Unix socket. One client is served at a time, in order. All
that is ever waited for is that client, so there is no event loop: what runs too long is ended by a signal from outside.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import socket
import sys
import warnings
from collections import OrderedDict
from pathlib import Path

import msgspec

from collector.config import Settings, ValidatorSettings
from collector.contracts.rules import RulesCache
from collector.validation import ecma, fast
from collector.validation.contract import judge_contract
from collector.validation.judge import judge
from collector.validation.protocol import FRAME_CAP, HEADER, Answer, Hello, Question, decode_question, frame
from collector.validation.schema import Schema, SchemaFault, UnusableSchemaError, compile_schema

RECURSION = 5000  # stack frames: DEPTH levels of a value at what jsonschema needs for each
PARENT_CHECK = 1.0  # seconds between two looks whether the supervisor still lives, while no client is there
LEAST_MEMORY = 64 * 1024 * 1024  # bytes; with less it could not even start
# The client kills what exceeds its limit. Where the client died first, the kernel does after this many limits.
LIMITS_ALONE = 3.0


class SchemaCache:
    """Compiled schemas, the least used given up first. Bounded in bytes of schema text and in number."""

    SCHEMAS = 512
    BYTES = 8 * 1024 * 1024
    LARGEST = 1024 * 1024  # bytes of a schema that is kept, so that one does not push out all others

    def __init__(self, formats: bool = False) -> None:
        self._formats = formats
        self._compiled: OrderedDict[bytes, Schema | SchemaFault] = OrderedDict()
        self._bytes = 0

    def __call__(self, text: bytes) -> Schema:
        """The schema compiled; raises what compile_schema raises, the second time without trying again."""
        known = self._compiled.get(text)
        if known is None:
            known = self._made(text)
            if len(text) <= self.LARGEST:
                self._keep(text, known)
        else:
            self._compiled.move_to_end(text)
        if isinstance(known, str):
            raise UnusableSchemaError(known)
        return known

    def _keep(self, text: bytes, made: Schema | SchemaFault) -> None:
        self._compiled[text] = made
        self._bytes += len(text)
        while len(self._compiled) > self.SCHEMAS or self._bytes > self.BYTES:
            oldest, _ = self._compiled.popitem(last=False)
            self._bytes -= len(oldest)

    def _made(self, text: bytes) -> Schema | SchemaFault:
        try:
            return compile_schema(text, self._formats)
        except UnusableSchemaError as error:
            return error.fault

    def clear(self) -> None:
        self._compiled.clear()
        self._bytes = 0


def answer(question: Question, compiled: SchemaCache, rules: RulesCache) -> Answer:
    """The answer to one question. Out of memory counts as out of time: both are limits of this process."""
    try:
        text = question.text.decode("utf-8", "surrogatepass")
        if question.rules is not None:
            return Answer(*judge_contract(text, question.schema, rules(question.rules), compiled))
        result, keyword = judge(text, question.schema, question.kind, compiled)
    except MemoryError:
        compiled.clear()
        rules.clear()
        ecma.compiled.cache_clear()
        fast.matcher.cache_clear()
        return Answer("validator_timeout", None)
    return Answer(result, keyword)


def serve(connection: socket.socket, compiled: SchemaCache, rules: RulesCache, alone: float) -> None:
    """Answers one client until it leaves. `alone` is the time in seconds after which the kernel ends a judgement."""
    connection.sendall(frame(Hello(os.getpid())))
    stream = connection.makefile("rb")
    while len(header := stream.read(HEADER)) == HEADER:
        length = int.from_bytes(header, "big")
        if length > FRAME_CAP:
            return
        body = stream.read(length)
        if len(body) < length:
            return
        question = decode_question(body)
        signal.setitimer(signal.ITIMER_REAL, alone)
        found = answer(question, compiled, rules)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        connection.sendall(frame(found))


def run(listener: socket.socket, settings: ValidatorSettings) -> None:
    """Serves clients one after the other; returns when the parent process is gone."""
    parent = os.getppid()
    compiled, rules = SchemaCache(settings.formats), RulesCache()
    listener.settimeout(PARENT_CHECK)
    while os.getppid() == parent:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        connection.settimeout(None)
        # A client that left, or that does not speak as agreed, loses its connection and nothing else.
        with connection, contextlib.suppress(OSError, ValueError):
            serve(connection, compiled, rules, max(settings.timeout * LIMITS_ALONE, 1.0))


def confine(settings: ValidatorSettings) -> None:
    """Bounds the process: memory, stack, and no core dump, which would hold what was judged."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    memory = max(settings.memory, LEAST_MEMORY)
    if hard != resource.RLIM_INFINITY:
        memory = min(memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(RECURSION)
    warnings.simplefilter("ignore")  # `re` warns of odd patterns and quotes them
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's to handle
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, whatever it is in the middle of


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m collector.validation.process", description="The validator process."
    )
    parser.add_argument("--runtime", required=True, type=Path, metavar="DIR", help="directory with settings.json")
    parser.add_argument("--fd", required=True, action="append", metavar="NAME=N", help="inherited socket: requests=N")
    given = parser.parse_args(arguments)
    sockets = dict(each.partition("=")[::2] for each in given.fd)
    if set(sockets) != {"requests"} or not sockets["requests"].isdecimal():
        parser.error("--fd: expected requests=N with the number of a listening socket")
    try:
        settings = msgspec.json.decode((given.runtime / "settings.json").read_bytes(), type=Settings)
        listener = socket.socket(fileno=int(sockets["requests"]))
    except (OSError, msgspec.MsgspecError) as error:
        print(f"semhealth validator: cannot start: {error}", file=sys.stderr)  # noqa: T201 - there is no log yet
        return 2
    with listener:
        confine(settings.validator)
        run(listener, settings.validator)
    return 0


if __name__ == "__main__":
    sys.exit(main())
