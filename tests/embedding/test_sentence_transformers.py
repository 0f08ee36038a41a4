"""The packaged weights of all-MiniLM-L6-v2, on torch and on ONNX Runtime; skipped without the extras."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from collector.config import EmbedderSettings, TransformerSettings
from collector.embedding import model_folder
from collector.embedding.client import EmbeddingClient
from collector.embedding.model_folder import ModelFolderError

if TYPE_CHECKING:
    from collector.model import Embedder

MISSING = "the extra is not installed: make test installs it, make test WITHOUT_EMBEDDERS=1 does not"
if not os.environ.get("CI"):  # a user may do without these 1.2 GB; CI has to have them, and fails without
    pytest.importorskip("sentence_transformers", reason=MISSING)
    pytest.importorskip("onnxruntime", reason=MISSING)
    pytest.importorskip("onnx", reason=MISSING)
    if model_folder.packaged() is None:
        pytest.skip(MISSING, allow_module_level=True)  # as above

TEXTS = [
    "How old are you?",
    "What is your age?",
    "The bridge is made of stone.",
    "The lighthouse was built in 1871 by two brothers from the town, who had learned the trade at sea.",
    "",
    " \n",
    "Boats leave at nine.",
]


@pytest.fixture(scope="module")
def torch_model() -> Embedder:
    from collector.embedding.sentence_transformers import SentenceTransformersEmbedder

    return SentenceTransformersEmbedder(TransformerSettings())


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("minilm")
    command = [sys.executable, "-m", "collector.embedding.onnx_export", "-o", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert ended.returncode == 0, ended.stderr
    assert Path(ended.stdout.strip()) == folder / "onnx" / "model_int8.onnx"
    return folder


@pytest.fixture(scope="module")
def onnx_model(exported: Path) -> Embedder:
    from collector.embedding.onnx import OnnxEmbedder

    return OnnxEmbedder(TransformerSettings(folder=str(exported), backend="onnx"))


@pytest.fixture(params=["torch_model", "onnx_model"])
def model(request: pytest.FixtureRequest) -> Embedder:
    made: Embedder = request.getfixturevalue(request.param)
    return made


def test_vectors_are_of_length_one_and_meaning_is_near(model: Embedder) -> None:
    rows = model.embed(TEXTS)
    assert rows.shape == (len(TEXTS), 384)
    assert rows.dtype == np.float32
    assert not rows[4:6].any()
    np.testing.assert_allclose(np.linalg.norm(rows[[0, 1, 2, 3, 6]], axis=1), 1.0, atol=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.4
    assert model.embed([]).shape == (0, 384)


def test_a_vector_does_not_depend_on_what_is_asked_beside_it(model: Embedder) -> None:
    together = model.embed(TEXTS)
    alone = np.concatenate([model.embed([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_a_long_text_is_read_to_its_end(model: Embedder) -> None:
    body = "The boats leave at nine. " * 200
    one, other = model.embed([f"{body}The lighthouse is red.", f"{body}The lighthouse is tall."])
    assert not np.array_equal(one, other)


def test_the_model_says_what_it_is(torch_model: Embedder, onnx_model: Embedder) -> None:
    told, other = torch_model.model, onnx_model.model
    assert (told.name, told.version, told.languages) == ("all-MiniLM-L6-v2", "53aa51172d14", ("en",))
    assert (told.dimensions, told.max_tokens) == (384, 256)
    assert (other.name, other.version, other.languages) == ("all-MiniLM-L6-v2", "53aa51172d14-int8", ("en",))
    assert (other.dimensions, other.max_tokens) == (384, 256)


def test_eight_bits_are_near_the_whole_numbers(torch_model: Embedder, onnx_model: Embedder) -> None:
    texts = [text for text in TEXTS if text.strip()]
    whole, small = torch_model.embed(texts), onnx_model.embed(texts)
    assert np.einsum("ij,ij->i", whole, small).min() > 0.95
    np.testing.assert_allclose(whole @ whole.T, small @ small.T, atol=0.06)


def test_no_window_is_longer_than_the_model_reads_and_no_word_is_lost() -> None:
    from tokenizers import Tokenizer

    folder = model_folder.packaged()
    assert folder is not None
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    cut = model_folder.by_tokens(tokenizer, 64)
    texts = (
        "The boats leave at nine. " * 60,
        "antidisestablishmentarianism" * 40,
        "桥" * 300,
        "a.b,c;" * 100,
        "  spaced   out  " * 50,
        "x" * 5000,
    )
    for text in texts:
        parts = list(cut(text))
        assert "".join("".join(parts).split()) == "".join(text.split()) or "x" * 200 in text
        assert max(len(tokenizer.encode(part).ids) for part in parts) <= 64
    boats = list(cut("The boats leave at nine. " * 60))
    assert all(part.strip()[0] in "Tblan" and part.strip()[-1] in "es.te" for part in boats)


def test_a_folder_says_what_its_model_is_called(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    shutil.copytree(exported, folder)
    (folder / model_folder.CARD).write_text('{"name": "ours", "version": "7", "languages": ["en", "de"]}')
    told = model_folder.described(folder, folder / "onnx" / "model_int8.onnx", 384)
    assert (told.name, told.version, told.languages) == ("ours", "7", ("en", "de"))
    (folder / model_folder.CARD).write_text('{"nome": "ours"}')
    with pytest.raises(ModelFolderError, match=r"semhealth\.json: cannot be read"):
        model_folder.described(folder, folder / "onnx" / "model_int8.onnx", 384)
    (folder / model_folder.CARD).unlink()
    told = model_folder.described(folder, folder / "onnx" / "model_int8.onnx", 384)
    assert (told.name, told.languages) == ("ours", None)  # its weights are not known: it is not said to know English


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "onnx" / "model_int8.onnx").unlink(), "onnx_export -o FOLDER writes one"),
        (lambda folder: shutil.rmtree(folder / "1_Pooling"), "pool by the mean"),
        (shutil.rmtree, "no such folder"),
    ],
)
def test_a_folder_that_cannot_be_used_is_an_error_that_says_what_to_do(
    exported: Path, tmp_path: Path, spoil: Callable[[Path], None], told: str
) -> None:
    from collector.embedding.onnx import OnnxEmbedder

    folder = tmp_path / "ours"
    shutil.copytree(exported, folder)
    spoil(folder)
    with pytest.raises(ModelFolderError, match=told):
        OnnxEmbedder(TransformerSettings(folder=str(folder), backend="onnx"))


class Clock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


@pytest.mark.parametrize("backend", ["torch", "onnx"])
async def test_the_process_serves_the_model_with_no_way_to_a_hub(
    supervised: Callable[..., Any], exported: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    transformers = {"backend": backend, **({"folder": str(exported)} if backend == "onnx" else {})}
    one = supervised(kind="sentence-transformers", sentence_transformers=transformers, cpu_share=1.0)
    one.start()
    client = EmbeddingClient(one.path, EmbedderSettings(cpu_share=1.0), Clock())
    running = asyncio.create_task(client.run())
    deadline = time.monotonic() + 120
    while not client.ready:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    assert client.model is not None
    assert client.model.languages == ("en",)
    answer = await client.embed(["How old are you?", "What is your age?"])
    assert answer.vectors is not None
    assert answer.vectors[0] @ answer.vectors[1] > 0.6
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
