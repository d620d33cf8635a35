"""Reading rows from files of every format, sound and broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from unicodedata import normalize

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understill.data import delimited, read
from understill.data.files import BadFile, data_file, find_files
from understill.data.read import columns_of, read_rows

COLUMNS = ["text", "label"]
ROWS = [("plain", "a"), ('quote " and, comma', "b"), ("two\nlines", "a"), ("日本語 ελληνικά 🙂", "b")]


def write(path: Path, content: bytes | str) -> Path:
    content = content if isinstance(content, bytes) else content.encode()
    if path.suffix == ".gz":
        content = gzip.compress(content)
    if path.suffix == ".zst":
        content = pa.compress(content, codec="zstd", asbytes=True)
    path.write_bytes(content)
    return path


def rows(path: Path, columns: list[str] = COLUMNS, optional: tuple[str, ...] = ()) -> list[read.Row]:
    return list(read_rows(data_file(path), columns, optional))


def as_delimited(sign: str) -> str:
    quoted = [[f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row] for row in ROWS]
    return "".join(sign.join(row) + "\r\n" for row in [["text", "label"], *quoted])


def as_jsonl() -> str:
    return "".join(json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n" for text, label in ROWS)


@pytest.mark.parametrize("codec", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("suffix", "content"), [(".csv", as_delimited(",")), (".TSV", as_delimited("\t")), (".jsonl", as_jsonl())]
)
def test_text_formats_give_the_same_rows_plain_and_compressed(
    tmp_path: Path, suffix: str, content: str, codec: str
) -> None:
    path = write(tmp_path / f"data{suffix}{codec}", content)
    assert [row.values for row in rows(path)] == ROWS


def test_parquet_gives_the_same_rows(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    columns = {"text": [text for text, _ in ROWS], "label": pa.array([x for _, x in ROWS]).dictionary_encode()}
    pq.write_table(pa.table(columns), path)
    assert [row.values for row in rows(path)] == ROWS
    assert data_file(path).place(rows(path)[-1].number) == f"{path}:row 4"


def test_the_place_of_a_csv_row_is_the_line_it_starts_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"one\ntwo\nthree",x\n\nfour,y\n')
    assert [row.number for row in rows(path)] == [2, 6]
    assert data_file(path).place(6) == f"{path}:6"


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "label,other,text\nx,1,hello\n")
    assert rows(path)[0].values == ("hello", "x")


def test_a_byte_order_mark_does_not_belong_to_the_first_column(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "a.csv", b"\xef\xbb\xbftext,label\nhello,x\n"))[0].values == ("hello", "x")
    assert rows(write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"text": "hello", "label": 1}\n'))[0].values == ("hello", 1)


def test_only_the_row_with_broken_bytes_suffers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\nschön,x\n".encode() + b"b\xe4d,x\n" + "schön,y\n".encode())
    texts = [row.values[0] for row in rows(path)]
    assert texts[0] == texts[2] == "schön"
    with pytest.raises(UnicodeEncodeError):
        texts[1].encode()


def test_broken_bytes_in_parquet_are_found_row_by_row(tmp_path: Path) -> None:
    texts = pa.array([b"good", b"b\xe4d", None, b"also good"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": texts, "label": ["x"] * 4}), tmp_path / "a.parquet")
    assert [row.values[0] for row in rows(tmp_path / "a.parquet")] == ["good", "b\udce4d", None, "also good"]


def test_a_wrong_number_of_columns_is_a_fault_of_that_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\nhello, you,x\nfine,y\nshort\n")
    assert [(row.number, row.fault, row.fix) for row in rows(path)] == [
        (2, "3 cells where the header has 2", 'put quotes around texts that contain ","'),
        (3, "", ""),
        (4, "1 cell where the header has 2", ""),
    ]


def test_a_quote_that_is_never_closed_costs_one_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"never closed,x\nfine,y\n"""said"" he",z\n')
    assert [(row.number, bool(row.fault)) for row in rows(path)] == [(2, True), (3, False), (4, False)]
    assert rows(path)[2].values == ('"said" he', "z")


def test_an_open_quote_does_not_swallow_a_long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "LONGEST_ROW", 50)
    path = write(tmp_path / "a.csv", 'text,label\n"never closed,x\n' + "fine,y\n" * 500)
    result = rows(path)
    assert len(result) == 501
    assert [row.number for row in result if row.fault] == [2]


def test_unmatched_quotes_in_tsv_are_ordinary_characters(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'text\tlabel\n"Well" he said\tx\n5" screen\ty\n"whole ""field"""\tz\n')
    assert [row.values[0] for row in rows(path)] == ['"Well" he said', '5" screen', 'whole "field"']


def test_a_field_larger_than_the_csv_module_allows_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "x" * 300_000 + ",y\n")
    assert len(rows(path)[0].values[0]) == 300_000


def test_a_field_beyond_the_limit_is_a_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import csv

    before = csv.field_size_limit(1000)
    monkeypatch.setattr(delimited, "LONGEST_FIELD", 1000)
    try:
        result = rows(write(tmp_path / "a.csv", "text,label\n" + "x" * 2000 + ",y\nfine,y\n"))
    finally:
        csv.field_size_limit(before)
    assert "longer than 1,000 characters" in result[0].fault
    assert result[1].values == ("fine", "y")


def test_json_lines_that_are_no_objects_are_faults(tmp_path: Path) -> None:
    content = '{"text": "a", "label": 1}\n{"text": \n[1, 2]\n\n{"text": "b"}\n' + "[" * 100_000 + "\n"
    result = rows(write(tmp_path / "a.jsonl", content))
    assert [(row.number, row.fault) for row in result] == [
        (1, ""),
        (2, "not a JSON object"),
        (3, "not a JSON object"),
        (5, ""),
        (6, "not a JSON object"),
    ]
    assert result[3].values == ("b", None)


def test_a_csv_without_commas_in_its_header_may_have_semicolons(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text;label\n"one; two";x\nthree, four;y\nfive\n')
    assert columns_of(data_file(path)) == ("text", "label")
    first, second, third = rows(path)
    assert (first.values, second.values) == (("one; two", "x"), ("three, four", "y"))
    assert third.fault == "1 cell where the header has 2"
    assert columns_of(data_file(write(tmp_path / "b.csv", "text,a;b\n1,2\n"))) == ("text", "a;b")


def test_an_optional_column_may_be_absent(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "a.csv", "text\nhello\n"), optional=("label",))[0].values == ("hello", None)
    assert rows(write(tmp_path / "a.jsonl", '{"text": "hello"}\n'), optional=("label",))[0].values == ("hello", None)
    pq.write_table(pa.table({"text": ["hello"]}), tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet", optional=("label",))[0].values == ("hello", None)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_a_missing_column_is_named_with_those_there_are(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"texts": ["hello"], "label": ["x"]}), path)
    else:
        write(path, "texts,label\nhello,x\n" if name == "a.csv" else '{"texts": "hello", "label": "x"}\n')
    with pytest.raises(BadFile) as error:
        rows(path)
    message = 'there is no column "text"; the columns are: texts, label → did you mean "texts"?'
    assert str(error.value) == f"{path}: {message}"


def broken_parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": ["a"], "label": ["b"]}), sink)
    return sink.getvalue().to_pybytes()[:-20]


def empty_parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": pa.array([], pa.string()), "label": pa.array([], pa.string())}), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"\xef\xbb\xbf", "the file is empty"),
        ("a.csv", b"\n\n", "the file is empty"),
        ("a.csv", b"text,label\n", "the file has no rows"),
        ("a.jsonl", b"", "the file is empty"),
        ("a.jsonl", b"\n \n", "the file has no rows"),
        ("a.parquet", b"", "the file is empty"),
        ("a.parquet", empty_parquet(), "the file has no rows"),
        ("a.parquet", b"text,label\n", "not a readable Parquet file"),
        ("a.parquet", broken_parquet(), "not a readable Parquet file"),
        ("a.csv.gz", b"text,label\n", "cannot be unpacked as gzip; it is damaged or cut short"),
        ("a.csv.gz", gzip.compress(b"text,label\nhello,x\n" * 100, mtime=0)[:-12], "cannot be unpacked as gzip"),
        ("a.jsonl.zst", pa.compress(b'{"text": 1}\n' * 9, "zstd", asbytes=True)[:-5], "cannot be unpacked as zstd"),
        ("a.csv", b"text,text,label\na,b,c\n", 'the column "text" is there 2 times'),
        ("a.docx", b"x", "the name does not say what the file holds"),
        ("a.xls", b"x", "the old format of Excel is not read → save the file as .xlsx"),
        ("a.xlsx", b"x", "not a readable Excel file → save the file again as .xlsx, without a password"),
        ("a.xlsx.gz", b"x", "Excel compresses inside"),
        (
            "a.csv",
            "text,label\nhello,x\n".encode("utf-16-le") + b"y",
            "write encoding: utf-16-le",
        ),
        ("a.csv", "text,label\nhello,x\n".encode("utf-16") + b"y", "cannot be read as utf-16"),
        ("a", b"x", "the name does not say what the file holds"),
        ("a.parquet.gz", b"x", "Parquet compresses inside"),
    ],
)
def test_files_that_cannot_be_read_give_one_sentence(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadFile) as error:
        rows(path)
    assert message in str(error.value)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_files_are_found_in_the_first_root_and_globs_are_sorted(tmp_path: Path) -> None:
    for name in ("one/b.csv", "one/a.csv", "two/a.csv", "two/c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, "text\nx\n")
    roots = (tmp_path / "one", tmp_path / "two")
    result = [file.path.relative_to(tmp_path).as_posix() for file in find_files(["a.csv", "c.csv", "*.csv"], roots)]
    assert result == ["one/a.csv", "two/c.csv", "one/a.csv", "one/b.csv"]


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    write(tmp_path / "tickets.csv", "text\nx\n")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadFile, match=r'ticket.csv: no such file → did you mean "tickets.csv"\?'):
        find_files(["ticket.csv"], (tmp_path,))
    with pytest.raises(BadFile, match=r"nothing/\*.csv: no file matches this pattern"):
        find_files(["nothing/*.csv"], (tmp_path,))
    with pytest.raises(BadFile, match=r"is a folder → name the files in it, for instance folder/\*.csv"):
        find_files(["folder"], (tmp_path,))


def test_columns_are_told_for_every_format(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"], "label": ["b"]}), tmp_path / "a.parquet")
    write(tmp_path / "a.csv", "text,label\n")
    write(tmp_path / "a.jsonl", '{"text": 1}\n{"label": 2}\n')
    for name in ("a.parquet", "a.csv", "a.jsonl"):
        assert columns_of(data_file(tmp_path / name)) == ("text", "label")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))), min_size=1))
def test_what_the_csv_module_writes_is_read_back(tmp_path: Path, table: list[tuple[str, str]]) -> None:
    import csv

    path = tmp_path / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([COLUMNS, *table])
    assert [row.values for row in rows(path)] == table


def test_two_stray_quotes_in_a_tsv_swallow_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "stray.tsv"
    path.write_text('text\tlabel\n"hello there\ta\nsecond\tb\nthird\tc\nworld"\td\n', encoding="utf-8")
    result = list(read_rows(data_file(path), ["text", "label"]))
    assert [row.values for row in result] == [
        ('"hello there', "a"),
        ("second", "b"),
        ("third", "c"),
        ('world"', "d"),
    ]
    assert [row.number for row in result] == [2, 3, 4, 5]


# Characters and dates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "xlsx"])
def test_columns_are_found_whichever_way_their_characters_are_written(tmp_path: Path, suffix: str) -> None:
    path, names = tmp_path / f"a.{suffix}", [normalize("NFD", "내용"), "분류"]
    cells = ["환불은 언제 되나요", "결제"]
    if suffix == "parquet":
        pq.write_table(pa.table({name: [cell] for name, cell in zip(names, cells, strict=True)}), path)
    elif suffix == "xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for row in (names, cells):
            book.active.append(row)
        book.save(path)
    elif suffix == "jsonl":
        path.write_text(json.dumps(dict(zip(names, cells, strict=True))), encoding="utf-8")
    else:
        sign = "," if suffix == "csv" else "\t"
        path.write_text("\n".join(sign.join(row) for row in (names, cells)), encoding="utf-8")
    assert columns_of(data_file(path)) == ("내용", "분류")
    assert [row.values for row in read_rows(data_file(path), ["분류", "내용"])] == [("결제", cells[0])]


def test_two_columns_that_look_the_same_are_not_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"é,{normalize('NFD', 'é')}\n1,2\n", encoding="utf-8")
    with pytest.raises(BadFile, match='the column "é" is there 2 times'):
        list(read_rows(data_file(path), ["é"]))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**31 - 1, 0], pa.int32()).cast(pa.date32()),
        pa.array([2**60, 0], pa.int64()).cast(pa.timestamp("us")),
        pa.array([2**62, 0], pa.int64()).view(pa.duration("s")),
    ],
    ids=str,
)
def test_a_date_that_python_does_not_have_is_a_fault_of_its_row(tmp_path: Path, column: pa.Array) -> None:
    pq.write_table(pa.table({"when": column, "text": ["a", "b"]}), tmp_path / "a.parquet")
    first, second = read_rows(data_file(tmp_path / "a.parquet"), ["text", "when"])
    assert first.fault == "a date or time is out of range"
    assert not second.fault
    assert [row.fault for row in read_rows(data_file(tmp_path / "a.parquet"), ["text"])] == ["", ""]
