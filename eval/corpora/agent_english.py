"""What an agent hears in English about its own people and projects."""

from __future__ import annotations

from eval.corpora import agent_names as names
from eval.corpora.agent_relations import (
    AgentRelation,
    ValueMaker,
    address,
    date_of_year,
    full_name,
    one_of,
    pet,
    room_number,
)


def _said(
    name: str,
    statements: tuple[str, ...],
    questions: tuple[str, ...],
    value: ValueMaker,
    news: tuple[str, ...] = (),
    about: str = "person",
) -> AgentRelation:
    return AgentRelation(name, "en", about, statements, news, questions, value)


ENGLISH_RELATIONS = (
    _said(
        "home_city",
        ("{s} lives in {a}.", "These days {s} has a flat in {a}.", "Home for {s} is {a}."),
        (
            "Where does {s} live?",
            "In which city does {s} live?",
            "What is the home city of {s}?",
            "What city does {s} live in?",
            "Where is the home of {s}?",
        ),
        one_of(names.CITIES["en"]),
        ("{s} has moved and now lives in {a}.", "After the move, {s} is living in {a} now."),
    ),
    _said(
        "employer",
        ("{s} works for {a}.", "The company that employs {s} is {a}.", "{s} has a job at {a}."),
        (
            "Which company does {s} work for?",
            "Who employs {s}?",
            "What is the employer of {s} called?",
            "What company does {s} work for?",
            "Which company employs {s}?",
        ),
        one_of(names.COMPANIES),
        ("{s} changed jobs and now works for {a}.", "Since this month {s} is employed by {a}."),
    ),
    _said(
        "profession",
        (
            "{s} is by trade {an} {a}.",
            "By profession, {s} is {an} {a}.",
            "{s} earns a living as {an} {a}.",
        ),
        (
            "What is the profession of {s}?",
            "What does {s} do for a living?",
            "Which trade does {s} follow?",
            "What job does {s} have?",
            "What is the job of {s}?",
        ),
        one_of(names.JOBS),
    ),
    _said(
        "favourite_dish",
        ("The favourite dish of {s} is {a}.", "{s} likes nothing better to eat than {a}."),
        (
            "What is the favourite dish of {s}?",
            "Which meal does {s} like best?",
            "What should one cook to please {s}?",
            "What is the favourite food of {s}?",
            "Which dish does {s} like best?",
        ),
        one_of(names.DISHES["en"]),
        ("{s} has a new favourite dish: {a}.", "Lately {s} would rather eat {a} than anything else."),
    ),
    _said(
        "pet_name",
        ("{s} has a {animal} called {a}.", "The {animal} of {s} answers to the name {a}."),
        (
            "What is the {animal} of {s} called?",
            "What is the name of the pet of {s}?",
            "Which name did {s} give the {animal}?",
            "What is the name of the {animal} of {s}?",
            "What is the {animal} that belongs to {s} called?",
        ),
        pet("en"),
    ),
    _said(
        "allergy",
        ("{s} is allergic to {a}.", "{s} cannot tolerate {a} because of an allergy."),
        (
            "What is {s} allergic to?",
            "Which allergy does {s} have?",
            "What must {s} avoid because of an allergy?",
            "What allergy does {s} have?",
            "To what is {s} allergic?",
        ),
        one_of(names.ALLERGIES["en"]),
    ),
    _said(
        "birthday",
        ("The birthday of {s} is on {a}.", "{s} celebrates a birthday on {a}."),
        (
            "When is the birthday of {s}?",
            "On which date does {s} celebrate a birthday?",
            "On what day of the year was {s} born?",
            "What date is the birthday of {s}?",
            "On which day is the birthday of {s}?",
        ),
        date_of_year("en"),
    ),
    _said(
        "favourite_colour",
        ("The favourite colour of {s} is {a}.", "{s} likes {a} more than any other colour."),
        (
            "What is the favourite colour of {s}?",
            "Which colour does {s} like best?",
            "In what colour should a present for {s} be?",
            "What colour does {s} like most?",
            "Which colour is the favourite of {s}?",
        ),
        one_of(names.COLOURS["en"]),
        ("{s} has grown tired of the old favourite colour and now prefers {a}.",),
    ),
    _said(
        "hobby",
        ("In free hours, {s} goes in for {a}.", "The hobby of {s} is {a}."),
        (
            "What is the hobby of {s}?",
            "What does {s} do in free hours?",
            "Which pastime does {s} enjoy?",
            "Which hobby does {s} have?",
            "What hobby does {s} enjoy?",
        ),
        one_of(names.HOBBIES["en"]),
        ("{s} has given up the old hobby and has taken up {a}.",),
    ),
    _said(
        "dentist_day",
        ("{s} has an appointment with the dentist on {a}.", "The dentist expects {s} on {a}."),
        (
            "When does {s} have an appointment with the dentist?",
            "On which date does {s} go to the dentist?",
            "For what day is the dental appointment of {s} booked?",
            "What is the date of the dentist appointment of {s}?",
            "When does the dentist expect {s}?",
        ),
        date_of_year("en"),
        (
            "The dental appointment of {s} was moved to {a}.",
            "The dentist now expects {s} on {a} instead.",
        ),
    ),
    _said(
        "office_room",
        ("{s} sits in room {a}.", "The office of {s} is room {a}."),
        (
            "In which room does {s} sit?",
            "What is the room number of {s}?",
            "Which office room belongs to {s}?",
            "What room is the office of {s}?",
            "What is the number of the room of {s}?",
        ),
        room_number(101, 980),
        ("{s} has moved to room {a}.", "From now on, the office of {s} is room {a}."),
    ),
    _said(
        "usual_drink",
        ("At the café, {s} always orders {an} {a}.", "The usual drink of {s} is {an} {a}."),
        (
            "What does {s} always order at the café?",
            "What is the usual drink of {s}?",
            "Which drink should I bring {s} from the café?",
            "What does {s} usually drink?",
            "Which drink does {s} always order?",
        ),
        one_of(names.DRINKS["en"]),
        ("{s} has switched drinks and now always orders {an} {a}.",),
    ),
    _said(
        "instrument",
        ("{s} plays the {a}.", "The instrument that {s} plays is the {a}."),
        (
            "Which instrument does {s} play?",
            "What musical instrument does {s} play?",
            "On what does {s} make music?",
            "What is the instrument of {s}?",
            "Which musical instrument does {s} play?",
        ),
        one_of(names.INSTRUMENTS["en"]),
    ),
    _said(
        "emergency_contact",
        ("The emergency contact of {s} is {a}.", "In an emergency, call {a} on behalf of {s}."),
        (
            "Who is the emergency contact of {s}?",
            "Whom do I call if {s} has an accident?",
            "Which person is to be informed if something happens to {s}?",
            "Who should be called in an emergency of {s}?",
            "Who is the person to call in an emergency of {s}?",
        ),
        full_name("en"),
        ("The emergency contact of {s} has changed and is now {a}.",),
    ),
    _said(
        "address",
        ("The postal address of {s} is {a}.", "Letters to {s} go to {a}."),
        (
            "What is the postal address of {s}?",
            "To which address do letters for {s} go?",
            "In which street and at what number does {s} receive mail?",
            "What address does {s} have?",
            "What is the address of {s}?",
        ),
        address("en"),
        ("The new postal address of {s} is {a}.", "From now on, letters to {s} go to {a}."),
    ),
    _said(
        "project_lead",
        ("{s} is led by {a}.", "The lead of {s} is {a}."),
        (
            "Who leads {s}?",
            "Who is the lead of {s}?",
            "Who is in charge of {s}?",
            "Which person leads {s}?",
            "Who is the leader of {s}?",
        ),
        full_name("en"),
        ("{s} has a new lead: {a}.", "{a} has taken over {s}."),
        "project",
    ),
    _said(
        "project_deadline",
        ("{s} is due on {a}.", "The deadline of {s} is {a}."),
        (
            "When is {s} due?",
            "What is the deadline of {s}?",
            "By which date must {s} be finished?",
            "What day and month is the deadline of {s}?",
            "On which day and month is {s} due?",
        ),
        date_of_year("en"),
        ("The deadline of {s} was moved to {a}.", "{s} is now due on {a} instead."),
        "project",
    ),
    _said(
        "project_language",
        ("{s} is written in {a}.", "The code of {s} is in {a}."),
        (
            "In which programming language is {s} written?",
            "What programming language does {s} use?",
            "Which language must one know to program for {s}?",
            "What language is the code of {s} in?",
            "What programming language is {s} written in?",
        ),
        one_of(names.PROGRAMMING_LANGUAGES),
        ("{s} was rewritten in {a}.",),
        "project",
    ),
    _said(
        "project_client",
        ("{s} is built for {a}.", "The client of {s} is {a}."),
        (
            "Who is the client of {s}?",
            "For which company is {s} built?",
            "Which client pays for {s}?",
            "Which company is the client of {s}?",
            "For which client is {s} built?",
        ),
        one_of(names.COMPANIES),
        (),
        "project",
    ),
)
