"""A student network that is one file elsewhere is trained, evaluated, saved, loaded, exported and reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from plugins import attentive
from understill import pipeline
from understill.errors import UserError
from understill.inference.loading import load
from understill.models.folder import load_model
from understill.models.words import WordNetwork, WordsConfig
from understill.pipeline.plan.parts import Plan
from understill.plugins import NETWORKS
from understill.recipe import Recipe, make_recipe
from understill.report.build import build
from understill.report.html import to_html
from understill.report.sections import sections

WORDS = {"hidden": 6, "dense": 8, "size": 10}


@pytest.fixture
def recipe(make_tiny: Callable[..., Recipe]) -> Callable[..., Recipe]:
    """A function that makes a recipe whose student is the plug-in, registered from Python."""
    NETWORKS.register("attentive")(attentive.Attentive)

    def make(name: str = "attentive", **options: Any) -> Recipe:
        own = {"encoder": {"name": name, "words": {**WORDS, "options": options}}, "training": {"lr": 2e-3}}
        return make_tiny(teachers=[{"tasks": "each"}], targets={"weak": "keep"}, student=own)

    return make


def student_print(plan: Plan) -> str:
    (model,) = pipeline.pick_models(plan, ("student",))
    return model.fingerprint


def test_it_is_trained_scored_saved_loaded_and_reported(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    run = pipeline.run(recipe(depth=2))
    student = run.models[-1]
    assert (student.name, student.role) == ("student", "student")
    assert set(student.scores) == {"mood/dev", "follows/dev", "similar/dev"}
    folder = load_model(run.folder / "models" / "student")
    network = folder.model.encoder.network.text
    assert isinstance(network, attentive.Attentive) and len(network.layers) == 2 and network.width == 6
    before, after = (load(run.folder / "models" / "student").predict(["the parcel is late"]) for _ in range(2))
    assert before["mood"][0] == after["mood"][0]
    page = to_html("", sections(build(run.folder, recipe(depth=2), timing=False)))
    assert "a student made of attentive" in page


def test_its_rows_in_a_line_give_what_padded_rows_give(recipe: Callable[..., Recipe]) -> None:
    torch.manual_seed(0)
    network = WordNetwork(WordsConfig("attentive", vocab_size=50, size=7, hidden=5, options={"depth": 2})).eval()
    lengths = torch.tensor([3, 0, 8, 1, 8])
    line = torch.randint(1, 50, (int(lengths.sum()),))
    starts = lengths.cumsum(0) - lengths
    padded = torch.zeros(5, 9, dtype=torch.long)
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        padded[row, :length] = line[start : start + length]
    with torch.no_grad():
        np.testing.assert_allclose(network.read(line, starts, lengths), network(padded, lengths), atol=1e-6)


def test_it_is_exported_as_any_other(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    run = pipeline.run(recipe())
    model = run.folder / "models" / "student"
    out = tmp_path / "onnx"
    pipeline.export(model, recipe(), "onnx", out=out)
    text = ["the parcel is late"]
    ours, theirs = (load(place).predict(text)["mood"][0].probabilities for place in (model, out))
    assert {label: pytest.approx(value, abs=1e-4) for label, value in ours.items()} == theirs


def test_what_decides_it_decides_the_fingerprint(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install: Callable[..., None]
) -> None:
    prints = [student_print(pipeline.make_plan(made)) for made in (recipe(), recipe(depth=2), recipe("static"))]
    assert student_print(pipeline.make_plan(recipe())) == prints[0]
    copied = tmp_path / "changed.py"
    copied.write_text("# changed\n")
    with monkeypatch.context() as patch:
        patch.setattr("inspect.getsourcefile", lambda thing: str(copied))
        prints.append(student_print(pipeline.make_plan(recipe())))
    install(NETWORKS, "attentive", "plugins.attentive:Attentive")
    prints.append(student_print(pipeline.make_plan(recipe())))
    assert len(set(prints)) == 5


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("attentive", {"dept": 2}, 'encoder.words.options.dept: attentive has no such option → did you mean "depth"?'),
        ("bilstm", {"depth": 2}, "encoder.words.options.depth: bilstm has no such option → leave it out"),
    ],
)
def test_options_it_does_not_have_are_refused_before_training(
    recipe: Callable[..., Recipe], name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError) as error:
        pipeline.make_plan(recipe(name, **options))
    assert words in str(error.value)


def test_options_are_plain_values(recipe: Callable[..., Recipe]) -> None:
    with pytest.raises(UserError, match=r"options: .* → write names and plain values, as in {kernel: 3}"):
        recipe(depth=[1, 2])


def test_a_recipe_with_it_is_written_and_read_again(recipe: Callable[..., Recipe]) -> None:
    made = recipe(depth=2)
    assert make_recipe(yaml.safe_load(made.to_yaml())) == made


def test_without_the_plug_in_a_model_says_what_is_missing(
    recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pipeline.run(recipe())
    monkeypatch.setattr(NETWORKS, "_added", {})
    with pytest.raises(UserError, match='there is no network "attentive" → '):
        load_model(run.folder / "models" / "student")
