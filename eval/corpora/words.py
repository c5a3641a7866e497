"""English words: irregular past tenses and plurals, looked up in the inflection table of `lemminflect`."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from importlib import resources

from eval.corpora.corpus import CorpusFact, RelationTemplate
from eval.corpora.word_list import word_list

SOURCE = "lemminflect"

PAST_TENSE = RelationTemplate(
    "past_tense",
    'The past tense of the verb "{s}" is "{a}".',
    (
        'What is the past tense of the verb "{s}"?',
        'How does one write "{s}" in the simple past?',
        'Which form of "{s}" tells that it happened yesterday?',
        'What is the past form of the verb "{s}"?',
        'What is the simple past of "{s}"?',
    ),
)
PAST_PARTICIPLE = RelationTemplate(
    "past_participle",
    'The past participle of the verb "{s}" is "{a}".',
    (
        'What is the past participle of the verb "{s}"?',
        'Which form of "{s}" follows "have" in the present perfect?',
        'Give the past participle of "{s}".',
        'What is the past participle form of "{s}"?',
        'Which word is the past participle of "{s}"?',
    ),
)
PLURAL = RelationTemplate(
    "irregular_plural",
    'The plural of the noun "{s}" is "{a}".',
    (
        'What is the plural of the noun "{s}"?',
        'How do you write more than one "{s}"?',
        'Which word is the plural form of "{s}"?',
        'What is the plural form of "{s}"?',
        'What is the plural of the word "{s}"?',
    ),
)

_VERBS = word_list(
    "arise awake bear beat become begin bend bind bite bleed blow break breed bring build buy "
    "catch choose cling come creep deal dig do draw drink drive eat fall feed feel fight find "
    "flee fling fly forbid forget forgive freeze get give go grind grow hang have hear hide hold "
    "keep know lay lead leave lend lie lose make mean meet mistake pay ride ring rise run say see "
    "seek sell send shake shoot shrink sing sink sit slay sleep slide speak spend spin stand "
    "steal stick sting stink strike string strive swear sweep swim swing take teach tear tell "
    "think throw undergo understand undertake undo uphold wake wear weave weep win wind withdraw "
    "withhold wring write"
)
_NOUNS = word_list(
    "alumnus analysis axis bacterium basis calf child crisis criterion curriculum diagnosis elf "
    "ellipsis foot goose half hypothesis knife larva leaf life loaf louse man mouse nucleus oasis "
    "ox parenthesis phenomenon radius scarf self sheaf shelf stimulus synthesis thesis thief "
    "tooth vertebra wife wolf woman"
)


def inflections(wanted: frozenset[tuple[str, str]]) -> dict[tuple[str, str], list[list[str]]]:
    """Read the table's forms of the wanted (lemma, word class) pairs; each form is a list of spellings."""
    table = resources.files("lemminflect") / "resources" / "infl_lu.csv.gz"
    found = {}
    with table.open("rb") as stream, gzip.open(stream, "rt", encoding="utf-8") as lines:
        for line in lines:
            lemma, word_class, *forms = line.rstrip("\n").split(",")
            if (lemma, word_class) in wanted:
                found[lemma, word_class] = [form.split("/") for form in forms]
    return found


def facts() -> Iterator[CorpusFact | None]:
    """Yield every fact of this module; None where a rule refused one."""
    verbs, nouns = [(verb, "verb") for verb in _VERBS], [(noun, "noun") for noun in _NOUNS]
    forms = inflections(frozenset((*verbs, *nouns)))
    for verb, kind in verbs:
        spellings = forms.get((verb, kind), [])
        # past, past participle, -ing, -s; the participle is left out where it equals the past.
        if len(spellings) == 4 and len(spellings[0]) == 1:
            yield _word(PAST_TENSE, verb, spellings[0])
            if len(spellings[1]) == 1 and spellings[1] != spellings[0]:
                yield _word(PAST_PARTICIPLE, verb, spellings[1])
        elif len(spellings) == 3 and len(spellings[0]) == 1:
            yield _word(PAST_TENSE, verb, spellings[0])
    for noun, kind in nouns:
        spellings = forms.get((noun, kind), [])
        if spellings and len(spellings[0]) == 1:
            yield _word(PLURAL, noun, spellings[0])


def _word(template: RelationTemplate, word: str, spellings: list[str]) -> CorpusFact | None:
    return template.build(word, spellings, group=f"word:{word}", source=SOURCE)
