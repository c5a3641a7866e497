"""Embedders: unit vectors, meaning or spelling, nothing cut silently, damaged weights refused."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from carriers.embedder import HashingEmbedder, MiniLMEmbedder, load_embedder
from sharpwave.errors import WeightsError

TEXTS = ["Paris is the capital of France.", "Bananas are yellow.", "北京是中国的首都。", "", "   ", "!?"]


def norms(vectors: np.ndarray) -> np.ndarray:
    return np.linalg.norm(vectors, axis=1)


class TestHashing:
    def test_vectors_are_unit_float32_for_any_text(self):
        vectors = HashingEmbedder().embed([*TEXTS, "lone surrogate \ud800", "x" * 100_000])
        assert vectors.dtype == np.float32
        assert vectors.shape == (len(TEXTS) + 2, 256)
        assert norms(vectors) == pytest.approx(1.0, abs=1e-5)

    def test_no_texts_give_no_rows(self):
        assert HashingEmbedder().embed([]).shape == (0, 256)

    def test_shared_words_lie_closer_in_latin_and_chinese(self):
        question, near, far, chinese_question, chinese = HashingEmbedder().embed([
            "What is the capital of France?",
            *TEXTS[:2],
            "中国的首都是哪里？",
            TEXTS[2],
        ])
        assert question @ near > question @ far + 0.2
        assert chinese_question @ chinese > chinese_question @ far + 0.1

    def test_spelling_variants_of_one_text_are_one_vector(self):
        plain, wide, upper = HashingEmbedder().embed(["paris 2024", "ｐａｒｉｓ ２０２４", "PARIS 2024"])
        assert plain == pytest.approx(wide)
        assert plain == pytest.approx(upper)

    def test_another_process_gives_the_same_vectors(self):
        code = (
            "import sys; from carriers.embedder import HashingEmbedder as H;"
            "sys.stdout.write(H().embed(['Ana likes tea']).tobytes().hex())"
        )
        there = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        assert there == HashingEmbedder().embed(["Ana likes tea"]).tobytes().hex()

    def test_the_fingerprint_tells_dimensions_apart(self):
        assert HashingEmbedder().fingerprint.startswith("hashing-")
        assert HashingEmbedder(128).fingerprint != HashingEmbedder().fingerprint

    def test_is_loaded_by_name_without_weights(self):
        assert load_embedder("hashing").fingerprint == HashingEmbedder().fingerprint


@pytest.fixture(scope="session")
def weights() -> Path:
    from carriers.model_weights import ensure_embedder

    return ensure_embedder("all-minilm-l6-v2")


@pytest.fixture(scope="session")
def minilm(weights: Path) -> MiniLMEmbedder:
    return MiniLMEmbedder.load(weights)


@pytest.mark.models
class TestMiniLM:
    def test_vectors_are_unit_float32_for_any_text(self, minilm):
        vectors = minilm.embed([*TEXTS, "lone surrogate \ud800"])
        assert vectors.dtype == np.float32
        assert vectors.shape == (len(TEXTS) + 1, 384)
        assert norms(vectors) == pytest.approx(1.0, abs=1e-5)

    def test_no_texts_give_no_rows(self, minilm):
        assert minilm.embed([]).shape == (0, 384)

    def test_agrees_with_the_published_recipe(self, minilm, weights):
        """The plain recipe, written out with the library's own tokenizer and loader."""
        import torch
        from transformers import AutoModel, AutoTokenizer

        model = AutoModel.from_pretrained(weights, local_files_only=True, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(weights, local_files_only=True)
        batch = tokenizer(TEXTS[:3], padding=True, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        expected = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1).numpy()
        assert minilm.embed(TEXTS[:3]) == pytest.approx(expected, abs=1e-5)

    def test_a_question_finds_its_fact_without_sharing_words(self, minilm):
        question, near, far = minilm.embed([
            "Which feline lives with her?",
            "Her cat shares the flat.",
            "The train leaves at noon.",
        ])
        assert question @ near > question @ far + 0.2

    def test_order_and_company_do_not_matter(self, minilm):
        texts = [f"The badge number of worker {n} is {n * 37}. " * (1 + n % 5) for n in range(40)]
        together = minilm.embed(texts)
        alone = np.concatenate([minilm.embed([text]) for text in texts[:5]])
        assert together[:5] == pytest.approx(alone, abs=1e-5)
        assert minilm.embed(texts[::-1])[::-1] == pytest.approx(together, abs=1e-5)

    def test_the_end_of_a_long_text_counts(self, minilm):
        filler = "The weather was mild and nothing happened. " * 60
        with_end, without_end, question = minilm.embed([
            filler + "Zoe keeps a parrot named Kiwi. " * 10,
            filler,
            "What is the name of Zoe's parrot?",
        ])
        assert question @ with_end > question @ without_end + 0.1


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ana", "likes", "tea", "and", "coffee"]


@pytest.fixture
def folder(tmp_path) -> Path:
    """A tiny BERT with random weights, in the same files as a real one, limited to 8 tokens."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    folder = tmp_path / "tiny"
    folder.mkdir()
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    config.save_pretrained(folder)
    save_file(dict(BertModel(config).state_dict()), folder / "model.safetensors")
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=6)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 8}', encoding="utf-8")
    return folder


class TestFolder:
    def test_a_long_text_is_the_weighted_mean_of_its_chunks(self, folder):
        embedder = MiniLMEmbedder.load(folder)
        first, rest = "ana likes tea and coffee and", "tea tea"
        parts = embedder.embed([first, rest])
        expected = 8 * parts[0] + 4 * parts[1]
        assert embedder.embed([f"{first} {rest}"])[0] == pytest.approx(
            expected / np.linalg.norm(expected), abs=1e-5
        )

    def test_padding_does_not_change_a_vector(self, folder):
        embedder = MiniLMEmbedder.load(folder)
        together = embedder.embed(["tea", "ana likes tea and coffee"])
        assert together[0] == pytest.approx(embedder.embed(["tea"])[0], abs=1e-6)

    def test_loading_leaks_no_warning_or_output_and_the_folder_name_does_not_matter(self, folder, capfd):
        before = MiniLMEmbedder.load(folder).fingerprint
        moved = folder.rename(folder.with_name("renamed"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert MiniLMEmbedder.load(moved).fingerprint == before
        assert capfd.readouterr() == ("", "")

    def test_a_pooler_may_be_absent_and_old_position_numbers_present(self, folder):
        import torch
        from safetensors.torch import load_file, save_file

        before = MiniLMEmbedder.load(folder).embed(["ana likes tea"])
        tensors = {
            name: tensor
            for name, tensor in load_file(folder / "model.safetensors").items()
            if not name.startswith("pooler")
        }
        tensors["embeddings.position_ids"] = torch.arange(32)[None]
        save_file(tensors, folder / "model.safetensors")
        assert MiniLMEmbedder.load(folder).embed(["ana likes tea"]) == pytest.approx(before)

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
    def test_a_missing_file_is_named(self, folder, name):
        (folder / name).unlink()
        with pytest.raises(WeightsError, match=name):
            MiniLMEmbedder.load(folder)

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
    def test_a_truncated_file_is_refused(self, folder, name):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(WeightsError, match="read"):
            MiniLMEmbedder.load(folder)

    def test_a_weight_left_uninitialised_is_refused(self, folder):
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / "model.safetensors")
        missing = next(name for name in tensors if "layer.1.attention.self.query.weight" in name)
        del tensors[missing]
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(WeightsError, match=r"layer\.1\.attention\.self\.query\.weight"):
            MiniLMEmbedder.load(folder)

    def test_weights_of_another_shape_are_refused(self, folder):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config["intermediate_size"] = 8
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        with pytest.raises(WeightsError, match="do not fit"):
            MiniLMEmbedder.load(folder)

    def test_other_weights_are_another_revision(self, folder):
        from safetensors.torch import load_file, save_file

        before = MiniLMEmbedder.load(folder).fingerprint
        tensors = load_file(folder / "model.safetensors")
        first = next(iter(tensors))
        tensors[first] = tensors[first] + 1
        save_file(tensors, folder / "model.safetensors")
        assert MiniLMEmbedder.load(folder).fingerprint != before

    def test_another_pooling_is_refused(self, folder):
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(
            '{"pooling_mode_cls_token": true}', encoding="utf-8"
        )
        with pytest.raises(WeightsError, match="mean pooling"):
            MiniLMEmbedder.load(folder)
