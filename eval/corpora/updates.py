"""Changes of facts: an older value, then a newer one on the same slot, labelled by where they come from.

Real changes are those that the CLDR dates (currencies and their codes). Counterfactual ones put another
subject's value on a world slot, worded as news; they are false and say so by their kind. The agent's own
people move, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Literal

from eval.corpora.agent_names import MONTHS
from eval.corpora.agent_world import SPANISH_SHARE, AgentInventor
from eval.corpora.cldr_countries import CURRENCY, CURRENCY_CODE, SOURCE, Tender, former_tender, present_tender
from eval.corpora.corpus import OBSERVED_AT, CorpusFact, RelationTemplate, defects
from eval.corpora.countries import Country, all_countries
from eval.corpora.stable_draw import StableDraw
from eval.corpora.word_list import word_list
from eval.corpora.world import load_world_corpus
from sharpwave.errors import InputError

Origin = Literal["real", "counterfactual", "agent"]

NEWS_OBSERVED_AT = OBSERVED_AT + timedelta(days=1)
_OPENINGS = (
    "As of this month, ",
    "Following today's announcement, ",
    "According to this morning's news, ",
    "After the change of last week, ",
)
# Relations whose value could change one day and whose statement reads well after an opening.
_CHANGEABLE = frozenset(
    word_list(
        "airport_code calling_code capital chief_of_state currency currency_code head_of_government "
        "internet_domain largest_urban_area legislature_seats national_holiday national_symbol "
        "official_language state_capital"
    )
)
_SHARES: tuple[tuple[Origin, float], ...] = (("real", 0.25), ("counterfactual", 0.5), ("agent", 0.25))


@dataclass(frozen=True, slots=True)
class UpdatePair:
    """Two values of one slot; `old` is to arrive first."""

    old: CorpusFact
    new: CorpusFact
    origin: Origin


def updates(count: int, seed: int = 0) -> list[UpdatePair]:
    """Return `count` changes: a quarter real, half counterfactual, a quarter agent, in mixed order.

    Raises:
        InputError: More changes are wanted than the sources give.
    """
    real = StableDraw(seed, "updates").shuffled(real_updates(), "real")
    wanted = {origin: int(count * share) for origin, share in _SHARES}
    wanted["real"] = min(wanted["real"], len(real))
    wanted["counterfactual"] = count - wanted["real"] - wanted["agent"]
    pairs = [
        *real[: wanted["real"]],
        *counterfactual_updates(wanted["counterfactual"], seed),
        *agent_updates(wanted["agent"], seed),
    ]
    return StableDraw(seed, "updates").shuffled(pairs, "order")


@cache
def _real_updates() -> tuple[UpdatePair, ...]:
    pairs = []
    for country in all_countries():
        present, former = present_tender(country.iso2), former_tender(country.iso2)
        if present is None or former is None:
            continue
        if former.names and former.names[0] != (present.names or ("",))[0]:
            pairs.append(_tender_pair(CURRENCY, country, former, present, former.names, present.names))
        pairs.append(_tender_pair(CURRENCY_CODE, country, former, present, (former.code,), (present.code,)))
    return tuple(pair for pair in pairs if pair is not None)


def real_updates() -> list[UpdatePair]:
    """Return the currency changes of the CLDR: name and code, with the days on which they came and went."""
    return list(_real_updates())


def _tender_pair(
    template: RelationTemplate,
    country: Country,
    former: Tender,
    present: Tender,
    old_answers: Sequence[str],
    new_answers: Sequence[str],
) -> UpdatePair | None:
    built = []
    for kind, tender, answers in (("update_old", former, old_answers), ("update_new", present, new_answers)):
        month = MONTHS["en"][tender.valid_from.month - 1]
        since = f"{tender.valid_from.day} {month} {tender.valid_from.year}"
        statement = f"As of {since}, {template.statement[0].lower()}{template.statement[1:]}"
        dated = replace(
            template, statement=statement, kind="update_old" if kind == "update_old" else "update_new"
        )
        built.append(
            dated.build(
                country.name,
                answers,
                group=country.group,
                source=SOURCE,
                in_text=country.in_text,
                valid_from=tender.valid_from,
                valid_to=tender.valid_to,
            )
        )
    old, new = built
    return UpdatePair(old, _observed_later(new), "real") if old and new else None


def counterfactual_updates(
    count: int | None, seed: int = 0, items: Iterable[CorpusFact] | None = None
) -> list[UpdatePair]:
    """Put another value of the same relation on `count` slots of the world corpus, worded as news.

    Args:
        count: How many changes; None makes all that can be made.
        seed: Another seed changes other slots to other values.
        items: Facts to choose from; the whole world corpus if not given.

    Raises:
        InputError: There are not enough changeable facts.
    """
    world = load_world_corpus()
    pool = sorted(world if items is None else items, key=lambda item: item.id)
    values: dict[tuple[str, str], list[CorpusFact]] = defaultdict(list)
    for item in world:
        values[_value_kind(item)].append(item)
    draw = StableDraw(seed, "counterfactual")
    pairs: list[UpdatePair] = []
    for item in draw.shuffled([item for item in pool if item.relation in _CHANGEABLE], "order"):
        if len(pairs) == count:
            break
        new = _with_other_value(item, values[_value_kind(item)], draw)
        if new is not None:
            pairs.append(UpdatePair(item, new, "counterfactual"))
    if count is not None and len(pairs) < count:
        raise InputError(
            f"only {len(pairs)} of {count} counterfactual changes can be made from {len(pool)} facts"
        )
    return pairs


def _value_kind(item: CorpusFact) -> tuple[str, str]:
    # A king is replaced by a king and a premier by a premier: the words before "of" name the office.
    return item.relation, item.fact.text.split(" of ")[0]


def _with_other_value(item: CorpusFact, others: list[CorpusFact], draw: StableDraw) -> CorpusFact | None:
    answer = item.fact.answers[0]
    other = draw.choice(others, "value", item.id)
    is_same = set(map(str.casefold, other.fact.answers)) & set(map(str.casefold, item.fact.answers))
    if is_same or item.fact.text.count(answer) != 1 or not item.fact.text.startswith("The "):
        return None
    opening = draw.choice(_OPENINGS, "opening", item.id)
    text = f"{opening}the {item.fact.text[4:].replace(answer, other.fact.answers[0])}"
    if defects(text, item.questions, other.fact.answers):
        return None
    fact = item.fact.model_copy(
        update={
            "text": text,
            "answers": other.fact.answers,
            "valid_from": None,
            "valid_to": None,
            "observed_at": NEWS_OBSERVED_AT,
            "source": "sharpwave-counterfactual",
        }
    )
    return replace(item, fact=fact, kind="counterfactual")


def agent_updates(count: int, seed: int = 0, *, spanish_share: float = SPANISH_SHARE) -> list[UpdatePair]:
    """Invent `count` changes in the agent's own world, about other people than `agent_world` invents."""
    inventor = AgentInventor(seed, spanish_share=spanish_share, part=1)
    changes = (inventor.change(index) for index in range(count))
    return [UpdatePair(old, _observed_later(new), "agent") for old, new in changes]


def _observed_later(item: CorpusFact) -> CorpusFact:
    return replace(item, fact=item.fact.model_copy(update={"observed_at": NEWS_OBSERVED_AT}))
