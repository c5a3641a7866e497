"""Countries in the CLDR data of `babel`: currencies with dates, official languages, foreign names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from babel import Locale
from babel.core import get_global
from babel.languages import get_official_languages
from babel.numbers import get_currency_name

from eval.corpora.corpus import CorpusFact, RelationTemplate
from eval.corpora.countries import Country, all_countries
from eval.corpora.word_list import word_list

SOURCE = "babel"

CURRENCY = RelationTemplate(
    "currency",
    "The currency of {s} is the {a}.",
    (
        "What is the currency of {s}?",
        "Which currency is used in {s}?",
        "In which money does one pay in {s}?",
        "What is the name of the currency of {s}?",
        "Which currency does {s} use?",
    ),
)
CURRENCY_CODE = RelationTemplate(
    "currency_code",
    "The ISO 4217 code of the currency of {s} is {a}.",
    (
        "What is the ISO 4217 code of the currency of {s}?",
        "Which three-letter code stands for the money of {s}?",
        "By which currency code is the money of {s} quoted?",
        "What is the currency code of {s}?",
        "What is the ISO code of the currency of {s}?",
    ),
)
FORMER_CURRENCY = RelationTemplate(
    "former_currency",
    "Before its present currency, {s} used the {a}.",
    (
        "Which currency did {s} use before its present one?",
        "What was the former currency of {s}?",
        "Name the money that {s} used before its current currency.",
        "What was the previous currency of {s}?",
        "Which currency did {s} use in the past?",
    ),
)
OFFICIAL_LANGUAGE = RelationTemplate(
    "official_language",
    "The official language of {s} is {a}.",
    (
        "What is the official language of {s}?",
        "Which language is official in {s}?",
        "In which language does the government of {s} write its laws?",
        "Which is the official language of {s}?",
        "What language is the official one in {s}?",
    ),
)
ISO_ALPHA3 = RelationTemplate(
    "iso_alpha3",
    "The three-letter ISO 3166 country code of {s} is {a}.",
    (
        "What is the three-letter ISO 3166 country code of {s}?",
        "Which alpha-3 code stands for {s}?",
        "By which three letters does ISO 3166 denote {s}?",
        "What is the three-letter country code of {s}?",
        "What is the ISO 3166 code of {s}?",
    ),
)


def _name_template(language: str) -> RelationTemplate:
    return RelationTemplate(
        f"name_in_{language.lower()}",
        f"In {language}, {{s}} is called {{a}}.",
        (
            f"What is {{s}} called in {language}?",
            f"What is the {language} name of {{s}}?",
            f"How do you say the name of {{s}} in {language}?",
            f"What do people who speak {language} call {{s}}?",
            f"How is {{s}} called in {language}?",
        ),
    )


NAMES_IN = {
    code: _name_template(name) for code, name in (("es", "Spanish"), ("fr", "French"), ("de", "German"))
}

_CURRENCY_ALIASES: dict[str, tuple[str, ...]] = {
    "GBP": ("pound sterling", "pound", "sterling", "pounds sterling"),
    "CNY": ("yuan", "renminbi"),
    "USD": ("United States dollar", "dollar", "American dollar", "U.S. dollar"),
    "ILS": ("new shekel", "shekel", "Israeli shekel", "new Israeli shekel"),
    "DEM": ("Deutsche Mark", "Deutschmark", "mark"),
    "XOF": ("CFA franc",),
    "XAF": ("CFA franc",),
    "GYD": ("Guyanese dollar", "dollar"),
    "BMD": ("Bermudian dollar", "dollar"),
    "BWP": ("pula",),
    "RUB": ("ruble", "rouble", "Russian rouble"),
    "PLN": ("zloty", "Polish złoty", "złoty"),
    "BAM": ("convertible mark", "Bosnian convertible mark"),
    "MNT": ("tögrög", "tugrik"),
}


_LANGUAGE_ALIASES: dict[str, tuple[str, ...]] = {
    "Bangla": ("Bengali",),
    "Chinese": ("Mandarin", "Mandarin Chinese", "Standard Chinese"),
    "Persian": ("Farsi",),
    "Spanish": ("Castilian",),
}
# A union's currency that is listed as if it were the country's own, and an odd name.
_FORMER_CURRENCY_UNCLEAR = frozenset({"bx", "ez", "gg", "no", "sn"})
_LONGEST_CHANGEOVER = timedelta(days=5 * 365)
_ALPHA3_WITHDRAWN = frozenset(
    word_list("ASC BUR BYS CPT CSK DDR DGA FXX NTZ QUU ROM SCG SUN TAA TMP XKK YMD YUG ZAR")
)


@dataclass(frozen=True)
class Tender:
    """A currency as legal tender of one country: its names for answers, its code, and the days it held."""

    code: str
    names: tuple[str, ...]
    valid_from: datetime
    valid_to: datetime | None


def tenders(iso2: str) -> list[Tender]:
    """Return the currencies that are or were legal tender in a country, the oldest first."""
    found = []
    for code, start, end, is_tender in get_global("territory_currencies").get(iso2, []):
        if is_tender and start:
            until = _day(end) if end else None
            found.append(Tender(code, currency_names(code), _day(start), until))
    return sorted(found, key=lambda tender: (tender.valid_from, tender.code))


def _day(date: tuple[int, int, int]) -> datetime:
    year, month, day = date
    return datetime(year, month, day, tzinfo=UTC)


def currency_names(code: str) -> tuple[str, ...]:
    """Return the English names of a currency, the fullest first; none where the name has an aside.

    >>> currency_names("DZD")
    ('Algerian dinar', 'dinar')
    """
    full = get_currency_name(code, locale="en").replace("\u02bb", "'").replace("&", "and")
    if full == code or re.search(r"[()\d]", full):
        return ()
    *origin, unit = full.split()
    unit, origin = unit.lower(), [word.lower() if word in {"New", "Convertible"} else word for word in origin]
    name = " ".join([*origin, unit]) if origin else unit
    short = (unit,) if origin and origin[-1] != "CFA" else ()
    return tuple(dict.fromkeys([name, *_CURRENCY_ALIASES.get(code, ()), *short]))


def present_tender(iso2: str) -> Tender | None:
    """Return the only currency still in force, or None where there are several or none."""
    current = [tender for tender in tenders(iso2) if tender.valid_to is None]
    return current[0] if len(current) == 1 else None


def former_tender(iso2: str) -> Tender | None:
    """Return the only currency that the present one replaced, or None where the change is not that simple."""
    present = present_tender(iso2)
    if present is None:
        return None
    replaced = [
        tender
        for tender in tenders(iso2)
        if tender.valid_to is not None
        and tender.valid_from < present.valid_from <= tender.valid_to
        and tender.valid_to - present.valid_from < _LONGEST_CHANGEOVER
        and tender.code != present.code
    ]
    return replaced[0] if len(replaced) == 1 else None


def official_language(country: Country) -> str:
    """Return the one official language that CLDR and the Factbook agree on, or ""."""
    codes = get_official_languages(country.iso2, de_facto=True)
    text = country.text("People and Society", "Languages", "Languages") or country.text(
        "People and Society", "Languages"
    )
    if len(codes) != 1 or text.split(";")[0].count("official") > 1 or country.code == "vt":
        return ""
    name = str(Locale("en").languages.get(codes[0], ""))
    return name if name and re.match(rf"(Standard )?{re.escape(name)}\b", text) else ""


def facts() -> Iterator[CorpusFact | None]:
    """Yield every fact of this module; None where a rule refused one."""
    alpha3 = alpha3_codes()
    for country in all_countries():
        yield from _money(country)
        language = official_language(country)
        if language:
            yield _build(OFFICIAL_LANGUAGE, country, [language, *_LANGUAGE_ALIASES.get(language, ())])
        if country.iso2 in alpha3:
            yield _build(ISO_ALPHA3, country, [alpha3[country.iso2]])
        if country.sovereign:
            yield from _foreign_names(country)


def alpha3_codes() -> dict[str, str]:
    """Map ISO alpha-2 to alpha-3 codes; withdrawn and private ones are left out."""
    aliases = get_global("territory_aliases").items()
    plain = [
        (code, names[0]) for code, names in aliases if re.fullmatch("[A-Z]{3}", code) and len(names) == 1
    ]
    return {alpha2: code for code, alpha2 in plain if code not in _ALPHA3_WITHDRAWN}


def _money(country: Country) -> Iterator[CorpusFact | None]:
    present, former = present_tender(country.iso2), former_tender(country.iso2)
    if present is None:
        return
    yield currency_fact(country, present)
    yield CURRENCY_CODE.build(
        country.name,
        [present.code],
        group=country.group,
        source=SOURCE,
        in_text=country.in_text,
        valid_from=present.valid_from,
    )
    if country.code in _FORMER_CURRENCY_UNCLEAR:
        return
    if former and former.names and not set(former.names[:1]) & set(present.names[:1]):
        yield _build(FORMER_CURRENCY, country, former.names)


def currency_fact(country: Country, tender: Tender) -> CorpusFact | None:
    """Word the fact that a country's currency is `tender`, with the dates of the source."""
    return CURRENCY.build(
        country.name,
        tender.names,
        group=country.group,
        source=SOURCE,
        in_text=country.in_text,
        valid_from=tender.valid_from,
        valid_to=tender.valid_to,
    )


def _foreign_names(country: Country) -> Iterator[CorpusFact | None]:
    english = str(Locale("en").territories.get(country.iso2, ""))
    for code, template in NAMES_IN.items():
        name = str(Locale(code).territories.get(country.iso2, ""))
        if name and _folded(name) not in {_folded(english), _folded(country.name)}:
            yield _build(template, country, [name])


def _folded(name: str) -> str:
    return (
        re
        .sub(r"\W", "", name)
        .casefold()
        .translate(str.maketrans("áàâäãéèêëíìîïóòôöõúùûüçñ", "aaaaaeeeeiiiiooooouuuucn"))
    )


def _build(
    template: RelationTemplate, country: Country, answers: list[str] | tuple[str, ...]
) -> CorpusFact | None:
    return template.build(country.name, answers, group=country.group, source=SOURCE, in_text=country.in_text)
