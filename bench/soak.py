"""Twenty minutes of mixed faults and traffic: nobody is hurt, nothing grows, and the counters add up.

Simulated APIs, a whole sidecar and two loads run as processes of their own; processes of the sidecar are killed,
stopped and reloaded meanwhile. Exits with 1 where something does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from bench.peers import cpu_seconds, resident
from bench.soak_load import Told

PARTS = {
    "collector.proxy.worker": "proxy",
    "collector.app": "analyst",
    "collector.embedding.process": "embedder",
    "collector.validation.process": "validator",
}
SAMPLE = 5.0  # seconds between samples
SCRAPE = 1.0  # seconds that a sample waits for /metrics, since a stopped analyst does not answer
STOPPED = 3.0  # seconds for which a process is stopped
SETTLING = 90.0  # seconds until everything forwarded must have been told
RSS_SLACK = 8 * 1024 * 1024, 0.08  # bytes, and share of the second quarter, that the last quarter may have more
FD_SLACK = 8, 0.08  # descriptors, likewise: what is open follows the number of connections
LONG_ENOUGH = 600.0  # seconds, since records, caches and label sets fill up first
FORWARDED, UNOBSERVED = "semantic_health_forwarded_total", "semantic_health_unobserved_total"
TIMES = ("semantic_health_proxy_added_seconds", "semantic_health_event_loop_lag_seconds")
# Faults of the upstreams. A stream that is cut is cut in the middle; a JSON answer after half of its bytes.
FAULTS: list[dict[str, Any]] = [
    {"fault": "overload", "share": 0.03},
    {"fault": "truncation", "share": 0.02, "mode": "cut"},
    {"fault": "error_event", "share": 0.03},
    {"fault": "invalid_json", "share": 0.1},
    {"fault": "schema_drift", "share": 0.1},
    {"fault": "stutter", "share": 0.1},
    {"fault": "stall", "share": 0.02},
    {"fault": "downgrade", "share": 0.02},
    {"fault": "no_usage", "share": 0.05},
]
# At which share of the time what is done to whom. Analyst and embedder are left alone from before the second quarter
# to the end of the last, so that their memory can be compared; those killed later start anew in the last moments.
PLAN: tuple[tuple[float, str, str], ...] = (
    (0.05, "kill", "embedder"), (0.08, "kill", "validator"), (0.12, "kill", "analyst"), (0.16, "reload", "supervisor"),
    (0.20, "kill", "analyst"), (0.22, "kill", "embedder"), (0.32, "stop", "analyst"), (0.40, "reload", "supervisor"),
    (0.46, "kill", "validator"), (0.55, "stop", "embedder"), (0.60, "reload", "supervisor"), (0.65, "stop", "analyst"),
    (0.70, "stop", "validator"), (0.85, "reload", "supervisor"), (0.94, "kill", "validator"),
    (0.95, "kill", "embedder"), (0.96, "kill", "analyst"),
)  # fmt: skip


class Sample(Struct, frozen=True):
    """One part at one time: monotonic seconds, resident bytes, open descriptors."""

    at: float
    rss: int
    fds: int


class Check(Struct, frozen=True):
    """One row of the report. `holds` is None for what is only told."""

    what: str
    measured: str
    expected: str = ""
    holds: bool | None = None


class Times:
    """A histogram's buckets over the lives of the analyst; what one counted after its last scrape is not in it."""

    def __init__(self) -> None:
        self._last: dict[float, float] = {}
        self._sum: dict[float, float] = {}

    def take(self, buckets: dict[float, float]) -> None:
        began_anew = any(value < self._last.get(le, 0.0) for le, value in buckets.items())
        for le, value in buckets.items():
            self._sum[le] = self._sum.get(le, 0.0) + value - (0.0 if began_anew else self._last.get(le, 0.0))
        self._last = buckets

    def quantile(self, q: float) -> float | None:
        """The upper bound of the bucket that holds it, in seconds; None of nothing."""
        total = self._sum.get(float("inf"), 0.0)
        if not total:
            return None
        return min(le for le, count in self._sum.items() if count >= q * total)


class Metrics:
    """One scrape."""

    def __init__(self, text: str) -> None:
        self._samples = [each for family in text_string_to_metric_families(text) for each in family.samples]

    def by(self, name: str, label: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for each in self._samples:
            if each.name == name:
                key = each.labels.get(label, "")
                found[key] = found.get(key, 0.0) + each.value
        return found

    def total(self, name: str) -> float | None:
        values = [each.value for each in self._samples if each.name == name]
        return sum(values) if values else None

    def buckets(self, name: str) -> dict[float, float]:
        return {float(le): count for le, count in self.by(f"{name}_bucket", "le").items()}


@contextmanager
def running(command: Sequence[str], out: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process whose output goes to files, ended with the context."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "SEMHEALTH_"))}
    with out.open("wb") as stdout, out.with_suffix(".err").open("wb") as stderr:
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=clean)
    try:
        yield started, out
    finally:
        if started.poll() is None:
            started.terminate()
            try:
                started.wait(60)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


def said(process: subprocess.Popen[bytes], out: Path, pattern: str) -> re.Match[str]:
    """What a process says when it serves; RuntimeError where it ends or says nothing."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        text = out.read_text() + out.with_suffix(".err").read_text()
        if found := re.search(pattern, text):
            return found
        time.sleep(0.05)
    raise RuntimeError(f"{out.name} did not start: {out.with_suffix('.err').read_text()[-2000:]}")


def fetch(url: str, body: object = None, timeout: float = 10.0) -> bytes:
    sent = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, sent, {"Content-Type": "application/json"})  # noqa: S310 - our own addresses
    with urllib.request.urlopen(asked, timeout=timeout) as response:  # noqa: S310
        return bytes(response.read())


class Sidecar:
    """The sidecar under test, looked at from outside."""

    def __init__(self, process: subprocess.Popen[bytes], base: str, admin: str, log: Path) -> None:
        self.pid = process.pid
        self.process = process
        self.base, self.admin, self.log = base, admin, log
        self.beside: dict[str, int] = {}  # processes of the benchmark whose CPU is counted too
        self.samples: dict[str, list[Sample]] = {}
        self.cpu: dict[tuple[str, int], float] = {}  # seconds so far by part and process id
        self.times = {name: Times() for name in TIMES}

    def pids(self) -> dict[str, int]:
        """Process ids by part; one that is just being started may be missing."""
        found = {"supervisor": self.pid}
        for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                module = words[words.index(b"-m") + 1].decode()
                if b"--runtime" in words and module in PARTS:
                    found[PARTS[module]] = int(pid)
        return found

    def sample(self) -> None:
        now = time.monotonic()
        pids = self.pids()
        for part, pid in (pids | self.beside).items():
            with contextlib.suppress(OSError):
                self.cpu[part, pid] = cpu_seconds(pid)
        for part, pid in pids.items():
            with contextlib.suppress(OSError):
                seen = Sample(now, resident(pid), len(os.listdir(f"/proc/{pid}/fd")))
                self.samples.setdefault(part, []).append(seen)
        if (metrics := self.metrics(SCRAPE)) is not None:
            for name, times in self.times.items():
                times.take(metrics.buckets(name))

    def metrics(self, patience: float = 10.0) -> Metrics | None:
        """None where the analyst is away, or busy for longer than `patience` seconds."""
        try:
            return Metrics(fetch(f"{self.admin}/metrics", timeout=patience).decode())
        except (OSError, http.client.HTTPException):
            return None

    def logged(self) -> tuple[int, int]:
        """Lines of the exchange log in all its files, and how many different ids they have."""
        ids: set[bytes] = set()
        lines = 0
        for name in glob.glob(f"{glob.escape(str(self.log))}*"):
            with Path(name).open("rb") as file:
                for line in file:
                    lines += 1
                    ids.add(line[7 : line.index(b'"', 7)])  # {"id":"…
        return lines, len(ids)

    def settled(self, asked: int) -> Metrics | None:
        """The metrics when all that was asked is told and nothing moves any more; the last ones where that fails."""
        deadline = time.monotonic() + SETTLING
        before: tuple[object, ...] = ()
        metrics = None
        while time.monotonic() < deadline:
            time.sleep(2.5)
            metrics = self.metrics()
            if metrics is None or metrics.total("semantic_health_in_flight") != 0:
                continue
            now = (metrics.total(FORWARDED), metrics.total(UNOBSERVED), self.logged()[0])
            if now == before and now[0] == asked:
                break
            before = now
        return metrics


def disturb(sidecar: Sidecar, do: str, whom: str) -> Callable[[], None] | None:
    """Do it; gives what is left to do STOPPED seconds later, if anything."""
    pid = sidecar.pids().get(whom)
    if pid is None:
        print(f"{whom} is away and was not disturbed", file=sys.stderr)
        return None
    os.kill(pid, {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "reload": signal.SIGHUP}[do])

    def go_on() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return go_on if do == "stop" else None


def watch(sidecar: Sidecar, loads: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Sample and disturb until the loads have ended."""
    began = next_sample = time.monotonic()
    plan = [(began + share * seconds, do, whom) for share, do, whom in PLAN]
    stopped: list[tuple[float, Callable[[], None]]] = []
    try:
        while any(load.poll() is None for load in loads):
            now = time.monotonic()
            if plan and plan[0][0] <= now:
                _, do, whom = plan.pop(0)
                if (go_on := disturb(sidecar, do, whom)) is not None:
                    stopped.append((now + STOPPED, go_on))
            elif stopped and stopped[0][0] <= now:
                stopped.pop(0)[1]()
            elif next_sample <= now:
                sidecar.sample()
                next_sample += SAMPLE
            else:
                time.sleep(0.05)
    finally:
        for _, go_on in stopped:
            go_on()


# ---------------------------------------------------------------- what must hold


def checks_of_answers(told: dict[str, Told], counts: list[dict[str, Any]]) -> list[Check]:
    """What clients saw beside what the upstreams say they sent."""
    seen = [each.seen for each in told.values()]
    asked, got = sum(each.asked for each in seen), sum(each["requests"] for each in counts)
    refused, sent = sum(each.refused for each in seen), sum(each["refused"] for each in counts)
    broken, left = sum(each.broken for each in seen), sum(each.left for each in seen)
    cut = sum(each["faults"].get("truncation", 0) for each in counts)
    failed = sum(each.failed for each in seen)
    return [
        Check("requests that reached the upstreams", f"{got:,}", f"{asked:,} asked", got == asked),
        Check("error answers that clients saw", f"{refused:,}", f"{sent:,} sent by upstreams", refused == sent),
        Check(
            "answers that clients saw break",
            f"{broken:,}",
            f"{max(0, cut - left):,} to {cut:,}: upstreams cut {cut:,}, clients left {left:,}",
            cut - left <= broken <= cut,
        ),
        Check("answers that no client should see", f"{failed:,}", "0", failed == 0),
    ]


def checks_of_counts(sidecar: Sidecar, metrics: Metrics | None, asked: int) -> list[Check]:
    if metrics is None:
        return [Check("metrics at the end", "none", "a scrape", holds=False)]
    forwarded = metrics.total(FORWARDED) or 0
    unobserved = {reason: count for reason, count in metrics.by(UNOBSERVED, "reason").items() if count}
    lines, ids = sidecar.logged()
    missing = sum(unobserved.values())
    said_by = ", ".join(f"{count:,.0f} {reason}" for reason, count in sorted(unobserved.items()))
    lost = metrics.total("semantic_health_exchange_log_lost_total") or 0
    refused = metrics.total("semantic_health_refused_total") or 0
    return [
        Check("forwarded", f"{forwarded:,.0f}", f"{asked:,} asked", forwarded == asked),
        Check(
            "recorded + unobserved",
            f"{lines:,} + {missing:,.0f} = {lines + missing:,.0f}",
            f"{forwarded:,.0f} forwarded",
            lines + missing == forwarded,
        ),
        Check("unobserved by reason", said_by or "none"),
        Check("ids of the records", f"{ids:,}", f"{lines:,}, one each", ids == lines),
        Check("refused by the sidecar; lost by the log", f"{refused:,.0f}; {lost:,.0f}", "0; 0", refused + lost == 0),
    ]


def checks_of_growth(sidecar: Sidecar, began: float, seconds: float) -> list[Check]:
    """Medians of the second and last quarters; only told where the run was too short to judge them."""
    rows = []
    is_long = seconds >= LONG_ENOUGH
    for part, samples in sidecar.samples.items():
        quarters = [
            [each for each in samples if low <= (each.at - began) / seconds * 4 < low + 1] for low in (1.0, 3.0)
        ]
        if not all(quarters):
            rows.append(Check(f"{part}: memory and descriptors", "too few samples", holds=False if is_long else None))
            continue
        rss = [statistics.median(each.rss for each in quarter) for quarter in quarters]
        fds = [statistics.median(each.fds for each in quarter) for quarter in quarters]
        megabytes = [each / 1e6 for each in rss]
        rows.append(_flat(f"{part}: memory, MB", megabytes, RSS_SLACK[0] / 1e6, RSS_SLACK[1], is_long=is_long))
        rows.append(_flat(f"{part}: descriptors", fds, *FD_SLACK, is_long=is_long))
    return rows


def _flat(what: str, medians: list[float], most: float, share: float, *, is_long: bool) -> Check:
    before, after = medians
    bound = before + most + before * share
    holds = after <= bound if is_long else None
    return Check(what, f"{before:,.1f} → {after:,.1f}", f"at most {bound:,.1f}", holds)


def told_only(sidecar: Sidecar, told: dict[str, Told], elapsed: float) -> list[Check]:
    rows = []
    for name, each in told.items():
        for what, times in (("whole", each.whole), ("first byte", each.first)):
            if times is not None:
                rows.append(Check(f"{name}: {what}, ms, p50 / p99 / most", _milliseconds(*times)))
        rate = each.seen.asked / each.seen.elapsed
        frames = f", {each.seen.frames / each.seen.elapsed:,.0f} reads/s" if each.seen.frames else ""
        statuses = ", ".join(f"{count:,} × {status}" for status, count in sorted(each.seen.statuses.items()))
        rows.append(Check(f"{name}: load", f"{rate:,.1f} requests/s{frames}; {statuses}"))
        rows.append(Check(f"{name}: not begun, too many in flight", f"{each.seen.not_begun:,}"))
        marks = ", ".join(f"{count:,} × {mark}" for mark, count in sorted(each.seen.marks.items()))
        rows.append(Check(f"{name}: errors that the sidecar made", marks or "none"))
    for name, histogram in sidecar.times.items():
        p50, p99 = histogram.quantile(0.5), histogram.quantile(0.99)
        if p50 is not None and p99 is not None:
            rows.append(Check(f"`{name}`, ms, p50 / p99 at most", _milliseconds(p50, p99)))
    used: dict[str, float] = {}
    for (part, _), seconds in sidecar.cpu.items():
        used[part] = used.get(part, 0.0) + seconds
    shares = ", ".join(f"{part} {seconds / elapsed:.2f}" for part, seconds in used.items())
    rows.append(Check("cores used", shares))
    return rows


def _milliseconds(*seconds: float) -> str:
    return " / ".join(f"{each * 1000:.3g}" for each in seconds)


def report(checks: Sequence[Check]) -> str:
    lines = ["| what | measured | expected | holds |", "| --- | ---: | ---: | --- |"]
    for each in checks:
        verdict = "" if each.holds is None else "yes" if each.holds else "**no**"
        lines.append(f"| {each.what} | {each.measured} | {each.expected} | {verdict} |")
    return "\n".join(lines)


# ---------------------------------------------------------------- the run


def simulator(stack: ExitStack, folder: Path, name: str, *arguments: str) -> tuple[str, int]:
    """The base URL and process id of a simulated API with its faults on."""
    process, out = stack.enter_context(
        running(
            [sys.executable, "-m", "collector.simulator.api", "--listen", "127.0.0.1:0", "--requests-per-minute",
             "10000000", *arguments],
            folder / name,
        )
    )  # fmt: skip
    base = said(process, out, r"simulated LLM API on (http://\S+)")[1]
    fetch(f"{base}/-/faults", FAULTS)
    return base, process.pid


def start_sidecar(stack: ExitStack, folder: Path, fast: str, paced: str) -> Sidecar:
    """With its settings as they are, but for where the log goes and how much of it is kept."""
    log = folder / "exchanges.jsonl"
    process, out = stack.enter_context(
        running(
            [sys.executable, "-m", "collector.cli", "run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
             "--exchange-log", str(log), "--set", "exporters.exchange_log.keep=1000", "--upstream", fast,
             "--set", "routes[0].name=paced", "--set", "routes[0].prefix=/paced",
             "--set", f"routes[0].upstream={paced}"],
            folder / "sidecar",
        )
    )  # fmt: skip
    found = said(process, out, r"listening on (\S+) \(.*\); admin on ([^\s;]+)")
    sidecar = Sidecar(process, found[1], found[2], log)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            fetch(f"{sidecar.admin}/readyz")
            fetch(f"{sidecar.base}/-/readyz")
            return sidecar
        time.sleep(0.1)
    raise RuntimeError("the sidecar was not ready within 30 s")


def soak(given: argparse.Namespace) -> list[Check]:
    seconds = given.minutes * 60
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="semhealth-soak-")))
        fast, fast_pid = simulator(stack, folder, "fast", "--fast")
        paced, paced_pid = simulator(stack, folder, "paced", "--gap", str(given.gap), "--gap-sigma", "0.01")
        sidecar = start_sidecar(stack, folder, fast, paced)
        load = [sys.executable, "-m", "bench.soak_load", "--seconds", str(seconds)]
        loads = {
            "JSON": [*load, "--url", sidecar.base, "--rate", str(given.rate)],
            "streams": [*load, "--url", f"{sidecar.base}/paced", "--streams", str(given.streams)],
        }
        began = time.monotonic()
        started = {name: stack.enter_context(running(each, folder / f"load-{name}")) for name, each in loads.items()}
        sidecar.beside = {
            "API fast": fast_pid,
            "API paced": paced_pid,
            **{f"load {name}": process.pid for name, (process, _) in started.items()},
        }
        watch(sidecar, [process for process, _ in started.values()], seconds)
        elapsed = time.monotonic() - began
        told = {name: msgspec.json.decode(out.read_bytes(), type=Told) for name, (_, out) in started.items()}
        asked = sum(each.seen.asked for each in told.values())
        metrics = sidecar.settled(asked)
        counts = [json.loads(fetch(f"{base}/-/counts")) for base in (fast, paced)]
        for each in told.values():
            for failure in each.seen.failures:
                print(failure, file=sys.stderr)
        faults = [line for line in (folder / "sidecar.err").read_text().splitlines() if " ERROR " in line]
        print("\n".join(faults[:20]), file=sys.stderr)
        return [
            *checks_of_answers(told, counts),
            *checks_of_counts(sidecar, metrics, asked),
            Check("errors in the sidecar's own log", f"{len(faults)}", "0", not faults),
            *checks_of_growth(sidecar, began, seconds),
            *told_only(sidecar, told, elapsed),
        ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=300.0, help="short JSON requests a second")
    parser.add_argument("--streams", type=int, default=300, help="streams at once")
    parser.add_argument("--gap", type=float, default=0.15, help="seconds between the frames of a stream")
    given = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended, too
    checks = soak(given)
    print(report(checks))
    return 1 if any(each.holds is False for each in checks) else 0


if __name__ == "__main__":
    sys.exit(main())
