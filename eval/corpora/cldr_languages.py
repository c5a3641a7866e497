"""Languages in the CLDR data of `babel`: codes, scripts, own names, and the words for days and months."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from babel import Locale
from babel.core import get_global

from eval.corpora.corpus import CorpusFact, RelationTemplate
from eval.corpora.word_list import word_list

SOURCE = "babel"

LANGUAGE_CODE = RelationTemplate(
    "language_code",
    "The ISO 639-1 code of the {s} language is {a}.",
    (
        "What is the ISO 639-1 code of the {s} language?",
        "Which two-letter code stands for the {s} language?",
        "By which two letters does ISO 639 denote {s}?",
        "What is the two-letter code of the {s} language?",
        "What is the ISO code of the {s} language?",
    ),
)
SCRIPT = RelationTemplate(
    "script",
    "The {s} language is usually written in the {a} script.",
    (
        "In which script is the {s} language usually written?",
        "Which script is used to write {s}?",
        "What writing system does the {s} language use?",
        "What script is {s} written in?",
        "What is the script of the {s} language?",
    ),
)
AUTONYM = RelationTemplate(
    "autonym",
    "In {s}, the {s} language is called {a}.",
    (
        "What is the {s} language called in {s} itself?",
        "What do speakers of {s} call their own language?",
        "What is the native name of the {s} language?",
        "What is {s} called in {s}?",
        "What is the name of the {s} language in {s}?",
    ),
)


def _word_template(relation: str) -> RelationTemplate:
    return RelationTemplate(
        relation,
        "The {language} word for {english} is {a}.",
        (
            "What is the {language} word for {english}?",
            "How do you say {english} in {language}?",
            "Translate {english} into {language}.",
            "What is {english} in {language}?",
            "What is {english} called in {language}?",
        ),
    )


DAY_NAME = _word_template("day_name")
MONTH_NAME = _word_template("month_name")

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = word_list("January February March April May June July August September October November December")
# Languages in Latin script whose words for days and months are long settled.
_DAY_LANGUAGES = word_list("es fr de it pt nl sv da nb fi pl cs hu tr id ro ca hr sk et lt lv is sw eu cy")
_MONTH_LANGUAGES = word_list("es fr it pt fi pl cs tr hr eu cy lt")
# Codes that CLDR keeps for macro-languages or constructed and ancient tongues.
_CODES_LEFT_OUT = frozenset(["ae", "cu", "ia", "ie", "io", "vo"])
# Languages with two scripts in use, or whose script has the language's own name.
_TWO_SCRIPTS = frozenset({"ks", "mn", "my", "pa", "sd", "sr"})
# Each costs the reading of one locale file; languages in Latin script with a name of their own.
_OWN_NAME_LANGUAGES = frozenset(
    word_list(
        "br bs ca co cs cy da de es et eu fi fo fr fy ga gd gl gv hr ht hu id is it kw lb lt lv mt nl "
        "no pl pt qu rm ro rw sc se sk sl sn so sq sv sw tn to tr wa xh yo zu"
    )
)
_ANCIENT_SCRIPTS = frozenset({"Avst", "Zzzz", "Zyyy"})


def _plain_name(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Z][a-zé]+(?: [A-Z][a-z]+)?", name))


def facts() -> Iterator[CorpusFact | None]:
    """Yield every fact of this module; None where a rule refused one."""
    english = Locale("en")
    outdated = get_global("language_aliases")
    for code, name in sorted(english.languages.items()):
        if len(code) == 2 and code not in outdated and code not in _CODES_LEFT_OUT and _plain_name(str(name)):
            yield from _language(code, str(name), english)
    for code in _DAY_LANGUAGES:
        yield from _words(DAY_NAME, code, _DAYS, Locale(code).days["stand-alone"]["wide"], first=0)
    for code in _MONTH_LANGUAGES:
        yield from _words(
            MONTH_NAME, code, tuple(_MONTHS), Locale(code).months["stand-alone"]["wide"], first=1
        )


def _language(code: str, name: str, english: Locale) -> Iterator[CorpusFact | None]:
    group = f"language:{code}"
    yield LANGUAGE_CODE.build(name, [code], group=group, source=SOURCE)
    tag = get_global("likely_subtags").get(code, "")
    script = tag.split("_")[1] if tag.count("_") == 2 else ""
    if script not in {"", "Latn"} | _ANCIENT_SCRIPTS and code not in _TWO_SCRIPTS:
        yield SCRIPT.build(name, [_script_name(script, english)], group=group, source=SOURCE)
    own = _own_name(code) if code in _OWN_NAME_LANGUAGES else ""
    if own:
        yield AUTONYM.build(name, [own], group=group, source=SOURCE)


def _script_name(script: str, english: Locale) -> str:
    names = {"Hans": "Chinese", "Jpan": "Japanese", "Kore": "Korean", "Beng": "Bengali", "Mlym": "Malayalam"}
    return names.get(script, str(english.scripts.get(script, "")))


def _own_name(code: str) -> str:
    name = str(Locale(code).languages.get(code, ""))
    return name if re.fullmatch(r"[A-Za-zÀ-ɏ' \u2019-]+", name) else ""


def _words(
    template: RelationTemplate, code: str, english_words: tuple[str, ...], words: Any, *, first: int
) -> Iterator[CorpusFact | None]:
    language = "Norwegian" if code == "nb" else str(Locale("en").languages[code])
    for number, english in enumerate(english_words):
        yield template.build(
            f"{english} in {language}",
            [str(words[first + number])],
            group=f"language:{code}",
            source=SOURCE,
            words={"language": language, "english": english},
        )
