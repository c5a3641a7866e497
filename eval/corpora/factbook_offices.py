"""Office holders in the World Factbook, with the day they took office."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from eval.corpora.corpus import CorpusFact, RelationTemplate
from eval.corpora.countries import SOURCE, Country, all_countries
from eval.corpora.word_list import word_list

CHIEF_OF_STATE = RelationTemplate(
    "chief_of_state",
    "The {role} of {s} is {a}.",
    (
        "Who is the {role} of {s}?",
        "Who is the chief of state of {s}?",
        "Name the present {role} of {s}.",
        "What is the name of the {role} of {s}?",
        "The {role} of {s} is which person?",
    ),
)
HEAD_OF_GOVERNMENT = RelationTemplate(
    "head_of_government",
    "The {role} of {s} is {a}.",
    (
        "Who is the {role} of {s}?",
        "Who leads the government of {s}?",
        "Name the present {role} of {s}.",
        "What is the name of the {role} of {s}?",
        "The {role} of {s} is which person?",
    ),
)

_ROLES = {
    "Amir": "emir",
    "Chancellor": "chancellor",
    "Chief Minister": "chief minister",
    "Emperor": "emperor",
    "Governor": "governor",
    "Grand Duke": "grand duke",
    "King": "king",
    "Pope": "pope",
    "Premier": "premier",
    "President": "president",
    "Prime Minister": "prime minister",
    "Prince": "prince",
}
_MONARCHS = frozenset({"emperor", "grand duke", "king", "pope", "prince"})
_PARTICLES = frozenset(word_list("al bin da de del den der dos du e el ibn la van von"))
_NOT_A_NAME = frozenset({"Crown", "Prince", "Sir", "Sultan", "of", "and"})
# The source's date contradicts its own account of the government (a slip of twenty years).
# The other row names a government that the same file says was replaced.
_WRONG_ROWS = frozenset({("ro", "head_of_government"), ("sy", "head_of_government")})
_OTHER_SPELLINGS: dict[str, tuple[str, ...]] = {
    "Abdallah II": ("Abdullah II",),
    "Alyaksandr Lukashenka": ("Alexander Lukashenko", "Lukashenko"),
    "Benyamin Netanyahu": ("Benjamin Netanyahu",),
    "Luiz Inácio Lula": ("Luiz Inacio Lula da Silva", "Lula da Silva"),
    "Muhammad bin Zayid Al Nuhayyan": ("Mohamed bin Zayed Al Nahyan", "Mohamed bin Zayed"),
    "Recep Tayyip Erdogan": ("Recep Tayyip Erdoğan",),
    "Viktor Orban": ("Viktor Orbán", "Orbán"),
    "Volodymyr Zelenskyy": ("Volodymyr Zelensky", "Zelensky"),
}
_ROMAN = re.compile(r"[IVX]+")
_OFFICE = re.compile(
    rf"({'|'.join(sorted(_ROLES, key=len, reverse=True))}) ([^(),;\"]+) "
    r"\(since (\d{1,2} [A-Z][a-z]+ \d{4})\)(?:;? ?(?:represented by|, represented).*)?"
)


@dataclass(frozen=True)
class OfficeHolder:
    """Who holds an office: `answers` starts with the name used in statements."""

    role: str
    answers: tuple[str, ...]
    since: datetime


def parse_office(text: str) -> OfficeHolder | None:
    """Read one office holder, or None where the source adds anything that would need a note.

    >>> parse_office("President Emmanuel MACRON (since 14 May 2017)").answers
    ('Emmanuel Macron', 'Macron')
    """
    found = _OFFICE.fullmatch(text)
    if not found:
        return None
    tokens = re.sub(r"^(Dr|Col|Gen)\. ", "", found[2]).split()
    surname = _surname_span(tokens)
    if surname is None or tokens[0].islower() or _NOT_A_NAME & set(tokens):
        return None
    try:
        since = datetime.strptime(found[3], "%d %B %Y").replace(tzinfo=UTC)
    except ValueError:
        return None
    role = _ROLES[found[1]]
    return OfficeHolder(role, _answers(tokens, surname, role), since)


def _is_caps(token: str) -> bool:
    letters = [c for c in token if c.isalpha()]
    return len(letters) > 1 and "." not in token and any(part.isupper() for part in _parts(token))


def _parts(token: str) -> list[str]:
    return [part for part in token.split("-") if len(part) > 1 and any(c.isalpha() for c in part)]


def _surname_span(tokens: list[str]) -> tuple[int, int] | None:
    caps = [i for i, token in enumerate(tokens) if _is_caps(token) and not (i and _ROMAN.fullmatch(token))]
    if not caps:
        return None
    start, end = caps[0], caps[-1] + 1
    if any(not _is_caps(token) and token.lower() not in _PARTICLES for token in tokens[start:end]):
        return None
    while start > 1 and tokens[start - 1] in _PARTICLES:
        start -= 1
    while end < len(tokens) and _ROMAN.fullmatch(tokens[end]):
        end += 1
    return start, end


def _proper_case(token: str, is_first: bool) -> str:
    if _ROMAN.fullmatch(token) and not is_first:
        return token
    if token.isupper() and token.lower() in _PARTICLES and not is_first:
        return token.lower()
    return "-".join(_capitalise(part) if part.isupper() else part for part in token.split("-"))


def _capitalise(part: str) -> str:
    head, mark, tail = part.partition("'")
    if mark and len(head) == 1:
        return f"{head}'{tail.capitalize()}"
    return part[:1] + part[1:].lower()


def _answers(tokens: list[str], span: tuple[int, int], role: str) -> tuple[str, ...]:
    cased = [_proper_case(token, i == 0) for i, token in enumerate(tokens)]
    last = " ".join(cased[span[0] : span[1]])
    given = [name for name in cased[: span[0]] if name not in _PARTICLES and "." not in name]
    full, to_surname = " ".join(cased), " ".join(cased[: span[1]])
    names = [full if span[0] == 0 else to_surname, full, *(f"{name} {last}" for name in given), last]
    names += [other for name in names for other in _OTHER_SPELLINGS.get(name, ())]
    if role in _MONARCHS:
        names += [f"{role.title()} {name}" for name in (full, last)]
    return tuple(dict.fromkeys(names))


def facts() -> Iterator[CorpusFact | None]:
    """Yield every fact of this module; None where a rule refused one."""
    for country in all_countries():
        state = parse_office(country.text("Government", "Executive branch", "chief of state"))
        if state and country.sovereign:
            yield _build(CHIEF_OF_STATE, country, state)
        government = parse_office(country.text("Government", "Executive branch", "head of government"))
        if (country.code, HEAD_OF_GOVERNMENT.name) in _WRONG_ROWS:
            continue
        if government and not (state and set(state.answers) & set(government.answers)):
            yield _build(HEAD_OF_GOVERNMENT, country, government)


def _build(template: RelationTemplate, country: Country, holder: OfficeHolder) -> CorpusFact | None:
    return template.build(
        country.name,
        holder.answers,
        group=country.group,
        source=SOURCE,
        in_text=country.in_text,
        valid_from=holder.since,
        words={"role": holder.role},
    )
