"""How long the streams of demo, benchmark and tests are, and after which steps the memory sleeps."""

from __future__ import annotations

from dataclasses import dataclass, field

from eval.stream_pools import StreamShares


@dataclass(frozen=True)
class StreamSize:
    """A stream's measures, as `eval.streams.build_stream` takes them.

    `nights_after` are step numbers, from 0, after which a consolidation runs. `overrides` are settings that belong to
    the size; the user's own go before them.
    """

    n_facts: int
    steps: int
    questions_per_step: int
    nights_after: tuple[int, ...]
    shares: StreamShares = field(default_factory=StreamShares)
    opening_steps: int | None = None
    repeats_from: int | None = None
    dated_share: float = 0.0
    absent_per_step: int = 0
    overrides: tuple[str, ...] = ()


STREAM_SIZES = {
    "tiny": StreamSize(n_facts=48, steps=3, questions_per_step=16, nights_after=(1,)),
    "demo": StreamSize(n_facts=300, steps=6, questions_per_step=40, nights_after=(3,)),
    "small": StreamSize(
        n_facts=480, steps=8, questions_per_step=40, nights_after=(2, 5), dated_share=0.1, absent_per_step=4
    ),
    # The report split holds about 380 world facts that the embedded model knows, of which some 90 can change: hence a
    # long stream has fewer known facts and counterfactual changes, and more of its facts arrive more than once.
    "full": StreamSize(
        n_facts=3100,
        steps=12,
        questions_per_step=36,
        nights_after=(1, 3, 5, 7, 9, 10),
        shares=StreamShares(
            known=0.11, new=0.31, update=0.08, repeat=0.5, counterfactual_of_update=0.27, agent_of_update=0.6
        ),
        opening_steps=2,
        repeats_from=2,
        dated_share=0.1,
        absent_per_step=4,
        overrides=("consolidation.selection.max_facts=100",),
    ),
}
