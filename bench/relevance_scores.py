"""How well the shipped relevance scores tell right from wrong on labelled rows.

    python -m bench.relevance_scores FILE.jsonl …

A row is a JSON object with `query`, `context`, `answer` (or null), the labels `context_relevant`, `answer_faithful`
and `answer_relevant` (true, false or null), and maybe `context_cut`: the context without the sentences that carry the
answer. Printed per file: AUROC and calibration error of each score, the same for harder rows that are made of them, and
the share of cut contexts where context relevance or groundedness fell.

The shipped weights were fitted on open rows of Natural Questions, HotpotQA and Wizard of Wikipedia: for those very rows
`python -m tools.fit_relevance` gives honest figures by cross-validation. Here, give rows that nobody has fitted on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from collector.embedding.use import UseEmbedder
from collector.measures.relevance_rows import Row
from collector.measures.relevance_table import USE
from tools.fit_relevance import Remembering, Scored, cases, figures, score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.measures.relevance_rows import Embed


def scored(rows: Sequence[Row], embed: Embed) -> list[Scored]:
    """Every row by the shipped weights, with the harder ones made of it."""
    return [score(case, USE, embed) for case in cases({"": rows}, embed)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="relevance_scores", description="AUROC of the scores on labelled rows.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl")
    options = parser.parse_args(arguments)
    embed = Remembering(UseEmbedder().embed)
    decoder = msgspec.json.Decoder(Row)
    everything: list[Scored] = []
    for path in options.files:
        rows = decoder.decode_lines(path.read_bytes())
        everything += (found := scored(rows, embed))
        _show(path.stem, found)
    if len(options.files) > 1:
        _show("all", everything)
    return 0


def _show(name: str, found: Sequence[Scored]) -> None:
    print(f"{name}: {len(found)} rows")
    for figure in figures(found):
        print(f"  {figure.name:42} {figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]  {figure.detail}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
