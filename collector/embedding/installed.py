"""Whether what an embedder needs is here: looked up, not imported, so that `semhealth check` stays light."""

from __future__ import annotations

from importlib import util

from collector.config import EmbedderSettings
from collector.embedding import model_folder

EXTRAS = {
    "torch": ("sentence-transformers", ("sentence_transformers", "torch")),
    "onnx": ("onnx", ("onnxruntime", "tokenizers")),
}  # backend → extra, and the packages that it brings


def what_is_missing(settings: EmbedderSettings) -> tuple[str, str] | None:
    """The key under `embedder` that asks for what is not here, and what to do; None where all is here."""
    if settings.kind != "sentence-transformers":
        return None
    given = settings.sentence_transformers
    extra, packages = EXTRAS[given.backend]
    absent = [name for name in packages if util.find_spec(name) is None]
    if absent:
        return "kind", f"{', '.join(absent)} not installed: pip install 'semhealth[{extra}]'"
    if given.hub is not None:
        if given.backend == "onnx":
            return "sentence_transformers.hub", "the onnx backend reads a folder; name one, or use torch"
        if given.folder is not None:
            return "sentence_transformers.hub", "a folder is named too; leave one of them out"
        return None
    try:
        folder = model_folder.found(given.folder)
        if given.backend == "torch":
            model_folder.weights_of(folder)
        elif not (folder / given.file).is_file():
            return (
                "sentence_transformers.folder",
                f"{folder / given.file}: no such file; python -m collector.embedding.onnx_export -o FOLDER writes one",
            )
    except model_folder.ModelFolderError as error:
        return "sentence_transformers.folder", str(error)
    return None
