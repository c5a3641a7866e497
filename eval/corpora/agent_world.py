"""An agent's own world: seeded facts about people and projects that no language model can know.

Every fact has a subject of its own, so that nothing retires anything else by accident. The same seed gives
the same facts everywhere, and a longer list begins with the shorter one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eval.corpora import agent_names as names
from eval.corpora.agent_english import ENGLISH_RELATIONS
from eval.corpora.agent_spanish import SPANISH_RELATIONS
from eval.corpora.corpus import CorpusFact, Kind, RelationTemplate
from eval.corpora.stable_draw import StableDraw
from sharpwave.errors import InputError

if TYPE_CHECKING:
    from eval.corpora.agent_relations import AgentRelation

SOURCE = "sharpwave-agent-world"
SPANISH_SHARE = 0.3
_ATTEMPTS = 20


def agent_world(count: int, seed: int = 0, *, spanish_share: float = SPANISH_SHARE) -> list[CorpusFact]:
    """Invent `count` facts, each about another person or project.

    Args:
        count: How many facts; at most about 5,000, since the lists of names are finite and half of the names
            is kept for updates.
        seed: Another seed gives other people, values and wordings.
        spanish_share: Share of the facts that are in Spanish, in [0, 1].

    Raises:
        InputError: More facts are wanted than there are names.
    """
    invented = AgentInventor(seed, spanish_share=spanish_share, part=0)
    return [invented.fact(index) for index in range(count)]


class AgentInventor:
    """Invents facts one by one; `part` 0 serves `agent_world`, part 1 the updates, with other people."""

    def __init__(self, seed: int, *, spanish_share: float, part: int) -> None:
        self.seed = seed
        self.spanish_share = spanish_share
        self.part = part
        self._draw = StableDraw(seed, f"agent-world/{part}")
        self._used: Counter[str] = Counter()

    def fact(self, index: int) -> CorpusFact:
        """Invent the fact number `index`; call with 0, 1, 2 and so on."""
        relation = self._relation(index, changeable=False)
        subject = self._subject(relation)
        return self._worded(relation, subject, index, relation.statements, "agent", frozenset())

    def change(self, index: int) -> tuple[CorpusFact, CorpusFact]:
        """Invent a fact and the news that later replaces it, on one slot with two values."""
        relation = self._relation(index, changeable=True)
        subject = self._subject(relation)
        old = self._worded(relation, subject, index, relation.statements, "update_old", frozenset())
        taken = frozenset(old.fact.answers)
        return old, self._worded(relation, subject, index, relation.news, "update_new", taken)

    def _relation(self, index: int, *, changeable: bool) -> AgentRelation:
        language = "es" if self._draw.share("language", index) < self.spanish_share else "en"
        spoken = SPANISH_RELATIONS if language == "es" else ENGLISH_RELATIONS
        relations = [relation for relation in spoken if relation.news or not changeable]
        return self._draw.choice(relations, "relation", index)

    def _subject(self, relation: AgentRelation) -> str:
        kind = "project" if relation.about == "project" else relation.language
        firsts, seconds = _name_lists(kind)
        size = len(firsts) * len(seconds)
        number = self._used[kind]
        self._used[kind] += 1
        if number >= size // 2:
            raise InputError(f"only {size // 2} different names of this kind ({kind}) can be invented")
        place = StableDraw(self.seed, "agent-names").permuted(number + self.part * (size // 2), size, kind)
        name = f"{firsts[place % len(firsts)]} {seconds[place // len(firsts)]}"
        return f"Project {name}" if kind == "project" else name

    def _worded(
        self,
        relation: AgentRelation,
        subject: str,
        index: int,
        statements: tuple[str, ...],
        kind: Kind,
        taken: frozenset[str],
    ) -> CorpusFact:
        for attempt in range(_ATTEMPTS):
            key = f"{index}/{kind}/{attempt}"
            answers, words = relation.value(self._draw, key)
            if taken & set(answers):
                continue
            statement = self._draw.choice(statements, "statement", index, kind)
            template = RelationTemplate(relation.name, statement, relation.questions, relation.language, kind)
            group = f"agent:{subject}"
            item = template.build(subject, answers, group=group, source=SOURCE, words=words)
            if item is not None:
                return item
        raise InputError(f"no value of {relation.name} fits {subject}; the lists of names and values overlap")


def _name_lists(kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if kind == "project":
        return names.PROJECT_FIRST, names.PROJECT_SECOND
    return names.FIRST_NAMES[kind], names.SURNAMES[kind]
