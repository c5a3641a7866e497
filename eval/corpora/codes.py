"""Codes: Internet domains, calling codes, airports; and the U.S. states, each from its own package."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import airportsdata
import us
from phonenumbers import COUNTRY_CODE_TO_REGION_CODE

from eval.corpora.corpus import CorpusFact, RelationTemplate
from eval.corpora.countries import SOURCE as FACTBOOK
from eval.corpora.countries import all_countries, country_by_iso2
from eval.corpora.word_list import word_list

INTERNET_DOMAIN = RelationTemplate(
    "internet_domain",
    "The country code top-level domain of {s} is {a}.",
    (
        "What is the country code top-level domain of {s}?",
        "Which Internet domain ending belongs to {s}?",
        "With which ending do web addresses from {s} close?",
        "What is the top-level domain of {s}?",
        "Which country code top-level domain does {s} have?",
    ),
)
CALLING_CODE = RelationTemplate(
    "calling_code",
    "The international calling code of {s} is {a}.",
    (
        "What is the international calling code of {s}?",
        "Which country code do you dial to call {s}?",
        "With which prefix do phone numbers of {s} begin?",
        "What is the calling code of {s}?",
        "What is the phone code of {s}?",
    ),
)
AIRPORT_CODE = RelationTemplate(
    "airport_code",
    "The IATA code of {s} in {place} is {a}.",
    (
        "What is the IATA code of {s} in {place}?",
        "Which three-letter code does {s} in {place} have?",
        "Which airport code is on luggage tags for {s} in {place}?",
        "What is the airport code of {s} in {place}?",
        "What is the three-letter IATA code of {s} in {place}?",
    ),
)
STATE_CAPITAL = RelationTemplate(
    "state_capital",
    "The capital of the U.S. state of {s} is {a}.",
    (
        "What is the capital of the U.S. state of {s}?",
        "Which city is the capital of the state of {s}?",
        "Name the capital of the American state of {s}.",
        "What city is the capital of the state of {s}?",
        "What is the name of the capital of the state of {s}?",
    ),
)
STATE_ABBREVIATION = RelationTemplate(
    "state_abbreviation",
    "The postal abbreviation of the U.S. state of {s} is {a}.",
    (
        "What is the postal abbreviation of the U.S. state of {s}?",
        "Which two letters abbreviate the state of {s}?",
        "How is the American state of {s} abbreviated on letters?",
        "What is the two-letter abbreviation of the state of {s}?",
        "What is the abbreviation of the U.S. state of {s}?",
    ),
)
STATEHOOD_YEAR = RelationTemplate(
    "statehood_year",
    "{s} became a U.S. state in {a}.",
    (
        "In which year did {s} become a U.S. state?",
        "When was {s} admitted to the Union?",
        "In what year did {s} join the United States as a state?",
        "What year did {s} become a U.S. state?",
        "When did {s} become a U.S. state?",
    ),
)

_DOMAINS_NOT_DELEGATED = frozenset({".bl", ".mf", ".xk"})
# Names with a territory's disputed or shared numbering.
_CALLING_CODES_LEFT_OUT = frozenset({"VA"})
_NORTH_AMERICAN = frozenset({"US", "CA"})
_AIRPORT_LIMIT_PER_COUNTRY = 6
# The busiest airports, which enter whatever their name and before the limit per country applies.
_HUBS = frozenset(
    word_list(
        "AMS ATL AUH BCN BKK BOM BOS BRU CAI CAN CDG CGK CLT CPH DEL DEN DFW DOH DTW DUB DUS DXB EWR "
        "EZE FCO FRA GRU HEL HKG HND HNL IAD IAH ICN IST JFK JNB KIX KUL LAS LAX LGA LGW LHR LIS LOS "
        "MAD MAN MCO MEL MEX MIA MNL MSP MUC MXP NBO NRT ORD ORY OSL PEK PHL PHX PRG PVG SAN SEA SFO "
        "SIN SVO SYD TLV TPE VIE WAW YUL YVR YYZ ZRH"
    )
)


def facts() -> Iterator[CorpusFact | None]:
    """Yield every fact of this module; None where a rule refused one."""
    yield from _domains()
    yield from _calling_codes()
    yield from _airports()
    yield from _states()


def _domains() -> Iterator[CorpusFact | None]:
    for country in all_countries():
        domain = country.text("Communications", "Internet country code")
        if re.fullmatch(r"\.[a-z]{2}", domain) and domain not in _DOMAINS_NOT_DELEGATED:
            yield INTERNET_DOMAIN.build(
                country.name,
                [domain, domain[1:]],
                group=country.group,
                source=FACTBOOK,
                in_text=country.in_text,
            )


def _calling_codes() -> Iterator[CorpusFact | None]:
    regions = {
        region: code
        for code, members in COUNTRY_CODE_TO_REGION_CODE.items()
        for region in members
        if code != 1 or region in _NORTH_AMERICAN
    }
    for country in all_countries():
        code = regions.get(country.iso2)
        if code and country.iso2 not in _CALLING_CODES_LEFT_OUT:
            yield CALLING_CODE.build(
                country.name,
                [f"+{code}", str(code)],
                group=country.group,
                source="phonenumbers",
                in_text=country.in_text,
            )


def _airports() -> Iterator[CorpusFact | None]:
    countries = country_by_iso2()
    taken: Counter[str] = Counter()
    airports = airportsdata.load("IATA")
    for code in sorted(airports, key=lambda code: (code not in _HUBS, code)):
        airport = airports[code]
        country = countries.get(airport["country"])
        name, city = str(airport["name"]), str(airport["city"])
        name = name if "Airport" in name else f"{name} Airport"
        if country is None or (code not in _HUBS and taken[country.iso2] >= _AIRPORT_LIMIT_PER_COUNTRY):
            continue
        if not _is_plain_airport(name, city, suffix="" if code in _HUBS else "International "):
            continue
        taken[country.iso2] += 1
        yield AIRPORT_CODE.build(
            name,
            [code],
            group=f"airport:{code}",
            source="airportsdata",
            words={"place": f"{city}, {country.name}"},
        )


def _is_plain_airport(name: str, city: str, *, suffix: str) -> bool:
    words = r"[^\W\d_]+(?:[ '.-]+[^\W\d_]+)*"
    is_named = bool(
        re.fullmatch(rf"{words} {suffix}Airport(?: Schiphol)?", name) and re.fullmatch(words, city)
    )
    return (
        is_named
        and len(name.split()) <= 5
        and not re.search(r"\b(Army|Air Base|Heliport|International International|Municipal)\b", name)
    )


def _states() -> Iterator[CorpusFact | None]:
    for state in us.STATES:
        for template, answers in (
            (STATE_CAPITAL, _state_capital(str(state.capital))),
            (STATE_ABBREVIATION, [str(state.abbr)]),
            (STATEHOOD_YEAR, [str(state.statehood_year)]),
        ):
            yield template.build(
                f"{state.name} (U.S. state)",
                answers,
                group=f"state:{state.abbr}",
                source="us",
                in_text=str(state.name),
            )


def _state_capital(name: str) -> list[str]:
    return [name, name.replace("Saint ", "St. ")] if name.startswith("Saint ") else [name]
