"""Writes a sentence-transformers model as ONNX with 8-bit weights, for the onnx backend.

`python -m collector.embedding.onnx_export -o FOLDER` reads the packaged weights. It needs torch and onnx, which the
folder that it writes does not.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from collector.embedding import model_folder
from collector.embedding.model_folder import CARD, Card

FILE = Path("onnx") / "model_int8.onnx"
KEPT = ("tokenizer.json", "sentence_bert_config.json", "config.json", "modules.json", "1_Pooling/config.json")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OPSET = 17


def export(source: Path, target: Path) -> Path:
    """The file that was written into `target`, with what else the onnx backend reads beside it."""
    weights = model_folder.weights_of(source)
    if not model_folder.pools_by_mean(source):
        raise model_folder.ModelFolderError(f"{source}: the onnx backend reads models that pool by the mean")
    made = target / FILE
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "model.onnx"
        _traced(source, whole)
        from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - of an extra

        quantize_dynamic(whole, made, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
    for name in KEPT:
        if (source / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, target / name)
    told = model_folder.described(source, weights, 0)
    (target / CARD).write_bytes(msgspec.json.encode(Card(told.name, f"{told.version}-int8", told.languages)))
    return made


def _traced(source: Path, target: Path) -> None:
    import torch  # noqa: PLC0415 - of an extra
    from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415

    class States(torch.nn.Module):  # type: ignore[misc] # torch is not followed: see pyproject.toml
        """The vectors of the tokens and nothing else."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.inner(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            ).last_hidden_state

    inner = AutoModel.from_pretrained(source, local_files_only=True, attn_implementation="eager").eval()  # a folder # nosec B615
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)  # as above # nosec B615
    example = tokenizer(["one text", "another text, which is longer"], padding=True, return_tensors="pt")
    axes = {0: "texts", 1: "tokens"}
    with warnings.catch_warnings(), torch.no_grad():
        # The tracing exporter needs no further package; it says that it is not the newest, and that it traces.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            States(inner),
            tuple(example[name] for name in INPUTS),
            str(target),
            input_names=list(INPUTS),
            output_names=["states"],
            dynamic_axes=dict.fromkeys((*INPUTS, "states"), axes),
            opset_version=OPSET,
            dynamo=False,
        )


def main(arguments: Sequence[str]) -> int:
    """Reads the packaged weights, or those of a folder; 1 and a sentence where that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m collector.embedding.onnx_export", description=__doc__)
    parser.add_argument("source", nargs="?", help="folder of the model (default: the packaged all-MiniLM-L6-v2)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder to write")
    options = parser.parse_args(arguments)
    try:
        made = export(model_folder.found(options.source), options.output)
    except (model_folder.ModelFolderError, ImportError, OSError) as error:
        sys.stderr.write(f"onnx_export: {error}\n")
        return 1
    sys.stdout.write(f"{made}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
