"""Places in the World Factbook: capitals, continents, peaks, lowest points, cities, borders."""

from __future__ import annotations

import re
from collections.abc import Iterator

from eval.corpora.corpus import CorpusFact, RelationTemplate
from eval.corpora.countries import SOURCE, Country, all_countries

CAPITAL = RelationTemplate(
    "capital",
    "The capital of {s} is {a}.",
    (
        "What is the capital of {s}?",
        "Which city is the capital of {s}?",
        "Name the capital city of {s}.",
        "What city is the capital of {s}?",
        "What is the name of the capital city of {s}?",
    ),
)
CONTINENT = RelationTemplate(
    "continent",
    "{S} is in {a}.",
    (
        "On which continent is {s}?",
        "Which continent does {s} belong to?",
        "In what continent is {s} located?",
        "What continent is {s} in?",
        "{S} is located on which continent?",
    ),
)
HIGHEST_POINT = RelationTemplate(
    "highest_point",
    "The highest point in {s} is {a}.",
    (
        "What is the highest point in {s}?",
        "Which peak is the highest in {s}?",
        "Name the highest elevation of {s}.",
        "What is the name of the highest point in {s}?",
        "What is the highest point of {s} called?",
    ),
)
HIGHEST_ELEVATION = RelationTemplate(
    "highest_elevation",
    "The highest point in {s} lies {a} metres above sea level.",
    (
        "How many metres above sea level is the highest point in {s}?",
        "What is the elevation of the highest point in {s}, in metres?",
        "How high does {s} rise at its highest point, in metres?",
        "What is the height of the highest point in {s}, in metres?",
        "How many metres high is the highest point in {s}?",
    ),
)
LOWEST_POINT = RelationTemplate(
    "lowest_point",
    "The lowest point in {s} is {article}{a}.",
    (
        "What is the lowest point in {s}?",
        "Which place is the lowest in {s}?",
        "Name the point of least elevation in {s}.",
        "What is the name of the lowest point in {s}?",
        "What is the lowest point of {s} called?",
    ),
)
LARGEST_CITY = RelationTemplate(
    "largest_urban_area",
    "The largest urban area in {s} by population is {a}.",
    (
        "What is the largest urban area in {s}?",
        "Which city in {s} has the most inhabitants?",
        "Name the most populous city of {s}.",
        "What is the largest city in {s}?",
        "What is the biggest urban area in {s}?",
    ),
)
LONGEST_BORDER = RelationTemplate(
    "longest_border",
    "{S} shares its longest land border with {article}{a}.",
    (
        "With which country does {s} share its longest land border?",
        "Which neighbour has the longest land border with {s}?",
        "Of all its neighbours, which one has the longest frontier with {s}?",
        "Which country has the longest land border with {s}?",
        "{S} has its longest land border with which country?",
    ),
)
ONLY_NEIGHBOUR = RelationTemplate(
    "only_neighbour",
    "The only country that {s} has a land border with is {article}{a}.",
    (
        "What is the only country that {s} has a land border with?",
        "Which is the single land neighbour of {s}?",
        "{S} borders just one country on land; which one?",
        "Which country is the only one that borders {s}?",
        "What is the only country with a land border with {s}?",
    ),
)

# Spellings the Factbook leaves out: accents, older and newer names.
CAPITAL_ALIASES: dict[str, tuple[str, ...]] = {
    "Andorra la Vella": ("Andorra-la-Vella",),
    "Astana": ("Nur-Sultan",),
    "Asunción": ("Asuncion",),
    "Bern": ("Berne",),
    "Bogotá": ("Bogota", "Bogotá D.C."),
    "Brasília": ("Brasilia",),
    "Chisinau": ("Chișinău", "Kishinev"),
    "Havana": ("La Habana",),
    "Kyiv": ("Kiev",),
    "Lome": ("Lomé",),
    "Malé": ("Male",),
    "N'Djamena": ("Ndjamena",),
    "New Delhi": ("Delhi",),
    "Noumea": ("Nouméa",),
    "Nuku'alofa": ("Nukualofa",),
    "Reykjavik": ("Reykjavík",),
    "San José": ("San Jose",),
    "Sao Tome": ("São Tomé",),
    "Torshavn": ("Tórshavn",),
    "Ulaanbaatar": ("Ulan Bator",),
    "Washington, D.C.": ("Washington", "Washington DC", "Washington D.C."),
    "Yaounde": ("Yaoundé",),
}
# The source counts a suburb of the capital as a city of its own.
_CITY_ARGUABLE = frozenset({"qa"})
CITY_ALIASES: dict[str, tuple[str, ...]] = {
    "Bogota": ("Bogotá",),
    "New York-Newark": ("New York", "New York City"),
    "Rangoon": ("Yangon",),
    "São Paulo": ("Sao Paulo",),
    "Tel Aviv-Yafo": ("Tel Aviv",),
    "Zurich": ("Zürich",),
}
PEAK_ALIASES: dict[str, tuple[str, ...]] = {
    "Cerro Aconcagua": ("Aconcagua", "Mount Aconcagua"),
    "Dufourspitze on Monte Rosa": ("Dufourspitze", "Monte Rosa"),
    "Gora El'brus": ("Mount Elbrus", "Elbrus"),
    "Gunung Kinabalu": ("Mount Kinabalu", "Kinabalu"),
    "Halla-san": ("Hallasan", "Mount Halla"),
    "Hora Hoverla": ("Hoverla", "Mount Hoverla"),
    "Jebel Toubkal": ("Toubkal", "Mount Toubkal"),
    "Kanchenjunga": ("Kangchenjunga",),
    "Kilimanjaro": ("Mount Kilimanjaro",),
    "Kuh-e Damavand": ("Mount Damavand", "Damavand"),
    "Margherita Peak on Mount Stanley": ("Margherita Peak", "Mount Stanley"),
    "Mount Everest": ("Everest",),
    "Mount Fuji": ("Fuji", "Mt. Fuji"),
    "Mount Kosciuszko": ("Kosciuszko",),
    "Mount McKinley": ("Denali", "Mount Denali"),
    "Mount Olympus": ("Olympus",),
    "Nevado Huascaran": ("Huascaran", "Huascarán"),
    "Nevado Ojos del Salado": ("Ojos del Salado",),
    "Nevado Sajama": ("Sajama",),
    "Noshak": ("Noshaq",),
    "Paektu-san": ("Mount Paektu", "Paektu"),
    "Pico Cristobal Colon": ("Pico Cristóbal Colón",),
    "Snezka": ("Sněžka",),
    "Volcan Pico de Orizaba": ("Pico de Orizaba", "Citlaltépetl"),
    "Volcan Tajumulco": ("Tajumulco",),
    "Yu Shan": ("Yushan", "Jade Mountain"),
}
_WATER_OR_HOLLOW = re.compile(r"\b(River|river|Sea|Depression|Nile|delta)$")
# A naval base and overseas bases make the count of neighbours arguable.
_BORDERS_OVERSEAS = frozenset({"cu", "uk"})
# The south peak of Kebnekaise has melted below the north peak.
_PEAK_OUTDATED = frozenset({"sw"})
# Countries on two continents, or counted to either.
_CONTINENT_UNCLEAR = frozenset(["aj", "am", "ck", "cy", "eg", "gg", "kt", "kz", "rs", "tt", "tu"])
_REGION_FIXES = {"pp": "australia-oceania"}
_CONTINENTS = {
    "africa": "Africa",
    "australia-oceania": "Oceania",
    "central-america-n-caribbean": "North America",
    "central-asia": "Asia",
    "east-n-southeast-asia": "Asia",
    "europe": "Europe",
    "middle-east": "Asia",
    "north-america": "North America",
    "south-america": "South America",
    "south-asia": "Asia",
}
# What the Factbook shortens in lists, and other names of the same country.
COUNTRY_ALIASES: dict[str, tuple[str, ...]] = {
    "Burma": ("Myanmar", "Burma"),
    "Cote d'Ivoire": ("Ivory Coast", "Cote d'Ivoire", "Côte d'Ivoire"),
    "Côte d'Ivoire": ("Ivory Coast", "Cote d'Ivoire", "Côte d'Ivoire"),
    "Czechia": ("Czechia", "Czech Republic"),
    "Czech Republic": ("Czechia", "Czech Republic"),
    "Gambia": ("Gambia", "The Gambia"),
    "The Gambia": ("Gambia", "The Gambia"),
    "DRC": ("Democratic Republic of the Congo", "DR Congo", "DRC"),
    "Holy See": ("Vatican City", "Holy See"),
    "NZ": ("New Zealand",),
    "N. Korea": ("North Korea",),
    "Netherlands": ("Netherlands", "Holland"),
    "S. Korea": ("South Korea",),
    "Soviet Union": ("Soviet Union", "USSR"),
    "Turkey (Turkiye)": ("Turkey", "Türkiye"),
    "Turkey": ("Turkey", "Türkiye"),
    "UAE": ("United Arab Emirates", "UAE", "Emirates"),
    "UK": ("United Kingdom", "UK", "Britain", "Great Britain"),
    "United Kingdom": ("United Kingdom", "UK", "Britain", "Great Britain"),
    "US": ("United States", "US", "USA", "United States of America", "America"),
    "USA": ("United States", "US", "USA", "United States of America", "America"),
    "United States": ("United States", "US", "USA", "United States of America", "America"),
}
_TAKES_ARTICLE = frozenset({
    "Netherlands",
    "United Kingdom",
    "United States",
    "United Arab Emirates",
    "Soviet Union",
    "Philippines",
    "Bahamas",
    "Ottoman Empire",
    "Dominican Republic",
    "Central African Republic",
    "Democratic Republic of the Congo",
    "Republic of the Congo",
    "Gambia",
    "Marshall Islands",
})


def country_answers(name: str) -> tuple[str, ...]:
    """Return how a country given in a list may be named, the common name first."""
    tidy = name.strip().removeprefix("the ").replace(" & ", " and ").replace("St. ", "Saint ")
    return COUNTRY_ALIASES.get(tidy, (tidy,))


def with_article(name: str) -> str:
    """Put "the" before a country name that needs it inside a sentence."""
    return f"the {name}" if name in _TAKES_ARTICLE else name


def capital_answers(text: str) -> list[str]:
    """Return the capital and its other spellings, or nothing where the source names more than one seat.

    >>> capital_answers("Hanoi (Ha Noi)")
    ['Hanoi', 'Ha Noi']
    """
    if "capital" in text or "note" in text or "official" in text or "administered" in text:
        return []
    name, _, aside = text.partition("(")
    name = name.strip()
    if ";" in text or ("," in name and not name.startswith("Washington")) or " in " in name:
        return []
    other = re.fullmatch(r"([A-Z][\w' -]+)\)", aside)
    aliases = [other[1]] if other and not re.search(r"\b(on|of|city|located|is)\b", other[1]) else []
    aliases += ["Kiev"] if name == "Kyiv" else []
    return [name, *CAPITAL_ALIASES.get(name, ()), *aliases]


def point_answers(text: str) -> tuple[list[str], str]:
    """Return the names of a highest or lowest point and its height in metres, or nothing where unclear.

    >>> point_answers("K2 (Mt. Godwin-Austen) 8,611 m")
    (['K2', 'Mt. Godwin-Austen'], '8,611')
    """
    found = re.fullmatch(r"([^()\d,;]+?|K2) (?:\(([^()]+)\) )?(-?[\d,.]+) m(?: \([^()]*\))?", text)
    if not found:
        return [], ""
    name = found[1].strip()
    if re.search(r"unnamed|location|elevation|summit|junction|\b(and|near|range)\b|\b(of|on)\b the", name):
        return [], ""
    aside = found[2] or ""
    is_name = re.fullmatch(r"[A-Z][\w.' -]+", aside) and not re.search(r"\b(a|of the|highest|point)\b", aside)
    return [name, *([aside] if is_name else [])], found[3]


def largest_urban_area(text: str) -> str:
    """Return the most populous urban area of a list of at least two, or "" where a figure cannot be read."""
    entries = [entry for entry in re.split(r",\s(?=[\d.]+)", re.sub(r"\([^)]*\)", "", text)) if entry.strip()]
    sizes = []
    for entry in entries:
        found = re.fullmatch(r"\s*([\d.,]+)( million)?\s+([^\d]+?)\s*", entry)
        if not found:
            return ""
        if found[2] and "," in found[1]:
            return ""
        number = found[1].replace(",", "")
        sizes.append((float(number) * (1e6 if found[2] else 1), found[3]))
    if len(sizes) < 2 or any(size < 10_000 for size, _ in sizes) or ";" in text:
        return ""
    name = max(sizes)[1]
    return name.title().replace(" Es ", " es ") if name.isupper() else name


def neighbours(text: str) -> list[tuple[float, str]]:
    """Return (length in km, country) of each land border, or nothing where one cannot be read."""
    borders = []
    for part in text.split(";"):
        found = re.fullmatch(r"\s*([A-Za-z][^\d()]*?) ([\d,.]+) km\s*", part)
        if not found or " and " in part.replace("Bosnia and Herzegovina", ""):
            return []
        borders.append((float(found[2].replace(",", "")), found[1]))
    return borders


def facts() -> Iterator[CorpusFact | None]:
    """Yield every fact of this module; None where a rule refused one."""
    for country in all_countries():
        yield _build(CAPITAL, country, capital_answers(country.text("Government", "Capital", "name")))
        if country.code not in _CONTINENT_UNCLEAR:
            yield _build(CONTINENT, country, [_CONTINENTS[_REGION_FIXES.get(country.code, country.region)]])
        peak, height = point_answers(country.text("Geography", "Elevation", "highest point"))
        if country.code in _PEAK_OUTDATED:
            continue
        yield _build(
            HIGHEST_POINT, country, [*peak, *(a for name in peak for a in PEAK_ALIASES.get(name, ()))]
        )
        if height and not height.startswith("-"):
            yield _build(
                HIGHEST_ELEVATION, country, [height, f"{height} metres", f"{height} m", f"{height} meters"]
            )
        lowest, depth = point_answers(country.text("Geography", "Elevation", "lowest point"))
        if depth != "0":
            yield _build(LOWEST_POINT, country, lowest)
        city = largest_urban_area(country.text("People and Society", "Major urban areas - population"))
        if country.code not in _CITY_ARGUABLE:
            yield _build(
                LARGEST_CITY, country, [city, *CITY_ALIASES.get(city, CAPITAL_ALIASES.get(city, ()))]
            )
        yield from _borders(country)


def _borders(country: Country) -> Iterator[CorpusFact | None]:
    found = neighbours(country.text("Geography", "Land boundaries", "border countries"))
    if len(found) == 1 and country.sovereign and country.code not in _BORDERS_OVERSEAS:
        yield _build(ONLY_NEIGHBOUR, country, country_answers(found[0][1]))
    elif len(found) > 1:
        yield _build(LONGEST_BORDER, country, country_answers(max(found)[1]))


def _build(
    template: RelationTemplate, country: Country, answers: list[str] | tuple[str, ...]
) -> CorpusFact | None:
    first = answers[0] if answers else ""
    needs_article = with_article(first) != first or bool(_WATER_OR_HOLLOW.search(first))
    return template.build(
        country.name,
        answers,
        group=country.group,
        source=SOURCE,
        in_text=country.in_text,
        words={"article": "the " if needs_article else ""},
    )
