"""What `semhealth check` says of embedders."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from collector.config import ConfigError
from collector.config_file import check, load
from collector.embedding import installed


@pytest.fixture
def having(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Every extra seems to be here; the packaged model has weights of a few bytes."""
    package = tmp_path / "packaged"
    (package / "model").mkdir(parents=True)
    (package / "model" / "model.safetensors").write_bytes(b"weights")
    spec = ModuleSpec("any", None, origin=str(package / "__init__.py"))
    monkeypatch.setattr(util, "find_spec", lambda _: spec)
    return package / "model"


def said(tmp_path: Path, embedder: str, environ: Mapping[str, str] | None = None) -> list[str]:
    path = tmp_path / "config.yaml"
    path.write_text(f"upstream: http://127.0.0.1:1\nembedder: {embedder}\n")
    return [str(problem) for problem in check(path, environ)]


@pytest.mark.parametrize(
    ("backend", "absent", "extra"),
    [
        ("torch", "sentence_transformers", "sentence-transformers"),
        ("torch", "torch", "sentence-transformers"),
        ("onnx", "onnxruntime", "onnx"),
        ("onnx", "tokenizers", "onnx"),
    ],
)
def test_a_missing_extra_is_named(
    tmp_path: Path, having: Path, monkeypatch: pytest.MonkeyPatch, backend: str, absent: str, extra: str
) -> None:
    found = util.find_spec
    monkeypatch.setattr(installed.util, "find_spec", lambda name: None if name == absent else found(name))
    assert said(tmp_path, f"{{kind: sentence-transformers, sentence_transformers: {{backend: {backend}}}}}") == [
        f"embedder.kind: {absent} not installed: pip install 'semhealth[{extra}]' (line 2)"
    ]
    assert said(tmp_path, "{kind: use}") == []


def test_the_packaged_model_needs_no_more_than_the_extra(tmp_path: Path, having: Path) -> None:
    assert said(tmp_path, "{kind: sentence-transformers}") == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("{folder: none}", "none: no such folder; name one that holds a sentence-transformers model"),
        ("{folder: .}", "none of model.safetensors, pytorch_model.bin is there"),
        ("{backend: onnx}", "onnx/model_int8.onnx: no such file; python -m collector.embedding.onnx_export"),
        ("{backend: onnx, hub: a/b}", "the onnx backend reads a folder"),
        ("{hub: a/b, folder: .}", "a folder is named too"),
    ],
)
def test_a_model_that_is_not_there_is_said_with_what_to_do(
    tmp_path: Path, having: Path, settings: str, told: str
) -> None:
    (problem,) = said(tmp_path, f"{{kind: sentence-transformers, sentence_transformers: {settings}}}")
    assert problem.startswith("embedder.sentence_transformers.")
    assert told in problem


def test_a_folder_is_relative_to_the_file_that_names_it(tmp_path: Path, having: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "model.safetensors").write_bytes(b"weights")
    path = tmp_path / "config.yaml"
    path.write_text(
        "upstream: http://127.0.0.1:1\nembedder: {kind: sentence-transformers, sentence_transformers: {folder: ours}}\n"
    )
    assert load(path, {}).embedder.sentence_transformers.folder == str(tmp_path / "ours")


def test_a_server_needs_a_url_and_with_the_openai_api_a_model(tmp_path: Path) -> None:
    needed = [
        "embedder.http.url: missing; the kind http needs it (line 2)",
        "embedder.http.model: missing; the kind http needs it (line 2)",
        "embedder.http.calibrated_as: missing; the kind http needs it (line 2)",
    ]
    assert said(tmp_path, "{kind: http}") == needed
    assert said(tmp_path, "{kind: http, http: {api: tei}}") == [needed[0], needed[2]]
    whole = "{url: 'http://e:1/v1/embeddings', model: m, calibrated_as: all-MiniLM-L6-v2@53aa51172d14}"
    assert said(tmp_path, f"{{kind: http, http: {whole}}}") == []
    (problem,) = said(tmp_path, "{kind: http, http: {url: 'http://user:sk-1@e/v1', model: m, calibrated_as: a@1}}")
    assert problem.startswith("embedder.http.url: expected http(s)://host")
    assert "sk-1" not in problem


def test_a_key_is_named_and_never_written(tmp_path: Path) -> None:
    http = "{kind: http, http: {url: 'http://e:1/v1/embeddings', model: m, calibrated_as: a@1, key_env: %s}}"
    (problem,) = said(tmp_path, http % "sk-secret-1")
    assert problem.startswith("embedder.http.key_env: expected the name of an environment variable")
    assert "sk-secret" not in problem
    assert said(tmp_path, http % "MY_KEY") == []  # the file alone
    (problem,) = said(tmp_path, http % "MY_KEY", {})
    assert problem.startswith("embedder.http.key_env: the variable MY_KEY is not set")
    assert said(tmp_path, http % "MY_KEY", {"MY_KEY": "sk-secret-1"}) == []


def test_languages_are_two_letters(tmp_path: Path) -> None:
    http = "{kind: http, http: {url: 'http://e:1/v1/embeddings', model: m, calibrated_as: a@1, languages: [%s]}}"
    assert said(tmp_path, http % "en, de") == []
    with pytest.raises(ConfigError, match="two letters"):
        load(None, {}, ["upstream=http://127.0.0.1:1", "embedder.http.languages=[english]"])
