"""`semhealth demo`, which `make run` starts, ends by itself with a summary."""

from __future__ import annotations

import os
import pty
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import ROOT, Metrics, Process, call, wait_until

DEMO = [sys.executable, "-m", "collector.cli", "demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
ENDS_WITHIN = 90.0  # seconds; the model has to load on a busy machine


def the_summary_of(shown: str) -> dict[str, str]:
    """The last word, by the name at the start of each line."""
    last = shown[shown.rindex("semhealth ran for ") :]
    return dict(line.strip().split(maxsplit=1) for line in last.splitlines()[1:] if line.startswith("  "))


def numbers_in(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def test_the_demonstration_ends_by_itself_with_a_summary(new_directory: Callable[[], Path]) -> None:
    demo = Process([*DEMO, "--duration", "6", "--rate", "15"], new_directory())
    try:
        assert demo.wait(ENDS_WITHIN) == 0, demo.stderr
    finally:
        demo.end()
    summary = the_summary_of(demo.stdout)
    assert list(summary) == [
        "exchanges", "outcomes", "validity", "relevance", "continuity", "first", "drops",
    ]  # fmt: skip
    recorded, forwarded = numbers_in(summary["exchanges"])
    assert 20 < recorded <= forwarded
    assert "completed" in summary["outcomes"]
    [rate, checked] = numbers_in(summary["validity"])
    assert 0 <= rate <= 1
    assert checked > 0
    assert " median deviation of gaps" in summary["continuity"]
    assert summary["drops"] == "none"
    assert "Traceback" not in demo.stderr
    assert "\x1b[" not in demo.stdout  # no terminal, no control characters


def test_the_table_is_drawn_on_a_terminal(new_directory: Callable[[], Path]) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*DEMO, "--duration", "3", "--rate", "15", "--set", "embedder.kind=none"],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        cwd=new_directory(),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + ENDS_WITHIN
    try:
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 1.0)[0]:
                continue
            try:
                more = os.read(ours, 65536)
            except OSError:  # the other side has closed
                break
            if not more:
                break
            shown += more
        assert process.wait(ENDS_WITHIN) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
        assert process.stderr is not None
        process.stderr.close()
    screens = shown.decode("utf-8", "replace").split("\x1b[H\x1b[2J")
    assert len(screens) > 3  # it was drawn again and again
    last = screens[-1]
    assert re.search(r"semhealth · +\d+ s · \d+ exchanges recorded", last)
    assert "route / model" in last
    assert "default / sim-" in last
    assert re.search(r"metrics +http://127\.0\.0\.1:[1-9]\d*/metrics", last)
    assert "rate limits  " in last
    assert "  drops        none" in last


def test_an_interrupted_demonstration_says_its_summary_too(new_directory: Callable[[], Path]) -> None:
    demo = Process([*DEMO, "--rate", "15", "--set", "embedder.kind=none"], new_directory())
    try:
        metrics = demo.wait_for_output(r"metrics +(http://\S+)")[1]
        wait_until(lambda: Metrics(call(metrics).body.decode()).total("semantic_health_exchanges_total") > 5, "traffic")
        demo.popen.terminate()
        assert demo.wait(ENDS_WITHIN) == 0
    finally:
        demo.end()
    assert numbers_in(the_summary_of(demo.stdout)["exchanges"])[0] > 0
    assert "Traceback" not in demo.stderr


def test_a_taken_port_is_said_in_one_sentence(new_directory: Callable[[], Path], free_port: int) -> None:
    with socket.create_server(("127.0.0.1", free_port)):
        demo = Process([*DEMO[:-4], "--listen", f"127.0.0.1:{free_port}", "--duration", "3"], new_directory())
        assert demo.wait() == 1
    assert demo.stderr.startswith(f"semhealth: listen: cannot listen on 127.0.0.1:{free_port}: another process")
    assert demo.stderr.count("\n") == 1


@pytest.mark.parametrize("duration", ["soon", ""])
def test_a_duration_that_is_none_is_wrong_usage(duration: str, new_directory: Callable[[], Path]) -> None:
    demo = Process([*DEMO, "--duration", duration], new_directory())
    assert demo.wait() == 2
    assert "--duration" in demo.stderr
