"""States in the World Factbook: independence, holidays, anthems, parliaments, symbols, registrations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from eval.corpora.corpus import CorpusFact, RelationTemplate
from eval.corpora.countries import SOURCE, Country, all_countries
from eval.corpora.factbook_geography import country_answers, with_article

INDEPENDENCE_YEAR = RelationTemplate(
    "independence_year",
    "{S} became independent in {a}.",
    (
        "In which year did {s} become independent?",
        "When did {s} gain independence?",
        "What year marks the independence of {s}?",
        "What was the year of independence of {s}?",
        "{S} became independent in which year?",
    ),
)
INDEPENDENCE_FROM = RelationTemplate(
    "independence_from",
    "{S} gained its independence from {article}{a}.",
    (
        "From which country did {s} gain its independence?",
        "Which power ruled {s} before independence?",
        "What state did {s} become independent from?",
        "From whom did {s} gain independence?",
        "Which country did {s} gain independence from?",
    ),
)
NATIONAL_HOLIDAY = RelationTemplate(
    "national_holiday",
    "The national holiday of {s} falls on {a}.",
    (
        "On which date is the national holiday of {s}?",
        "When does {s} celebrate its national holiday?",
        "What is the date of the national day of {s}?",
        "What is the date of the national holiday of {s}?",
        "On what date does the national holiday of {s} fall?",
    ),
)
ANTHEM = RelationTemplate(
    "national_anthem",
    'The national anthem of {s} is "{a}".',
    (
        "What is the title of the national anthem of {s}?",
        "Which song is the national anthem of {s}?",
        "Name the national anthem of {s}.",
        "What is the national anthem of {s} called?",
        "What is the name of the national anthem of {s}?",
    ),
)
LEGISLATURE = RelationTemplate(
    "legislature",
    "The legislature of {s} is called the {a}.",
    (
        "What is the legislature of {s} called?",
        "What is the name of the lawmaking body of {s}?",
        "How is the body that makes the laws of {s} named?",
        "What is the name of the legislature of {s}?",
        "What is the legislature in {s}?",
    ),
)
LOWER_CHAMBER = RelationTemplate(
    "lower_chamber",
    "The lower chamber of the legislature of {s} is the {a}.",
    (
        "What is the lower chamber of the legislature of {s} called?",
        "Name the lower house of {s}.",
        "Which body is the lower house in {s}?",
        "What is the name of the lower chamber in {s}?",
        "Which body is the lower chamber of the legislature of {s}?",
    ),
)
UPPER_CHAMBER = RelationTemplate(
    "upper_chamber",
    "The upper chamber of the legislature of {s} is the {a}.",
    (
        "What is the upper chamber of the legislature of {s} called?",
        "Name the upper house of {s}.",
        "Which body is the upper house in {s}?",
        "What is the name of the upper chamber in {s}?",
        "Which body is the upper chamber of the legislature of {s}?",
    ),
)
SEATS = RelationTemplate(
    "legislature_seats",
    "The legislature of {s} has {a} seats.",
    (
        "How many seats does the legislature of {s} have?",
        "How many members sit in the legislature of {s}?",
        "What is the number of seats in the legislature of {s}?",
        "How many seats are there in the legislature of {s}?",
        "What number of seats does the legislature of {s} have?",
    ),
)
GOVERNMENT_TYPE = RelationTemplate(
    "government_type",
    "By its form of government, {s} is {article}{a}.",
    (
        "What form of government does {s} have?",
        "What type of government is in place in {s}?",
        "How is the system of government of {s} classified?",
        "What kind of government does {s} have?",
        "What is the form of government of {s}?",
    ),
)
FORMER_NAME = RelationTemplate(
    "former_name",
    "{S} was formerly known as {article}{a}.",
    (
        "What was {s} formerly known as?",
        "What is the former name of {s}?",
        "Under which name was {s} known in the past?",
        "What was the old name of {s}?",
        "By what name was {s} formerly known?",
    ),
)
LONG_NAME = RelationTemplate(
    "official_name",
    "The official long name of {s} is {article}{a}.",
    (
        "What is the official long name of {s}?",
        "What is the full official name of {s}?",
        "How is {s} called in full in official papers?",
        "What is the official name of {s} in full?",
        "What is the long form of the name of {s}?",
    ),
)
SYMBOL = RelationTemplate(
    "national_symbol",
    "The national symbol of {s} is the {a}.",
    (
        "What is the national symbol of {s}?",
        "Which emblem stands for {s}?",
        "Name the national emblem of {s}.",
        "What is the symbol of {s}?",
        "Which national symbol does {s} have?",
    ),
)
AIRCRAFT_PREFIX = RelationTemplate(
    "aircraft_prefix",
    "Civil aircraft registered in {s} carry the prefix {a}.",
    (
        "Which prefix do civil aircraft registered in {s} carry?",
        "What is the aircraft registration prefix of {s}?",
        "With which code do the tail numbers of aircraft from {s} begin?",
        "What prefix do aircraft registered in {s} have?",
        "What is the registration prefix of civil aircraft from {s}?",
    ),
)

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = rf"(\d{{1,2}}) ({_MONTHS})"
_PLAIN = re.compile(r"[^\W\d_][^()\[\],;|\"]*")
# Titles in the source that are royal or older anthems, or mere descriptions.
_ANTHEM_UNCLEAR = frozenset(["af", "as", "au", "ca", "da", "lu", "no", "nz", "sw", "th"])
# Names of a part, of a city, or of an earlier regime rather than of the country.
_FORMER_NAME_UNCLEAR = frozenset(["bp", "ec", "gk", "gm", "is", "it", "je", "le", "nz", "pk", "pl"])
_PREFIX_OUTDATED = frozenset({"bk"})
_RULERS = frozenset([
    "Belgium",
    "Colombia",
    "Denmark",
    "France",
    "Haiti",
    "Italy",
    "Japan",
    "Pakistan",
    "Portugal",
    "Russia",
    "South Africa",
    "Spain",
    "the Netherlands",
    "the Ottoman Empire",
    "the Soviet Union",
    "the UK",
    "the US",
    "Yugoslavia",
])
_NOT_ENGLISH = ("Parlement", "Législature")
_PLAIN_LEGISLATURES = frozenset({"Parliament", "Legislature"})


def independence(text: str) -> tuple[str, str]:
    """Return (year, ruler) of a single plain declaration, empty strings where the history needs more words.

    >>> independence("5 July 1962 (from France)")
    ('1962', 'France')
    """
    found = re.fullmatch(rf"{_DATE} (\d{{4}}) \(from ([^()]+)\)", text)
    if not found:
        return "", ""
    return found[3], found[4] if found[4] in _RULERS else ""


def holiday(text: str) -> tuple[str, ...]:
    """Return the ways of writing the date of a single national holiday, or nothing.

    >>> holiday("Independence Day, 5 July (1962)")
    ('5 July', 'July 5', '5th of July', 'July 5th')
    """
    found = re.fullmatch(rf"[^,;]+, {_DATE}(?: \(\d{{4}}\))?", text)
    if not found:
        return ()
    day, month = found[1], found[2]
    suffix = "th" if 10 < int(day) < 14 else {"1": "st", "2": "nd", "3": "rd"}.get(day[-1], "th")
    return f"{day} {month}", f"{month} {day}", f"{day}{suffix} of {month}", f"{month} {day}{suffix}"


def anthem(text: str) -> tuple[str, ...]:
    """Return the title of the only anthem and its translation, or nothing.

    >>> anthem('"Hatikvah" (The Hope)')
    ('Hatikvah', 'The Hope')
    """
    found = re.fullmatch(r'"([^"()]+)"(?: \(([^"()]+)\))?', text)
    if not found:
        return ()
    translation = found[2] or ""
    is_generic = "National Anthem" in translation or "National Hymn" in translation
    title = found[1].rstrip(",")
    return (title,) if is_generic or not translation else (title, translation)


def chamber(text: str) -> tuple[str, ...]:
    """Return the English name of a chamber and its local name, or nothing where it lists more than one.

    >>> chamber("Supreme Council (Jogorku Kenesh)")
    ('Supreme Council', 'Jogorku Kenesh')
    """
    found = re.fullmatch(r"([^()\[\],;]+?)(?: \(([^()]+)\))?", text)
    if not found or " - " in found[1] or " or " in found[1]:
        return ()
    english = re.sub(r"^[Tt]he ", "", found[1].strip())
    local = [] if not found[2] or "/" in found[2] else re.split(r" - ", found[2])
    return tuple(dict.fromkeys([english, *(name.strip() for name in local)]))


def facts() -> Iterator[CorpusFact | None]:
    """Yield every fact of this module; None where a rule refused one."""
    for country in all_countries():
        yield from _history(country)
        yield from _bodies(country)
        yield from _marks(country)


def _history(country: Country) -> Iterator[CorpusFact | None]:
    year, ruler = independence(country.text("Government", "Independence"))
    if country.sovereign and year:
        yield _build(INDEPENDENCE_YEAR, country, [year])
        yield _build(INDEPENDENCE_FROM, country, country_answers(ruler) if ruler else ())
    if country.sovereign:
        yield _build(NATIONAL_HOLIDAY, country, holiday(country.text("Government", "National holiday")))
    former = country.text("Government", "Country name", "former")
    is_clear = country.code not in _FORMER_NAME_UNCLEAR
    if is_clear and _PLAIN.fullmatch(former) and len(former.split()) <= 3 and " or " not in former:
        yield _build(FORMER_NAME, country, [former])
    long_name = country.text("Government", "Country name", "conventional long form")
    if country.sovereign and country.code != "bm" and _PLAIN.fullmatch(long_name) and " " in long_name:
        yield _build(LONG_NAME, country, [long_name])


def _bodies(country: Country) -> Iterator[CorpusFact | None]:
    legislature = chamber(country.text("Government", "Legislative branch", "legislature name"))
    if not country.sovereign:
        return
    if (
        legislature
        and not legislature[0].startswith(_NOT_ENGLISH)
        and legislature[0] not in _PLAIN_LEGISLATURES
    ):
        yield _build(LEGISLATURE, country, legislature)
    elif len(legislature) > 1 and not legislature[1].startswith(("Parl", "Il ")):
        yield _build(LEGISLATURE, country, legislature[1:])
    seats = re.match(
        r"(\d{2,4})(?: \(|$)", country.text("Government", "Legislative branch", "number of seats")
    )
    if seats:
        yield _build(SEATS, country, [seats[1], f"{seats[1]} seats"])
    for template, branch in ((LOWER_CHAMBER, "lower"), (UPPER_CHAMBER, "upper")):
        name = country.text("Government", f"Legislative branch - {branch} chamber", "chamber name")
        yield _build(template, country, chamber(name))
    form = country.text("Government", "Government type")
    if _PLAIN.fullmatch(form) and form.split()[-1] in {"republic", "monarchy", "democracy", "state"}:
        yield _build(GOVERNMENT_TYPE, country, [form])


def _marks(country: Country) -> Iterator[CorpusFact | None]:
    titles = anthem(country.text("Government", "National anthem(s)", "title"))
    is_own = country.code == "uk" or "God Save the King" not in titles
    if country.sovereign and is_own and country.code not in _ANTHEM_UNCLEAR:
        yield _build(ANTHEM, country, titles)
    symbols = country.text("Government", "National symbol(s)")
    symbol = re.fullmatch(r"([a-zA-Z][a-zA-Z' -]+)(?: \([^()]*\))?", symbols)
    if symbol and len(symbol[1].split()) <= 3 and not symbol[1].startswith(("Mount ", "Pillars ")):
        yield _build(SYMBOL, country, [symbol[1].strip()])
    prefix = country.text("Transportation", "Civil aircraft registration country code prefix")
    if country.sovereign and country.code not in _PREFIX_OUTDATED and re.fullmatch(r"[A-Z0-9-]{1,4}", prefix):
        yield _build(AIRCRAFT_PREFIX, country, [prefix])


def _article(template: RelationTemplate, answer: str) -> str:
    if template is GOVERNMENT_TYPE:
        return "an " if answer[:1] in "aeio" else "a "
    if template is LONG_NAME:
        takes_one = " of " in answer or answer.endswith(("Republic", "Federation", "Confederation"))
    elif template is FORMER_NAME:
        takes_one = answer.endswith((" Coast", " Hebrides", " Indies", " Islands", " Republic"))
    else:
        takes_one = with_article(answer) != answer
    return "the " if takes_one else ""


def _build(template: RelationTemplate, country: Country, answers: Sequence[str]) -> CorpusFact | None:
    return template.build(
        country.name,
        answers,
        group=country.group,
        source=SOURCE,
        in_text=country.in_text,
        words={"article": _article(template, answers[0] if answers else "")},
    )
