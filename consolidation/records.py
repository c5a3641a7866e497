"""What one night hands from stage to stage; each record is a file in the night's folder."""

from __future__ import annotations

from enum import StrEnum

from sharpwave.records import ProbeResult, Record

WAITING = "waiting"
"""Status of a report on a night that waits for review."""


class FactTargets(Record):
    """The questions and the answer that one fact is trained and probed with.

    `train_questions` are trained on, `paraphrase` is never trained on; `generated` says that a model proposed them.
    """

    fact_id: str
    text: str
    train_questions: tuple[str, ...]
    paraphrase: str
    answers: tuple[str, ...]
    generated: bool = False


class Rejection(Record):
    """A stored fact that is left out of a night, and why."""

    fact_id: str
    reason: str


class NightPlan(Record):
    """What a night means to do: the facts to write back, those left out, and the model it starts from.

    `evict_now` says that proven facts leave the store at once; `confirmed` are those that an earlier night proved and
    that left it when this one began, for the weights answered them again.
    """

    run_id: str
    parent: int
    base_fingerprint: str
    targets: tuple[FactTargets, ...]
    rejected: tuple[Rejection, ...] = ()
    hot_before: int = 0
    min_facts: int = 1
    seed: int = 0
    evict_now: bool = False
    confirmed: tuple[str, ...] = ()

    @property
    def is_worthwhile(self) -> bool:
        """Whether enough facts were found to train on."""
        return len(self.targets) >= self.min_facts

    @property
    def shortage(self) -> str:
        """Why a night that is not worthwhile is skipped, and what to do about it."""
        return (
            f"only {len(self.targets)} of the {self.min_facts} facts that a night takes at least; take in more, or "
            "lower consolidation.selection.min_facts"
        )


class TrainingReceipt(Record):
    """What the training cost and where the raw update lies (relative to the night's folder)."""

    generation: int
    seconds: float
    steps: int
    supervised_tokens: int
    trained_tokens: int
    final_loss: float
    final_divergence: float


class ScaleTrial(Record):
    """Gate figures of one adapter scale; `perplexity_ratio` is the new one on general text over the former's."""

    scale: float
    internalised_rate: float
    gate_damage_rate: float
    gate_probed: int
    perplexity_ratio: float


class KnownFact(Record):
    """A formerly known fact and the one probe that tells whether it still is.

    `replay_question` is what a training reads to keep it: another wording than the probe's, if there is one.
    """

    fact_id: str
    question: str
    answers: tuple[str, ...]
    replay_question: str = ""


class NightVerdict(Record):
    """What the probes of the saved and reloaded model say, and what follows from it: a plan, nothing done yet.

    `evict` are the facts to leave the store, at once or after a second proof, as the plan says; `kept` are proven facts
    that a review keeps in the store.
    """

    generation: int
    promoted: bool
    reason: str
    scale: float | None
    trials: tuple[ScaleTrial, ...]
    proven: tuple[str, ...] = ()
    evict: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    never_known: tuple[str, ...] = ()
    stable_probed: int = 0
    target_probes: tuple[ProbeResult, ...] = ()
    damage_probes: tuple[ProbeResult, ...] = ()


class ReviewDecision(StrEnum):
    """What a person has said about a night."""

    WAITING = WAITING  # nothing yet
    ACCEPTED = "accepted"
    REJECTED = "rejected"


class Review(Record):
    """A night's review: the decision about the whole, and the facts that stay in the store whatever it is."""

    decision: ReviewDecision = ReviewDecision.WAITING
    kept: tuple[str, ...] = ()


class NightReport(Record):
    """The outcome of a night, for people and for trackers. One that waits for review has changed nothing yet.

    `evicted` counts what this night's proof took out of the store, `confirmed` what left it at the beginning after a
    second proof, `awaiting` what stays in it until the next.
    """

    run_id: str
    status: str
    reason: str
    generation: int
    parent: int
    scale: float | None
    selected: int
    internalised: int
    evicted: int
    damaged: int
    readmitted: int
    stable_probed: int
    confirmed: int = 0
    awaiting: int = 0
    kept: int = 0
    rejected: tuple[Rejection, ...] = ()
    skipped: tuple[str, ...] = ()
    training: TrainingReceipt | None = None
    trials: tuple[ScaleTrial, ...] = ()

    @property
    def is_waiting(self) -> bool:
        """Whether a person has still to decide about the night."""
        return self.status == WAITING

    @property
    def damage_rate(self) -> float:
        """Damaged per probed stable fact; 0 where none was probed."""
        return self.damaged / self.stable_probed if self.stable_probed else 0.0

    def metrics(self) -> dict[str, float]:
        """Return the figures that a tracker keeps."""
        figures: dict[str, float] = {
            "selected": self.selected,
            "internalised": self.internalised,
            "evicted": self.evicted,
            "confirmed": self.confirmed,
            "awaiting_second_proof": self.awaiting,
            "damaged": self.damaged,
            "readmitted": self.readmitted,
            "stable_probed": self.stable_probed,
            "damage_rate": self.damage_rate,
        }
        if self.training is not None:
            figures |= {
                "train_seconds": self.training.seconds,
                "supervised_tokens": self.training.supervised_tokens,
                "final_loss": self.training.final_loss,
                "final_anchor_divergence": self.training.final_divergence,
            }
        return figures
