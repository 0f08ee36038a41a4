"""Rehearsals of a hand-over, and what an image hands to the next."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from collector.handover import (
    INHERITED,
    REHEARSAL,
    Inherited,
    InheritedProcess,
    InheritedSocket,
    execute,
    own_command,
    rehearse,
    take_inherited,
)


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


async def test_a_rehearsal_that_succeeds_has_nothing_to_say_and_was_told_what_it_is() -> None:
    program = f"import os, sys; sys.exit(0 if os.environ['{REHEARSAL}'] == '1' else 9)"
    assert await rehearse(python(program), os.environ) == ""


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("raise ImportError('half an installation')", "it ended with 1: ImportError: half an installation"),
        ("raise SystemExit(3)", "it ended with 3: without a word"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with -9: without a word"),
    ],
)
async def test_a_rehearsal_that_fails_says_how(program: str, problem: str) -> None:
    assert await rehearse(python(program), os.environ) == problem


async def test_a_rehearsal_that_does_not_end_is_ended(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    program = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    assert await rehearse(python(program), os.environ, 3.0) == "it did not end within 3 s"
    if mark.exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int(mark.read_text()), 0)


async def test_a_command_that_is_not_there_is_a_problem_and_no_error() -> None:
    assert await rehearse(("/no/such/python",), os.environ) == (
        "/no/such/python cannot be executed: No such file or directory"
    )


def test_the_next_image_finds_sockets_and_processes_and_the_environment_is_clean(tmp_path: Path) -> None:
    program = (
        "import os, socket, signal\n"
        "from collector.handover import INHERITED, WAITING_SIGNALS, let_signals_in, take_inherited\n"
        "told = take_inherited(os.environ)\n"
        "assert INHERITED not in os.environ\n"
        "assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) >= WAITING_SIGNALS\n"
        "let_signals_in()\n"
        "assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & WAITING_SIGNALS\n"
        "port = socket.socket(fileno=told.sockets['listen'].number).getsockname()[1]\n"
        f"open({str(tmp_path / 'told')!r}, 'w').write(f'{{os.getpid()}} {{port}} {{told.processes[0].pid}}')\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sockets = {"listen": InheritedSocket("127.0.0.1:0", listening.fileno())}
        inherited = Inherited("/run", 1, sockets, (InheritedProcess("proxy-0", 4711, False),))
        pid = os.fork()
        if pid == 0:
            try:
                execute(python(program), os.environ, inherited)
            finally:
                os._exit(99)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert (tmp_path / "told").read_text() == f"{pid} {listening.getsockname()[1]} 4711"


def test_an_image_that_cannot_be_executed_leaves_this_one_as_it_was() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        inherited = Inherited("/run", 1, {"listen": InheritedSocket("a", listening.fileno())}, ())
        with pytest.raises(FileNotFoundError):
            execute(("/no/such/python",), os.environ, inherited)
        assert not os.get_inheritable(listening.fileno())
    assert INHERITED not in os.environ


def test_an_ordinary_start_inherits_nothing() -> None:
    assert take_inherited({}) is None


def test_a_process_knows_the_command_that_started_it() -> None:
    assert own_command()[0] == sys.executable
    assert own_command()[1:] == tuple(sys.orig_argv[1:])
