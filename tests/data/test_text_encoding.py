"""Files as spreadsheets, older systems and other countries write them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from understill.data.files import BadFile, data_file
from understill.data.load import load_tasks
from understill.data.read import columns_of, read_rows
from understill.data.text_encoding import OtherEncoding, guess_encoding
from understill.errors import DataError, RecipeError, UserError
from understill.recipe import make_recipe

KOREAN = [
    ("배송이 아직도 안 왔어요", "배송"),
    ("카드가 두 번 결제됐어요", "결제"),
    ("비밀번호를 잊어버렸어요", "계정"),
]
WESTERN = [("Ma commande n’est jamais arrivée à Orléans", "colis"), ("J'ai payé deux fois et très fâché", "facture")]


def table(rows: list[tuple[str, str]], separator: str = ",") -> str:
    return "".join(f"{separator.join(row)}\r\n" for row in [("text", "label"), *rows])


def values(path: Path, *columns: str, **how: str) -> list[tuple[Any, ...]]:
    return [row.values for row in read_rows(data_file(path, **how), columns or ("text", "label"))]


def recipe(**task: Any) -> Any:
    return make_recipe({"tasks": {"own": {"train": "a.csv", "dev": "a.csv", "text": "text", "label": "label", **task}}})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Separators -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_found_whatever_the_file_is_called(name: str, separator: str) -> None:
    quoted = [(f'"one{separator} two, three; four"', "x"), ("plain", "y")]
    Path(name).write_text(table([('"text"', '"label"'), *quoted], separator).split("\r\n", 1)[1], encoding="utf-8")
    assert columns_of(data_file(Path(name))) == ("text", "label")
    assert values(Path(name)) == [(f"one{separator} two, three; four", "x"), ("plain", "y")]


def test_quoted_headers_may_hold_the_usual_separator() -> None:
    Path("a.csv").write_text('"Frage, kurz";"Note, 1 bis 5"\n"Wo ist es?";"3,5"\n', encoding="utf-8")
    assert values(Path("a.csv"), "Frage, kurz", "Note, 1 bis 5") == [("Wo ist es?", "3,5")]


def test_rows_decide_where_a_header_has_both_signs() -> None:
    Path("a.csv").write_text("text;label, or so\nWell, yes, no;x\nhello;y\n", encoding="utf-8")
    assert columns_of(data_file(Path("a.csv"))) == ("text", "label, or so")
    Path("b.csv").write_text("text,label; or so\nwell; yes,x\nhello,y\n", encoding="utf-8")
    assert columns_of(data_file(Path("b.csv"))) == ("text", "label; or so")


@pytest.mark.parametrize("line", ["sep=;", "SEP=;", '"sep=;"', "sep=^"])
def test_excels_first_line_is_obeyed_and_skipped(line: str) -> None:
    sign = line.strip('"')[-1]
    Path("a.csv").write_bytes(b"\xef\xbb\xbf" + f"{line}\r\n{table([('one, two', 'x')], sign)}".encode())
    (row,) = read_rows(data_file(Path("a.csv")), ["text", "label"])
    assert (row.number, row.values) == (3, ("one, two", "x"))


def test_a_given_separator_goes_first() -> None:
    Path("a.csv").write_text("text^label\none, two^x\nthree^y\n", encoding="utf-8")
    assert values(Path("a.csv"), separator="^") == [("one, two", "x"), ("three", "y")]
    with pytest.raises(BadFile, match=r'the whole header is one column, "text\^label" → name the sign'):
        values(Path("a.csv"))


# Encodings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_marked_encodings_are_simply_read(name: str, encoding: str) -> None:
    lines = [f'{{"text": "{text}", "label": "{label}"}}\n' for text, label in KOREAN]
    Path(name).write_text("".join(lines) if name == "a.jsonl" else table(KOREAN), encoding=encoding, newline="")
    assert values(Path(name)) == KOREAN


@pytest.mark.parametrize(
    ("encoding", "rows", "named"),
    [
        ("cp949", KOREAN, "cp949"),
        ("euc_kr", KOREAN, "cp949"),
        ("cp1252", WESTERN, "cp1252"),
        ("utf-16-le", KOREAN, "utf-16-le"),
        ("utf-16-be", WESTERN, "utf-16-be"),
    ],
)
def test_another_encoding_is_named_in_one_sentence_with_the_remedy(
    tmp_path: Path, encoding: str, rows: list[tuple[str, str]], named: str
) -> None:
    Path("a.csv").write_text(table(rows * 50), encoding=encoding, newline="")
    with pytest.raises(UserError) as error:
        load_tasks(recipe(), tmp_path / "cache")
    assert str(error.value) == (
        f"a.csv: the text is not UTF-8; it looks like {named} "
        f"→ write encoding: {named} in its task, or save the file as UTF-8"
    )
    assert values(Path("a.csv"), encoding=named) == rows * 50
    loaded = load_tasks(recipe(encoding=named), tmp_path / "cache")
    assert loaded["own"].task.labels == tuple(sorted({label for _, label in rows}))


def test_an_encoding_that_shows_late_is_still_seen() -> None:
    plain = [("nothing but plain English here", "x")] * 60_000
    Path("a.csv").write_text(table([*plain, *KOREAN]), encoding="cp949", newline="")
    with pytest.raises(OtherEncoding, match="it looks like cp949"):
        values(Path("a.csv"))


@pytest.mark.parametrize(("encoding", "text"), [("cp1251", "Где мой заказ, он не пришёл"), ("gbk", "我的包裹还没有到")])
def test_no_encoding_is_named_where_none_fits(encoding: str, text: str) -> None:
    assert guess_encoding((text * 20).encode(encoding)) is None
    Path("a.csv").write_bytes(f"text,label\n{text * 20},x\n".encode(encoding))
    with pytest.raises(OtherEncoding, match="the text is not UTF-8 → write its encoding: in its task"):
        values(Path("a.csv"))


def test_changing_the_encoding_reads_the_rows_again(tmp_path: Path) -> None:
    Path("a.csv").write_text(table(WESTERN * 20), encoding="cp1252", newline="")
    one = load_tasks(recipe(encoding="cp1252"), tmp_path / "cache")["own"].splits["train"]
    other = load_tasks(recipe(encoding="cp1250"), tmp_path / "cache")["own"].splits["train"]
    assert one.fingerprint != other.fingerprint
    assert one.table()["text1"].to_pylist() != other.table()["text1"].to_pylist()


# Scores ---------------------------------------------------------------------------------------------------------------


def scores(tmp_path: Path, cells: list[str], **task: Any) -> list[float]:
    rows = "".join(f"some text {n};{cell}\n" for n, cell in enumerate(cells * 10))
    Path("a.csv").write_text("text;label\n" + rows, encoding="utf-8")
    data = load_tasks(recipe(kind="regression", **task), tmp_path / "cache")["own"].splits["train"]
    return sorted(set(data.table()["label"].to_pylist()))


def test_decimal_commas_are_read(tmp_path: Path) -> None:
    assert scores(tmp_path, ["3,5", "4", " 0,125 ", "-1,25"]) == [-1.25, 0.125, 3.5, 4.0]
    assert scores(tmp_path, ["3.5", "4", "0.125"]) == [0.125, 3.5, 4.0]


def test_commas_that_may_part_thousands_are_asked_about(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        scores(tmp_path, ["1,200", "800"])
    assert '"1,200" is not a number → write decimal: "," in the task if scores have commas' in str(error.value)
    assert scores(tmp_path, ["1,200", "800"], decimal=",") == [1.2, 800.0]


def test_a_point_among_decimal_commas_is_a_bad_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'"1\.200" is not a number with a decimal comma'):
        scores(tmp_path, ["1.200", "3,5"], decimal=",")
    with pytest.raises(DataError, match='"3,5" is not a number'):
        scores(tmp_path, ["1.200", "3,5"])


# Recipe keys ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"encoding": "cp94"}, 'there is no encoding "cp94" → did you mean "cp949"?'),
        ({"separator": ";;"}, "cannot separate cells"),
        ({"separator": "x"}, "cannot separate cells"),
        ({"decimal": ","}, "decimal is for scores"),
        ({"hub": "some/set", "encoding": "cp949"}, "only files of your own have this"),
    ],
)
def test_keys_that_make_no_sense_are_refused(task: dict[str, str], message: str) -> None:
    with pytest.raises(RecipeError) as error:
        recipe(**task)
    assert message in str(error.value)


def test_a_tab_may_be_written_as_a_word() -> None:
    assert recipe(separator="tab").tasks["own"].separator == "\t"


def test_listed_labels_are_meant_without_blanks(tmp_path: Path) -> None:
    Path("a.csv").write_text(table([("one", "yes "), ("two", " no"), ("three", "yes"), ("four", "no")] * 9))
    assert load_tasks(recipe(labels=["no ", "yes"]), tmp_path / "cache")["own"].task.labels == ("no", "yes")


def test_texts_without_labels_are_read_as_their_task_says(tmp_path: Path) -> None:
    for name in ("a.csv", "logs.csv"):
        Path(name).write_text(table(KOREAN * 9), encoding="cp949", newline="")
    given = recipe(encoding="cp949").tasks["own"].model_dump(exclude_unset=True)
    distilled = make_recipe({"tasks": {"own": {**given, "unlabelled": "logs.csv"}}, "teachers": [{"name": "large"}]})
    texts = load_tasks(distilled, tmp_path / "cache")["own"].splits["unlabelled"].table()["text1"].to_pylist()
    assert set(texts) == {text for text, _ in KOREAN}


# Excel ----------------------------------------------------------------------------------------------------------------


def workbook(path: Path, rows: list[list[Any]]) -> Path:
    from openpyxl import Workbook

    book = Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def test_the_first_sheet_of_a_workbook_is_read() -> None:
    path = workbook(Path("a.xlsx"), [["text", "label", "score"], ["one; two", "x", 3.5], [], ["three", None, 4]])
    assert columns_of(data_file(path)) == ("text", "label", "score")
    result = list(read_rows(data_file(path), ["score", "text", "label"]))
    assert [(row.number, row.values) for row in result] == [(2, (3.5, "one; two", "x")), (4, (4, "three", None))]
    assert data_file(path).place(4) == "a.xlsx:row 4"


def test_a_workbook_trains_as_a_csv_does(tmp_path: Path) -> None:
    rows = [[f"some text {n}", ("x", "y")[n % 2]] for n in range(30)]
    workbook(Path("a.xlsx"), [["text", "label"], *rows])
    loaded = load_tasks(recipe(train="a.xlsx", dev="a.xlsx"), tmp_path / "cache")["own"]
    assert loaded.task.labels == ("x", "y")
    assert loaded.splits["train"].rows == 30


def test_a_workbook_with_a_cell_too_many_or_without_rows_says_so() -> None:
    path = workbook(Path("a.xlsx"), [["text", "label"], ["one", "x", "more"]])
    assert [row.fault for row in read_rows(data_file(path), ["text", "label"])] == ["3 cells where the header has 2"]
    with pytest.raises(BadFile, match="the file is empty"):
        columns_of(data_file(workbook(Path("b.xlsx"), [])))
    with pytest.raises(BadFile, match='there is no column "texts"'):
        values(path, "texts")


def test_without_openpyxl_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    path = workbook(Path("a.xlsx"), [["text", "label"], ["one", "x"]])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(BadFile, match=r'Excel files need openpyxl.* → pip install "understill\[excel\]"'):
        values(path)
