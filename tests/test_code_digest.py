"""A fingerprint knows the code that makes an artefact, and not what people write about it."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

from understill import code_digest as module_of
from understill.artifact import Artifact
from understill.code_digest import DECIDES, NEUTRAL, PACKAGE, code_digest, without_comments

SOURCES = sorted(PACKAGE.rglob("*.py"))


def without_docstrings(source: str) -> str:
    """A module's syntax tree, as text, with every docstring empty."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant(""))
    return ast.dump(tree)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package as others might have changed it."""
    return shutil.copytree(PACKAGE, tmp_path / "understill", ignore=shutil.ignore_patterns("__pycache__", "static"))


def forget() -> None:
    """Digests are made once in a process."""
    code_digest.cache_clear()
    module_of._digest.cache_clear()


def changed(copy: Path, module: str, old: str, new: str) -> set[str]:
    """The kinds of artefacts that are made again after a change."""
    path = copy / module
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    forget()
    return {kind for kind in DECIDES if code_digest(kind, copy) != code_digest(kind)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_only_comments_and_docstrings_are_left_out(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    bare = without_comments(source)
    assert ast.dump(ast.parse(bare)) == without_docstrings(source)
    assert without_comments(bare) == bare, "no comment and no blank line is left"


def test_a_changed_loss_trains_all_models_again_and_makes_nothing_else_again(copy: Path) -> None:
    assert changed(copy, "losses/squared_error.py", "Return the scores", "Give the scores") == set(), "a docstring"
    assert changed(copy, "losses/squared_error.py", "goal = (wanted", "goal = 2 * (wanted") == {"model"}


@pytest.mark.parametrize(
    ("module", "kinds"),
    [
        ("kernels/adam.py", {"model", "verdict", "targets", "probe"}),
        ("train/cuda_graph.py", {"model"}),
        ("data/tokens.py", set(DECIDES) - {"choice"}),
        ("data/augment.py", {"augmented"}),
        ("data/hub.py", {"data"}),
        ("data/units.py", {"model", "verdict", "targets", "probe"}),
        ("teachers/verdict.py", {"verdict", "targets"}),
        ("train/probe.py", {"model", "probe"}),
        ("models/assets.py", set()),
        ("report/build.py", set()),
    ],
)
def test_a_changed_module_makes_what_it_decides_again(module: str, kinds: set[str], copy: Path) -> None:
    assert (
        changed(copy, module, "from __future__ import annotations\n", "from __future__ import annotations\nX = 1\n")
        == kinds
    )


def test_comments_docstrings_and_blank_lines_make_nothing_again(copy: Path) -> None:
    for path in copy.rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        lines[0] = re.sub(r'^"""\w', '"""Quite another beginning: w', lines[0])
        path.write_text("# a comment\n" + "\n".join(lines) + "\n\n# the end\n", encoding="utf-8")
    assert all(code_digest(kind, copy) == code_digest(kind) != "" for kind in DECIDES)


def test_the_order_of_files_does_not_matter_and_a_new_module_counts(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rglob = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda self, pattern: reversed(sorted(rglob(self, pattern))))
    assert all(code_digest(kind, copy) == code_digest(kind) for kind in DECIDES)
    (copy / "losses" / "another.py").write_text("X = 1\n", encoding="utf-8")
    forget()
    assert {kind for kind in DECIDES if code_digest(kind, copy) != code_digest(kind)} == {"model"}


def test_what_the_table_names_is_there_and_every_kind_of_artefact_is_in_it() -> None:
    places = {*NEUTRAL, *(place for own in DECIDES.values() for place in own)}
    assert not [place for place in places if not (PACKAGE / f"{place}.py").exists() and not (PACKAGE / place).is_dir()]
    made = {kind for path in SOURCES for kind in re.findall(r'\bArtifact\("(\w+)"', path.read_text(encoding="utf-8"))}
    assert made == set(DECIDES)


def test_the_code_is_part_of_an_artefacts_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Artifact("model", "mood", {"lr": 1}, tmp_path)
    monkeypatch.setattr("understill.artifact.code_digest", lambda kind: "another")
    assert Artifact("model", "mood", {"lr": 1}, tmp_path).folder != usual.folder
