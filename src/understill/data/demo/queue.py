"""Demo task `queue`: which of twelve desks a ticket belongs to, although it often mentions the business of another."""

from __future__ import annotations

from understill.data.demo.fill import Columns, Dice, Phrases, capital, fill, flat, objects
from understill.data.demo.world import DATES, DAYS, PRODUCTS

#: What customers say, by queue, as clauses that fit into the middle of a sentence.
SAYINGS: dict[str, Phrases] = {
    "delivery": Phrases.of("""
        the {product} has not been delivered yet
        my parcel with the {product} is stuck at the depot
        the tracking page has not moved for days
        the courier left the {product} with a stranger
        the {product} should have been here on {day}
        the driver never rang the bell
        ---
        nothing has turned up on my doorstep
        the van drove past our house on {day}
        the shipment of the {product} seems to be lost
    """),
    "returns": Phrases.of("""
        I want to send the {product} back
        I need a return label for the {product}
        the {product} does not fit and has to go back
        I would like to return what I bought on {day}
        I do not know where to hand in the {product} I no longer want
        the return period for the {product} ends on {day}
        ---
        somebody should collect the {product} I decided not to keep
        I changed my mind about the {product} and it is packed up again
        the box for sending back the {product} is too small
    """),
    "refund": Phrases.of("""
        I am waiting for my money back
        the refund for the {product} has not come
        you promised to pay me back by {day}
        only half of the price was refunded
        the repayment for the {product} is missing from my account
        my bank has seen no refund since {day}
        ---
        I have yet to be reimbursed for the {product}
        the sum you owe me for the {product} has not been transferred
        the credit for the {product} never reached my card
    """),
    "billing": Phrases.of("""
        the invoice for the {product} is wrong
        I was charged twice for the {product}
        the bill shows a fee I do not know
        I need a copy of the invoice from {day}
        the tax on my invoice is not right
        my card was debited too much on {day}
        ---
        the amount on the receipt is too high
        the statement lists the {product} two times
        you took the payment for the {product} once too often
    """),
    "login": Phrases.of("""
        I cannot log in to my account
        my password is not accepted
        the reset link does not work
        my account has been locked since {day}
        the code for signing in never comes
        I forgot my password on {day}
        ---
        I am shut out of my profile
        the site rejects my username
        the sign-in page keeps throwing me out
    """),
    "repair": Phrases.of("""
        the {product} broke and is under warranty
        the {product} needs to be repaired
        a part of the {product} came off
        the {product} stopped working on {day}
        I want to have the {product} mended
        the guarantee should cover the crack in the {product}
        ---
        the {product} has a defect that somebody should fix
        the {product} gave up the ghost on {day}
        a technician ought to look at the damaged {product}
    """),
    "cancel": Phrases.of("""
        I want to cancel my order
        the order for the {product} has to be stopped
        please do not ship the {product}, I cancelled it
        I ordered the {product} by mistake on {day} and want to cancel
        the cancel button for the {product} is greyed out
        I would like to end my order before {day}
        ---
        I wish to withdraw the purchase of the {product}
        you should call off the order from {day}
        I no longer want the {product} to be sent out
    """),
    "address": Phrases.of("""
        I have moved and my address has changed
        the street on my order is wrong
        the {product} should go to my new flat
        my house number is missing from the order
        I want the {product} sent to my office address
        the postcode I gave on {day} is false
        ---
        we live in another town since {day}
        my old residence is still on file
        the destination for the {product} has to be corrected
    """),
    "stock": Phrases.of("""
        I want to know when the {product} is available again
        the {product} is sold out
        I wonder whether you have the {product} in stock
        the {product} I want is out of stock since {day}
        I ask whether the {product} comes back into the shop
        I would like to hear if there is one {product} left
        ---
        the {product} cannot be found on your shelves
        I hope that you will restock the {product} by {day}
        I am curious if fresh supplies of the {product} are coming
    """),
    "voucher": Phrases.of("""
        my voucher code is not accepted
        the discount was not taken off the {product}
        my gift card shows no balance
        the coupon for the {product} has expired
        the ten percent off were missing on {day}
        I cannot use my voucher for the {product}
        ---
        the promo code does nothing
        the price reduction you advertised on {day} is not applied
        the gift certificate is refused for the {product}
    """),
    "privacy": Phrases.of("""
        I want my personal data deleted
        I no longer want your newsletter
        I ask which data you store about me
        you shared my mail address with others
        I want to be taken off your mailing list
        I did not agree to advertising on {day}
        ---
        all information about me should be erased
        your marketing mails must stop by {day}
        I object to how my details are processed
    """),
    "setup": Phrases.of("""
        I do not understand how to set up the {product}
        the instructions for the {product} are missing
        I need help with putting the {product} together
        I do not know how to use the {product}
        the manual of the {product} is only in another language
        I wonder how to assemble the {product}
        ---
        I am puzzled by the first steps with the {product}
        I need guidance on how to get the {product} going
        nobody explains which screw of the {product} goes where
    """),
}
LABELS = tuple(SAYINGS)

#: {y} is the business of the ticket, {x} that of another queue, which is settled, denied or somebody else's.
FRAMES = (
    "{Y}, and I hope you can help. I have been a customer since {date}.",
    "{Y}. What happens now? My first message was on {date}.",
    "My last ticket said that {x}. That is settled, but now {y}.",
    "{Y}. My last ticket, which said that {x}, is settled.",
    "I do not write because {x}, I write because {y}.",
    "I write because {y}, not because {x}.",
    "Your colleague noted that {x}. In truth {y}.",
    "In truth {y}, and not, as your colleague noted, that {x}.",
    "It is not that {x}, it is that {y}.",
    "{Y}. It was my neighbour who wrote that {x}.",
    "My neighbour wrote that {x}, but my own ticket is that {y}.",
)
WEIGHTS = (3, 3) + (1,) * 9


def make(dice: Dice) -> Columns:
    """Make the rows of a block."""
    labels = dice.below(len(LABELS))
    table, sayings = tuple(SAYINGS.values()), flat(tuple(SAYINGS.values()))
    product, other, day = dice.pick(PRODUCTS), dice.pick(PRODUCTS), dice.pick(DAYS)
    y = fill(sayings, dice.pick_from(table, labels), product=product, day=day)
    x = fill(sayings, dice.pick_from(table, dice.other(labels, len(LABELS))), product=other, day=dice.pick(DAYS))
    cores = fill(FRAMES, dice.weighted(WEIGHTS), x=x, y=y, Y=capital(y), date=dice.pick(DATES))
    return {"message": dice.settle(cores), "label": objects(LABELS)[dice.noisy(labels, len(LABELS))]}
