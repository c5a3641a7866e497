"""What an agent hears in Spanish about its own people."""

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
)


def _said(
    name: str,
    statements: tuple[str, ...],
    questions: tuple[str, ...],
    value: ValueMaker,
    news: tuple[str, ...] = (),
) -> AgentRelation:
    return AgentRelation(name, "es", "person", statements, news, questions, value)


SPANISH_RELATIONS = (
    _said(
        "home_city",
        ("{s} vive en {a}.", "{s} tiene su casa en {a}."),
        (
            "¿Dónde vive {s}?",
            "¿En qué ciudad vive {s}?",
            "¿Cuál es la ciudad de residencia de {s}?",
            "¿En qué lugar tiene su casa {s}?",
            "¿A qué ciudad hay que ir para visitar a {s} en su casa?",
        ),
        one_of(names.CITIES["es"]),
        ("{s} se ha mudado y ahora vive en {a}.",),
    ),
    _said(
        "employer",
        ("{s} trabaja en {a}.", "La empresa de {s} se llama {a}."),
        (
            "¿En qué empresa trabaja {s}?",
            "¿Cómo se llama la empresa de {s}?",
            "¿Para quién trabaja {s}?",
            "¿Qué empresa emplea a {s}?",
            "¿Dónde tiene su empleo {s}?",
        ),
        one_of(names.COMPANIES),
        ("{s} ha cambiado de empleo y ahora trabaja en {a}.",),
    ),
    _said(
        "favourite_dish",
        ("El plato favorito de {s} es {a}.", "Lo que más le gusta comer a {s} es {a}."),
        (
            "¿Cuál es el plato favorito de {s}?",
            "¿Qué es lo que más le gusta comer a {s}?",
            "¿Qué comida prefiere {s}?",
            "¿Qué habría que cocinar para alegrar a {s}?",
            "¿Qué plato elegiría {s} antes que ningún otro?",
        ),
        one_of(names.DISHES["es"]),
        ("{s} tiene un nuevo plato favorito: {a}.",),
    ),
    _said(
        "pet_name",
        ("{s} tiene un {animal} que se llama {a}.", "El {animal} de {s} se llama {a}."),
        (
            "¿Cómo se llama el {animal} de {s}?",
            "¿Qué nombre tiene la mascota de {s}?",
            "¿Qué nombre le puso {s} a su {animal}?",
            "¿A qué nombre responde el {animal} de {s}?",
            "¿Cuál es el nombre del animal que vive con {s}?",
        ),
        pet("es"),
    ),
    _said(
        "allergy",
        ("{s} tiene alergia: no tolera {a}.", "Por su alergia, {s} debe evitar {a}."),
        (
            "¿Qué debe evitar {s} por su alergia?",
            "¿Qué alergia tiene {s}?",
            "¿Qué le provoca alergia a {s}?",
            "¿Qué es lo que no tolera {s}?",
            "¿Qué hay que mantener lejos de {s} por razones médicas?",
        ),
        one_of(names.ALLERGIES["es"]),
    ),
    _said(
        "birthday",
        ("{s} cumple años el {a}.", "El cumpleaños de {s} es el {a}."),
        (
            "¿Cuándo cumple años {s}?",
            "¿En qué fecha es el cumpleaños de {s}?",
            "¿Qué día celebra {s} su cumpleaños?",
            "¿Qué fecha debo apuntar para felicitar a {s}?",
            "¿En qué día del año nació {s}?",
        ),
        date_of_year("es"),
    ),
    _said(
        "favourite_colour",
        ("El color favorito de {s} es el {a}.", "A {s} le gusta sobre todo el color {a}."),
        (
            "¿Cuál es el color favorito de {s}?",
            "¿Qué color prefiere {s}?",
            "¿Qué color le gusta más a {s}?",
            "¿De qué color debería ser un regalo para {s}?",
            "¿De qué color pintaría {s} su cuarto?",
        ),
        one_of(names.COLOURS["es"]),
        ("{s} ha cambiado de gustos y ahora su color favorito es el {a}.",),
    ),
    _said(
        "hobby",
        ("La afición de {s} es {a}.", "En su tiempo libre, {s} se dedica a practicar {a}."),
        (
            "¿Cuál es la afición de {s}?",
            "¿A qué dedica {s} su tiempo libre?",
            "¿Qué pasatiempo tiene {s}?",
            "¿Qué le gusta hacer a {s} los fines de semana?",
            "¿Con qué se entretiene {s}?",
        ),
        one_of(names.HOBBIES["es"]),
        ("{s} ha dejado su afición de siempre y ahora practica {a}.",),
    ),
    _said(
        "dentist_day",
        ("{s} tiene cita con el dentista el {a}.", "El dentista espera a {s} el {a}."),
        (
            "¿Cuándo tiene {s} cita con el dentista?",
            "¿En qué fecha va {s} al dentista?",
            "¿Para qué día es la cita de {s} con el dentista?",
            "¿Qué día espera el dentista a {s}?",
            "¿En qué fecha le revisarán los dientes a {s}?",
        ),
        date_of_year("es"),
        ("La cita de {s} con el dentista se ha aplazado al {a}.",),
    ),
    _said(
        "usual_drink",
        ("En el bar, {s} pide siempre {a}.", "Lo que {s} suele beber es {a}."),
        (
            "¿Qué pide siempre {s} en el bar?",
            "¿Qué suele beber {s}?",
            "¿Qué bebida le llevo a {s}?",
            "¿Qué le gusta tomar a {s} por la mañana?",
            "¿Cuál es la bebida habitual de {s}?",
        ),
        one_of(names.DRINKS["es"]),
        ("{s} ha cambiado de costumbre y ahora pide siempre {a}.",),
    ),
    _said(
        "instrument",
        ("{s} toca un instrumento: {a}.", "El instrumento que toca {s} es: {a}."),
        (
            "¿Qué instrumento toca {s}?",
            "¿Con qué instrumento hace música {s}?",
            "¿Qué instrumento estudia {s}?",
            "¿Qué instrumento llevaría {s} a un concierto?",
            "¿Qué practica {s} en la sala de música?",
        ),
        one_of(names.INSTRUMENTS["es"]),
    ),
    _said(
        "emergency_contact",
        (
            "El contacto de emergencia de {s} es {a}.",
            "En caso de emergencia de {s}, hay que llamar a {a}.",
        ),
        (
            "¿Quién es el contacto de emergencia de {s}?",
            "¿A quién hay que llamar si {s} tiene un accidente?",
            "¿A qué persona se avisa si le pasa algo a {s}?",
            "¿Qué nombre figura en la ficha de emergencia de {s}?",
            "¿Con quién se habla cuando {s} necesita ayuda urgente?",
        ),
        full_name("es"),
        ("El contacto de emergencia de {s} ha cambiado y ahora es {a}.",),
    ),
    _said(
        "address",
        ("La dirección de {s} es {a}.", "Las cartas para {s} van a {a}."),
        (
            "¿Cuál es la dirección de {s}?",
            "¿A qué dirección van las cartas para {s}?",
            "¿En qué calle y número recibe {s} el correo?",
            "¿Dónde hay que entregar un paquete para {s}?",
            "¿Qué dirección consta para {s}?",
        ),
        address("es"),
        ("La nueva dirección de {s} es {a}.",),
    ),
)
