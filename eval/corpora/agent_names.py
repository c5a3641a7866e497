"""Lists from which the agent's own world is combined: people, companies, places and things."""

from __future__ import annotations

from eval.corpora.word_list import word_list

FIRST_NAMES: dict[str, tuple[str, ...]] = {
    "en": word_list(
        "Abigail Adrian Aisha Alfie Amara Anders Anika Arlo Astrid Beatrix Bennett Bridget Caleb "
        "Camille Cedric Celia Clement Dahlia Damon Delphine Desmond Edith Elias Elowen Emeka Esme "
        "Farah Felix Fiona Freya Gideon Greta Hamish Harriet Hugo Imogen Ingrid Isaac Ivo Jasper "
        "Joanna Judith Kasper Keiko Lachlan Leonie Lionel Lorna Magnus Maisie Malik Margot Mateo Mira "
        "Nadia Nathaniel Niamh Odette Omar Oskar Paloma Percy Petra Priya Quentin Ramona Reuben "
        "Rosalind Rufus Saskia Silas Sunniva Tabitha Tariq Tessa Thaddeus Una Vera Viggo Winifred "
        "Xanthe Yasmin Yusuf Zelda"
    ),
    "es": word_list(
        "Adela Agustín Aitana Alonso Amparo Anselmo Araceli Aurelio Belén Benito Bernarda Blas "
        "Candela Casilda Celso Ciro Clotilde Cosme Dalia Damián Delfina Desiderio Eloísa Emeterio "
        "Encarna Ernesto Estela Eusebio Fabiola Fermín Fidel Florencia Gaspar Genoveva Gervasio "
        "Graciela Herminia Hilario Ignacia Inmaculada Isidro Jacinta Jimena Joaquín Lázaro Leandro "
        "Leocadia Lourdes Macarena Marcelino Matilde Melchor Nicanor Nieves Octavio Olalla Pascual "
        "Petronila Ramiro Remedios Renata Rodrigo Salomé Saturnino Socorro Tadeo Teodora Ulises "
        "Valentina Wenceslao Ximena Zacarías"
    ),
}
SURNAMES: dict[str, tuple[str, ...]] = {
    "en": word_list(
        "Abernathy Achterberg Adeyemi Alderidge Ashdown Averbuch Bancroft Bellweather Birkeland "
        "Blackwood Brannigan Calloway Castellano Chakrabarti Cheverton Crowhurst Dalgaard Delacroix "
        "Dunmore Eastwick Ekström Ellington Fairweather Falkenberg Farnsworth Fitzalan Galbraith "
        "Gildersleeve Goldfinch Greenhalgh Halvorsen Hathersage Hollingworth Huxtable Ibekwe "
        "Ingersoll Jankowski Jorgensen Kavanagh Kestrel Kincaid Lanchester Lindqvist Lovelace "
        "MacAllister Marchetti Merriweather Montclair Nakashima Netherby Northcote Okonkwo Oldcastle "
        "Osgood Pemberton Penhaligon Quillfeather Rademaker Ravenscroft Redgrave Rosenthal Saltmarsh "
        "Silverton Stonebridge Tavernier Thistlewood Underhill Vandermeer Wainwright Westerfield "
        "Whitlock Wolstenholme Yarrow Zielinski"
    ),
    "es": word_list(
        "Abascal Acevedo Aguirrezabala Albarracín Alcántara Altamirano Aramburu Arizmendi Balcázar "
        "Barrenechea Belmonte Benavides Bengoechea Bustamante Cabrales Caldera Cañizares Carvajal "
        "Cebrián Cienfuegos Covarrubias Domecq Echeverría Elizondo Escalante Espronceda Etxebarria "
        "Figueroa Fonseca Gallastegui Garmendia Goicoechea Guadarrama Hinojosa Ibarra Irigoyen "
        "Izaguirre Jaramillo Lasarte Lizarraga Lozoya Madariaga Maldonado Montenegro Morientes "
        "Olazábal Ordóñez Otamendi Palomares Peñalver Quintanilla Recabarren Rivadeneira Saavedra "
        "Salazar Sandoval Sotomayor Tordesillas Urrutia Valdivieso Villalobos Villaseñor Yrigoyen "
        "Zabaleta Zubizarreta Zumárraga"
    ),
}
PROJECT_FIRST = word_list(
    "Amber Arctic Autumn Bright Bronze Cedar Cobalt Copper Coral Crimson Crystal Distant Drifting "
    "Dusty Ember Feather Frozen Gentle Gilded Golden Granite Hidden Hollow Indigo Iron Ivory Jade "
    "Lunar Maple Marble Midnight Misty Nimble Northern Opal Pearl Quiet Restless Rising Rustic "
    "Sapphire Scarlet Secret Silent Silver Solar Stormy Velvet Violet Wandering"
)
PROJECT_SECOND = word_list(
    "Anchor Antler Badger Beacon Bison Bridge Canyon Comet Compass Condor Falcon Fjord Forge "
    "Fountain Glacier Harbor Heron Island Juniper Kestrel Lagoon Lantern Lighthouse Lynx Meadow "
    "Meteor Nebula Oak Orchard Osprey Otter Pelican Pine Prairie Puffin Quarry Raven Reef River "
    "Sparrow Summit Sundial Thicket Thistle Tundra Valley Walrus Willow Windmill Wren"
)
CITIES: dict[str, tuple[str, ...]] = {
    "en": word_list(
        "Leeds Bristol Galway Cork Aberdeen Dundee Norwich Cardiff Ghent Antwerp Utrecht Rotterdam "
        "Bergen Malmö Aarhus Tampere Tartu Gdańsk Kraków Brno Graz Basel Lausanne Lyon Nantes "
        "Toulouse Turin Bologna Porto Braga Halifax Winnipeg Calgary Portland Tucson Boise Madison "
        "Savannah Omaha Perth Hobart Dunedin Kyoto Sapporo Busan Penang Mysore Accra Mombasa Izmir"
    ),
    "es": word_list(
        "Bilbao Zaragoza Murcia Valladolid Salamanca Cádiz Oviedo Santander Pamplona Logroño Vigo "
        "Burgos Almería Toledo Cáceres Huesca Girona Lleida Tarragona Castellón Rosario Mendoza "
        "Córdoba Tucumán Valparaíso Concepción Arequipa Trujillo Cuenca Guayaquil Medellín Cali "
        "Cartagena Mérida Puebla Oaxaca Monterrey Guadalajara León Querétaro"
    ),
}
COMPANIES = tuple(
    f"{first} {second}"
    for first in word_list(
        "Ashgrove Bluepeak Brightwater Coppermill Driftwood Eastgate Fernhill Greystone Hartwell "
        "Ironbridge Kingfisher Larkspur Moorland Northwind Oakhaven Pinecrest Redcliff Seabrook "
        "Tallgrass Westbourne"
    )
    for second in ("Analytics", "Foods", "Logistics", "Robotics", "Textiles")
)
JOBS = (
    "carpenter",
    "pharmacist",
    "beekeeper",
    "translator",
    "plumber",
    "midwife",
    "bookbinder",
    "geologist",
    "baker",
    "welder",
    "librarian",
    "surveyor",
    "florist",
    "piano tuner",
    "tax adviser",
    "tram driver",
    "glazier",
    "optician",
    "ferry captain",
    "sound engineer",
    "gardener",
    "locksmith",
    "paramedic",
    "upholsterer",
    "cartographer",
)
DISHES: dict[str, tuple[str, ...]] = {
    "en": (
        "mushroom risotto",
        "fish pie",
        "lentil soup",
        "pad thai",
        "beef stew",
        "shakshuka",
        "pumpkin curry",
        "onion tart",
        "lamb tagine",
        "potato dumplings",
        "prawn laksa",
        "spinach lasagne",
        "bean chili",
        "rhubarb crumble",
        "apple strudel",
        "goulash",
        "ramen",
        "falafel",
        "moussaka",
        "pierogi",
    ),
    "es": (
        "arroz con leche",
        "fabada",
        "gazpacho",
        "tortilla de patatas",
        "cocido",
        "paella",
        "croquetas",
        "pisto",
        "empanadas",
        "ceviche",
        "arepas",
        "tamales",
        "asado",
        "salmorejo",
        "churros",
        "locro",
        "pozole",
        "migas",
        "bacalao al pil-pil",
        "pulpo a la gallega",
    ),
}
PETS: dict[str, tuple[str, ...]] = {
    "en": ("cat", "dog", "parrot", "tortoise", "rabbit", "hamster", "ferret", "guinea pig"),
    "es": ("gato", "perro", "loro", "conejo", "hámster", "hurón"),
}
PET_NAMES: dict[str, tuple[str, ...]] = {
    "en": word_list(
        "Biscuit Bramble Button Caramel Clover Domino Figaro Ginger Hazelnut Jellybean Kipper "
        "Licorice Marzipan Mocha Mustard Nutmeg Paprika Peanut Pickle Pretzel Pudding Radish Saffron "
        "Scout Smudge Sprout Teapot Toffee Truffle Waffles"
    ),
    "es": word_list(
        "Canela Churro Pelusa Trueno Bigotes Galleta Manchas Nube Pipa Regaliz Chispa Turrón Mota "
        "Lenteja Copito Bruma Duende Azafrán Croqueta Morcilla Pimienta Ciruela Tomillo Garbanzo "
        "Truhán"
    ),
}
ALLERGIES: dict[str, tuple[str, ...]] = {
    "en": (
        "peanuts",
        "shellfish",
        "penicillin",
        "birch pollen",
        "latex",
        "wasp stings",
        "sesame",
        "cat hair",
        "soy",
        "kiwi fruit",
        "house dust",
        "mustard",
        "celery",
        "strawberries",
        "nickel",
    ),
    "es": (
        "los cacahuetes",
        "el marisco",
        "la penicilina",
        "el polen",
        "el látex",
        "las avispas",
        "el sésamo",
        "la soja",
        "el kiwi",
        "el polvo",
        "la mostaza",
        "el apio",
        "las fresas",
        "el níquel",
        "los melocotones",
    ),
}
COLOURS: dict[str, tuple[str, ...]] = {
    "en": (
        "teal",
        "maroon",
        "turquoise",
        "mustard yellow",
        "lavender",
        "olive green",
        "navy blue",
        "peach",
        "silver",
        "burgundy",
        "lime green",
        "beige",
    ),
    "es": (
        "turquesa",
        "granate",
        "lavanda",
        "verde oliva",
        "azul marino",
        "plateado",
        "burdeos",
        "beis",
        "naranja",
        "morado",
        "verde lima",
        "ocre",
    ),
}
HOBBIES: dict[str, tuple[str, ...]] = {
    "en": (
        "fencing",
        "pottery",
        "origami",
        "rock climbing",
        "birdwatching",
        "calligraphy",
        "rowing",
        "juggling",
        "stargazing",
        "woodcarving",
        "orienteering",
        "weaving",
        "chess",
        "archery",
        "kayaking",
        "salsa dancing",
    ),
    "es": (
        "la esgrima",
        "la cerámica",
        "la papiroflexia",
        "la escalada",
        "la caligrafía",
        "el remo",
        "los malabares",
        "la astronomía",
        "la talla de madera",
        "el ajedrez",
        "el tiro con arco",
        "el piragüismo",
        "la fotografía",
        "el senderismo",
    ),
}
DRINKS: dict[str, tuple[str, ...]] = {
    "en": (
        "flat white",
        "double espresso",
        "oat milk latte",
        "iced americano",
        "chai latte",
        "peppermint tea",
        "hot chocolate",
        "green tea",
        "cortado",
        "black coffee",
        "ginger tea",
        "matcha latte",
    ),
    "es": (
        "café con leche",
        "cortado",
        "té verde",
        "manzanilla",
        "chocolate caliente",
        "horchata",
        "café solo",
        "té con limón",
        "poleo menta",
        "zumo de naranja",
        "mate",
        "agua con gas",
    ),
}
INSTRUMENTS: dict[str, tuple[str, ...]] = {
    "en": (
        "cello",
        "oboe",
        "accordion",
        "banjo",
        "harp",
        "trombone",
        "mandolin",
        "bassoon",
        "viola",
        "saxophone",
        "clarinet",
        "double bass",
    ),
    "es": (
        "violonchelo",
        "oboe",
        "acordeón",
        "arpa",
        "trombón",
        "mandolina",
        "fagot",
        "viola",
        "saxofón",
        "clarinete",
        "contrabajo",
        "laúd",
    ),
}
STREETS: dict[str, tuple[str, ...]] = {
    "en": (
        "Maple Lane",
        "Harbour Street",
        "Mill Road",
        "Chestnut Avenue",
        "Station Road",
        "Orchard Close",
        "Abbey Walk",
        "Canal Street",
        "Foxglove Drive",
        "Quarry Hill",
        "Rectory Lane",
        "Willow Court",
    ),
    "es": (
        "calle del Olmo",
        "calle Mayor",
        "avenida del Puerto",
        "calle de la Fuente",
        "paseo del Río",
        "calle Nueva",
        "calle del Molino",
        "avenida de la Estación",
        "calle de los Tilos",
        "calle del Horno",
    ),
}
PROGRAMMING_LANGUAGES = (
    "Rust",
    "Go",
    "Kotlin",
    "Elixir",
    "Haskell",
    "Scala",
    "Swift",
    "Julia",
    "Clojure",
    "Erlang",
)
MONTHS: dict[str, tuple[str, ...]] = {
    "en": word_list("January February March April May June July August September October November December"),
    "es": word_list(
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"
    ),
}
