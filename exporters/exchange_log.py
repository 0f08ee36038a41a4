"""One JSON line per exchange in a private file, rotated by size and written by a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from collector.model import Record

log = logging.getLogger(__name__)

MODE = 0o600
BATCH_DELAY = 0.02  # seconds that lines are gathered before one write
RETRY_DELAY = 1.0  # seconds between tries to open a file that does not open
PENDING_BYTES = 8 * 1024 * 1024  # lines that may wait for the disk; beyond it records are lost and counted
MOST_WAITING = 10_000  # callers that may wait for the disk; later ones are answered at once
TAIL = 8 * 1024 * 1024  # bytes in which the ids of the last records are looked for
SAY_AGAIN = 60.0  # seconds between lines about what could not be written

_ID = re.compile(rb'^\{"id":"([a-z0-9]{1,64})-([0-9]{1,15})"', re.MULTILINE)  # how record_json begins

_encode = msgspec.json.Encoder().encode


def record_json(record: Record) -> bytes:
    """The record as docs/exchange-record.md has it: every field, null for unknown, no line end."""
    try:
        return _encode(record)
    except UnicodeEncodeError:  # a lone surrogate, which JSON in UTF-8 cannot hold
        return _encode(_without_surrogates(msgspec.to_builtins(record)))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value


def check_path(path: str) -> None:
    """Raises OSError where a log could not be kept; else the file is there, private, and unchanged."""
    _File(path).close()


def last_ids(path: str) -> list[tuple[str, int]]:
    """Of the last records that a log holds, in TAIL bytes of each file, the two parts of their ids: boot and number.

    Empty for what is no regular file or cannot be read. A line without its end is no record.
    """
    found: list[tuple[str, int]] = []
    for each in (f"{path}.1", path):
        with contextlib.suppress(OSError):
            if not stat.S_ISREG(os.stat(each).st_mode):
                continue
            with open(each, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TAIL))
                tail = file.read(TAIL)
            found += [(boot.decode(), int(number)) for boot, number in _ID.findall(tail[: tail.rfind(b"\n") + 1])]
    return found


class ExchangeLog:
    """Appends records to `path`, turned to `path.1` … `path.<keep>` before it would pass `max_size` bytes.

    A `max_size` of 0 is no bound; a `keep` of 0 keeps no old file. Nothing here raises or waits for the disk: what
    cannot be written is lost, in whole lines, and told to `lost` as a number of records, from any thread; later ones
    are tried anew. A line can be read within 100 ms. What is no regular file (/dev/stdout) is never rotated.
    """

    def __init__(self, path: str, max_size: int, keep: int, lost: Callable[[int], None] = lambda _: None) -> None:
        self._path = path
        self._max_size = max_size
        self._keep = keep
        self._lost = lost
        self._pending: list[bytes] = []  # at most PENDING_BYTES
        self._pending_bytes = 0
        self._waiting: list[Callable[[], None]] = []  # at most MOST_WAITING
        self._must_reopen = False
        self._is_closed = False
        self._changed = threading.Condition()  # around the five above
        self._file: _File | None = None  # what follows is the thread's own
        self._tried_at: float | None = None
        self._unsaid = 0  # records lost since the last line about them
        self._said_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="exchange-log", daemon=True)
        self._thread.start()

    def append(self, record: Record) -> None:
        """Queue one record."""
        line = record_json(record) + b"\n"
        with self._changed:
            is_taken = not self._is_closed and self._pending_bytes + len(line) <= PENDING_BYTES
            if is_taken:
                self._pending.append(line)
                self._pending_bytes += len(line)
                self._changed.notify()
        if not is_taken:
            self._lost(1)

    def when_written(self, then: Callable[[], None]) -> None:
        """Call `then`, from the log's thread, once every record appended so far is with the kernel or lost."""
        with self._changed:
            waits = not self._is_closed and len(self._waiting) < MOST_WAITING
            if waits:
                self._waiting.append(then)
                self._changed.notify()
        if not waits:
            then()

    def reopen(self) -> None:
        """Open the path anew, for a file that was moved away (SIGHUP)."""
        with self._changed:
            self._must_reopen = True
            self._changed.notify()

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is pending and stop, in at most `timeout` seconds. False when the disk took longer."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        self._open()
        is_last = False
        while not is_last:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._waiting or self._must_reopen or self._is_closed)
                if not self._is_closed:
                    self._changed.wait_for(lambda: self._is_closed, BATCH_DELAY)  # one write for what comes meanwhile
                lines, self._pending, self._pending_bytes = self._pending, [], 0
                waiting, self._waiting = self._waiting, []
                must_reopen, self._must_reopen = self._must_reopen, False
                is_last = self._is_closed
            if must_reopen:
                self._close()
                self._open()
            self._write(lines)
            for then in waiting:
                then()
        self._close()

    def _write(self, lines: list[bytes]) -> None:
        while lines:
            file = self._open()
            if file is None:
                self._lose(len(lines))
                return
            count = self._how_many_fit(file, lines)
            try:
                written = file.append(lines[:count]) if count > 0 else self._rotate(file)
            except OSError as error:
                self._close()
                self._lose(len(lines), error)
                return
            lines = lines[written:]

    def _how_many_fit(self, file: _File, lines: Sequence[bytes]) -> int:
        """How many lines may be appended before the file has to turn; a new file takes one of any length."""
        if self._max_size == 0 or not file.is_regular:
            return len(lines)
        size = file.size()
        for count, line in enumerate(lines):
            if size > 0 and size + len(line) > self._max_size:
                return count
            size += len(line)
        return len(lines)

    def _rotate(self, file: _File) -> int:
        """Turn to a new file; no line is written by it."""
        if self._keep == 0:
            file.truncate(0)
            return 0
        for number in range(self._keep - 1, 0, -1):
            if os.path.exists(f"{self._path}.{number}"):
                os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        os.replace(self._path, f"{self._path}.1")
        self._close()
        return 0

    def _open(self) -> _File | None:
        now = time.monotonic()
        if self._file is None and (self._tried_at is None or now - self._tried_at >= RETRY_DELAY):
            self._tried_at = now
            try:
                self._file = _File(self._path)
                self._tried_at = None
            except OSError as error:
                self._say(error)
        return self._file

    def _close(self) -> None:
        self._tried_at = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _lose(self, count: int, error: OSError | None = None) -> None:
        self._lost(count)
        self._unsaid += count
        if error is not None:
            self._say(error)

    def _say(self, error: OSError) -> None:
        now = time.monotonic()
        if self._said_at is None or now - self._said_at >= SAY_AGAIN:
            log.warning(
                "exchange log %s: %s (%d records lost since last said); it is tried again",
                self._path, error.strerror, self._unsaid,
            )  # fmt: skip
            self._said_at = now
            self._unsaid = 0


class _File:
    """An open file that grows by whole lines. Every method may raise OSError."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            self.is_regular = stat.S_ISREG(os.fstat(self._fd).st_mode)
            if self.is_regular:
                os.fchmod(self._fd, MODE)
            self._starts_torn = self.is_regular and _is_torn(path)
        except OSError:
            os.close(self._fd)
            raise

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def append(self, lines: Sequence[bytes]) -> int:
        """Write the lines and return how many were written whole; raises where not even one was."""
        if self._starts_torn:  # someone died inside a line, which is not ours to cut
            os.write(self._fd, b"\n")
            self._starts_torn = False
        before = self.size()
        unwritten = memoryview(b"".join(lines))
        total = len(unwritten)
        try:
            while unwritten:
                unwritten = unwritten[os.write(self._fd, unwritten) :]
        except OSError:
            count, size = 0, 0
            while size + len(lines[count]) <= total - len(unwritten):
                size += len(lines[count])
                count += 1
            if self.is_regular:
                os.ftruncate(self._fd, before + size)  # no half line is left behind
            if count == 0:
                raise
            return count
        return len(lines)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        # What is written is with the kernel; an error of closing tells nothing more.
        with contextlib.suppress(OSError):
            os.close(self._fd)


def _is_torn(path: str) -> bool:
    """Whether a file ends inside a line."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return False
        file.seek(size - 1)
        return file.read(1) != b"\n"
