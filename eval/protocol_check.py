"""Catches an arm that knows answers it cannot have: questions about facts that never arrive.

The absent facts are chosen among those that the base model does not know, so whoever answers them clearly better than
the base model and the full store has seen the answers elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eval.metrics import mean_em
from eval.run_records import ABSENT, FULL_STORE_ARM, NO_MEMORY_ARM, AnswerRow
from eval.statistics import binomial_tail_p_value
from sharpwave.errors import InputError

_P_VALUE = 0.001


def check_protocol(rows: Iterable[AnswerRow]) -> None:
    """Compare every arm's answers about absent facts with those of the two controls, by a one-sided sign test.

    Raises:
        InputError: An arm answers them better than both controls with p < 0.001; names arm and figures.
    """
    absent: dict[str, dict[tuple[int, str, str], AnswerRow]] = {}
    for row in rows:
        if row.kind == ABSENT and row.read == "real":
            absent.setdefault(row.arm, {})[row.step, row.fact_id, row.question] = row
    controls = [absent[name] for name in (NO_MEMORY_ARM, FULL_STORE_ARM) if name in absent]
    for name, own in absent.items():
        if controls and all(_p_value(own, control) < _P_VALUE for control in controls):
            em, base = (mean_em([row.correct for row in part.values()]) for part in (own, controls[0]))
            raise InputError(
                f"the arm {name!r} answers {em:.0%} of {len(own)} questions about facts that never arrived, where "
                f"the base model answers {base:.0%}: it has seen answers that it is asked for, so none of its "
                "figures can be trusted"
            )


def _p_value(
    own: dict[tuple[int, str, str], AnswerRow], control: dict[tuple[int, str, str], AnswerRow]
) -> float:
    pairs: Sequence[tuple[bool, bool]] = [
        (row.correct, control[key].correct) for key, row in own.items() if key in control
    ]
    gained, lost = (sum(pair == wanted for pair in pairs) for wanted in ((True, False), (False, True)))
    return binomial_tail_p_value(lost, gained + lost, 0.5)
