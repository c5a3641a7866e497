"""Where in a statement an answer may stand: candidate spans found by rule, the likeliest first. Pure.

Rules for English, Spanish and Chinese: what follows the last "is", dates and numbers, names, and the words after
the last preposition. They only propose; whether a span is a good answer is decided by grounding.
"""

# ruff: noqa: RUF001 -- the marks of Chinese and Spanish are meant
from __future__ import annotations

import re
from collections.abc import Iterator

MAX_SPAN_WORDS = 7
MAX_SPAN_CHARS = 80

_COPULAS = {
    "en": r"answers? to the name|(?:is|are|was|were) (?:called|named|known as)|called|named|equals?|is|are|was|were",
    "es": r"(?:se|me|te) llaman?|equivale a|es|son|era|eran|fue|está",
    "zh": "名叫|叫做|称为|住在|位于|喜欢|等于|是|叫|为|在",
}
_ARTICLES = {"en": "the a an", "es": "el la los las un una unos unas lo"}
_JOINTS = {
    "en": "of in on at by for from to with about above below as into under over than and or because",
    "es": "de del en con por para a al sobre desde hasta entre que y o siempre su sus",
}
_MONTH = {
    "en": "January|February|March|April|May|June|July|August|September|October|November|December",
    "es": "enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre",
}
_DATE = {
    "en": rf"\d{{1,2}} (?:{_MONTH['en']})(?: \d{{4}})?|(?:{_MONTH['en']}) \d{{1,2}}(?:, \d{{4}})?",
    "es": rf"\d{{1,2}} de (?:{_MONTH['es']})(?: de \d{{4}})?",
    "zh": r"\d+年(?:\d+月)?(?:\d+日)?|\d+月\d+日",
}
_NUMBER = re.compile(
    r"\+?\d[\d,.:]*\d|\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dos|tres|cuatro|cinco|seis)\b"
)
_ADDED_CLAUSE = re.compile(
    r",? (?:because|since|although|so that|on behalf of|instead of|more than|porque|aunque|para que|más que)\b.*"
)
_NAME = re.compile(r"[^\W\d_a-zà-ÿ][\w'’-]*(?: (?:\d+ )?(?:de |del |la |of |the )?[^\W\d_a-zà-ÿ][\w'’-]*)*")
_CJK = re.compile(r"[\u3400-\u9fff]")
_SPANISH = re.compile(
    r"[¿¡áéíóúñ]|\b(?:el|los|las|es|del|que|por|con|en|su|se|un|al|lo|para|vive|tiene|toca|trabaja)\b",
    re.IGNORECASE,
)
_ENGLISH = re.compile(r"\b(?:the|is|are|was|of|to|and|has|with|for|at|by|my)\b", re.IGNORECASE)
_EDGE = " \t\n.,;:!?¡¿。，；：！？、\"'“”‘’«»()（）"


def language_of(text: str) -> str:
    """Return "zh", "es" or "en", from the script and the small words.

    >>> language_of("El perro de Ramiro se llama Trueno.")
    'es'
    """
    if _CJK.search(text):
        return "zh"
    return "es" if len(_SPANISH.findall(text)) > len(_ENGLISH.findall(text)) else "en"


def candidate_spans(text: str, limit: int = 4) -> list[str]:
    """Return verbatim spans of the text that may answer a question about it, the likeliest first.

    >>> candidate_spans("The hobby of Edda Marsh is wood carving.")[0]
    'wood carving'
    """
    language = language_of(text)
    sentence = _last_sentence(text, language)
    if not sentence:
        return []
    proposals = _chinese_spans(sentence) if language == "zh" else _latin_spans(sentence, language)
    spans: list[str] = []
    for proposal in proposals:
        span = proposal.strip(_EDGE)
        if _is_fit(span, sentence) and span not in spans:
            spans.append(span)
    return spans[:limit]


def copula_parts(text: str) -> tuple[str, str, str] | None:
    """Split a one-sentence statement of the form "X is Y" at its last copula; None for other statements."""
    language = language_of(text)
    sentence = text.strip(_EDGE)
    if language == "zh" or _last_sentence(text, language).strip(_EDGE) != sentence:
        return None
    found = list(re.finditer(rf"(?<= )(?:{_COPULAS[language]})(?= )", sentence))
    if not found:
        return None
    last = found[-1]
    return sentence[: last.start()].strip(), last.group(), sentence[last.end() :].strip()


def names_in(text: str) -> list[str]:
    """Return the runs of capitalised words, a lone first word of the text left out.

    >>> names_in("The dog of Edda Marsh is old.")
    ['Edda Marsh']
    """
    runs = []
    for found in _NAME.finditer(text):
        run = found.group()
        if not text[: found.start()].strip(_EDGE):
            first, _, rest = run.partition(" ")
            run = rest if first.casefold() in _small_words() else run
            if " " not in run and run == first:
                continue
        if run:
            runs.append(run)
    return runs


def content_words(text: str) -> set[str]:
    """Return the words of at least three letters that are not small words, in lower case."""
    return {word for word in re.findall(r"\w{3,}", text.casefold()) if word not in _small_words()}


def _small_words() -> frozenset[str]:
    extra = (
        "what which who whom whose when where how many much does did has have had this that these those its his "
        "her their our your you they she him them are was were been being qué que quién cuál cuándo dónde cómo "
        "name named call called calls llama llamado llamada "
        "cuánto cuántos está tiene son era fue esta este sus los las una there can will would could my mi"
    )
    lists = [*_ARTICLES.values(), *_JOINTS.values(), extra]
    return frozenset(word for words in lists for word in words.split())


def _last_sentence(text: str, language: str) -> str:
    end = r"(?<=[。！？])" if language == "zh" else r"(?<=[.!?])\s+(?=[^\W\d_a-zà-ÿ¿¡])"
    parts = [part.strip() for part in re.split(end, text.strip()) if part.strip(_EDGE)]
    return parts[-1] if parts else ""


def _latin_spans(sentence: str, language: str) -> Iterator[str]:
    bare = sentence.strip(_EDGE)
    articles, joints = _ARTICLES[language].split(), _JOINTS[language].split()
    parts = copula_parts(sentence)
    if parts is not None and (complement := _complement(parts[2], articles, joints)):
        yield complement
    if ":" in bare:
        yield bare.rsplit(":", 1)[1]
    yield from reversed(re.findall(_DATE[language], bare))
    yield from re.findall(r"[\"“«]([^\"”»]+)[\"”»]", sentence)
    names = names_in(bare)
    if names and bare.endswith(names[-1]):
        yield _after_last(bare, [*articles, *joints]) if _ends_address(bare) else names[-1]
    yield from _lone_numbers(bare, language)
    tail = _after_last(_ADDED_CLAUSE.sub("", bare), [*articles, *joints])
    if len(tail.split()) <= 4:
        yield tail
    words = _ADDED_CLAUSE.sub("", bare).split()
    yield words[-1]
    yield " ".join(words[-2:])
    yield from reversed(names)


def _lone_numbers(bare: str, language: str) -> list[str]:
    """Return the numbers that are no part of a date and do not stand in an opening like "In 2023, ..."."""
    undated = re.sub(rf"{_DATE[language]}|^(?:In|On|At|En|A) [^,]+, ", " ", bare)
    return [found.group() for found in _NUMBER.finditer(undated)]


def _complement(rest: str, articles: list[str], joints: list[str]) -> str | None:
    """Return what follows a copula if it is one noun phrase, its article or preposition taken off."""
    words = rest.split()
    if len(words) > 1 and words[0].casefold() in joints:
        words = words[1:]
    is_phrase = words[0].casefold() in articles or not words[0][0].islower()
    if len(words) > 1 and words[0].casefold() in articles:
        words = words[1:]
    inner = {word.casefold() for word in words[1:]}
    has_joint = bool(inner & {*joints, *articles} - {"of", "de", "con"})
    return None if has_joint and not is_phrase else " ".join(words)


def _after_last(bare: str, small: list[str]) -> str:
    words = bare.split()
    cuts = [place for place, word in enumerate(words[:-1]) if word.casefold() in small]
    return " ".join(words[cuts[-1] + 1 :]) if cuts else bare


def _ends_address(bare: str) -> bool:
    return re.search(r"\b\d+ [^\W\d_a-zà-ÿ][^.]*$", bare) is not None


def _chinese_spans(sentence: str) -> Iterator[str]:
    bare = sentence.strip(_EDGE)
    for found in reversed(list(re.finditer(_COPULAS["zh"], bare))):
        yield re.split(r"[，；：、]", bare[found.end() :])[0]
    yield from re.findall(_DATE["zh"], bare)
    yield from re.findall(r"[“「《]([^”」》]+)[”」》]", bare)
    yield from (found.group() for found in _NUMBER.finditer(bare))


def _is_fit(span: str, sentence: str) -> bool:
    return (
        0 < len(span) <= MAX_SPAN_CHARS
        and len(span.split()) <= MAX_SPAN_WORDS
        and len(span) < 0.7 * len(sentence)
        and any(c.isalnum() for c in span)
        and span in sentence
        and not _is_loose(span.casefold().split())
    )


def _is_loose(words: list[str]) -> bool:
    """Tell whether a span begins with a small word or runs over a copula, so that it is no noun phrase."""
    small = _small_words()
    return (words[0] in small and words[0] not in {"los", "las", "la", "el"}) or bool(
        {"is", "are", "was", "were", "es", "son", "era", "called", "named", "llama"} & set(words)
    )
