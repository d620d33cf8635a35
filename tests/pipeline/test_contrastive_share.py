"""How far a contrastive stage moves the encoder is chosen on folds of the training rows, said, and can be pinned."""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from tiny import WORDS
from understill.events import Tuned
from understill.pipeline import contrastive_share, hyperparameters, make_plan, run
from understill.pipeline.contrastive_share import FOLDS, TO_BE_TRIED, clearly_better, fold_steps
from understill.pipeline.dataloader import held_out
from understill.pipeline.hyperparameter_search import foreseen
from understill.pipeline.initial_weights import contrast_steps
from understill.pipeline.plan.parts import Fold
from understill.recipe import Recipe, load_recipe, make_recipe

CLASSES = ("film", "parcel", "guitar", "account")


@pytest.fixture
def make_task(recipe_values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recipe]:
    """A function that makes a recipe of texts in which a class is a word, said so often among so many others."""
    monkeypatch.setattr(hyperparameters, "RATES", (1e-4, 1e-4))  # the tiny encoder is random, and learns slowly
    others = sorted({word for word in WORDS.lower().split() if word.isalpha()} - {*CLASSES})

    def make(often: int, noise: int, rows: int = 60, **training: Any) -> Recipe:
        dice, path = random.Random(0), tmp_path / "rows.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            for number in range(rows):
                label = CLASSES[number % len(CLASSES)]
                words = [label] * often + dice.sample(others, noise)
                writer.writerow([" ".join(dice.sample(words, len(words))), label])
        task = {"train": str(path), "dev": str(path), "text": "text", "label": "label"}
        encoder = {**recipe_values["encoder"], "pooling": "default"}
        values = {**recipe_values, "tasks": {"topic": task}, "encoder": encoder, "training": training}
        del values["data"]
        return make_recipe(values)

    return make


def test_the_encoder_goes_all_of_the_way_where_it_has_to_learn_and_pinned_trains_the_same_without_folds(
    make_task: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    result = run(make_task(often=2, noise=4), events.append)
    chosen = result.models[0].chosen
    assert chosen is not None
    assert chosen["settings"]["training"]["contrastive"] == {"steps": 90, "share": 1.0}
    (tuned,) = [event for event in events if isinstance(event, Tuned)]
    assert tuned.reasons[-1].startswith(
        "the encoder's weights move all of the way towards the end of the contrastive stage "
        "(on 60 held-out rows: frozen "
    )
    monkeypatch.setattr(contrastive_share, "first_weights", None)
    pinned = result.folder / "pinned.yaml"
    assert tuned.reasons[-1] in pinned.read_text()
    again = run(load_recipe(pinned, ("name=again", f"output.folder={tmp_path / 'elsewhere'}")))
    first, second = (load_file(each.models[0].folder / "model.safetensors") for each in (result, again))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_encoder_goes_half_of_the_way_where_it_knows_the_classes_with_the_weights_that_gave_before(
    make_task: Callable[..., Recipe], tmp_path: Path
) -> None:
    weights = []
    for name, training in (("tried", {}), ("given", {"contrastive": {"steps": 45}})):
        recipe = make_task(often=5, noise=1, **training).model_copy(update={"name": name})
        result = run(recipe)
        chosen = result.models[0].chosen
        assert chosen is not None
        assert chosen["settings"]["training"]["contrastive"] == {"steps": 45, "share": 0.5}
        assert any("half of the way" in reason for reason in chosen["reasons"]) == (name == "tried")
        weights.append(load_file(result.models[0].folder / "model.safetensors"))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("rows", "given", "tried"), [(32, {}, True), (31, {}, False), (60, {"contrastive": {}}, False)]
)
def test_folds_are_foreseen_from_32_rows_on_unless_the_recipe_says_how_far(
    rows: int, given: dict[str, Any], tried: bool, make_task: Callable[..., Recipe]
) -> None:
    plan = make_plan(make_task(2, 4, rows, **given))
    choice, times = foreseen(plan.models[0])
    steps = contrast_steps(rows) + (FOLDS * fold_steps(rows) if tried else 0)
    assert (choice.reasons[-1] == TO_BE_TRIED) == tried
    assert times == pytest.approx(1 + steps / hyperparameters.AFTER_CONTRAST)


def test_every_row_is_held_out_once_and_every_fold_has_its_share_of_each_class(
    make_task: Callable[..., Recipe],
) -> None:
    data = make_plan(make_task(2, 4, 34)).loaded["topic"].splits["train"]
    held = np.stack([held_out(data, Fold(number, FOLDS, by_class=True)) for number in range(FOLDS)])
    assert (held.sum(axis=0) == 1).all()
    labels = np.asarray(data.table()["label"].to_pylist())
    for label, count in Counter(labels.tolist()).items():
        shares = held[:, labels == label].sum(axis=1)
        assert shares.sum() == count
        assert shares.max() - shares.min() <= 1


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1))
def test_of_two_encoders_at_most_one_is_clearly_better_and_five_rows_more_are_the_least(
    pairs: list[tuple[bool, bool]],
) -> None:
    one, other = (np.array(column) for column in zip(*pairs, strict=True))
    assert not (clearly_better(one, other) and clearly_better(other, one))
    if clearly_better(one, other):
        assert one.sum() - other.sum() >= 5
    assert clearly_better(np.ones(5, bool), np.zeros(5, bool))
