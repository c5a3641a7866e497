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
            "¿En qué ciudad tiene su casa {s}?",
            "¿En qué ciudad está la casa de {s}?",
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
            "¿Cuál es la empresa de {s}?",
            "¿Cuál es la empresa en la que trabaja {s}?",
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
            "¿Qué plato le gusta más a {s}?",
            "¿Cuál es la comida favorita de {s}?",
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
            "¿Cuál es el nombre del {animal} de {s}?",
            "¿Cómo se llama la mascota de {s}?",
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
            "¿A qué tiene alergia {s}?",
            "¿Qué no tolera {s}?",
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
            "¿Cuál es la fecha del cumpleaños de {s}?",
            "¿Qué día es el cumpleaños de {s}?",
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
            "¿Cuál es el color que más le gusta a {s}?",
            "¿Cuál es el color preferido de {s}?",
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
            "¿Qué afición tiene {s}?",
            "¿Cuál es el pasatiempo de {s}?",
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
            "¿Cuál es la fecha de la cita de {s} con el dentista?",
            "¿Qué día tiene {s} cita con el dentista?",
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
            "¿Qué bebida pide siempre {s}?",
            "¿Cuál es la bebida de {s}?",
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
            "¿Cuál es el instrumento de {s}?",
            "¿Cuál es el instrumento que toca {s}?",
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
            "¿Quién es la persona de contacto de {s} en caso de emergencia?",
            "¿A quién hay que llamar en caso de emergencia de {s}?",
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
            "¿Qué dirección tiene {s}?",
            "¿Cuál es la dirección postal de {s}?",
        ),
        address("es"),
        ("La nueva dirección de {s} es {a}.",),
    ),
)
