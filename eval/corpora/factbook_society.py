"""People and trade in the World Factbook: demonyms, faiths, ethnic groups, trading partners and goods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from eval.corpora.corpus import CorpusFact, RelationTemplate
from eval.corpora.countries import SOURCE, Country, all_countries
from eval.corpora.factbook_geography import country_answers, with_article

DEMONYM = RelationTemplate(
    "demonym",
    "A person from {s} is called {article}{a}.",
    (
        "What is a person from {s} called?",
        "What do you call someone who comes from {s}?",
        "Which noun names a citizen of {s}?",
        "What is the nationality of a person from {s}?",
        "What is the name for a person from {s}?",
    ),
)
NATIONALITY_ADJECTIVE = RelationTemplate(
    "nationality_adjective",
    "The adjective for people and things from {s} is {a}.",
    (
        "What is the adjective for people and things from {s}?",
        "Which adjective describes something that comes from {s}?",
        "Which adjective of nationality belongs to {s}?",
        "What is the adjective for {s}?",
        "Which adjective belongs to {s}?",
    ),
)
RELIGION = RelationTemplate(
    "largest_religion",
    "The largest religious group in {s} is {a}.",
    (
        "What is the largest religious group in {s}?",
        "Which religion has the most followers in {s}?",
        "To which faith do most believers in {s} belong?",
        "What is the largest religion in {s}?",
        "Which religious group is the largest in {s}?",
    ),
)
ETHNIC_GROUP = RelationTemplate(
    "largest_ethnic_group",
    "The largest ethnic group in {s} is {a}.",
    (
        "What is the largest ethnic group in {s}?",
        "Which ethnic group is the most numerous in {s}?",
        "Name the biggest ethnic group of {s}.",
        "Which is the largest ethnic group in {s}?",
        "What is the biggest ethnic group in {s}?",
    ),
)
EXPORT_PARTNER = RelationTemplate(
    "top_export_partner",
    "In {year}, the most important export partner of {s} was {article}{a}.",
    (
        "Which country was the most important export partner of {s} in {year}?",
        "Where did most exports of {s} go in {year}?",
        "Who bought the largest share of the exports of {s} in {year}?",
        "What was the top export partner of {s} in {year}?",
        "Which country was the main export partner of {s} in {year}?",
    ),
)
IMPORT_PARTNER = RelationTemplate(
    "top_import_partner",
    "In {year}, the most important import partner of {s} was {article}{a}.",
    (
        "Which country was the most important import partner of {s} in {year}?",
        "Where did most imports of {s} come from in {year}?",
        "Who supplied the largest share of the imports of {s} in {year}?",
        "What was the top import partner of {s} in {year}?",
        "Which country was the main import partner of {s} in {year}?",
    ),
)
EXPORT_GOOD = RelationTemplate(
    "top_export_commodity",
    "In {year}, the export commodity of {s} with the highest value was {a}.",
    (
        "What was the top export commodity of {s} by value in {year}?",
        "Which good earned {s} the most in exports in {year}?",
        "In {year}, what did {s} chiefly export?",
        "What was the main export commodity of {s} in {year}?",
        "What was the most valuable export of {s} in {year}?",
    ),
)

_OTHER_FAITH_NAMES: dict[str, tuple[str, ...]] = {
    "Buddhist": ("Buddhism", "Buddhists"),
    "Catholic": ("Catholicism", "Catholics", "Roman Catholic", "Catholic Church"),
    "Christian": ("Christianity", "Christians"),
    "Eastern Orthodox Christian": (
        "Orthodox",
        "Eastern Orthodox",
        "Orthodox Christian",
        "Orthodox Christianity",
    ),
    "Hindu": ("Hinduism", "Hindus"),
    "Jewish": ("Judaism", "Jews"),
    "Lutheran": ("Lutheranism", "Lutherans"),
    "Muslim": ("Islam", "Muslims"),
    "Orthodox": ("Eastern Orthodox", "Orthodox Christian", "Orthodoxy", "Orthodox Christianity"),
    "Protestant": ("Protestantism", "Protestants"),
    "Roman Catholic": ("Catholic", "Catholicism", "Roman Catholicism", "Catholics", "Roman Catholics"),
}
# Two islands under one word, and a city whose citizens the source calls after the state.
_DEMONYM_SHARED = frozenset({"gk", "je", "mc"})
_OTHER_DEMONYMS: dict[str, tuple[str, ...]] = {
    "ar": ("Argentinian", "Argentinean"),
    "cv": ("Cape Verdean",),
    "iv": ("Ivorian",),
    "kn": ("North Korean",),
    "ks": ("South Korean",),
    "mk": ("North Macedonian",),
}
# Words for census classes rather than for a people.
_NOT_A_PEOPLE = frozenset({
    "African",
    "Asian",
    "Black",
    "Black African",
    "Creole",
    "European",
    "Indo-Aryan",
    "South Asian",
    "White",
})
_SHARE = re.compile(r"([\d.]+)(?:-([\d.]+))?%")


def demonym(text: str) -> tuple[str, ...]:
    """Return the noun for one citizen, or nothing where the source gives several or an irregular form.

    >>> demonym("Algerian(s)"), demonym("Frenchman(men), Frenchwoman(women)")
    (('Algerian',), ())
    """
    found = re.fullmatch(r"([A-Z][A-Za-z '-]+?)(?:\(s\)| \(singular and plural\))?", text)
    if not found or " or " in found[1]:
        return ()
    return (found[1],)


def largest_share(text: str) -> tuple[str, float]:
    """Return the entry of a list with the highest percentage, or "" where it cannot be told for sure.

    >>> largest_share("Kikuyu 17.1%, Luhya 14.3%, other 68.6% (2019 est.)")
    ('', 0.0)
    """
    without_asides = re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", re.sub(r"\([^()]*\([^()]*\)[^()]*\)", "", text))
    entries = []
    for part in without_asides.split(";")[0].split(","):
        found = re.fullmatch(r"\s*([^\d%]+?)\s+([\d.]+)%\s*", part)
        if found:
            entries.append((float(found[2]), found[1].strip()))
    if len(entries) < 2:
        return "", 0.0
    entries.sort(reverse=True)
    (share, name), (second, _) = entries[0], entries[1]
    is_name = re.fullmatch(r"[A-Z][^\W\d_]*(?:[ '-][^\W\d_]+)*", name)
    if not is_name or share == second or re.search(r"\b(and|or|other|descent|mixed|none|least)\b", name):
        return "", 0.0
    return name, share


def first_of_list(text: str) -> tuple[str, str]:
    """Return (first entry, year) of a list ordered by value, empty strings where there is no year.

    >>> first_of_list("Italy 29%, Spain 10%, France 7% (2023)")
    ('Italy', '2023')
    """
    found = re.fullmatch(r"(?:([^,()%]+?)(?: (\d+)%)?), ?.*\((\d{4})\)", text)
    if not found or _tied(text):
        return "", ""
    return found[1].strip(), found[3]


def _tied(text: str) -> bool:
    shares = [float(low) for low, _ in _SHARE.findall(text)]
    return len(shares) > 1 and shares[0] <= shares[1]


def facts() -> Iterator[CorpusFact | None]:
    """Yield every fact of this module; None where a rule refused one."""
    for country in all_countries():
        yield from _names(country)
        yield from _groups(country)
        yield from _trade(country)


def _names(country: Country) -> Iterator[CorpusFact | None]:
    noun = demonym(country.text("People and Society", "Nationality", "noun"))
    adjective = country.text("People and Society", "Nationality", "adjective")
    is_word = bool(re.fullmatch(r"[A-Z][a-z][A-Za-z -]+", adjective)) and " or " not in adjective
    if noun and country.code not in _DEMONYM_SHARED:
        article = "an " if noun[0][:1] in "AEIO" else "a "
        others = [*_OTHER_DEMONYMS.get(country.code, ()), *([adjective] if is_word else [])]
        yield _build(DEMONYM, country, [*noun, *others], words={"article": article})
    if is_word and country.sovereign and (adjective,) != noun:
        yield _build(NATIONALITY_ADJECTIVE, country, [adjective])


def _groups(country: Country) -> Iterator[CorpusFact | None]:
    faith, share = largest_share(country.text("People and Society", "Religions"))
    if share >= 50 and faith != "Evangelical":
        yield _build(RELIGION, country, [faith, *_OTHER_FAITH_NAMES.get(faith, ())])
    people, share = largest_share(country.text("People and Society", "Ethnic groups"))
    people = "Albanian" if people == "Albanians" else people
    if share >= 25 and country.sovereign and people not in _NOT_A_PEOPLE:
        plural = [] if people.endswith(("s", "h", "ese", "i-Kiribati")) else [f"{people}s"]
        yield _build(ETHNIC_GROUP, country, [people, *plural])


def _trade(country: Country) -> Iterator[CorpusFact | None]:
    if not country.sovereign:
        return
    for template, field in ((EXPORT_PARTNER, "Exports - partners"), (IMPORT_PARTNER, "Imports - partners")):
        partner, year = first_of_list(country.text("Economy", field))
        if partner:
            answers = country_answers(partner)
            article = "the " if with_article(answers[0]) != answers[0] else ""
            yield _build(template, country, answers, words={"article": article, "year": year})
    good, year = first_of_list(country.text("Economy", "Exports - commodities"))
    if good and "/" not in good:
        yield _build(EXPORT_GOOD, country, [good], words={"year": year})


def _build(
    template: RelationTemplate,
    country: Country,
    answers: Sequence[str],
    words: Mapping[str, str] | None = None,
) -> CorpusFact | None:
    return template.build(
        country.name, answers, group=country.group, source=SOURCE, in_text=country.in_text, words=words
    )
