"""Files are answered row by row, in pieces, whole or not at all, with their own columns carried along."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from understill.errors import UserError
from understill.inference import stream
from understill.inference.loading import load
from understill.inference.stream import Predicted, predict_file
from understill.inference.torch_model import TorchModel
from understill.tasks import Task

TEXTS = [
    "The parcel never came .",
    "good",
    'He said "no" , then\nleft the line',
    "naïve 🙂 text, with a comma",
    "I was charged twice for one order and nobody listens , please reset the password of my account !",
    "not bad at all",
    "the film ?",
]
ROWS = [
    {"nr": str(number), "text": text, "premise": text, "claim": TEXTS[number - 3]} for number, text in enumerate(TEXTS)
]
TSV_ROWS = [{name: value.replace("\n", " ") for name, value in row.items()} for row in ROWS]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows in the format and compression that the name says."""
    names = list(rows[0])
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    text = io.StringIO(newline="")
    if ".jsonl" in path.suffixes:
        text.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        writer = csv.DictWriter(text, names, delimiter="\t" if ".tsv" in path.suffixes else ",", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    codec = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    with pa.output_stream(str(path), compression=codec) as file:
        file.write(text.getvalue().encode())
    return path


def read(path: Path) -> list[dict[str, Any]]:
    """Read an output; the empty cells of CSV come as None."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()  # type: ignore[no-any-return]
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: value or None for name, value in row.items()} for row in csv.DictReader(file)]


def assert_answers(result: list[dict[str, Any]], predictor: TorchModel, rows: list[dict[str, Any]]) -> None:
    """The answers are those of `TorchModel.predict`."""
    single = predictor.predict([row["text"] for row in rows])
    pairs = predictor.predict([row["premise"] for row in rows], [row["claim"] for row in rows])
    assert len(result) == len(rows)
    for name, answers in {**single, **pairs}.items():
        for row, answer in zip(result, answers, strict=True):
            if answer.probabilities is None:
                assert float(row[f"{name}_predicted"]) == pytest.approx(answer.score, abs=1e-4)
            else:
                assert row[f"{name}_predicted"] == answer.label
                certain = max(answer.probabilities.values())
                assert float(row[f"{name}_probability"]) == pytest.approx(certain, abs=1e-4)


INPUTS = ("csv", "tsv", "jsonl", "parquet", "csv.gz", "tsv.zst", "jsonl.gz", "jsonl.zst")


@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("wanted", ["parquet", "csv", "jsonl"])
def test_every_format_in_and_out_gives_the_predictors_answers(
    predictor: TorchModel, tmp_path: Path, given: str, wanted: str
) -> None:
    rows = TSV_ROWS if given.startswith("tsv") else ROWS
    source, target = write(tmp_path / f"in.{given}", rows), tmp_path / f"out.{wanted}"
    done = predict_file(predictor, source, target)
    assert done == Predicted(7, 0, ("mood", "topic", "stars", "follows", "alike"))
    result = read(target)
    assert [{name: row[name] for name in rows[0]} for row in result] == rows
    assert list(result[0]) == [
        *("nr", "text", "premise", "claim"),
        *("mood_predicted", "mood_probability", "topic_predicted", "topic_probability", "stars_predicted"),
        *("follows_predicted", "follows_probability", "alike_predicted"),
    ]
    assert_answers(result, predictor, rows)
    assert len({row["topic_predicted"] for row in result}) > 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source.name, target.name])


# In pieces ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 3, 7, 100])
@pytest.mark.parametrize("given", ["csv", "parquet"])
def test_the_size_of_the_pieces_changes_nothing(
    predictor: TorchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, given: str
) -> None:
    monkeypatch.setattr(stream, "PIECE", piece)
    reported: list[int] = []
    source, target = write(tmp_path / f"in.{given}", ROWS), tmp_path / "out.parquet"
    assert predict_file(predictor, source, target, progress=reported.append).rows == sum(reported) == 7
    assert_answers(read(target), predictor, ROWS)
    assert reported == [min(piece, 7 - start) for start in range(0, 7, piece)]


def watched(predictor: TorchModel, monkeypatch: pytest.MonkeyPatch, note: Callable[[int], None]) -> TorchModel:
    """Tell how many texts the model is given at a time."""
    answer = predictor.logits

    def logits(texts: Any, *rest: Any, **more: Any) -> Any:
        note(len(texts))
        return answer(texts, *rest, **more)

    monkeypatch.setattr(predictor, "logits", logits)
    return predictor


def test_a_text_file_is_read_only_as_far_as_it_is_answered(
    predictor: TorchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PIECE", 3)
    taken, steps = 0, []
    rows_of = stream.read_rows

    def counted(*given: Any, **more: Any) -> Iterator[Any]:
        nonlocal taken
        for row in rows_of(*given, **more):
            taken += 1
            yield row

    monkeypatch.setattr(stream, "read_rows", counted)
    watched(predictor, monkeypatch, lambda texts: steps.append((taken, texts)))
    predict_file(predictor, write(tmp_path / "in.csv", ROWS), tmp_path / "out.parquet", ["mood"])
    assert steps == [(3, 3), (6, 3), (7, 1)]
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups == 3  # and written as it is read


def test_a_parquet_file_is_read_only_as_far_as_it_is_answered(
    predictor: TorchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PIECE", 3)
    sizes: list[int] = []
    watched(predictor, monkeypatch, sizes.append)
    predict_file(predictor, write(tmp_path / "in.parquet", ROWS), tmp_path / "out.parquet", ["mood"])
    assert sizes == [3, 3, 1]
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups == 3


def test_tasks_that_read_the_same_columns_share_one_pass(
    predictor: TorchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    watched(predictor, monkeypatch, sizes.append)
    predict_file(predictor, write(tmp_path / "in.csv", ROWS), tmp_path / "out.csv")
    assert sizes == [7, 7]  # once for the texts, once for the pairs


@pytest.mark.parametrize("wanted", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("trouble", [RuntimeError, KeyboardInterrupt])
def test_a_failure_in_the_middle_leaves_nothing_half_written(
    predictor: TorchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, trouble: type[BaseException]
) -> None:
    monkeypatch.setattr(stream, "PIECE", 2)
    source, target = write(tmp_path / "in.csv", ROWS), tmp_path / f"out.{wanted}"
    reported: list[int] = []

    def fail(texts: int) -> None:
        if len(reported) == 2:
            raise trouble("in the third piece")

    watched(predictor, monkeypatch, fail)
    for before in (None, b"of yesterday"):
        if before:
            target.write_bytes(before)
        reported.clear()
        with pytest.raises(trouble, match="in the third piece"):
            predict_file(predictor, source, target, ["mood"], progress=reported.append)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv"] + ([target.name] if before else [])
        assert not before or target.read_bytes() == before


def test_a_damaged_file_leaves_nothing_half_written(predictor: TorchModel, tmp_path: Path) -> None:
    whole = write(tmp_path / "in.jsonl.gz", ROWS * 50).read_bytes()
    (tmp_path / "in.jsonl.gz").write_bytes(whole[:-40])
    with pytest.raises(UserError, match="cannot be unpacked as gzip; it is damaged or cut short"):
        predict_file(predictor, tmp_path / "in.jsonl.gz", tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl.gz"]


def test_a_new_output_replaces_an_old_one(predictor: TorchModel, tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.csv", ROWS), tmp_path / "out.jsonl"
    target.write_text("of yesterday")
    predict_file(predictor, source, target, ["mood"])
    assert len(read(target)) == 7


# Rows that cannot be answered -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["jsonl", "csv", "parquet"])
def test_csv_rows_that_cannot_be_answered_keep_their_cells_and_are_named(
    predictor: TorchModel, tmp_path: Path, wanted: str
) -> None:
    content = 'nr,text,note\n1,good,a\n2,,b\n3,"  ",c\n4,good\n5,good,more,d\n6,"good" x,e\n7,not bad,f\n'
    source, target = tmp_path / "in.csv", tmp_path / f"out.{wanted}"
    source.write_text(content, encoding="utf-8")
    done = predict_file(predictor, source, target)
    assert done == Predicted(7, 5, ("mood", "topic", "stars")) and done.answered == 2
    assert list(map(str, done.faults)) == [
        f'{source}:3: no text in column "text"',
        f'{source}:4: no text in column "text"',
        f"{source}:5: 2 cells where the header has 3",
        f"{source}:6: 4 cells where the header has 3",
        f"{source}:7: there is text after a closing quote",
    ]
    result = read(target)
    kept = [[(row[name] or "").strip() for name in ("nr", "text", "note")] for row in result]
    assert kept == [  # every row keeps its place
        *(["1", "good", "a"], ["2", "", "b"], ["3", "", "c"], ["4", "good", ""]),
        *(["5", "good", "more,d"], ['6,"good" x,e', "", ""], ["7", "not bad", "f"]),
    ]
    assert [row["mood_predicted"] is not None for row in result] == [True, False, False, False, False, False, True]
    for row in result:
        assert (
            len(
                {
                    row[name] is None
                    for name in ("mood_predicted", "mood_probability", "topic_predicted", "stars_predicted")
                }
            )
            == 1
        )
    expected = predictor.predict(["good", "not bad"])["stars"]
    assert [float(result[place]["stars_predicted"]) for place in (0, 6)] == pytest.approx(
        [answer.score for answer in expected], abs=1e-4
    )


@pytest.mark.parametrize("given", ["csv", "tsv", "jsonl", "csv.gz"])
def test_a_file_that_is_not_utf_8_is_refused_before_any_work(
    predictor: TorchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    source = write(tmp_path / f"in.{given}", [{"text": "good"}, {"text": "Müll"}])
    with pa.input_stream(str(source), compression="detect") as file:
        content = file.read().decode().encode("latin-1")
    with pa.output_stream(str(source), compression="detect") as file:
        file.write(content)
    watched(predictor, monkeypatch, lambda texts: pytest.fail("the model was asked"))
    with pytest.raises(UserError, match=rf"in\.{given}: the text is not UTF-8; it looks like cp1252 → add --encoding"):
        predict_file(predictor, source, tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_a_file_whose_encoding_is_named_is_answered(predictor: TorchModel, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("nr;text\n1;Müll\n", encoding="latin-1")
    done = predict_file(predictor, tmp_path / "in.csv", tmp_path / "out.jsonl", ["mood"], encoding="latin-1")
    assert done == Predicted(1, 0, ("mood",))
    assert [row["text"] for row in read(tmp_path / "out.jsonl")] == ["Müll"]
    with pytest.raises(UserError, match='there is no encoding "latin-99"'):
        predict_file(predictor, tmp_path / "in.csv", tmp_path / "out.csv", encoding="latin-99")


def test_a_file_of_utf_8_with_a_broken_line_is_refused_by_that_line(predictor: TorchModel, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes("text\nMüll\nMüll\n".encode() + b"M\xfcll\n")
    with pytest.raises(UserError, match=r"in\.csv:4: the text is not UTF-8 → save the file as UTF-8"):
        predict_file(predictor, tmp_path / "in.csv", tmp_path / "out.csv")


def test_a_workbook_is_answered_row_by_row(predictor: TorchModel, tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    for row in (["nr", "text"], [1, "good"], [2, None], [3, "not bad", None, "more"]):
        book.active.append(row)
    book.save(tmp_path / "in.xlsx")
    done = predict_file(predictor, tmp_path / "in.xlsx", tmp_path / "out.jsonl", ["mood"])
    assert (done.rows, done.unanswered) == (3, 2)
    assert [row["text"] for row in read(tmp_path / "out.jsonl")] == ["good", None, "not bad more"]
    with pytest.raises(UserError, match=r"must end in \.parquet, \.csv or \.jsonl"):
        predict_file(predictor, tmp_path / "in.xlsx", tmp_path / "out.xlsx")


def test_a_csv_with_semicolons_is_answered_alike(predictor: TorchModel, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text('\nnr;text\n1;"good; very"\n2;not, so bad\n', encoding="utf-8")
    assert predict_file(predictor, source, tmp_path / "out.csv", ["mood"]) == Predicted(2, 0, ("mood",))
    assert [row["text"] for row in read(tmp_path / "out.csv")] == ["good; very", "not, so bad"]


def test_of_many_rows_without_an_answer_the_first_are_named(predictor: TorchModel, tmp_path: Path) -> None:
    source = write(tmp_path / "in.parquet", [{"text": None}] * 30)
    done = predict_file(predictor, source, tmp_path / "out.parquet")
    assert (done.answered, done.unanswered, len(done.faults)) == (0, 30, stream.SHOWN)
    assert done.faults[-1].place == f"{source}:row {stream.SHOWN}"


def test_json_rows_that_cannot_be_answered_keep_empty_answers_and_are_counted(
    predictor: TorchModel, tmp_path: Path
) -> None:
    lines = ['{"text": "good"}', "not json", '{"text": null}', '{"other": 1}', '{"text": ["good"]}', '{"text": "bad"}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    done = predict_file(predictor, tmp_path / "in.jsonl", tmp_path / "out.parquet")
    assert (done.rows, done.unanswered) == (6, 4)
    result = pq.read_table(tmp_path / "out.parquet")
    assert [value is not None for value in result["mood_predicted"].to_pylist()] == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]


def test_a_key_that_only_a_late_line_of_json_has_is_kept(predictor: TorchModel, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [{"text": "good"}] * 1100 + [{"text": "bad", "note": "mine"}])
    for name in ("out.jsonl", "out.csv"):
        predict_file(predictor, source, tmp_path / name, ["mood"])
        assert [row["note"] for row in read(tmp_path / name)[-2:]] == [None, "mine"]


def test_a_row_may_be_answered_by_some_tasks_only(predictor: TorchModel, tmp_path: Path) -> None:
    rows = [{"text": "good", "premise": "a", "claim": "b"}, {"text": "bad", "premise": "a", "claim": ""}]
    done = predict_file(predictor, write(tmp_path / "in.csv", rows), tmp_path / "out.jsonl")
    assert (done.rows, done.unanswered) == (2, 1)
    whole, half = read(tmp_path / "out.jsonl")
    assert None not in whole.values()
    assert half["mood_predicted"] and half["follows_predicted"] is None and half["alike_predicted"] is None


def test_a_file_in_which_no_row_has_text_is_written_all_the_same(predictor: TorchModel, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [{"text": ""}, {"text": None}])
    for name in ("out.parquet", "out.csv", "out.jsonl"):
        assert predict_file(predictor, source, tmp_path / name).unanswered == 2
        assert [row["mood_predicted"] for row in read(tmp_path / name)] == [None, None]
    schema = pq.read_schema(tmp_path / "out.parquet")
    assert (schema.field("mood_predicted").type, schema.field("stars_predicted").type) == (pa.string(), pa.float32())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the file is empty → give a file with data, or leave this one out"),
        (b"nr,text\n", "the file has no rows → give a file with data, or leave this one out"),
    ],
)
def test_a_file_without_rows_is_refused_and_nothing_is_written(
    predictor: TorchModel, tmp_path: Path, content: bytes, sentence: str
) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes(content)
    with pytest.raises(UserError) as error:
        predict_file(predictor, source, tmp_path / "out.csv")
    assert str(error.value) == f"{source}: {sentence}"
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


@pytest.mark.parametrize("wanted", ["parquet", "csv"])
def test_a_parquet_file_without_rows_is_refused_and_nothing_is_written(
    predictor: TorchModel, tmp_path: Path, wanted: str
) -> None:
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "in.parquet")
    with pytest.raises(UserError, match="the file has no rows"):
        predict_file(predictor, tmp_path / "in.parquet", tmp_path / f"out.{wanted}")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


# Columns --------------------------------------------------------------------------------------------------------------


def test_numbers_in_a_text_column_are_read_as_in_training(predictor: TorchModel, tmp_path: Path) -> None:
    expected = [answer.score for answer in predictor.predict(["7", "12"])["stars"]]
    for number, values in enumerate(([7, 12, None], [7.0, 12.0, float("nan")])):
        pq.write_table(pa.table({"text": values}), tmp_path / f"{number}.parquet")
        for wanted in ("parquet", "csv", "jsonl"):
            target = tmp_path / f"out.{wanted}"
            assert predict_file(predictor, tmp_path / f"{number}.parquet", target, ["stars"]).unanswered == 1
            result = read(target)
            assert [float(row["stars_predicted"]) for row in result[:2]] == pytest.approx(expected, abs=1e-4)
            assert result[2]["stars_predicted"] is None


def test_parquet_stays_parquet_with_every_type_as_it_was(
    predictor: TorchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PIECE", 2)
    carried = pa.table(
        {
            "id": pa.array([1, 2, None], pa.int64()),
            "when": pa.array([1, 1001, 7], pa.timestamp("ns")),
            "tags": pa.array([["a"], [], None], pa.list_(pa.string())),
            "text": pa.array(["good", "bad", "good"], pa.large_string()),
            "lang": pa.array(["en", "de", "en"]).dictionary_encode(),
            "raw": pa.array([b"\xff", b"", None], pa.binary()),
        }
    )
    pq.write_table(carried, tmp_path / "in.parquet")
    predict_file(predictor, tmp_path / "in.parquet", tmp_path / "out.parquet", ["mood"])
    result = pq.read_table(tmp_path / "out.parquet")
    assert result.select(carried.column_names).cast(carried.schema).to_pydict() == carried.to_pydict()
    assert [result.schema.field(name).type for name in ("id", "when", "tags", "text")] == [
        carried.schema.field(name).type for name in ("id", "when", "tags", "text")
    ]
    assert result["mood_predicted"].null_count == 0


def test_values_go_into_text_files_as_people_write_them(predictor: TorchModel, tmp_path: Path) -> None:
    row = {"text": "good", "n": 7, "x": 1.5, "yes": True, "many": ["a", "ü"], "when": datetime(2024, 5, 6, 7, 8)}
    rows = [row, {**row, "n": None, "x": float("nan"), "many": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    predict_file(predictor, tmp_path / "in.parquet", tmp_path / "out.csv", ["mood"])
    predict_file(predictor, tmp_path / "in.parquet", tmp_path / "out.jsonl", ["mood"])
    names = [name for name in row if name != "text"]
    first, second = read(tmp_path / "out.csv")
    assert [first[name] for name in names] == ["7", "1.5", "true", '["a", "ü"]', "2024-05-06 07:08:00"]
    assert [second[name] for name in names] == [None, None, "true", None, "2024-05-06 07:08:00"]
    first, second = read(tmp_path / "out.jsonl")
    assert [first[name] for name in names] == [7, 1.5, True, ["a", "ü"], "2024-05-06 07:08:00"]
    assert [second[name] for name in names] == [None, None, True, None, "2024-05-06 07:08:00"]


def test_lines_of_json_hold_no_infinite_numbers_and_no_nan(predictor: TorchModel, tmp_path: Path) -> None:
    row = {"text": "good", "x": float("inf"), "many": [1.0, float("nan")]}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "in.parquet")
    predict_file(predictor, tmp_path / "in.parquet", tmp_path / "out.jsonl", ["mood"])
    written = (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    assert "NaN" not in written and "Infinity" not in written
    assert [json.loads(written)[name] for name in ("x", "many")] == [None, [1.0, None]]


def test_json_values_may_change_their_type_from_piece_to_piece(
    predictor: TorchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PIECE", 1)
    rows = [{"text": "good", "x": value} for value in (1, "two", [3], {"four": 4}, None)]
    for wanted, expected in {
        "jsonl": [1, "two", [3], {"four": 4}, None],
        "parquet": ["1", "two", "[3]", '{"four": 4}', None],
    }.items():
        predict_file(predictor, write(tmp_path / "in.jsonl", rows), tmp_path / f"out.{wanted}", ["mood"])
        assert [row["x"] for row in read(tmp_path / f"out.{wanted}")] == expected


@pytest.mark.parametrize("column", ["mood_predicted", "mood_probability", "stars_predicted"])
def test_a_column_that_an_answer_would_overwrite_is_refused(predictor: TorchModel, tmp_path: Path, column: str) -> None:
    source = write(tmp_path / "in.csv", [{"text": "good", column: "mine"}])
    with pytest.raises(UserError, match=f'has a column "{column}" already; rename it'):
        predict_file(predictor, source, tmp_path / "out.csv")
    assert predict_file(predictor, source, tmp_path / "out.csv", ["topic"]).tasks == ("topic",)
    assert read(tmp_path / "out.csv")[0][column] == "mine"


def test_a_score_has_no_probability_to_clash_with(predictor: TorchModel, tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", [{"text": "good", "stars_probability": "mine"}])
    predict_file(predictor, source, tmp_path / "out.csv")
    assert read(tmp_path / "out.csv")[0]["stars_probability"] == "mine"


def test_a_labelled_file_with_a_column_of_the_tasks_name_is_answered(predictor: TorchModel, tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", [{"text": "good", "mood": "calm"}])
    predict_file(predictor, source, tmp_path / "out.csv")
    (row,) = read(tmp_path / "out.csv")
    assert row["mood"] == "calm" and row["mood_predicted"]


def test_other_columns_can_be_named(predictor: TorchModel, tmp_path: Path) -> None:
    rows = [{"body": row["text"], "left": row["premise"], "right": row["claim"]} for row in ROWS]
    source, target = write(tmp_path / "in.csv", rows), tmp_path / "out.csv"
    assert predict_file(predictor, source, target, columns=["body"]).tasks == ("mood", "topic", "stars")
    single = read(target)
    assert predict_file(predictor, source, target, columns=["left", "right"]).tasks == ("follows", "alike")
    result = [{**one, **other, **row} for one, other, row in zip(single, read(target), ROWS, strict=True)]
    assert_answers(result, predictor, ROWS)
    assert predict_file(predictor, source, target, ["follows"], ["right", "left"]).tasks == ("follows",)
    turned = [float(row["follows_probability"]) for row in read(target)]
    assert turned != pytest.approx([float(row["follows_probability"]) for row in result], abs=1e-3)


def test_tasks_whose_columns_are_not_there_are_left_out(predictor: TorchModel, tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", [{"premise": "a", "claim": "b"}])
    assert predict_file(predictor, source, tmp_path / "out.csv").tasks == ("follows", "alike")
    assert set(read(tmp_path / "out.csv")[0]) == {
        "premise",
        "claim",
        "follows_predicted",
        "follows_probability",
        "alike_predicted",
    }


@pytest.mark.parametrize(
    ("tasks", "columns", "sentence"),
    [
        (["mood"], None, 'task mood reads "text", which is not a column of the file; did you mean "texts"?'),
        (None, ["textz"], 'task mood reads "textz", which is not a column of the file; did you mean "texts"?'),
        (["follows"], ["texts"], "task follows reads two texts"),
        (["wood"], None, 'the model has no task "wood"; did you mean "mood"?'),
        (None, ["a", "b", "c"], "3 text columns were given; a task reads one or two"),
        (None, None, "the file has none of the text columns the model's tasks read (mood: text; topic: text; "),
    ],
)
def test_columns_and_tasks_that_do_not_fit_are_refused_in_one_sentence(
    predictor: TorchModel, tmp_path: Path, tasks: list[str] | None, columns: list[str] | None, sentence: str
) -> None:
    source = write(tmp_path / "in.csv", [{"texts": "good", "nr": "1"}])
    with pytest.raises(UserError) as error:
        predict_file(predictor, source, tmp_path / "out.csv", tasks, columns)
    assert str(error.value).startswith(sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_a_model_without_pairs_says_so(make_model: Callable[..., Path], tmp_path: Path) -> None:
    model = load(make_model((Task("mood", "classification", ("text",), "l", labels=("a", "b")),)))
    source = write(tmp_path / "in.csv", [{"a": "good", "b": "bad"}])
    with pytest.raises(UserError, match=r"^the model has no task that reads two texts$"):
        predict_file(model, source, tmp_path / "out.csv", columns=["a", "b"])


# Where the output goes ------------------------------------------------------------------------------------------------


def test_the_input_is_never_overwritten(predictor: TorchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in.csv", ROWS)
    before = source.read_bytes()
    (tmp_path / "same.csv").symlink_to(source)
    (tmp_path / "hard.csv").hardlink_to(source)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    for target in (source, Path("in.csv"), Path("folder/../in.csv"), Path("same.csv"), Path("hard.csv")):
        with pytest.raises(UserError, match="this is the file to be read; choose another name"):
            predict_file(predictor, source, target)
    assert source.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("out.txt", "the name must end in .parquet, .csv or .jsonl"),
        ("out", "the name must end in .parquet, .csv or .jsonl"),
        ("out.csv.gz", "the name must end in .parquet, .csv or .jsonl"),
        ("out.tsv", "the name must end in .parquet, .csv or .jsonl"),
        ("none/out.csv", "there is no folder {here}/none"),
        ("folder.csv", "this is a folder; name a file"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    predictor: TorchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sentence: str
) -> None:
    (tmp_path / "folder.csv").mkdir()
    source, target = write(tmp_path / "in.csv", ROWS), tmp_path / name
    watched(predictor, monkeypatch, lambda texts: pytest.fail("the model was asked"))
    with pytest.raises(UserError) as error:
        predict_file(predictor, source, target)
    assert str(error.value) == f"--out {target}: {sentence.format(here=tmp_path)}"


def test_an_input_that_is_not_there_or_of_no_known_kind_is_refused(predictor: TorchModel, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.csv: no such file"):
        predict_file(predictor, tmp_path / "nowhere.csv", tmp_path / "out.csv")
    (tmp_path / "in.docx").write_bytes(b"PK")
    with pytest.raises(UserError, match="the name does not say what the file holds"):
        predict_file(predictor, tmp_path / "in.docx", tmp_path / "out.csv")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_cells_that_a_spreadsheet_would_run_are_quoted_on_request(
    suffix: str, predictor: TorchModel, tmp_path: Path
) -> None:
    cells = ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", " =x", "\t=x", "-5", "+1.5e3", "plain", "a=b", "＝1"]
    source = write(tmp_path / f"in.{suffix}", [{"text": "good", "=note": cell} for cell in cells])
    predict_file(predictor, source, tmp_path / "plain.csv", ["mood"])
    assert [row["=note"] for row in read(tmp_path / "plain.csv")] == cells
    predict_file(predictor, source, tmp_path / "out.csv", ["mood"], quote_formulas=True)
    quoted = [row["'=note"] for row in read(tmp_path / "out.csv")]
    assert quoted == [f"'{cell}" if cell not in ("-5", "+1.5e3", "plain", "a=b") else cell for cell in cells]
    with pytest.raises(UserError, match=r"--quote-formulas goes with a \.csv file"):
        predict_file(predictor, source, tmp_path / "out.jsonl", ["mood"], quote_formulas=True)
