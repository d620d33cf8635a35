"""What the pages show is real: recipes are valid, commands exist, and the page on own data works as written."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import typer.main
import yaml

from plugins import attentive, cubic, jensen_shannon, keywords, letters, within_one
from understill import pipeline
from understill.cli import app
from understill.data.groups import count_queries
from understill.data.load import load_tasks
from understill.data.sketch import sketch_recipe
from understill.plugins import ANNEALING, LOSSES, NETWORKS, TAGGERS, TEACHERS
from understill.recipe import Recipe, load_recipe, make_recipe
from understill.recipe.section import Every, Section
from understill.tasks import METRICS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OWN = ROOT / "docs" / "your-own-data.md"
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^(?P=indent)```", re.M | re.S)


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    body: str

    @property
    def name(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match["language"], match["body"])
        for match in FENCE.finditer(text)
    ]


def commands(block: Block) -> Iterator[str]:
    """Yield the `understill …` lines of a block; in a console block, those after a prompt."""
    for line in block.body.replace("\\\n", " ").splitlines():
        command = line.strip()
        if block.language == "console":
            if not command.startswith("$ "):
                continue  # what a command prints
            command = command.removeprefix("$ ")
        if command.startswith("understill"):
            yield command


BLOCKS = [block for page in PAGES for block in blocks(page)]
RECIPES = [block for block in BLOCKS if block.language == "yaml" and re.search(r"^tasks:", block.body, re.M)]
COMMANDS = [
    (block.name, command)
    for block in BLOCKS
    if block.language in ("bash", "console", "sh", "shell")
    for command in commands(block)
]


def parse(command: str) -> str:
    """Parse a command as the program would, without running it, and return its verb."""
    words = shlex.split(command, comments=True)
    assert words[0] == "understill"
    program: Any = typer.main.get_command(app)
    context = program.make_context("understill", words[1:])
    # The group keeps what follows its own options: the verb, then the verb's own words.
    rest = [*getattr(context, "_protected_args", ()), *context.args]
    name, verb, own = program.resolve_command(context, rest)
    verb.make_context(name, own, parent=context)
    return str(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_has_a_gap_left_to_fill(page: Path) -> None:
    assert not re.findall(r"\b[A-Z]+_[A-Z_]*TABLE\b|\bTO" + r"DO\b|\| +\| +\| +\|", page.read_text(encoding="utf-8"))


def test_the_pages_show_recipes_and_commands() -> None:
    assert len(RECIPES) >= 3
    assert len(COMMANDS) >= 10
    assert {block.page.name for block in RECIPES} >= {"README.md", "your-own-data.md"}
    assert {parse(command) for _, command in COMMANDS} >= {"init", "check", "run", "predict"}


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.name)
def test_every_recipe_of_the_pages_is_valid(block: Block) -> None:
    recipe = make_recipe(yaml.safe_load(block.body))
    assert recipe.tasks


@pytest.mark.parametrize(("place", "command"), COMMANDS, ids=lambda value: str(value))
def test_every_command_of_the_pages_exists(place: str, command: str) -> None:
    assert parse(command), place


@pytest.mark.parametrize(
    "command",
    ["understill trane x.yaml", "understill run x.yaml --epochs 3", "understill run", "understill data --examples two"],
)
def test_a_command_that_does_not_exist_would_be_found(command: str) -> None:
    with pytest.raises(Exception, match=r"No such|Missing|Invalid|valid") as error:
        parse(command)
    assert type(error.value).__name__ in {
        "UsageError",
        "NoSuchOption",
        "MissingParameter",
        "BadParameter",
        "NoSuchCommand",
    }


# The page on own data -------------------------------------------------------------------------------------------------

TROUBLES = {"billing": "I was charged twice", "delivery": "the parcel never came", "access": "my account is locked"}


def write_own_files(folder: Path) -> list[str]:
    """Write the three files that the page speaks of."""
    queues, count = list(TROUBLES), range(60)
    said = [f"Hello , {TROUBLES[queues[n % 3]]} , order {n}" for n in count]
    tables = {
        "tickets.csv": [("message", "queue"), *((said[n], queues[n % 3]) for n in count)],
        "urgency.csv": [("message", "urgency"), *((said[n], n * 7 % 100 / 10) for n in count)],
        "pairs.csv": [
            ("question", "candidate", "same"),
            *((said[n], f"Again : {said[(n + n // 20) % 60]}", "no" if n // 20 else "yes") for n in count),
        ],
    }
    for name, rows in tables.items():
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    return list(tables)


def test_the_page_on_own_data_does_what_it_says(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = write_own_files(tmp_path)
    page = blocks(OWN)
    own = next(block for block in page if block.language == "yaml")
    assert own.body.count("\n") == 6  # "six lines"
    guessed = yaml.safe_load(sketch_recipe([Path(name) for name in files]))
    given = yaml.safe_load(own.body)
    columns = [{key: task[key] for key in ("train", "text", "label")} for task in given["tasks"].values()]
    assert [{key: task[key] for key in ("train", "text", "label")} for task in guessed["tasks"].values()] == columns
    assert [task["kind"] for task in guessed["tasks"].values()] == ["classification", "regression", "classification"]

    Path("recipe.yaml").write_text(own.body, encoding="utf-8")
    sets = (f"encoder={tiny}", "training.steps=4", "machine.device=cpu")
    pipeline.run(load_recipe(Path("recipe.yaml"), sets))
    for place in re.findall(r"^\| `(runs/[^`]+)` \|", OWN.read_text(encoding="utf-8"), re.M):
        assert list(tmp_path.glob(place.replace("…", "*"))), place
    python = [block.body for block in page if block.language == "python"]
    assert len(python) == 1 and len(python[0].split("\n")) <= 5  # three lines, and a blank one
    *before, last = python[0].splitlines()
    there: dict[str, Any] = {}
    exec("\n".join(before), there)
    assert eval(last, there) in TROUBLES
    answers = there["model"].predict(["I was charged twice"], ["my account is locked"])
    assert {"yes", "no"} == set(answers["duplicate"][0].probabilities)


def test_the_pages_ranking_loads_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = blocks(OWN)
    (table,) = [block for block in page if block.body.startswith("question,answer,right")]
    recipe = next(block for block in page if block.line > table.line and block.language == "yaml")
    for name in ("faq.csv", "faq_dev.csv"):
        Path(name).write_text(table.body, encoding="utf-8")
    loaded = load_tasks(make_recipe(yaml.safe_load(recipe.body)), tmp_path / "cache")["answer"]
    assert (loaded.task.kind.name, loaded.task.labels) == ("ranking", ("no", "yes"))
    assert count_queries(loaded.splits["train"]) == (2, 2)


# The page on the recipe ----------------------------------------------------------------------------------------------


def parts_of(annotation: Any) -> Iterator[Any]:
    """Yield what an annotation is made of."""
    yield annotation
    for part in get_args(annotation):
        yield from parts_of(part)


def keys_of(section: type[Section]) -> Iterator[str]:
    """Yield every key of the schema, down to the sections inside mappings."""
    for member in section.members():
        for name, field in member.model_fields.items():
            yield name
            for part in parts_of(field.annotation):
                if isinstance(part, type) and issubclass(part, Section) and part is not Every:
                    yield from keys_of(part)


def test_the_recipe_page_names_every_key() -> None:
    page = (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8")
    keys = set(keys_of(Recipe))
    assert len(keys) > 50 and {"checkpoint", "predictions", "folds"} <= keys
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]*`", page))))
    assert keys - words == set()


# The page on plug-ins ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["jensen_shannon", "margin", "cubic", "keywords", "attentive", "letters", "within_one"]
)
def test_the_plug_ins_of_the_page_are_those_that_the_tests_run(name: str) -> None:
    source = (ROOT / "tests" / "plugins" / f"{name}.py").read_text(encoding="utf-8")
    assert source in [block.body for block in blocks(ROOT / "docs" / "plugins.md") if block.language == "python"]


def test_the_recipes_on_plug_ins_can_be_planned(make_tiny: Callable[..., Recipe]) -> None:
    LOSSES.register("jensen_shannon")(jensen_shannon.JensenShannon)
    ANNEALING.register("cubic")(cubic.cubic)
    TEACHERS.register("keywords")(keywords.Keywords)
    NETWORKS.register("attentive")(attentive.Attentive)
    TAGGERS.register("letters")(letters.letters)
    METRICS.register("within_one")(within_one.within_one)
    page = [block for block in blocks(ROOT / "docs" / "plugins.md") if block.language == "yaml"]
    parts = [yaml.safe_load(block.body) for block in page]
    for part in parts:
        make_tiny(**part)  # every key is known
    students = [part for part in parts if {"encoder", "augment", "distil"} & part.get("student", {}).keys()]
    assert len(students) == 4
    for part in students:
        assert pipeline.make_plan(make_tiny(**part)).models
