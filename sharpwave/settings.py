"""Settings: everything that can be chosen, and how a profile, a file and overrides become one frozen object.

Later sources win: defaults below, `configs/<profile>.yaml`, the user's own file, `a.b=value` overrides. Paths
are kept as written and are relative to the working directory.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from sharpwave.errors import ConfigError
from sharpwave.fact_parsing import DEFAULT_MAX_FACT_CHARS
from sharpwave.settings_sources import close_match, explain_validation, merge_sources, setting_kinds

PROJECT_ROOT = Path(__file__).resolve().parents[1]
PROFILE_FOLDER = PROJECT_ROOT / "configs"


def beside_code(path: Path) -> Path:
    """Return the path as it is if it is absolute or exists here, else the one beside the code."""
    path = path.expanduser()
    return path if path.is_absolute() or path.exists() else PROJECT_ROOT / path


class SettingsGroup(BaseModel):
    """Base of all settings: immutable, unknown keys refused, each field described by the text below it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class ModelSettings(SettingsGroup):
    """Which models play which part: each a name that `sharpwave models` lists, a hub id or a local folder."""

    small: str = Field(min_length=1)
    """The model that screens every fact."""
    large: str = Field(min_length=1)
    """The model that answers questions, judges escalated facts and is trained at consolidation."""
    embedder: str = Field(min_length=1)
    """The sentence embedder behind the index."""
    engine: Literal["openvino", "torch"] = "openvino"
    """What runs the two models when they route: OpenVINO with 8-bit weights (CPU), or torch as the models are (CPU,
    GPU). Router heads fit the engine they were trained on."""


class StoreSettings(SettingsGroup):
    """Where the external memory lives on disk."""

    path: Path = Path("memory-store")
    """Folder that holds ledger, index and adapter generations."""
    lock_timeout_seconds: NonNegativeFloat = 10.0
    """How long a second writer waits for the first before it gives up."""

    @field_validator("path", mode="after")
    @classmethod
    def _expand_home(cls, path: Path) -> Path:
        return path.expanduser()


class ArbiterSettings(SettingsGroup):
    """Linear score that chooses between two differing answers; above 0 the store's answer is taken.

    The defaults were fitted by `benchmarks/fit_arbiter.py` on calibration facts, for the embedded models.
    """

    bias: float = -2.72
    """Constant term."""
    similarity: float = 7.35
    """Weight of the cosine similarity between question and nearest stored fact."""
    missing_names: float = -4.9
    """Weight of the share of the question's names that the nearest stored fact does not speak of."""
    store_prob: float = 2.59
    """Weight of the lowest token probability of the answer read from the store."""
    weights_prob: float = -5.54
    """Weight of the lowest token probability of the answer from the weights."""


class RecallSettings(SettingsGroup):
    """How a question is answered from store and weights."""

    top_k: PositiveInt = 3
    """Most facts put before the model as context."""
    min_similarity: float = Field(default=0.3, ge=-1, le=1)
    """Cosine similarity below which a stored fact is not used for a question."""
    spread: NonNegativeFloat = 0.15
    """How far behind the nearest fact, in cosine similarity, another may lie and still be read."""
    sure_similarity: float = Field(default=0.85, ge=-1, le=1.01)
    """Cosine similarity from which the store is believed without asking the weights."""
    arbiter: ArbiterSettings = ArbiterSettings()
    """Who is believed when store and weights differ."""


Stages = Literal["both", "small", "large"]
"""Which models of the router judge facts."""


class RouterSettings(SettingsGroup):
    """Which heads route facts, and at what prices."""

    heads: Path = Path("routers/heads/embedded")
    """Folder of trained heads; a relative one is looked up in the working directory, then beside the code."""
    storage_price: NonNegativeFloat | None = None
    """Gain in exact match below which a fact is not stored; null takes the heads' calibrated price."""
    escalation_price: NonNegativeFloat | None = None
    """Gain in utility below which the large model is not asked; null takes the heads' calibrated price."""
    update_price: float | None = Field(default=None, ge=0, le=1)
    """Probability of an update above which a fact is stored whatever its gain; null takes the calibrated price."""
    use_self_probe: bool = True
    """Whether a fact that comes with a question is also judged by trying to answer that question."""
    stages: Stages = "both"
    """Who judges: both (the small model, and the large one where the gate says so), small alone or large alone."""

    @property
    def heads_folder(self) -> Path:
        """The folder that `heads` means here; it need not exist."""
        return beside_code(self.heads)


class SelectionSettings(SettingsGroup):
    """Which stored facts a consolidation takes on."""

    max_facts: PositiveInt = 64
    """Most facts trained in one consolidation."""
    min_facts: PositiveInt = 8
    """Fewest facts that are worth a consolidation; with fewer the run ends without training."""

    @model_validator(mode="after")
    def _min_within_max(self) -> Self:
        if self.min_facts > self.max_facts:
            raise ValueError(f"min_facts ({self.min_facts}) is above max_facts ({self.max_facts})")
        return self


class WriteBackSettings(SettingsGroup):
    """How chosen facts become adapter weights; says nothing about which facts."""

    lora_rank: PositiveInt = 32
    """Rank of the adapter's update matrices."""
    lora_alpha: PositiveInt = 64
    """Scale of the adapter's update; the effective factor is alpha / rank."""
    layers: Literal["all", "lower_half", "upper_half"] = "all"
    """Which transformer layers get an adapter."""
    modules: Literal["mlp", "all"] = "mlp"
    """Which linear maps of a layer get one: those of the feed-forward part, or those of attention as well. Attention is
    shared by everything the model says, and changing it damages more."""
    aim_ridge: NonNegativeFloat = 0.03
    """How the update's input directions are chosen: small keeps them off the anchors, large near what is learnt;
    0 takes random ones and trains them, as in plain LoRA."""
    learning_rate: PositiveFloat = 1e-3
    """Peak learning rate of the optimiser."""
    epochs: PositiveInt = 9
    """Passes over the facts to learn."""
    batch_size: PositiveInt = 24
    """Targets and anchors packed into one optimiser step."""
    wordings_per_epoch: PositiveInt = 3
    """How many of a fact's wordings, bare or after the few-shot prefix, each epoch takes in turn."""
    sure_prob: float = Field(default=0.97, gt=0, le=1)
    """A fact whose answer tokens all exceed this probability sits out an epoch, then two and so on; 1 means never."""
    distill_weight: NonNegativeFloat = 3.0
    """Weight of predicting like the previous generation on anchors, relative to the loss on the targets."""
    anchor_count: NonNegativeInt = 260
    """How many questions of the anchor bank are distilled on in all."""
    prose_count: NonNegativeInt = 93
    """Most places of plain prose distilled on beside them, so that the model goes on speaking as it did; there are
    93 in all."""
    replay_count: NonNegativeInt = 100
    """How many of the store's own facts that live in the weights are distilled on as well, the most endangered first.
    They are read in another wording than the one that probes them for damage, where they have one."""
    anchors_per_epoch: NonNegativeInt = 60
    """How many anchors each epoch draws anew, half of them replayed facts if there are as many; the rest of an epoch
    are the training targets."""
    max_train_seconds: NonNegativeFloat = 0.0
    """Wall-clock limit of the training in seconds, after which it stops early; 0 means no limit."""


class ProbeSettings(SettingsGroup):
    """When an answer from the weights counts as proof."""

    min_token_prob: float = Field(default=0.5, ge=0, lt=1)
    """Probability that every token of the right answer must exceed."""


class PromotionSettings(SettingsGroup):
    """When a trained generation becomes the current one."""

    min_internalised_rate: float = Field(default=0.5, ge=0, le=1)
    """Smallest share of the trained facts that must be proven."""
    max_damage_rate: float = Field(default=0.05, ge=0, le=1)
    """Largest share of the gate questions that may be damaged. Without a scope 10 to 20 % are, most of them questions
    that the former generation answers with a token below 0.3."""
    max_perplexity_ratio: PositiveFloat = 1.05
    """Largest perplexity on general text, relative to the former generation's."""
    min_gate_facts: NonNegativeInt = 30
    """Fewest gate questions that the former generation must answer; with fewer, damage could not be measured."""
    scales: tuple[float, ...] = Field(default=(1.2, 1.0, 0.85), min_length=1)
    """Adapter scales tried, from the largest down, to trade what is learnt against what is damaged."""

    @field_validator("scales", mode="after")
    @classmethod
    def _descending(cls, scales: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 < scale <= 2 for scale in scales):
            raise ValueError("each scale must lie above 0 and be at most 2")
        if any(later >= earlier for earlier, later in itertools.pairwise(scales)):
            raise ValueError("scales must descend")
        return scales


class DamageSettings(SettingsGroup):
    """How formerly known facts are searched for damage."""

    max_probes: PositiveInt = 400
    """Most formerly known facts probed; with fewer known than this, all are probed."""
    sample_size: PositiveInt = 150
    """Probes drawn at random, which give the damage rate its interval; the rest go to the most endangered."""

    @model_validator(mode="after")
    def _sample_within_budget(self) -> Self:
        if self.sample_size > self.max_probes:
            raise ValueError(f"sample_size ({self.sample_size}) is above max_probes ({self.max_probes})")
        return self


class ConsolidationSettings(SettingsGroup):
    """The whole of one consolidation: select, train, prove, promote, evict, repair."""

    selection: SelectionSettings = SelectionSettings()
    """Which facts are taken on."""
    write_back: WriteBackSettings = WriteBackSettings()
    """How they are trained."""
    probe: ProbeSettings = ProbeSettings()
    """When they count as proven."""
    promotion: PromotionSettings = PromotionSettings()
    """When the new generation becomes current."""
    damage: DamageSettings = DamageSettings()
    """How damage is looked for."""
    anchors: Path = Path("consolidation/anchors/embedded.jsonl")
    """Anchor bank; a relative path is looked up in the working directory, then beside the code."""
    scope_similarity: float = Field(default=0.8, ge=0, le=1)
    """Cosine similarity to a trained question or statement from which the adapter answers a text; anything less alike
    is answered by the base model, which no training damages. 0 lets the adapter answer everything."""
    evict_now: bool = False
    """Whether proven facts leave the store in the night that proved them. By default they stay until the next
    consolidation begins, and leave if the weights answer them again."""
    shrink_limit: float = Field(default=0.9, gt=0, le=1)
    """Largest share of the hot facts that one consolidation may evict."""
    keep_generations: NonNegativeInt = 5
    """How many generations keep their adapter, the current one included; after a consolidation those of older ones
    are deleted, and nothing can go back to them. 0 keeps all."""

    @property
    def anchors_file(self) -> Path:
        """The file that `anchors` means here; it need not exist."""
        return beside_code(self.anchors)


class TrackingSettings(SettingsGroup):
    """Where figures are logged."""

    uri: str | None = None
    """MLflow tracking address; null means `MLFLOW_TRACKING_URI` and, where that is not set, the database
    `mlruns/mlflow.db` under the working directory."""
    experiment: str = Field(default="sharpwave", min_length=1)
    """MLflow experiment that the runs belong to."""

    @property
    def resolved_uri(self) -> str:
        """The address with the default filled in; absolute, so that it does not change with the process."""
        given = self.uri or os.environ.get("MLFLOW_TRACKING_URI")
        if given:
            return given
        return f"sqlite:///{(Path.cwd() / 'mlruns' / 'mlflow.db').as_posix()}"


class Settings(SettingsGroup):
    """Everything that can be chosen, resolved."""

    profile: str = Field(min_length=1)
    """Name of the profile these settings came from."""
    models: ModelSettings
    """Which models are used."""
    store: StoreSettings = StoreSettings()
    """Where the external memory lives."""
    namespace: str = Field(default="default", min_length=1)
    """Whose memory is read and written when nothing else is said."""
    recall: RecallSettings = RecallSettings()
    """How questions are answered."""
    router: RouterSettings = RouterSettings()
    """How facts are routed."""
    consolidation: ConsolidationSettings = ConsolidationSettings()
    """How stored facts move into the weights."""
    tracking: TrackingSettings = TrackingSettings()
    """Where figures are logged."""
    runs_dir: Path = Path("runs")
    """Folder under which each run leaves its report."""
    max_fact_chars: PositiveInt = DEFAULT_MAX_FACT_CHARS
    """Longest text, question or answer accepted, in characters; longer ones are rejected, never cut."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seed of everything random."""

    @field_validator("runs_dir", mode="after")
    @classmethod
    def _expand_home(cls, path: Path) -> Path:
        return path.expanduser()

    def digest(self) -> str:
        """Return the SHA-256 of the resolved settings as 64 hex digits; equal settings give equal digests."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8")).hexdigest()


def load_settings(
    profile: str = "embedded", overrides: Sequence[str] = (), *, file: Path | None = None
) -> Settings:
    """Resolve a profile, the user's own YAML file and overrides into settings.

    Args:
        profile: name of a file in `configs/` without its suffix.
        overrides: `key.subkey=value`, read as YAML (text settings take it as it stands); the last wins.
        file: YAML with any part of the settings; wins over the profile.

    Raises:
        ConfigError: unknown profile or key, or a wrong value; names source, key and a close match.
    """
    return _resolve(profile, overrides, file)[0]


def settings_origin(
    profile: str = "embedded", overrides: Sequence[str] = (), *, file: Path | None = None
) -> dict[str, str]:
    """Tell for every dotted key where its value came from: "default", the path of a file, or "override".

    Takes the same arguments and raises the same errors as `load_settings`.
    """
    origins = _resolve(profile, overrides, file)[1]
    return {key: origins.get(key, "default") for key in setting_kinds(Settings)}


def profile_names() -> list[str]:
    """List the profiles that exist, sorted."""
    return sorted(path.stem for path in PROFILE_FOLDER.glob("*.yaml"))


def cache_home() -> Path:
    """Return the folder for downloads and converted models; it need not exist.

    `SHARPWAVE_HOME` if set, else `~/.cache/sharpwave`. No other code reads that variable.

    Raises:
        ConfigError: the variable names something that is not a folder.
    """
    chosen = os.environ.get("SHARPWAVE_HOME", "").strip()
    home = Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "sharpwave"
    if home.exists() and not home.is_dir():
        raise ConfigError(f"SHARPWAVE_HOME: {home} is not a folder; name a folder or unset the variable")
    return home


def _resolve(profile: str, overrides: Sequence[str], file: Path | None) -> tuple[Settings, dict[str, str]]:
    profile_path = _profile_path(profile)
    merged = merge_sources(Settings, [profile_path, file] if file else [profile_path], overrides)
    merged.put("profile", profile, str(profile_path))
    try:
        return Settings.model_validate(merged.nested()), merged.origins
    except ValidationError as error:
        raise ConfigError(explain_validation(error, Settings, merged.origins)) from error


def _profile_path(profile: str) -> Path:
    names = profile_names()
    if profile not in names:
        raise ConfigError(
            f"unknown profile {profile!r}{close_match(profile, names)}; there are: {', '.join(names)}"
        )
    return PROFILE_FOLDER / f"{profile}.yaml"
