"""SAN heads in a model: the same packed or padded, alone or in a batch, before and after saving; through whole runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import MOOD, STARS, TOPIC, liven, some_batch, some_batches, wider
from understill import pipeline
from understill.data.packed import pack
from understill.errors import UserError
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model, save_model
from understill.models.heads import Head
from understill.models.multitask import MultiTaskModel, continued, new_model
from understill.models.san import San
from understill.recipe import Recipe
from understill.recipe.schema import EncoderSpec, HeadsSpec

OTHER = replace(TOPIC, name="other", head="other")
TASKS = (MOOD, TOPIC, STARS, OTHER)


def model(folder: Path, **heads: Any) -> MultiTaskModel:
    made = new_model(EncoderSpec(name=str(folder), max_length=32), HeadsSpec(pairs="san", **heads), TASKS, 0)
    liven(made)
    return made.eval()


def test_only_pairs_that_are_sorted_into_classes_have_such_a_head(tiny: Path) -> None:
    assert [type(head) for head in model(tiny).heads.tasks] == [Head, San, Head, San]
    own = model(tiny, tasks={"other": {"kind": "linear"}})
    assert [type(head) for head in own.heads.tasks] == [Head, San, Head, Head]
    with pytest.raises(UserError, match=r"heads\.tasks\.mood\.kind: san sorts pairs of texts into classes"):
        model(tiny, tasks={"mood": {"kind": "san"}})


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "distilbert"])
def test_neither_padding_nor_company_changes_an_answer(kind: str, tiny_of: Callable[[str], Path]) -> None:
    made, batch = model(tiny_of(kind)).double(), some_batch(6, TASKS)
    with torch.no_grad():
        whole = made(batch)
        torch.testing.assert_close(made(wider(batch, batch.ids.shape[1] + 5)), whole, atol=1e-10, rtol=0)
        for row in range(6):
            alone = batch.part(slice(row, row + 1))
            torch.testing.assert_close(made(alone), whole[row : row + 1], atol=1e-10, rtol=0)
        if made.encoder.packable:
            torch.testing.assert_close(made(pack(batch)), whole, atol=1e-10, rtol=0)
    assert (whole[:, 2:5].exp().sum(1) - 1).abs().max() < 1e-5, "log-probabilities"


def test_where_all_rows_are_of_one_task_the_other_heads_are_not_asked(tiny: Path) -> None:
    made, batch = model(tiny), some_batch(6, TASKS)
    with torch.no_grad():
        whole, only = made(batch), made(batch, 1)
    assert torch.equal(only[:, :6], whole[:, :6]) and (only[:, 6:] == 0).all() and (whole[:, 6:] != 0).all()


def test_batches_of_one_task_know_which(tiny: Path) -> None:
    batches = some_batches(TASKS, mode="one_task")
    for step in range(batches.steps_per_epoch + 3):
        assert set(batches[step].task.tolist()) == {batches.only(step)}
    assert some_batches(TASKS).only(0) is None
    assert some_batches((MOOD,)).only(0) == 0


def test_a_saved_model_gives_the_same_answers(tiny: Path, tmp_path: Path) -> None:
    made, batch = model(tiny, san={"steps": 3, "authors_order": True}), some_batch(6, TASKS)
    save_model(tmp_path / "model", made, load_tokenizer(str(tiny)), {task.name: 32 for task in TASKS}, "{}", {})
    again = load_model(tmp_path / "model").model.eval()
    with torch.no_grad():
        assert torch.equal(again(batch), made(batch))
        assert torch.equal(continued(made, TASKS, made.spec).eval()(batch), made(batch))
    with pytest.raises(UserError, match=r"task topic: heads\.pairs or heads\.san is not as the model was trained"):
        continued(made, TASKS, HeadsSpec())


@pytest.mark.parametrize("batches", ["mixed", "one_task"])
def test_a_run_trains_and_distils_them(batches: str, make_tiny: Callable[..., Recipe]) -> None:
    recipe = make_tiny(
        heads={"pairs": "san", "san": {"steps": 2}},
        training={"steps": 4, "batch": 8, "lr": 1e-3, "batches": batches, "evaluate": "2 steps"},
        teachers=[{"tasks": "each"}],
        targets={"weak": "keep"},
    )
    run = pipeline.run(recipe)
    assert {entry.role for entry in run.models} == {"teacher", "baseline", "student"}
    student = load_model(run.models[-1].folder).model
    assert any(isinstance(head, San) for head in student.heads.tasks)
    linear = make_tiny(training=recipe.training)
    assert pipeline.make_plan(linear).models[0].fingerprint != pipeline.make_plan(recipe).models[-1].fingerprint
