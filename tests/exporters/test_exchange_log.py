"""The exchange log: whole lines, private files, rotation, and disks that will not take it."""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import model
from collector.model import Record
from exporters import exchange_log
from exporters.exchange_log import ExchangeLog, check_path, last_ids, record_json


def a_record(identity: str = "e1", **changes: object) -> Record:
    record = Record(
        id=identity, started_at="2026-01-01T00:00:00Z", route="r", method="POST", trace_id=None,
        client_request_id=None, retry_attempt=None, dialect="openai.chat", provider="openai", operation="chat",
        transport="sse", stream=True, status=200, outcome="completed", phase=None, request_model="m",
        response_model="m", finish_reasons=("stop", None), usage=model.Usage(input_tokens=3, output_tokens=0),
        usage_reported=model.ReportedUsage(input_tokens=3), text=model.TextFacts("ab", 2, (model.TextFact("ab", 2),)),
        correction_ratio=None, tool_calls=(model.ToolCallFact(0, 0, "f", "cd", 2),), error=None,
        frames=model.FrameCounts(data=2), timing=model.Timing(duration=0.5, chunk_gaps=model.ChunkGaps(1, gaps=(0.1,))),
        bytes_in=10, bytes_out=20, rate_limits=(model.RateLimit("requests", "minute", 10.0),), retry_after=None,
        upstream=model.UpstreamFacts(phases={"queue": 0.1}), validity=None,
        relevance=model.Relevance(False, "no_context"), findings=(), anomalies=("usage_missing",),
    )  # fmt: skip
    return msgspec.structs.replace(record, **changes)


def ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def wait_for(claim: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


# ---------------------------------------------------------------- the line


def test_a_line_has_every_field_of_the_contract_and_null_for_what_is_unknown() -> None:
    shown = json.loads(record_json(a_record()))
    assert list(shown) == list(Record.__struct_fields__)
    assert shown["finish_reasons"] == ["stop", None]
    assert shown["usage"] == {
        "input_tokens": 3, "output_tokens": 0, "cache_read_input_tokens": None, "cache_write_input_tokens": None,
        "reasoning_output_tokens": None,
    }  # fmt: skip
    assert shown["text"] == {"sha256": "ab", "chars": 2, "choices": [{"sha256": "ab", "chars": 2}]}
    assert shown["timing"]["chunk_gaps"] == {"count": 1, "mean": None, "stddev": None, "max": None, "gaps": [0.1]}
    assert shown["timing"]["first_token"] is None
    assert shown["upstream"]["phases"] == {"queue": 0.1}
    assert shown["validity"] is None
    assert shown["relevance"]["raw"] is None
    assert shown["cost_usd"] is None


def test_a_number_that_json_cannot_say_is_null() -> None:
    assert json.loads(record_json(a_record(retry_after=math.inf)))["retry_after"] is None


@given(st.text(st.characters(exclude_categories=()), max_size=20), st.text(max_size=5))
def test_any_text_makes_one_line_of_utf_8(name: str, other: str) -> None:
    line = record_json(a_record(response_model=name, anomalies=(other,)))
    assert b"\n" not in line
    shown = json.loads(line.decode("utf-8"))
    assert shown["anomalies"] == [other]
    assert len(shown["response_model"]) <= len(name)
    if name.isprintable():
        assert shown["response_model"] == name


def test_a_lone_surrogate_becomes_one_replacement_character() -> None:
    assert json.loads(record_json(a_record(response_model="a\ud800b")))["response_model"] == "a\ufffdb"


# ---------------------------------------------------------------- the file


def test_records_are_appended_in_order_to_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(record_json(a_record("old")).decode() + "\n")
    path.chmod(0o644)
    log = ExchangeLog(str(path), 1_000_000, 5)
    for i in range(500):
        log.append(a_record(str(i)))
    assert log.close()
    assert ids(path) == ["old", *map(str, range(500))]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_line_can_be_read_soon_after_it_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log = ExchangeLog(str(path), 0, 5)
    for i in range(5):
        began = time.monotonic()
        log.append(a_record(str(i)))
        wait_for(lambda i=i: path.exists() and path.read_bytes().count(b"\n") > i)
        assert time.monotonic() - began < 2.0  # 100 ms on a machine that does nothing else
    log.close()


def test_appending_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)  # opening it waits for a reader that never comes
    lost: list[int] = []
    log = ExchangeLog(str(fifo), 0, 5, lost.append)
    line = len(record_json(a_record())) + 1
    began = time.monotonic()
    for _ in range(exchange_log.PENDING_BYTES // line + 10):
        log.append(a_record())
    assert sum(lost) == 10
    assert not log.close(timeout=0.2)
    assert time.monotonic() - began < 30.0
    log.append(a_record())
    assert sum(lost) == 11
    with fifo.open("rb") as reader:  # lets the thread go
        assert reader.read().count(b"\n") == exchange_log.PENDING_BYTES // line


def test_files_turn_before_they_pass_their_size_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    line = len(record_json(a_record("00"))) + 1
    log = ExchangeLog(str(path), 3 * line + 1, 2)
    for i in range(20):
        log.append(a_record(f"{i:02}"))
    assert log.close()
    assert {entry.name: ids(entry) for entry in tmp_path.iterdir()} == {
        "x.log": ["18", "19"], "x.log.1": ["15", "16", "17"], "x.log.2": ["12", "13", "14"],
    }  # fmt: skip
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in tmp_path.iterdir()} == {0o600}


def test_a_log_that_keeps_no_old_file_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log = ExchangeLog(str(path), 3 * (len(record_json(a_record("00"))) + 1), 0)
    for i in range(7):
        log.append(a_record(f"{i:02}"))
    assert log.close()
    assert ids(path) == ["06"]
    assert os.listdir(tmp_path) == ["x.log"]


def test_a_line_longer_than_the_bound_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log = ExchangeLog(str(path), 10, 3)
    for i in range(3):
        log.append(a_record(str(i)))
    assert log.close()
    assert [ids(tmp_path / name) for name in ("x.log", "x.log.1", "x.log.2")] == [["2"], ["1"], ["0"]]


def test_a_file_that_was_moved_away_is_opened_anew_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log = ExchangeLog(str(path), 0, 5)
    log.append(a_record("1"))
    wait_for(lambda: path.exists() and path.read_bytes() != b"")
    path.rename(tmp_path / "moved")
    log.reopen()
    wait_for(path.exists)
    log.append(a_record("2"))
    assert log.close()
    assert (ids(tmp_path / "moved"), ids(path)) == (["1"], ["2"])


def test_a_line_that_someone_left_unfinished_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b'{"id":"torn')
    log = ExchangeLog(str(path), 0, 5)
    log.append(a_record("1"))
    assert log.close()
    assert path.read_bytes().splitlines()[0] == b'{"id":"torn'
    assert json.loads(path.read_bytes().splitlines()[1])["id"] == "1"


# ---------------------------------------------------------------- what cannot be written


def test_a_directory_that_is_not_there_costs_records_until_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_log, "RETRY_DELAY", 0.05)
    path = tmp_path / "later" / "x.log"
    lost: list[int] = []
    log = ExchangeLog(str(path), 0, 5, lost.append)
    for i in range(3):
        log.append(a_record(str(i)))
    wait_for(lambda: sum(lost) == 3)
    path.parent.mkdir()
    time.sleep(0.1)
    log.append(a_record("3"))
    assert log.close()
    assert ids(path) == ["3"]
    assert [record.levelname for record in caplog.records if record.name == "exporters.exchange_log"] == ["WARNING"]


def test_a_full_device_costs_records_and_raises_nothing() -> None:
    lost: list[int] = []
    log = ExchangeLog("/dev/full", 100, 5, lost.append)
    for i in range(3):
        log.append(a_record(str(i)))
    assert log.close()
    assert sum(lost) == 3


FULL = """
import json, os, resource, signal, sys, time
sys.path[:0] = sys.argv[2:]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from test_exchange_log import a_record, record_json
from exporters.exchange_log import ExchangeLog
path, line, lost = sys.argv[1], len(record_json(a_record("00"))) + 1, []
resource.setrlimit(resource.RLIMIT_FSIZE, (4 * line + line // 2, resource.RLIM_INFINITY))
log = ExchangeLog(path, 0, 5, lost.append)
for i in range(10):
    log.append(a_record(f"{i:02}"))
while sum(lost) < 6:
    time.sleep(0.01)
time.sleep(0.1)
assert open(path, "rb").read().endswith(b"\\n"), "half a line was left"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append(a_record("10"))
assert log.close()
print(json.dumps([[json.loads(line)["id"] for line in open(path)], sum(lost)]))
"""


def test_a_full_disk_costs_whole_lines_and_recovers_by_itself(tmp_path: Path) -> None:
    # A limit on file size stands for the full disk: it, too, takes the first part of a write and refuses the rest.
    here = Path(__file__).parent
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "x.log"), str(here), str(here.parent.parent)],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert json.loads(ran.stdout) == [["00", "01", "02", "03", "10"], 6]


def test_a_path_can_be_checked_before_anything_starts(tmp_path: Path) -> None:
    check_path(str(tmp_path / "x.log"))
    assert stat.S_IMODE((tmp_path / "x.log").stat().st_mode) == 0o600
    with pytest.raises(OSError, match="No such file"):
        check_path(str(tmp_path / "nowhere" / "x.log"))


def test_closing_twice_and_appending_afterwards_is_harmless(tmp_path: Path) -> None:
    lost: list[int] = []
    log = ExchangeLog(str(tmp_path / "x.log"), 0, 5, lost.append)
    assert log.close()
    assert log.close()
    log.append(a_record())
    assert sum(lost) == 1


# ---------------------------------------------------------------- whoever waits for the disk


def test_who_waits_is_called_when_the_records_before_are_in_the_file(tmp_path: Path) -> None:
    log = ExchangeLog(str(tmp_path / "log"), 0, 0)
    seen: list[list[str]] = []
    for number in range(3):
        log.append(a_record(f"e{number}"))
        log.when_written(lambda: seen.append(ids(tmp_path / "log")))
    wait_for(lambda: len(seen) == 3)
    for number, found in enumerate(seen):
        assert found[: number + 1] == [f"e{n}" for n in range(number + 1)]
    log.close()


def test_who_waits_for_nothing_is_called_soon_and_after_the_close_at_once(tmp_path: Path) -> None:
    log = ExchangeLog(str(tmp_path / "log"), 0, 0)
    called: list[str] = []
    log.when_written(lambda: called.append("idle"))
    wait_for(lambda: called == ["idle"])
    log.append(a_record())
    log.when_written(lambda: called.append("closing"))
    log.close()
    assert called == ["idle", "closing"]
    log.when_written(lambda: called.append("closed"))
    assert called == ["idle", "closing", "closed"]


def test_who_waits_is_called_although_the_record_is_lost(tmp_path: Path) -> None:
    lost: list[int] = []
    log = ExchangeLog(str(tmp_path), 0, 0, lost.append)  # a directory takes no line
    called: list[int] = []
    log.append(a_record())
    log.when_written(lambda: called.append(sum(lost)))
    wait_for(lambda: called == [1])
    log.close()


def test_as_many_may_wait_as_the_bound_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_log, "MOST_WAITING", 2)
    monkeypatch.setattr(exchange_log, "BATCH_DELAY", 0.3)
    log = ExchangeLog(str(tmp_path / "log"), 0, 0)
    called: list[int] = []
    for number in range(3):
        log.when_written(lambda number=number: called.append(number))
    assert called == [2]
    log.close()
    assert sorted(called) == [0, 1, 2]


# ---------------------------------------------------------------- what a log holds already


def test_the_ids_of_the_last_records_are_found_in_both_files(tmp_path: Path) -> None:
    path = tmp_path / "exchanges.jsonl"
    log = ExchangeLog(str(path), 3 * len(record_json(a_record("ab0-10"))) + 3, 1)
    for number in range(10, 15):
        log.append(a_record(f"ab0-{number}"))
    assert log.close()
    assert path.with_suffix(".jsonl.1").exists()
    assert last_ids(str(path)) == [("ab0", number) for number in range(10, 15)]


def test_a_line_without_its_end_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "exchanges.jsonl"
    line = record_json(a_record("ab0-1"))
    path.write_bytes(line + b"\n" + record_json(a_record("ab0-2")))
    assert last_ids(str(path)) == [("ab0", 1)]


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "exchanges.jsonl"
    lines = [record_json(a_record(f"ab0-{number}")) + b"\n" for number in range(10)]
    path.write_bytes(b"".join(lines))
    monkeypatch.setattr(exchange_log, "TAIL", len(lines[0]) * 2 + 40)
    assert last_ids(str(path)) == [("ab0", 8), ("ab0", 9)]


def test_what_is_no_log_holds_no_records(tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(b'{"id":"no number"}\n{"id":"a-1\n\xff\n{"id":"UP-1"}\n')
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert [last_ids(str(each)) for each in (junk, fifo, tmp_path / "none", tmp_path)] == [[], [], [], []]
