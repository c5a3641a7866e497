"""Sentence embedders: text in, unit vectors out.

`MiniLMEmbedder` is the semantic one (the sentence-transformers recipe for MiniLM, run by transformers);
`HashingEmbedder` is lexical, needs no weights and is deterministic. Where vectors are kept and searched is
`memory_index`'s business.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from carriers.recent import remember
from sharpwave.errors import WeightsError

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

HASHING_NAME = "hashing"
HASHING_DIMENSION = 256
BATCH_TOKEN_BUDGET = 16_384  # padded tokens per forward pass; about 300 MB of activations for MiniLM
BATCH_ROW_LIMIT = 128
DEFAULT_TOKEN_LIMIT = 256
_VECTORS_KEPT = 4096

# Mean pooling never reads a pooler, so it may be absent. Old checkpoints also saved the position numbers.
UNUSED_WEIGHTS = ("pooler.", "embeddings.position_ids")


class SentenceEmbedder(Protocol):
    """What the index needs of an embedder."""

    @property
    def fingerprint(self) -> str:
        """Name, revision, dimension, pooling, normalisation; vectors of two fingerprints do not mix."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text, shape [n, dimension], float32."""


def load_embedder(name: str) -> SentenceEmbedder:
    """Return the embedder called `name`: "hashing", a listed model, a hub id or a local folder.

    Raises:
        WeightsError: the weights are missing, damaged or incomplete.
    """
    if name == HASHING_NAME:
        return HashingEmbedder()
    from carriers.model_weights import ensure_embedder

    return MiniLMEmbedder.load(ensure_embedder(name))


class HashingEmbedder:
    """Words and character trigrams, hashed to signed buckets of a fixed number of dimensions.

    A real lexical embedder: texts that share words or word parts lie close, in any script, whereas synonyms
    do not. Meant for fast tests and for running without model weights; the same text gives the same vector
    on every machine.
    """

    def __init__(self, dimension: int = HASHING_DIMENSION) -> None:
        self.dimension = dimension

    @property
    def fingerprint(self) -> str:
        """Identity of the vectors."""
        return f"hashing-words+trigrams;revision=1;dimension={self.dimension};pooling=sum;normalise=l2"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text, shape [n, dimension], float32."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for feature, weight in _lexical_features(text):
                digest = _feature_hash(feature)
                vectors[row, (digest >> 1) % self.dimension] += weight if digest & 1 else -weight
            if not vectors[row].any():  # nothing but spaces, or all features cancelled
                vectors[row, _feature_hash(text) % self.dimension] = 1.0
        return _unit_rows(vectors)


def _lexical_features(text: str) -> Iterator[tuple[str, float]]:
    """Yield features with weights: whole words count most, trigrams share one word's weight among them."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = re.findall(r"\w+", folded)
    for word in words or folded.split():
        length_weight = 0.4 if len(word) <= 3 and word.isascii() and word.isalpha() else 1.0
        yield f"word:{word}", length_weight
        padded = f"<{word}>"
        trigram_count = max(len(padded) - 2, 1)
        for start in range(trigram_count):
            yield f"gram:{padded[start : start + 3]}", length_weight / trigram_count**0.5


@lru_cache(maxsize=65_536)
def _feature_hash(feature: str) -> int:
    """Return a 64-bit hash that, unlike the builtin, is the same in every process."""
    encoded = feature.encode("utf-8", errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "little")


class MiniLMEmbedder:
    """A BERT-like encoder with mean pooling over the tokens and L2 normalisation.

    A text longer than the model's limit is cut into chunks at the limit, each is embedded, and the chunk
    vectors are averaged by their token counts: nothing is left out.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: Tokenizer, token_limit: int, fingerprint: str
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.token_limit = token_limit
        self.fingerprint = fingerprint
        self.dimension = int(model.config.hidden_size)
        self._recent: dict[str, NDArray[np.float32]] = {}

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load from a folder in Hugging Face format (config.json, model.safetensors, tokenizer.json).

        Raises:
            WeightsError: a file is missing or damaged, a weight would stay uninitialised, or the folder
                asks for another pooling than the mean.
        """
        folder = Path(folder)
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            if not (folder / name).is_file():
                raise WeightsError(
                    f"{folder}: no {name}; an embedder folder needs it (`sharpwave models` lists names)"
                )
        _require_mean_pooling(folder)
        model = _load_encoder(folder)
        tokenizer = _load_tokenizer(folder)
        limit = _token_limit(folder, model)
        config = model.config
        # not the folder's name: a moved or renamed folder holds the same embedder
        fingerprint = (
            f"{config.model_type}-L{config.num_hidden_layers}-H{config.hidden_size};"
            f"revision={_revision(folder)};dimension={config.hidden_size};tokens={limit};"
            "pooling=mean;normalise=l2"
        )
        return cls(model, tokenizer, limit, fingerprint)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text, shape [n, dimension], float32.

        The last few thousand are remembered: index and scope ask for the same question one after the other.
        """
        kept = {text: self._recent.get(text) for text in texts}
        new = [text for text, vector in kept.items() if vector is None]
        fresh = dict(zip(new, self._encode(new), strict=True))
        remember(self._recent, fresh, _VECTORS_KEPT)
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            known = kept[text]
            vectors[row] = fresh[text] if known is None else known
        return vectors

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        chunks, owners = self._chunk(texts)
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        order = sorted(range(len(chunks)), key=lambda index: len(chunks[index]))
        for batch in _batches(order, [len(chunk) for chunk in chunks]):
            pooled = self._forward([chunks[index] for index in batch])
            for index, vector in zip(batch, pooled, strict=True):
                vectors[owners[index]] += vector * len(chunks[index])
        return _unit_rows(vectors)

    def _chunk(self, texts: Sequence[str]) -> tuple[list[list[int]], list[int]]:
        """Return token ids of every chunk, specials included, and for each chunk the row of its text."""
        chunks: list[list[int]] = []
        owners: list[int] = []
        start_id, end_id = self._special_ids()
        width = self.token_limit - 2
        cleaned = [text.encode("utf-8", errors="replace").decode("utf-8") for text in texts]
        for row, encoding in enumerate(self.tokenizer.encode_batch(cleaned, add_special_tokens=False)):
            ids = encoding.ids
            for start in range(0, max(len(ids), 1), width):
                chunks.append([start_id, *ids[start : start + width], end_id])
                owners.append(row)
        return chunks, owners

    def _special_ids(self) -> tuple[int, int]:
        ids = self.tokenizer.encode("").ids
        if len(ids) != 2:
            raise WeightsError(
                "the tokenizer does not frame a text by one start and one end token, as BERT's does"
            )
        return ids[0], ids[1]

    def _forward(self, chunks: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return the unit-length mean vector of each chunk, shape [n, dimension]."""
        import torch

        longest = max(len(chunk) for chunk in chunks)
        ids = torch.zeros((len(chunks), longest), dtype=torch.long)
        mask = torch.zeros((len(chunks), longest), dtype=torch.long)
        for row, chunk in enumerate(chunks):
            ids[row, : len(chunk)] = torch.tensor(chunk, dtype=torch.long)
            mask[row, : len(chunk)] = 1
        with torch.inference_mode():
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            weights = mask.unsqueeze(-1).to(hidden.dtype)
            pooled = (hidden * weights).sum(dim=1) / weights.sum(dim=1)
            unit: torch.Tensor = torch.nn.functional.normalize(pooled, dim=1)
        return np.asarray(unit.numpy(), dtype=np.float32)


def _batches(order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Cut indices, sorted by length, into batches whose padded size stays within the token budget."""
    batch: list[int] = []
    for index in order:
        is_full = len(batch) == BATCH_ROW_LIMIT or (len(batch) + 1) * lengths[index] > BATCH_TOKEN_BUDGET
        if batch and is_full:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, np.finfo(np.float32).tiny), dtype=np.float32)


def _load_encoder(folder: Path) -> PreTrainedModel:
    """Build the encoder and fill it from the file, checking every weight by name and shape."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModel

    weights_file = folder / "model.safetensors"
    try:
        weights = load_file(weights_file)
        model: PreTrainedModel = AutoModel.from_config(
            AutoConfig.from_pretrained(folder, local_files_only=True)
        )
    except (SafetensorError, OSError, ValueError) as error:
        raise WeightsError(
            f"{folder}: the embedder cannot be read ({error}); delete the folder to fetch it again"
        ) from error
    prefix = f"{model.base_model_prefix}."
    weights = {name.removeprefix(prefix): tensor.to(torch.float32) for name, tensor in weights.items()}
    try:
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise WeightsError(f"{weights_file}: weights do not fit config.json ({error})") from error
    wrong = [name for name in (*missing, *unexpected) if not name.startswith(UNUSED_WEIGHTS)]
    if wrong:
        raise WeightsError(
            f"{weights_file}: {len(wrong)} weights missing or not known to config.json, first {wrong[0]!r}"
        )
    model.train(False)
    return model


def _load_tokenizer(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    try:
        # from_str, since the library raises a bare Exception whose message does not name the file
        tokenizer: Tokenizer = Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:
        raise WeightsError(
            f"{file}: the tokenizer cannot be read ({error}); delete the folder to fetch it again"
        ) from error
    tokenizer.no_truncation()  # the published file cuts at 128 tokens and pads to 128
    tokenizer.no_padding()
    return tokenizer


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsError(f"{file}: cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise WeightsError(f"{file}: expected a JSON object")
    return content


def _require_mean_pooling(folder: Path) -> None:
    file = folder / "1_Pooling" / "config.json"
    if file.is_file():
        chosen = sorted(
            key for key, value in _read_json(file).items() if key.startswith("pooling_mode") and value is True
        )
        if chosen != ["pooling_mode_mean_tokens"]:
            raise WeightsError(f"{file}: asks for {chosen}, but only mean pooling is supported")


def _token_limit(folder: Path, model: PreTrainedModel) -> int:
    file = folder / "sentence_bert_config.json"
    asked = _read_json(file).get("max_seq_length") if file.is_file() else None
    return min(int(asked or DEFAULT_TOKEN_LIMIT), int(model.config.max_position_embeddings))


def _revision(folder: Path) -> str:
    """Return a digest of weights and tokenizer: the same name with other files is another embedder."""
    digest = hashlib.sha256()
    for name in ("model.safetensors", "tokenizer.json"):
        with (folder / name).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:12]
