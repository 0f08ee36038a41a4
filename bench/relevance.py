"""What scoring relevance costs: CPU a labelled row, exchanges a second on one core, memory.

    python -m bench.relevance [FILE.jsonl …] [--embedder use|minilm|onnx] [--folder FOLDER] [--seconds 10] [--json]

The typical exchange is a query, 5 passages of 120 words and an answer of 80 words, of which half are taken from the
passages. Cold: every exchange has passages, query and answer of its own. Warm: the passages have been seen before, as
those of a knowledge base are, and query and answer are new. Both count the whole of scoring: texts, vectors, scores.
Seconds are CPU seconds of this process, in which BLAS has one thread; memory is its peak.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from collector.config import EmbedderSettings, TransformerSettings
from collector.embedding.cache import CachedEmbedder
from collector.embedding.process import uncached
from collector.measures import relevance
from collector.measures.relevance_table import USE
from collector.measures.relevance_texts import compose

if TYPE_CHECKING:
    from collector.measures.relevance_weights import Calibration
    from collector.model import Embedder

PASSAGES = 5
PASSAGE_WORDS = 120
ANSWER_WORDS = 80
QUERY_WORDS = 12
SENTENCE_WORDS = (8, 24)
ROWS = 100  # of a file
SEED = 11
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
CACHE = EmbedderSettings().cache
DOCS = Path(__file__).parent.parent / "docs"  # English prose to take words from


class Row(msgspec.Struct):
    """A labelled row, as far as its texts go."""

    query: str
    context: str | list[str]
    answer: str | None = None


class Cost(msgspec.Struct, frozen=True):
    """CPU seconds of one exchange, and how many fit into a core's second."""

    seconds: float
    exchanges_per_second: float
    texts: float  # embedded for one, without those that were remembered


class Report(msgspec.Struct, frozen=True):
    """`rows` are CPU milliseconds a labelled row, by file; memory is in bytes."""

    embedder: str
    loaded_in: float
    cold: Cost
    warm: Cost
    rows: dict[str, float]
    peak_memory: int


class Counting:
    """How many texts an embedder was asked for."""

    def __init__(self, embedder: Embedder) -> None:
        self.model = embedder.model
        self.texts = 0
        self._embedder = embedder

    def embed(self, texts: Sequence[str]) -> relevance.Vectors:
        self.texts += len(texts)
        return self._embedder.embed(texts)


class Writer:
    """Sentences of the words of our documentation, each drawn as often as it stands there."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        prose = " ".join(path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md")))
        self._words = re.findall(r"(?<= )[a-zA-Z]{1,14}(?=[ ,.])", prose)

    def words(self, count: int) -> str:
        """Sentences of altogether `count` words."""
        words = self._random.choices(self._words, k=count)
        told: list[str] = []
        while words:
            length = self._random.randint(*SENTENCE_WORDS)
            told.append(" ".join(words[:length]).capitalize() + ".")
            words = words[length:]
        return " ".join(told)

    def passages(self) -> list[str]:
        return [self.words(PASSAGE_WORDS) for _ in range(PASSAGES)]

    def answer(self, passages: Sequence[str]) -> str:
        """Half of it are sentences of the passages."""
        taken = " ".join(self._random.choice(passages).split()[: ANSWER_WORDS // 2])
        return f"{taken.rstrip('.')}. {self.words(ANSWER_WORDS - ANSWER_WORDS // 2)}"

    def query(self) -> str:
        return self.words(QUERY_WORDS).rstrip(".").replace(". ", " ") + "?"


def cold(writer: Writer) -> Iterator[tuple[str, str, list[str]]]:
    """Exchanges of which none repeats another."""
    while True:
        passages = writer.passages()
        yield writer.query(), writer.answer(passages), passages


def warm(writer: Writer, passages: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Exchanges on the same passages."""
    while True:
        yield writer.query(), writer.answer(passages), passages


def measured(
    exchanges: Iterator[tuple[str, str, list[str]]],
    embedder: Counting,
    remembering: Embedder,
    calibration: Calibration,
    seconds: float,
) -> Cost:
    """Scores one exchange after another, for some CPU seconds and at least ten of them."""
    done, spent, before = 0, 0.0, embedder.texts
    while spent < seconds or done < 10:
        query, answer, passages = next(exchanges)
        began = time.process_time()
        texts = compose(query, answer, passages)
        scores = relevance.relevance(texts, remembering.embed(texts.pieces), calibration)
        spent += time.process_time() - began
        done += 1
        assert scores.scored
    return Cost(spent / done, done / spent, (embedder.texts - before) / done)


def by_row(path: Path, embedder: Embedder, calibration: Calibration) -> float:
    """CPU milliseconds a row of the file, with nothing remembered but the prototypes that every row needs."""
    rows = [row for row in msgspec.json.Decoder(Row).decode_lines(path.read_bytes()) if row.answer][:ROWS]
    prototypes = set(compose("a", "", ["b"]).pieces)
    vectors = dict(zip(prototypes, embedder.embed(tuple(prototypes)), strict=True))
    began = time.process_time()
    for row in rows:
        passages = [row.context] if isinstance(row.context, str) else row.context
        texts = compose(row.query, row.answer or "", passages)
        new = [piece for piece in texts.pieces if piece not in vectors]
        known = {**vectors, **dict(zip(new, embedder.embed(new), strict=True))}
        relevance.relevance(texts, _stacked([known[piece] for piece in texts.pieces]), calibration)
    return (time.process_time() - began) / len(rows) * 1000


def _stacked(rows: Sequence[relevance.Vectors]) -> relevance.Vectors:
    return np.stack(rows)


def report(settings: EmbedderSettings, files: Sequence[Path], seconds: float) -> Report:
    began = time.process_time()
    embedder = Counting(uncached(settings))
    loaded = time.process_time() - began
    calibration = relevance.calibration_of(embedder.model)
    if calibration is None:
        # Weights cost the same whatever they are.
        calibration = USE
    writer = Writer(SEED)
    remembering = CachedEmbedder(embedder, CACHE)
    passages = writer.passages()
    for exchange in (next(cold(writer)), next(warm(writer, passages))):  # prototypes, and the passages of `warm`
        remembering.embed(compose(*exchange).pieces)
    return Report(
        f"{embedder.model.name} {embedder.model.version}",
        loaded,
        measured(cold(writer), embedder, remembering, calibration, seconds),
        measured(_refreshed(warm(writer, passages), remembering), embedder, remembering, calibration, seconds),
        {path.stem: by_row(path, embedder, calibration) for path in files},
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def _refreshed(
    exchanges: Iterator[tuple[str, str, list[str]]], remembering: Embedder
) -> Iterator[tuple[str, str, list[str]]]:
    """The same, after the first was remembered again: what was measured before may have pushed it out."""
    remembering.embed(compose(*next(exchanges)).pieces)
    yield from exchanges


def main(arguments: Sequence[str]) -> int:
    if any(os.environ.get(name) != "1" for name in THREADS):
        # Numpy is loaded by now, and reads them only then.
        again = [sys.executable, "-m", "bench.relevance", *arguments]
        return subprocess.run(again, env={**os.environ, **THREADS}, check=False).returncode
    parser = argparse.ArgumentParser(prog="relevance", description="What scoring relevance costs.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.jsonl", help="labelled rows")
    parser.add_argument("--embedder", choices=sorted(EMBEDDERS), default="use")
    parser.add_argument("--folder", help="the model, for minilm and onnx")
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU seconds for each figure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    made = report(EMBEDDERS[options.embedder](options.folder), options.files, options.seconds)
    if options.json:
        print(msgspec.json.encode(made).decode())
        return 0
    print(f"{made.embedder}, loaded in {made.loaded_in:.1f} CPU s, peak memory {made.peak_memory / 2**20:.0f} MiB")
    for name, cost in (("cold", made.cold), ("warm", made.warm)):
        print(
            f"  {name:12} {cost.exchanges_per_second:7.1f} exchanges a second of one core "
            f"({cost.seconds * 1000:.1f} ms, {cost.texts:.0f} texts each)"
        )
    for name, milliseconds in made.rows.items():
        print(f"  {name:12} {milliseconds:7.1f} CPU ms a row")
    return 0


def _transformers(folder: str | None, **given: str) -> EmbedderSettings:
    transformers = msgspec.convert({"folder": folder, **given}, TransformerSettings)
    return EmbedderSettings(kind="sentence-transformers", sentence_transformers=transformers)


EMBEDDERS: dict[str, Callable[[str | None], EmbedderSettings]] = {
    "use": lambda _: EmbedderSettings(),
    "minilm": _transformers,
    "onnx": lambda folder: _transformers(folder, backend="onnx"),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
