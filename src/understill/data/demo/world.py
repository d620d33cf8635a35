"""The things of the demo world that several tasks talk about: products by category, each with another name for it."""

from __future__ import annotations

from understill.data.demo.fill import Phrases

#: Category → products, each as (usual name, other name). The last two of a category are rare.
SHELVES: dict[str, tuple[tuple[str, str], ...]] = {
    "kitchen appliance": (
        ("coffee machine", "espresso maker"),
        ("stove", "cooker"),
        ("fridge", "refrigerator"),
        ("blender", "smoothie mixer"),
        ("toaster", "bread toaster"),
        ("microwave", "microwave oven"),
    ),
    "piece of furniture": (
        ("sofa", "couch"),
        ("armchair", "easy chair"),
        ("wardrobe", "closet"),
        ("desk", "writing table"),
        ("bookshelf", "bookcase"),
        ("bed", "bedstead"),
    ),
    "piece of clothing": (
        ("jumper", "sweater"),
        ("raincoat", "waterproof jacket"),
        ("dress", "gown"),
        ("waistcoat", "vest"),
        ("shirt", "blouse"),
        ("scarf", "shawl"),
    ),
    "electronic device": (
        ("laptop", "notebook computer"),
        ("phone", "mobile"),
        ("television", "flat screen"),
        ("camera", "photo camera"),
        ("tablet", "touchscreen tablet"),
        ("printer", "laser printer"),
    ),
    "garden tool": (
        ("lawnmower", "grass cutter"),
        ("hedge trimmer", "hedge clipper"),
        ("spade", "shovel"),
        ("garden hose", "water hose"),
        ("wheelbarrow", "garden cart"),
        ("rake", "leaf rake"),
    ),
    "musical instrument": (
        ("violin", "fiddle"),
        ("piano", "grand piano"),
        ("drum kit", "set of drums"),
        ("guitar", "acoustic guitar"),
        ("trumpet", "brass trumpet"),
        ("flute", "wooden flute"),
    ),
    "toy": (
        ("doll", "rag doll"),
        ("teddy bear", "stuffed bear"),
        ("jigsaw", "jigsaw puzzle"),
        ("toy train", "model railway"),
        ("kite", "stunt kite"),
        ("rocking horse", "wooden horse"),
    ),
}
CATEGORIES = tuple(SHELVES)
COMMON_PER_CATEGORY = 4
PER_CATEGORY = 6


def _names(place: int) -> Phrases:
    common = tuple(product[place] for shelf in SHELVES.values() for product in shelf[:COMMON_PER_CATEGORY])
    rare = tuple(product[place] for shelf in SHELVES.values() for product in shelf[COMMON_PER_CATEGORY:])
    return Phrases(common, rare)


PRODUCTS = _names(0)
DAYS = Phrases(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"))

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
DATES = Phrases(tuple(f"{day} {month}" for month in _MONTHS for day in range(1, 29)))
