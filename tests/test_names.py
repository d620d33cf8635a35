"""Names may be of any script, can be folders everywhere, and are the same where they look the same."""

from __future__ import annotations

from glob import glob
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understill import names
from understill.data.files import find_files
from understill.data.resolve import resolve
from understill.errors import UserError
from understill.names import LONGEST, is_name, is_task_name, matching, nfc
from understill.recipe import make_recipe


@pytest.mark.parametrize("name", ["첫실험", "run-1", "tâche_2", "任务", "हिन्दी", "Прогон.3", "١٢", "tiếng_Việt"])
def test_a_name_may_be_of_any_script(name: str) -> None:
    assert is_name(nfc(name))


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../../x", "a/b", "a\\b", "a b", "-a", "_a", ".a", "a\0", "a\n", "a:", "🙂", "a\u202eb", "a\u200bb",
     "x" * (LONGEST + 1), "한" * 27, "\ud800", normalize("NFD", "첫실험"), "é".encode().decode("latin-1")],
)  # fmt: skip
def test_what_could_lead_out_of_a_folder_or_mislead_is_no_name(name: str) -> None:
    assert not is_name(name)


def test_the_name_of_a_task_has_no_dot() -> None:
    assert is_name("a.b")
    assert not is_task_name("a.b")


@given(st.text())
def test_a_name_fits_into_a_folder_and_stays_the_same(text: str) -> None:
    if is_name(text):
        assert nfc(text) == text
        assert len(text.encode()) <= LONGEST
        assert "/" not in text
        assert not text.startswith(".")


def test_a_pattern_that_looks_at_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/b/c/one.csv", "a/b/two.csv", "a/three.csv", ".git/x/four.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for pattern in ("**/*.csv", "*/*.csv", "a/*", "a/b/*.csv", "nowhere/**", "*\0*"):
        assert matching(f"{tmp_path}/{pattern}") == sorted(glob(f"{tmp_path}/{pattern}", recursive=True))
    monkeypatch.setattr(names, "MOST_ENTRIES", 5)
    assert len(matching(f"{tmp_path}/*/*.csv")) == 1, "it looks at four: two folders, and what is in one of them"
    with pytest.raises(OverflowError, match="more than 5 files to look at"):
        matching(f"{tmp_path}/**/*.csv")
    with pytest.raises(UserError, match=r"\*\.csv: there are more than 5 files to look at → name a smaller folder"):
        find_files([f"{tmp_path}/**/*.csv"])


def test_the_whole_disk_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MOST_ENTRIES", 1000)
    with pytest.raises(OverflowError):
        matching("/**/*.nothing")
    recipe = {"tasks": {"mood": {"train": "/**/*.nothing", "text": "text", "label": "label"}}}
    with pytest.raises(UserError, match="files to look at → name a smaller folder"):
        resolve(make_recipe(recipe))
