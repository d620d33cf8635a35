"""The published recipes mean what they meant when their numbers were measured, whatever has a new default since."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from understill.recipe import Recipe, load_recipe
from understill.recipe.schema import Settings

#: The demo is no published recipe, and neither is one for texts of your own.
OTHERS = ("llm", "quickstart")
RECIPES = [path for path in sorted(Path(__file__).parents[2].glob("recipes/*.yaml")) if path.stem not in OTHERS]

#: As resolved by the version that the numbers were measured with; its defaults were epochs 3, lr 1e-4, evaluation
#: after each epoch, the best weights, the architecture's pooling, sigmoid and linear heads. A row that changes makes
#: the recipe another one, whose numbers have to be measured again.
MEASURED = """
recipe            model                     pooling regression pairs  lr     epochs steps batch evaluate  keep start
ablations         teacher                   default sigmoid    linear 0.0001 4      none  32    1_epochs  best fresh
ablations         student                   default sigmoid    linear 0.0003 6      none  128   1_epochs  best fresh
bam               teacher                   default sigmoid    linear 0.0001 4      none  32    1_epochs  best fresh
bam               student                   default sigmoid    linear 0.0003 6      none  128   1_epochs  best fresh
bilstm            teacher                   default sigmoid    linear 0.0001 4      none  32    1_epochs  best fresh
bilstm            student                   none    sigmoid    linear 1      30     none  50    1_epochs  best fresh
bilstm_multi      teacher                   default sigmoid    linear 0.0001 4      none  32    1_epochs  best fresh
bilstm_multi      student                   none    sigmoid    linear 0.001  10     none  256   1_epochs  best fresh
bilstm_soft       teacher                   default sigmoid    linear 0.0001 4      none  32    1_epochs  best fresh
bilstm_soft       student                   none    sigmoid    linear 0.001  4      14000 512   500_steps best fresh
born_again_multi  teacher                   default sigmoid    linear 0.0003 6      none  128   1_epochs  best fresh
born_again_multi  student                   default sigmoid    linear 0.0003 6      none  128   1_epochs  best fresh
born_again_single teacher                   default sigmoid    linear 0.0001 4      none  32    1_epochs  best fresh
born_again_single student                   default sigmoid    linear 0.0001 4      none  32    1_epochs  best fresh
compress          single                    default sigmoid    linear 0.0001 4      none  32    1_epochs  best fresh
compress          multi                     default sigmoid    linear 0.0003 6      none  128   1_epochs  best fresh
compress          student                   default sigmoid    linear 0.0003 6      none  128   1_epochs  best fresh
hinton            teacher                   default sigmoid    linear 0.0001 4      none  32    1_epochs  best fresh
hinton            student                   default sigmoid    linear 0.0002 4      none  32    1_epochs  best fresh
mtdnn             student                   default raw        san    0.0004 5      none  32    1_epochs  best fresh
mtdnn             student.finetune          default raw        san    0.0002 3      none  32    1_epochs  best fresh
mtdnn_kd          mtdnn-minilm-0.1          default raw        san    0.0004 5      none  32    1_epochs  best fresh
mtdnn_kd          mtdnn-minilm-0.1.finetune default raw        san    0.0002 3      none  32    1_epochs  best fresh
mtdnn_kd          mtdnn-minilm-0.2          default raw        san    0.0004 5      none  32    1_epochs  best fresh
mtdnn_kd          mtdnn-minilm-0.2.finetune default raw        san    0.0002 3      none  32    1_epochs  best fresh
mtdnn_kd          mtdnn-minilm-0.3          default raw        san    0.0004 5      none  32    1_epochs  best fresh
mtdnn_kd          mtdnn-minilm-0.3.finetune default raw        san    0.0002 3      none  32    1_epochs  best fresh
mtdnn_kd          mtdnn-bge-0.1             default raw        san    0.0004 5      none  32    1_epochs  best fresh
mtdnn_kd          mtdnn-bge-0.1.finetune    default raw        san    0.0002 3      none  32    1_epochs  best fresh
mtdnn_kd          mtdnn-bge-0.2             default raw        san    0.0004 5      none  32    1_epochs  best fresh
mtdnn_kd          mtdnn-bge-0.2.finetune    default raw        san    0.0002 3      none  32    1_epochs  best fresh
mtdnn_kd          mtdnn-bge-0.3             default raw        san    0.0004 5      none  32    1_epochs  best fresh
mtdnn_kd          mtdnn-bge-0.3.finetune    default raw        san    0.0002 3      none  32    1_epochs  best fresh
mtdnn_kd          student                   default raw        san    0.0004 5      none  32    1_epochs  best fresh
mtdnn_kd          student.finetune          default raw        san    0.0002 3      none  32    1_epochs  best fresh
multi             student                   default sigmoid    linear 0.0003 6      none  128   1_epochs  best fresh
single            student                   default sigmoid    linear 0.0001 4      none  32    1_epochs  best fresh
stilts            intermediate              default sigmoid    linear 0.0001 4      none  32    1_epochs  best fresh
stilts            student                   default sigmoid    linear 0.0001 4      none  32    1_epochs  best fresh
"""

#: What auto stands for where a learning rate is given; of a network over words, pooling means nothing.
PINNED = {"epochs": 3.0, "evaluate": "1 epochs", "keep": "best", "start": "fresh", "pairs": "linear"}


def cells(settings: Settings) -> Iterator[str]:
    """Yield what a model is trained with, auto resolved as it is where a learning rate is given."""
    encoder, heads, training = settings.encoder, settings.heads, settings.training
    assert training.head_lr is None
    yield "none" if encoder.own else encoder.pooling
    for section, names in ((heads, ("regression", "pairs")), (training, MEASURED.split("\n")[1].split()[5:])):
        for name in names:
            value = getattr(section, name)
            if str(value) == "auto" and training.lr != "auto":
                value = PINNED.get(name, value)
            yield f"{value:g}" if isinstance(value, float) else str(value).replace(" ", "_").lower()


def rows(recipe: Recipe) -> list[list[str]]:
    """Return the settings of all models of a recipe and its variants, each once."""
    made = {}
    for cell in recipe.cells:
        for part in (*cell.recipe.teachers, cell.recipe.student):
            name = getattr(part, "name", None) or "student"
            made[name, *cells(cell.recipe.settings(part))] = None
            if part.finetune:
                made[f"{name}.finetune", *cells(cell.recipe.finetuning(part))] = None
    return [list(row) for row in made]


def measured(name: str) -> list[list[str]]:
    """Return the rows of a recipe in the table."""
    return [row[1:] for row in map(str.split, MEASURED.strip().splitlines()) if row[0] == name]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_published_recipe_has_the_settings_it_was_measured_with(path: Path) -> None:
    assert rows(load_recipe(path)) == measured(path.stem)


def test_every_published_recipe_is_in_the_table() -> None:
    assert {line.split()[0] for line in MEASURED.strip().splitlines()} == {"recipe", *(path.stem for path in RECIPES)}


@pytest.mark.parametrize(
    "change",
    ["encoder.pooling=auto", "heads.regression=unit", "heads.pairs=siamese", "student.training.lr=auto", "seeds=3"],
)
def test_a_change_would_be_noticed(change: str) -> None:
    (path,) = (path for path in RECIPES if path.stem == "bam")
    assert (rows(load_recipe(path, (change,))) == measured("bam")) == (change == "seeds=3")
