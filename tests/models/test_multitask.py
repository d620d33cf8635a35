"""The whole model: with one task it is that architecture's own classifier."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from transformers import AutoModelForSequenceClassification

from helpers import MOOD, STARS, TASKS, TOPIC, liven, same, some_batch, some_model, weights_of
from understill.errors import UserError
from understill.models.multitask import MultiTaskModel, continued, new_model
from understill.models.shape import HEAD_SHAPES
from understill.recipe.schema import EncoderSpec, HeadsSpec
from understill.tasks import Task

#: What the parts of our model are called in each architecture's own classifier.
NAMES = {
    "bert": {"out": "classifier"},
    "albert": {"out": "classifier"},
    "roberta": {"dense": "classifier.dense", "out": "classifier.out_proj"},
    "xlm-roberta": {"dense": "classifier.dense", "out": "classifier.out_proj", "network": "roberta"},
    "camembert": {"dense": "classifier.dense", "out": "classifier.out_proj", "network": "roberta"},
    "mpnet": {"dense": "classifier.dense", "out": "classifier.out_proj"},
    "electra": {"dense": "classifier.dense", "out": "classifier.out_proj"},
    "deberta": {"dense": "pooler.dense", "out": "classifier"},
    "deberta-v2": {"dense": "pooler.dense", "out": "classifier", "network": "deberta"},
    "distilbert": {"dense": "pre_classifier", "out": "classifier"},
}


def theirs(kind: str, model: MultiTaskModel, outputs: int) -> torch.nn.Module:
    """Put our weights into the classifier of Hugging Face; every one of its weights must be given."""
    config = copy.deepcopy(model.encoder.config)
    config.num_labels = outputs
    other = AutoModelForSequenceClassification.from_config(config).eval()
    names = NAMES[kind]
    weights = {}
    for name, value in model.state_dict().items():
        if name.startswith("heads.tasks.0."):
            part, what = name.removeprefix("heads.tasks.0.").split(".")
            weights[f"{names[part]}.{what}"] = value
        else:
            weights[name.replace("encoder.network.", f"{names.get('network', kind)}.")] = value
    other.load_state_dict(weights, strict=True)
    return other


def test_every_architecture_whose_head_is_known_is_compared() -> None:
    assert NAMES.keys() == HEAD_SHAPES.keys()


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("task", [TOPIC, STARS])
def test_with_one_task_it_gives_the_logits_of_the_architectures_own_classifier(
    kind: str, task: Task, tiny_of: Callable[[str], Path]
) -> None:
    model = some_model(tiny_of(kind), (task,)).eval()
    liven(model)
    with torch.no_grad():
        batch = some_batch(7, (task,))
        types = {"token_type_ids": batch.types} if model.encoder.typed else {}
        expected = theirs(kind, model, task.outputs)(input_ids=batch.ids, attention_mask=batch.mask.long(), **types)
        assert expected.logits.std(dim=0).min() > 0.1
        torch.testing.assert_close(model(batch), expected.logits, rtol=1e-6, atol=1e-6)


def test_outputs_of_the_tasks_stand_side_by_side(tiny: Path) -> None:
    model = some_model(tiny)
    assert [model.columns(task.name) for task in TASKS] == [slice(0, 2), slice(2, 5), slice(5, 6)]
    assert model(some_batch(5)).shape == (5, 6)
    with pytest.raises(KeyError):
        model.columns("zork")


def test_a_heads_logits_do_not_depend_on_the_other_heads(tiny: Path) -> None:
    together, alone = some_model(tiny).eval(), some_model(tiny, (TOPIC,)).eval()
    liven(together)
    alone.encoder.load_state_dict(together.encoder.state_dict())
    alone.heads.tasks[0].load_state_dict(together.heads.tasks[1].state_dict())
    batch = some_batch(6, (TOPIC,))
    torch.testing.assert_close(alone(batch), together(batch)[:, together.columns("topic")], rtol=0, atol=1e-6)


def test_dropout_of_a_task_is_its_own_or_that_of_all(tiny: Path) -> None:
    heads = HeadsSpec(dropout=0.25, tasks={"topic": {"dropout": 0.0}, "stars": {"dropout": 0.5}})  # type: ignore[dict-item]
    model = new_model(EncoderSpec(name=str(tiny)), heads, TASKS, seed=0)
    assert model.heads.rates.tolist() == [0.25, 0.0, 0.5]


def test_rates_do_not_travel_with_the_weights(tiny: Path) -> None:
    assert not any("rates" in name for name in some_model(tiny).state_dict())


def test_the_seed_decides_the_heads_and_nothing_else_does(tiny: Path) -> None:
    torch.manual_seed(5)
    one = weights_of(some_model(tiny, seed=3))
    torch.manual_seed(6)
    two, other = weights_of(some_model(tiny, seed=3)), weights_of(some_model(tiny, seed=4))
    assert same(one, two)
    differing = {name for name in one if not torch.equal(one[name], other[name])}
    assert differing == {f"heads.tasks.{number}.out.weight" for number in range(3)}


def test_making_a_model_leaves_the_random_state_alone(tiny: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    some_model(tiny)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("name", ["type", "forward", "train", "parameters", "a-b_c"])
def test_a_task_may_have_any_name(name: str, tiny: Path) -> None:
    model = some_model(tiny, (Task(name, "classification", ("text",), "label", ("a", "b")), MOOD))
    assert model(some_batch(4, model.tasks)).shape == (4, 4)
    assert model.columns(name) == slice(0, 2)


# Going on from a trained model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "pooling"), [("bert", "default"), ("bert", "mean"), ("mpnet", "default")])
@pytest.mark.parametrize("task", [TOPIC, STARS])
def test_a_continued_model_starts_with_the_logits_of_its_parent(
    kind: str, pooling: str, task: Task, tiny_of: Callable[[str], Path]
) -> None:
    parent = some_model(tiny_of(kind), pooling=pooling).eval()
    liven(parent)
    child = continued(parent, (task,), HeadsSpec()).eval()
    batch = some_batch(6, (task,))
    assert child.tasks == (task,)
    assert child(batch).std(dim=0).min() > 0.1
    torch.testing.assert_close(child(batch), parent(batch)[:, parent.columns(task.name)], rtol=0, atol=1e-6)


def test_a_continued_models_outputs_are_joined_by_the_names_of_labels_and_tasks(tiny: Path) -> None:
    parent = some_model(tiny).eval()
    liven(parent)
    topic = replace(TOPIC, labels=("access", "delivery", "money"))
    child = continued(parent, (STARS, topic), HeadsSpec()).eval()
    batch = some_batch(6, child.tasks)
    delivery, money, access = parent(batch)[:, parent.columns("topic")].unbind(1)
    expected = torch.stack([parent(batch)[:, -1], access, delivery, money], dim=1)
    torch.testing.assert_close(child(batch), expected, rtol=0, atol=1e-6)


def test_a_continued_models_weights_are_its_own(tiny: Path) -> None:
    parent = some_model(tiny)
    before = weights_of(parent)
    child = continued(parent, TASKS, HeadsSpec())
    assert same(weights_of(child), before)
    liven(child)
    assert same(weights_of(parent), before)


def test_a_continued_model_has_the_dropout_it_is_given_and_leaves_the_random_state_alone(tiny: Path) -> None:
    parent = some_model(tiny)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    child = continued(parent, (MOOD, STARS), HeadsSpec(tasks={"stars": {"dropout": 0.5}}), dropout=0.25)  # type: ignore[dict-item]
    assert torch.equal(torch.rand(3), expected)

    def inside(model: MultiTaskModel) -> set[float]:
        return {part.p for part in model.encoder.modules() if isinstance(part, torch.nn.Dropout)}

    assert child.heads.rates.tolist() == pytest.approx([0.1, 0.5])
    assert inside(child) == {0.25}
    assert inside(parent) == inside(continued(parent, (MOOD,), HeadsSpec())) == {0.1}


@pytest.mark.parametrize(
    ("task", "heads", "message"),
    [
        (
            replace(MOOD, name="moody", head="moody"),
            {},
            "the model has no head for moody; it answers mood, topic, stars",
        ),
        (replace(MOOD, labels=("calm", "angry")), {}, "task mood has other labels or another range"),
        (replace(MOOD, labels=("calm", "upset", "angry")), {}, "task mood has other labels or another range"),
        (replace(STARS, range=(0.0, 5.0)), {}, "task stars has other labels or another range"),
        (STARS, {"regression": "raw"}, "heads.regression is raw, the model's unit"),
    ],
)
def test_a_task_that_means_something_else_cannot_be_continued(
    task: Task, heads: dict[str, Any], message: str, tiny: Path
) -> None:
    with pytest.raises(UserError, match=message):
        continued(some_model(tiny), (task,), HeadsSpec(**heads))


def test_a_model_in_another_precision_answers_alike_and_leaves_the_model_as_it_was(tiny: Path) -> None:
    model = some_model(tiny).eval()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    twin, batch = model.rounded(torch.float64), some_batch()
    assert {values.dtype for values in twin.encoder.state_dict().values() if values.is_floating_point()} == {
        torch.float64
    }
    assert twin.heads is model.heads
    with torch.inference_mode():
        assert torch.allclose(twin(batch), model(batch), atol=1e-5)
        assert twin(batch).dtype == model(batch).dtype == torch.float32
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


def test_a_rounded_model_answers_by_its_own_weights_after_accelerate_had_the_model(tiny: Path) -> None:
    model, batch = some_model(tiny).eval(), some_batch(4)
    liven(model)
    AcceleratorState._reset_state()
    accelerator = Accelerator(mixed_precision="bf16", cpu=True)
    accelerator.unwrap_model(accelerator.prepare(model), keep_fp32_wrapper=False)
    AcceleratorState._reset_state()
    twin = model.rounded(torch.float64)
    with torch.no_grad():
        before = model(batch)
        for parameter in twin.encoder.parameters():
            parameter.zero_()
        assert torch.equal(model(batch), before) and not torch.allclose(twin(batch), before)
