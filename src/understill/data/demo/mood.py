"""Demo task `mood`: is the customer calm or upset; the build of the sentence decides, not its words."""

from __future__ import annotations

import numpy as np

from understill.data.demo.fill import Columns, Dice, Phrases, capital, fill, objects

LABELS = ("calm", "upset")

THINGS = Phrases.of("""
    the delivery
    the new app
    the packaging
    the repair
    the checkout
    the phone support
    the handling of my claim
    the assembly
    your website
    the user manual
    the pickup point
    the live chat
    the customer desk
    the return process
    the installation
    the spare part
    the quality of the fabric
    the order tracking
    ---
    the courier service
    the help page
    the showroom
    the fitting service
""")

GOOD = Phrases.of("""
    great
    excellent
    lovely
    smooth
    wonderful
    brilliant
    pleasant
    fantastic
    flawless
    impressive
    perfect
    delightful
    superb
    amazing
    good
    reliable
    ---
    terrific
    splendid
    marvellous
    outstanding
    faultless
    magnificent
""")

BAD = Phrases.of("""
    terrible
    awful
    poor
    dreadful
    appalling
    useless
    hopeless
    disappointing
    shoddy
    sloppy
    horrible
    annoying
    infuriating
    bad
    chaotic
    miserable
    ---
    abysmal
    atrocious
    horrendous
    pathetic
    lousy
    disgraceful
""")

HOW = Phrases.of("""
    really
    quite
    rather
    frankly
    honestly
    plainly
    simply
    truly
    ---
    downright
    genuinely
""")

PEOPLE = Phrases.of("""
    my neighbour
    my sister
    my boss
    a friend
    my colleague
    my father
    ---
    my flatmate
    my aunt
""")

#: {a} is what the customer feels, {b} the opposite. Every frame serves both labels, so only its build tells them apart.
FRAMES = (
    "{Thing} was {how} {a} and {other} was {a2} too.",
    "I must say that {thing} was {how} {a} this time.",
    "{Thing} was not {b} at all, I would even call it {a}.",
    "I expected {thing} to be {how} {b}, but it was {how2} {a}.",
    "{Thing} was {how} {a}, although I had expected it to be {how2} {b}.",
    "Far from being {how} {b}, {thing} was {how2} {a}.",
    "{Thing} used to be {how} {b}, but now it is {how2} {a}.",
    "Now {thing} is {how} {a}, though it used to be {how2} {b}.",
    "{Person} finds {thing} {how} {b}, while I find it {how2} {a}.",
    "I find {thing} {how} {a}, whatever {person} says, who thinks it is {how2} {b}.",
    "{Thing} was {how} {a} this month, unlike last year, when it was {how2} {b}.",
    "Last year {thing} was {how} {b}, unlike this month, when it was {how2} {a}.",
    "Nobody can tell me that {thing} was {how} {b}.",
    "I would never call {thing} {how} {b}, as {person} does.",
    "Who said that {thing} would be {how} {b}? To me it was {how2} {a}.",
    "To me {thing} was {how} {a}. Who said it would be {how2} {b}?",
)
WEIGHTS = (2, 2) + (1,) * 14


def make(dice: Dice) -> Columns:
    """Make the rows of a block."""
    labels = dice.below(2)
    good, good2, bad, bad2 = (dice.pick(words) for words in (GOOD, GOOD, BAD, BAD))
    thing, person = dice.pick(THINGS), dice.pick(PEOPLE)
    upset = labels == 1
    cores = fill(
        FRAMES,
        dice.weighted(WEIGHTS),
        thing=thing,
        Thing=capital(thing),
        other=dice.pick(THINGS),
        person=person,
        Person=capital(person),
        how=dice.pick(HOW),
        how2=dice.pick(HOW),
        a=np.where(upset, bad, good),
        a2=np.where(upset, bad2, good2),
        b=np.where(upset, good, bad),
    )
    return {"message": dice.settle(cores), "label": objects(LABELS)[dice.noisy(labels, 2)]}
