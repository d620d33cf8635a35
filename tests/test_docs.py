"""What the pages show is real: every block of code is counted and checked, and pages keep to their limits."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import shlex
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main
import yaml

from pages import BLOCKS, DOCS, PAGES, ROOT, Block, blocks
from plugins import attentive, cubic, jensen_shannon, keywords, letters, within_one
from understill import pipeline
from understill.cli import app
from understill.plugins import ANNEALING, LOSSES, NETWORKS, TAGGERS, TEACHERS
from understill.recipe import Recipe, make_recipe
from understill.recipe.section import Every, Section
from understill.tasks import METRICS

PLUGINS = DOCS / "plugins.md"
RECIPES = [block for block in BLOCKS if block.language == "yaml" and block.page != PLUGINS]
SHELL = [block for block in BLOCKS if block.language == "bash"]
#: Programs that pages may call besides understill, make and Python.
KNOWN = {".", "chmod", "cp", "curl", "docker", "install", "mkdir", "pip", "systemctl", "taskset"}


def lines_of(block: Block) -> Iterator[str]:
    """Yield the commands of a block, continued lines joined, comments left out."""
    for line in block.body.replace("\\\n", " ").splitlines():
        if (command := line.strip()) and not command.startswith("#"):
            yield command


COMMANDS = [(block.name, line) for block in SHELL for line in lines_of(block) if line.startswith("understill")]
OTHERS = [(block.name, line) for block in SHELL for line in lines_of(block) if not line.startswith("understill")]


@cache
def program() -> Any:
    """Return all verbs, as the parser has them."""
    return typer.main.get_command(app)


def parse(command: str) -> str:
    """Parse a command as the program would, without running it, and return its verb."""
    words = shlex.split(command, comments=True)
    assert words[0] == "understill"
    context = program().make_context("understill", words[1:])
    # The group keeps what follows its own options: the verb, then the verb's own words.
    rest = [*getattr(context, "_protected_args", ()), *context.args]
    name, verb, own = program().resolve_command(context, rest)
    verb.make_context(name, own, parent=context)
    return str(name)


# Every block of code --------------------------------------------------------------------------------------------------


def test_every_block_has_a_language_that_is_checked_and_there_are_many() -> None:
    count = Counter(block.language for block in BLOCKS)
    assert set(count) == {"bash", "csv", "json", "python", "text", "toml", "yaml"}
    # What is shown as text is output, a formula or a drawing; all else is checked below and in test_docs_run.py.
    assert sum(count.values()) - count["text"] >= 100
    assert (count["bash"] >= 50, count["yaml"] >= 20, count["python"] >= 14) == (True, True, True), count
    assert len(RECIPES) >= 14 and len(COMMANDS) >= 100
    assert {parse(command) for _, command in COMMANDS} >= {"init", "check", "run", "predict", "export", "serve"}


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.name)
def test_every_shell_block_is_valid_shell(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.body, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("place", "command"), COMMANDS, ids=lambda value: str(value))
def test_every_command_of_the_pages_exists(place: str, command: str) -> None:
    assert parse(command), place


def test_every_other_command_of_the_pages_is_known() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert len(OTHERS) >= 30
    for place, line in OTHERS:
        for command in re.split(r" && ", line):
            words = shlex.split(re.sub(r"^\(umask 077; (.*)\)$", r"\1", command), comments=True)
            name = Path(words[0]).name if words[0] != "." else "."
            if name == "make":
                assert words[1] in targets, (place, line)
            elif re.fullmatch(r"python[\d.]*", name):
                script = words[1]
                assert script in ("-c", "-m") or (ROOT / script).exists(), (place, line)
            elif name == "torchrun":
                assert parse(shlex.join(words[words.index("-m") + 1 :])), (place, line)
            else:
                assert name in KNOWN or re.match(r"[A-Z]+=", words[0]), (place, line)


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.name)
def test_every_recipe_of_the_pages_is_valid(block: Block) -> None:
    recipe = make_recipe(yaml.safe_load(block.body))
    assert recipe.tasks


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if each.language in ("json", "csv", "toml")], ids=lambda block: block.name
)
def test_every_block_of_data_can_be_read(block: Block) -> None:
    if block.language == "toml":
        assert tomllib.loads(block.body)
    elif block.language == "csv":
        assert len({len(row) for row in csv.reader(block.body.splitlines())}) == 1
    else:
        try:
            json.loads(block.body)
        except json.JSONDecodeError:
            assert [json.loads(line) for line in block.body.splitlines()]


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


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_a_gap_left_to_fill(page: Path) -> None:
    assert not re.findall(r"\b[A-Z]+_[A-Z_]*TABLE\b|\bTO" + r"DO\b|\| +\| +\| +\|", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_cell_of_a_table_is_longer_than_200_characters(page: Path) -> None:
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.lstrip().startswith("|")]
    cells = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert [cell for cell in cells if len(cell) > 200] == []


def test_the_readme_has_at_most_900_words() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_the_architecture_has_at_most_80_lines_and_links_to_its_decisions() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 80 and "decisions/index.md" in page


def test_every_decision_is_short_has_its_parts_and_stands_in_the_index() -> None:
    index = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    records = sorted((DOCS / "decisions").glob("0*.md"))
    assert len(records) >= 40
    assert re.findall(r"\((0\S+\.md)\)", index) == [record.name for record in records]
    for record in records:
        text = record.read_text(encoding="utf-8")
        assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.M) == ["Context", "Decision", "Consequence"], record
        assert len(text.splitlines()) <= 25, record


# What is generated ----------------------------------------------------------------------------------------------------


def generate() -> Any:
    """Return the program that writes the reference, as a module."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_program_says() -> None:
    stale = [path for path, text in generate().pages().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run: python docs/generate.py"


def test_the_reference_has_every_option_and_every_public_name() -> None:
    import understill

    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    for name, verb in program().commands.items():
        part = page.partition(f"\n## understill {name}\n")[2].partition("\n## ")[0]
        assert verb.hidden or part, name
        for option in verb.params:
            assert (
                verb.hidden
                or option.name == "help"
                or any(f"`{each}" in part for each in option.opts)
                or (option.param_type_name == "argument" and f"`{option.name.upper()}" in part)
            ), (name, option.name)
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    assert re.findall(r"^## understill\.(\w+)$", page, re.M) == understill.__all__


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True))
    assert (tmp_path / "site" / "ko" / "index.html").exists()


# The page on the recipe -----------------------------------------------------------------------------------------------


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
    page = (DOCS / "recipe.md").read_text(encoding="utf-8")
    keys = set(keys_of(Recipe))
    assert len(keys) > 50 and {"checkpoint", "predictions", "folds"} <= keys
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]*`", page))))
    assert keys - words == set()


# The page on plug-ins -------------------------------------------------------------------------------------------------


def test_the_plug_ins_of_the_page_are_those_that_the_tests_run() -> None:
    files = [path for path in sorted((ROOT / "tests" / "plugins").glob("*.py")) if path.stem != "__init__"]
    shown = [block.body for block in blocks(PLUGINS, "python")]
    assert sorted(shown) == sorted(path.read_text(encoding="utf-8") for path in files)


def test_the_recipes_on_plug_ins_can_be_planned(make_tiny: Callable[..., Recipe]) -> None:
    LOSSES.register("jensen_shannon")(jensen_shannon.JensenShannon)
    ANNEALING.register("cubic")(cubic.cubic)
    TEACHERS.register("keywords")(keywords.Keywords)
    NETWORKS.register("attentive")(attentive.Attentive)
    TAGGERS.register("letters")(letters.letters)
    METRICS.register("within_one")(within_one.within_one)
    parts = [yaml.safe_load(block.body) for block in blocks(PLUGINS, "yaml")]
    for part in parts:
        make_tiny(**part)  # every key is known
    students = [part for part in parts if {"encoder", "augment", "distil"} & part.get("student", {}).keys()]
    assert len(students) == 4
    for part in students:
        assert pipeline.make_plan(make_tiny(**part)).models


def test_every_test_that_the_threat_model_names_is_there() -> None:
    page = (DOCS / "security.md").read_text(encoding="utf-8")
    model = page[page.index("## Threat model") : page.index("\n## Files")]
    rows = [line for line in model.splitlines() if line.startswith("| ") and not line.startswith("| they may")]
    named = [re.findall(r"`(test_\w+)`", row) for row in rows if not row.startswith("| it may")]
    assert len(named) > 20
    assert all(named), "every line names a test"
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M)
    }
    assert {name for names in named for name in names} <= there
    assert "docs/security.md" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
