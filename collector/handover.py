"""Handing a running sidecar to new code: a rehearsal, then another image of the supervisor in the same process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, MutableMapping, Sequence

import msgspec
from msgspec import Struct

INHERITED = "SEMHEALTH_INHERITED"  # variable: what the image before this one hands on
REHEARSAL = "SEMHEALTH_REHEARSAL"  # variable: find out whether a start would succeed, and start nothing
LONGEST_REHEARSAL = 60.0  # seconds
LONGEST_WORD = 500  # characters that are repeated of what a rehearsal said

# What comes while the image is changed waits for the new one.
WAITING_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2})


class InheritedSocket(Struct, frozen=True):
    """A listening socket: the address that settings gave it, and the number of its descriptor."""

    address: str
    number: int


class InheritedProcess(Struct, frozen=True):
    """A child that goes on running."""

    name: str
    pid: int
    is_retired: bool


class Inherited(Struct, frozen=True):
    """What a supervisor hands to the image that takes its place."""

    runtime: str
    generation: int
    sockets: dict[str, InheritedSocket]
    processes: tuple[InheritedProcess, ...]


def take_inherited(environ: MutableMapping[str, str]) -> Inherited | None:
    """What was handed on, which is then no longer in the environment. None at an ordinary start."""
    told = environ.pop(INHERITED, None)
    return None if told is None else msgspec.json.decode(told, type=Inherited)


def own_command() -> tuple[str, ...]:
    """The command line by which this process can be executed anew."""
    return (sys.executable, *sys.orig_argv[1:])


async def rehearse(command: Sequence[str], environ: Mapping[str, str], patience: float = LONGEST_REHEARSAL) -> str:
    """What is in the way of a start by this command; empty where nothing is."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**environ, REHEARSAL: "1"},
        )
    except OSError as error:
        return f"{command[0]} cannot be executed: {error.strerror}"
    try:
        async with asyncio.timeout(patience):
            _, told = await process.communicate()
    except TimeoutError:
        return f"it did not end within {patience:g} s"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode == 0:
        return ""
    lines = told.decode("utf-8", "replace").strip().splitlines()
    return f"it ended with {process.returncode}: {lines[-1][:LONGEST_WORD] if lines else 'without a word'}"


def execute(command: Sequence[str], environ: Mapping[str, str], inherited: Inherited) -> None:
    """Become the new image; process id, children and the inherited sockets stay. OSError where it cannot be executed.

    Signals that come meanwhile wait until the new image calls `let_signals_in`.
    """
    numbers = [each.number for each in inherited.sockets.values()]
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITING_SIGNALS)
    try:
        for number in numbers:
            os.set_inheritable(number, True)
        told = {**environ, INHERITED: msgspec.json.encode(inherited).decode()}
        os.execve(command[0], list(command), told)  # noqa: S606 - our own command line # nosec B606
    finally:
        for number in numbers:
            os.set_inheritable(number, False)
        let_signals_in()


def let_signals_in() -> None:
    """Take what came while the image was changed, now that there are handlers."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WAITING_SIGNALS)
