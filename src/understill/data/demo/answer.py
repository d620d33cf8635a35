"""Demo task `answer`: a question with four candidate answers, of which one helps; the others are near or far misses."""

from __future__ import annotations

import numpy as np

from understill.data.demo.fill import Columns, Dice, Phrases, fill, flat, objects
from understill.data.demo.world import DATES, DAYS, PRODUCTS

GROUP = 4  # candidate answers to a question
LABELS = ("0", "1")  # wrong, right

#: (what customers ask, what helps). Entries 2n and 2n+1 are easily confused: same words, other need.
TOPICS: tuple[tuple[Phrases, Phrases], ...] = (
    (
        Phrases.of("""
            Can I still cancel the {product} before it is shipped?
            How do I stop my order of the {product} while it is in the warehouse?
            ---
            I changed my mind about the {product}, which has not left you yet. What now?
        """),
        Phrases.of("""
            Open your order and press cancel; as long as it has not left us, nothing is charged.
            Orders can be withdrawn in the order list until the parcel is handed to the courier.
            ---
            Use the stop button next to your purchase; it works until dispatch.
        """),
    ),
    (
        Phrases.of("""
            How do I send back the {product} that arrived on {day}?
            I have the {product} here and do not want to keep it. What must I do?
            ---
            The {product} is not for me, and I opened it on {day}. Where does it go?
        """),
        Phrases.of("""
            Print the return label and bring the parcel to a pickup point within thirty days.
            Pack it again, stick the label on the box and hand it to any post office.
            ---
            Put it back into its box; our driver collects it free of charge.
        """),
    ),
    (
        Phrases.of("""
            I forgot my password and cannot get in. What can I do?
            How do I choose a new password?
            ---
            The secret word for my account slipped my mind on {day}. Any way in?
        """),
        Phrases.of("""
            Click on the reset link below the login form and choose new secret letters.
            We send you a link with which you can set another password.
            ---
            Ask for a recovery mail on the sign-in page and follow it.
        """),
    ),
    (
        Phrases.of("""
            I have a new mail address. Where do I change it?
            How can I log in with another mail address than before?
            ---
            My inbox moved to another provider on {day}. How do I tell you?
        """),
        Phrases.of("""
            Open your profile, enter the new address and confirm it in the mail we send there.
            Under settings you can replace the mail address you log in with.
            ---
            Edit the contact details of your account; we then check the new inbox.
        """),
    ),
    (
        Phrases.of("""
            Where is my parcel with the {product} right now?
            How can I follow the {product} on its way to me?
            ---
            Has the {product} left yet, and when will the courier be here?
        """),
        Phrases.of("""
            The tracking number in your mail shows each stop of the parcel.
            Enter your order number on the tracking page to see where it is.
            ---
            The map in the app shows how far the van still has to go.
        """),
    ),
    (
        Phrases.of("""
            Tracking says that the {product} was delivered, but I have nothing. What now?
            The courier claims to have brought the {product} on {day}; it is not here.
            ---
            Somebody must have taken the {product} from my doorstep. Who helps?
        """),
        Phrases.of("""
            Please ask your neighbours first; if it stays lost, we open a search and send another one.
            Report the missing parcel to us and we claim it from the courier.
            ---
            Tell us within a week, and we trace it or replace it.
        """),
    ),
    (
        Phrases.of("""
            Which ways to pay do you offer for the {product}?
            Can I buy the {product} now and pay by invoice?
            ---
            Do you take bank transfer for the {product}?
        """),
        Phrases.of("""
            You can choose between card, transfer and invoice at the checkout.
            We accept all cards, and regular customers may pay after delivery.
            ---
            Pick your preferred method in the last step before buying.
        """),
    ),
    (
        Phrases.of("""
            I was charged twice for the {product}. How do I get one payment back?
            My card shows two payments for the {product} since {day}. Why?
            ---
            Why did you debit the price of the {product} two times?
        """),
        Phrases.of("""
            One of the two is a reservation and disappears by itself within a week.
            Send us the statement and we pay back what was taken too much.
            ---
            The second booking is only held for a few days, then your bank releases it.
        """),
    ),
    (
        Phrases.of("""
            The {product} broke after a few weeks. Is that covered?
            Who repairs the {product} under warranty?
            ---
            Since {day} the {product} is dead. Does the guarantee apply?
        """),
        Phrases.of("""
            Defects within two years are repaired for free; register the fault online.
            Our workshop mends it at no cost if you show the receipt.
            ---
            Faults in the first two years are on us; a technician will look at it.
        """),
    ),
    (
        Phrases.of("""
            How do I clean the {product} without damaging it?
            What should I use to look after the {product}?
            ---
            How can I keep the {product} in good shape for years?
        """),
        Phrases.of("""
            Use a soft, damp cloth and never any strong cleaner.
            Wipe it once a week and keep it away from direct sun.
            ---
            A little care oil twice a year and a dry cloth are enough.
        """),
    ),
    (
        Phrases.of("""
            When will you have the {product} in stock again?
            The {product} is sold out. Will it come back?
            ---
            Is there any hope of getting the {product}, which is no longer listed?
        """),
        Phrases.of("""
            New supplies come in next month; press remind me and we will write to you.
            It will be available again soon, and you can reserve one now.
            ---
            The maker is producing more; leave your mail and you hear first.
        """),
    ),
    (
        Phrases.of("""
            Will the {product} be cheaper soon, and do you give a discount?
            Where do I enter my voucher for the {product}?
            ---
            Is there any rebate on the {product}?
        """),
        Phrases.of("""
            There is a field for codes in the basket, and newsletter readers get ten percent off.
            Type the code before you pay; the price drops at once.
            ---
            Our sale starts next month, and coupons can be added at the checkout.
        """),
    ),
)

ASKING = ("{asked}", "{asked}", "I have been a customer since {date}. {asked}")
#: An answer may name the product or not; a wrong one that names it is a lure.
LEADS = Phrases(("", "", "", "Happy to help. ", "Thank you for your question. ", "About the {product}: "))


def make(dice: Dice) -> Columns:
    """Make the rows of a block, whole groups only; their `group` is a number within the block."""
    ask = Dice(dice.rng, dice.split, dice.rows // GROUP)
    topic, product = ask.below(len(TOPICS)), ask.pick(PRODUCTS)
    questions = tuple(question for question, _ in TOPICS)
    asked = fill(flat(questions), ask.pick_from(questions, topic), product=product, day=ask.pick(DAYS))
    asked = fill(ASKING, ask.below(len(ASKING)), asked=asked, date=ask.pick(DATES))
    # The candidates: the right topic, its twin, and two others from different pairs.
    pair = topic // 2
    step = 1 + ask.below(len(TOPICS) // 2 - 2)
    far = [(pair + step) % (len(TOPICS) // 2), (pair + step + 1) % (len(TOPICS) // 2)]
    candidates = np.stack([topic, topic ^ 1, *(2 * near + ask.below(2) for near in far)], axis=1)
    order = ask.rng.random((ask.rows, GROUP)).argsort(axis=1)
    answered = np.take_along_axis(candidates, order, axis=1).reshape(-1)
    answers = tuple(answer for _, answer in TOPICS)
    helps = fill(flat(answers), dice.pick_from(answers, answered))
    named = fill(LEADS.all, dice.below(len(LEADS.all)), product=np.repeat(product, GROUP))
    return {
        "question": np.repeat(objects(ask.settle(asked)), GROUP),
        "answer": named + helps,
        "label": np.where(order.reshape(-1) == 0, "1", "0").astype(object),
        "group": np.arange(dice.rows) // GROUP,
    }
