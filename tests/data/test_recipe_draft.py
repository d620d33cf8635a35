"""Recipes drafted from files: what is inferred of their columns, and the reasons that are given."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny import tiny_tokenizer
from understill.data.columns import NamedColumns, profile_columns
from understill.data.file_profile import profile_file
from understill.data.infer import infer_tasks
from understill.data.load import load_tasks
from understill.data.recipe_draft import draft_recipe
from understill.errors import UserError
from understill.recipe import Recipe, load_recipe, make_recipe
from understill.recipe.yaml import read_yaml_value
from understill.tasks import REGRESSION

QUEUES = ("billing", "returns", "login")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, start in (("tickets.csv", 0), ("tickets_dev.csv", 500)):
        rows = [f'{i},"Where is order {i}, please? \x07",{QUEUES[i % 3]}' for i in range(start, start + 40)]
        Path(name).write_text("\n".join(["ticket_id,message,queue", *rows]), encoding="utf-8")
    pairs = [{"question": f"how do I {i}", "candidate": f"you just {i}", "similarity": i / 7} for i in range(40)]
    Path("pairs.jsonl").write_text("\n".join(json.dumps(pair) for pair in pairs), encoding="utf-8")
    return tmp_path


def test_columns_are_told_apart(files: Path) -> None:
    profile = profile_file(Path("tickets.csv"))
    assert [(column.name, column.role) for column in profile.columns] == [
        ("ticket_id", "id"),
        ("message", "text"),
        ("queue", "label"),
    ]
    assert profile.rows == 40
    assert profile.columns[2].distinct == 3
    assert [column.role for column in profile_file(Path("pairs.jsonl")).columns] == ["text", "text", "score"]


def test_text_without_spaces_is_text(tmp_path: Path) -> None:
    rows = [f"注文番号{i}の荷物がまだ届いていません,{('請求', '返品')[i % 2]}" for i in range(30)]
    (tmp_path / "a.csv").write_text("\n".join(["本文,種類", *rows]), encoding="utf-8")
    assert [column.role for column in profile_file(tmp_path / "a.csv").columns] == ["text", "label"]


def test_train_and_dev_are_paired_and_kinds_inferred(files: Path) -> None:
    paths = [Path(name) for name in ("tickets.csv", "tickets_dev.csv", "pairs.jsonl")]
    (tickets, pairs), left_out = infer_tasks(paths)
    assert tickets.files == {"train": [paths[0]], "dev": [paths[1]]}
    assert (tickets.text, tickets.label.name, tickets.kind.name) == (("message",), "queue", "classification")
    assert (pairs.text, pairs.label.name, pairs.kind.name) == (("question", "candidate"), "similarity", "regression")
    assert left_out == []


def test_the_drafted_recipe_loads_and_its_data_too(files: Path) -> None:
    text = draft_recipe([Path(name) for name in ("tickets.csv", "tickets_dev.csv", "pairs.jsonl")]).text
    Path("recipe.yaml").write_text(text, encoding="utf-8")
    loaded = load_tasks(load_recipe(Path("recipe.yaml")), files / "cache")
    assert loaded["tickets"].task.labels == ("billing", "login", "returns")
    assert loaded["tickets"].splits["dev"].rows == 40
    assert loaded["pairs"].task.kind is REGRESSION
    assert "# 3 seen: billing, login, returns" in text
    assert "so few rows are all needed to train" in text


@pytest.mark.parametrize(
    ("questions", "labels", "kind"),
    [
        (100, ("1", "0"), "ranking"),
        (100, ("yes", "no"), "ranking"),
        (100, ("good", "poor"), "classification"),  # which one is right is not said
        (100, ("0", "1", "2"), "classification"),
        (350, ("1", "0"), "classification"),  # few questions come up again
    ],
)
def test_questions_with_several_answers_are_taken_for_a_ranking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, questions: int, labels: tuple[str, ...], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        f"Could you say what became of order {i % questions}?,It is on its way {i} .,{labels[i // 100 % len(labels)]}"
        for i in range(400)
    ]
    Path("faq.csv").write_text("\n".join(["question,answer,helps", *rows]), encoding="utf-8")
    Path("recipe.yaml").write_text(draft_recipe([Path("faq.csv")]).text, encoding="utf-8")
    recipe = load_recipe(Path("recipe.yaml"))
    assert recipe.tasks["faq"].kind == kind
    assert load_tasks(recipe, tmp_path / "cache")["faq"].task.text == ("question", "answer")


def test_a_file_called_train_is_named_after_its_folder(files: Path) -> None:
    (files / "my inbox").mkdir()
    for name in ("train.csv", "valid.csv", "test.csv"):
        (files / "my inbox" / name).write_bytes((files / "tickets.csv").read_bytes())
    (task,), _ = infer_tasks(sorted((files / "my inbox").iterdir()))
    assert task.name == "my_inbox"
    assert {role: [path.name for path in paths] for role, paths in task.files.items()} == {
        "test": ["test.csv"],
        "train": ["train.csv"],
        "dev": ["valid.csv"],
    }


def test_files_without_labels_are_left_out_with_the_reason(files: Path) -> None:
    lines = [f"a line of the log, number {i}" for i in range(9)]
    Path("logs.tsv").write_text("\n".join(["text", *lines]), encoding="utf-8")
    text = draft_recipe([Path("tickets.csv"), Path("logs.tsv")]).text
    assert "# left out: logs.tsv: no column looks like a label or a score; columns: text (text)" in text
    with pytest.raises(UserError, match="a task needs a column of text and one of labels or scores"):
        draft_recipe([Path("logs.tsv")])


@pytest.mark.parametrize("path", ["absent.csv", ".", "tickets.docx"])
def test_what_cannot_be_looked_at_is_the_users_mistake(files: Path, path: str) -> None:
    with pytest.raises(UserError):
        draft_recipe([Path(path)])
    with pytest.raises(UserError, match="name the files"):
        draft_recipe([])


def test_two_tasks_of_one_name_are_kept_apart(files: Path) -> None:
    (files / "other").mkdir()
    (files / "other" / "tickets.csv").write_bytes((files / "tickets.csv").read_bytes())
    inferred, _ = infer_tasks([Path("tickets.csv"), Path("other/tickets.csv")])
    assert [task.name for task in inferred] == ["tickets", "tickets_2"]


@given(
    column=st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1).filter(str.strip),
    example=st.text(st.characters(codec="utf-8")),
)
def test_whatever_the_file_holds_the_yaml_is_valid(
    tmp_path_factory: pytest.TempPathFactory, column: str, example: str
) -> None:
    path = tmp_path_factory.mktemp("odd") / "odd.jsonl"
    rows = [{column: f"some longer text {i} {example}", "the label": "yes" if i % 2 else "no"} for i in range(20)]
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    values = read_yaml_value(draft_recipe([path]).text, "draft")
    make_recipe(values)
    name = normalize("NFC", column)
    assert values["tasks"]["odd"]["text"] in (name, [name, "the label"])


# What people come with ------------------------------------------------------------------------------------------------


def drafted(*files: str, teacher: str | None = None) -> Recipe:
    """The recipe that is written for files, once it has been read again."""
    Path("recipe.yaml").write_text(draft_recipe([Path(name) for name in files], teacher).text, encoding="utf-8")
    return load_recipe(Path("recipe.yaml"))


def keys_without_reason(text: str) -> list[str]:
    """The lines of a recipe that set a value and do not say why."""
    lines = [line for line in text.splitlines() if re.search(r":\s+\S", line) and not line.strip().startswith("#")]
    return [line for line in lines if "  # " not in line]


def write_tickets(path: str, separator: str = ",", encoding: str = "utf-8") -> None:
    header = separator.join(('"message"', '"queue"', '"mood"', '"rating"', '"channel"'))
    rows = [
        separator.join((f'"Where is order {n}; {n}, please?"', ("billing", "billing ", "login")[n % 3],
                        ("glad", "angry")[n % 2], f'"{n % 5},5"', "mail"))
        for n in range(40)
    ]  # fmt: skip
    Path(path).write_text("\n".join([header, *rows]), encoding=encoding)


def test_every_inferred_value_has_a_reason_and_training_is_left_to_the_run(files: Path) -> None:
    write_tickets("mails.csv", ";", "utf-16")
    for teacher in (None, "minilm"):
        names = ("tickets.csv", "tickets_dev.csv", "pairs.jsonl", "mails.csv")
        text = draft_recipe([Path(name) for name in names], teacher).text
        assert keys_without_reason(text) == []
        assert not {"training", "epochs", "lr", "batch"} & set(read_yaml_value(text, "draft"))
        assert "# training: left out" in text


def test_further_label_columns_are_further_tasks_of_the_same_file(files: Path) -> None:
    write_tickets("mails.csv")
    recipe = drafted("mails.csv")
    kinds = {name: (task.train, task.label, task.kind) for name, task in recipe.tasks.items()}
    assert kinds == {
        "queue": (("mails.csv",), "queue", "classification"),
        "mood": (("mails.csv",), "mood", "classification"),
        "rating": (("mails.csv",), "rating", "regression"),
    }  # and not channel, which has one value
    assert "looks like labels, so it is a task too; delete this task" in Path("recipe.yaml").read_text("utf-8")
    assert load_tasks(recipe, files / "cache").keys() == kinds.keys()


def test_labels_are_counted_without_blanks_as_training_counts_them(files: Path) -> None:
    write_tickets("mails.csv")
    recipe = drafted("mails.csv")
    assert "# 2 seen: billing, login" in Path("recipe.yaml").read_text("utf-8")
    assert load_tasks(recipe, files / "cache")["queue"].task.labels == ("billing", "login")


def test_a_semicolon_file_with_decimal_commas_is_drafted_as_it_is(files: Path) -> None:
    write_tickets("mails.csv", ";")
    recipe = drafted("mails.csv")
    assert [task.separator for task in recipe.tasks.values()] == [";"] * 3
    assert [task.decimal for task in recipe.tasks.values()] == [None, None, ","]
    assert load_tasks(recipe, files / "cache")["rating"].task.range == (0.5, 4.5)


def test_a_korean_file_of_cp949_gets_its_encoding(files: Path) -> None:
    rows = [f"주문 {n}번은 언제 오나요,{('배송', '결제')[n % 2]}" for n in range(60)]
    for name in ("문의.csv", "문의_dev.csv"):
        Path(name).write_text("\n".join(["본문,종류", *rows]), encoding="cp949")
    recipe = drafted("문의.csv", "문의_dev.csv")
    (task,) = recipe.tasks.values()
    assert (task.encoding, task.text, task.dev) == ("cp949", ("본문",), ("문의_dev.csv",))
    (loaded,) = load_tasks(recipe, files / "cache").values()
    assert loaded.task.labels == ("결제", "배송")
    Path("문의_dev.csv").write_text("\n".join(["본문,종류", *rows]), encoding="utf-8")
    with pytest.raises(UserError, match=r"문의.csv looks like cp949, and 문의_dev.csv like utf-8; .* → save both"):
        drafted("문의.csv", "문의_dev.csv")


def test_distilling_has_a_teacher_and_a_student_of_its_layers(files: Path) -> None:
    recipe = drafted("tickets.csv", "pairs.jsonl", teacher="some/encoder")
    (teacher,) = recipe.teachers
    assert (teacher.encoder.name, teacher.models) == ("some/encoder", "together")
    assert (recipe.student.encoder.name, recipe.student.encoder.layers) == (teacher.name, 3)
    assert load_tasks(recipe, files / "cache").keys() == {"tickets", "pairs"}


def test_texts_without_labels_are_for_the_teacher(files: Path) -> None:
    write_tickets("mails.csv", ";")
    lines = [f'"{n},1","a line; {n}"' for n in range(9)]
    Path("logs.csv").write_text("\n".join(["nr,message", *lines]), encoding="utf-8")
    recipe = drafted("mails.csv", "logs.csv", teacher="minilm")
    assert {task.unlabelled for task in recipe.tasks.values()} == {("logs.csv",)}
    assert load_tasks(recipe, files / "cache")["mood"].splits["unlabelled"].rows == 9
    guesses = draft_recipe([Path("mails.csv"), Path("logs.csv")], "minilm").guesses
    assert "  logs.csv: read without labels; the teacher labels its texts for the student" in guesses
    text = draft_recipe([Path("mails.csv"), Path("logs.csv")]).text
    assert "left out: logs.csv" in text and "with --distil, teachers can label its texts" in text


def test_rows_without_a_label_are_counted_and_left_out(files: Path) -> None:
    lines = [f"Where is order {n}?,{('billing', 'login', '')[n % 3]}" for n in range(30)]
    Path("mails.csv").write_text("\n".join(["message,queue", *lines]), encoding="utf-8")
    draft = draft_recipe([Path("mails.csv")])
    assert "  10 of the first 30 rows have no label and are left out" in draft.guesses
    recipe = drafted("mails.csv")
    assert recipe.data.on_bad_row == "skip"
    splits = load_tasks(recipe, files / "cache")["mails"].splits
    assert sum(data.rows for data in splits.values()) == 20
    assert drafted("tickets.csv").data.on_bad_row == "stop"


def test_a_dev_file_without_the_label_is_not_used_and_said_so(files: Path) -> None:
    write_tickets("mails.csv")
    lines = [f"Where is order {n}?,{('billing', 'login')[n % 2]}" for n in range(20)]
    Path("mails_dev.csv").write_text("\n".join(["message,queue", *lines]), encoding="utf-8")
    recipe = drafted("mails.csv", "mails_dev.csv")
    assert recipe.tasks["queue"].dev == ("mails_dev.csv",)
    assert recipe.tasks["mood"].dev is None, "so few rows are all needed to train"
    assert 'mails_dev.csv has no column "mood", so it is not used here' in Path("recipe.yaml").read_text("utf-8")


def test_a_workbook_is_drafted(files: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    for row in [("message", "stars"), *((f"Where is order {n}?", n % 5 + 0.5) for n in range(40))]:
        book.active.append(row)
    book.save("films.xlsx")
    recipe = drafted("films.xlsx")
    assert recipe.tasks["films"].kind == "regression"
    assert load_tasks(recipe, files / "cache")["films"].task.range == (0.5, 4.5)


def test_a_tenth_is_held_out_of_a_hundred_rows_and_more(files: Path) -> None:
    lines = [f"Where is order {n}?,{('billing', 'login')[n % 2]}" for n in range(100)]
    Path("many.csv").write_text("\n".join(["message,queue", *lines]), encoding="utf-8")
    assert drafted("many.csv").tasks["many"].dev == 0.1
    Path("few.csv").write_text("\n".join(["message,queue", *lines[:99]]), encoding="utf-8")
    assert drafted("few.csv").tasks["few"].dev is None


@pytest.mark.parametrize("name", ["cache", "문의", "x" * 120, "한" * 60])
def test_whatever_a_file_is_called_its_draft_is_a_recipe(name: str, files: Path) -> None:
    (files / f"{name}.csv").write_bytes((files / "tickets.csv").read_bytes())
    text = draft_recipe([Path(f"{name}.csv")]).text
    recipe = make_recipe(read_yaml_value(text, "draft"))
    assert next(iter(recipe.tasks)).startswith(name[:15])


def test_doubtful_labels_and_headers_are_in_the_guesses_and_in_the_recipe(tmp_path: Path) -> None:
    rows = [f"Where is order {number} please,{('bug', 'Bug')[number % 2]}" for number in range(30)]
    lines = ["message,queue", *rows, "Where is order 0 please,Bug", "I paid twice for it,odd"]
    (tmp_path / "a.csv").write_text("\n".join(lines), encoding="utf-8")
    draft = draft_recipe([tmp_path / "a.csv"])
    for sentence in (
        '1 text has contradicting labels, such as "bug" and "Bug" → keep one',
        'labels differ only in case or punctuation: "Bug" and "bug" → write',
        '1 label has a single row: "odd" → add rows',
    ):
        assert f"  # {sentence}" in draft.text
        assert any(sentence in guess for guess in draft.guesses)
    (tmp_path / "b.csv").write_text("\n".join(rows), encoding="utf-8")
    sentence = 'the column names "Where is order 0 please" and "bug" look like data → the first line is taken'
    assert sentence in draft_recipe([tmp_path / "b.csv"]).text
    (tmp_path / "c.csv").write_text("\n".join(["message,queue", *rows[:3] * 700, rows[4], "x y z,odd"]))
    assert "single row" not in draft_recipe([tmp_path / "c.csv"]).text  # only the first rows were read


def test_a_bad_row_a_blank_text_and_a_column_of_one_value_raise_no_doubt_about_labels(tmp_path: Path) -> None:
    rows = [f"Where is order {number},{('bug', 'idea')[number % 2]}" for number in range(2200)]
    (tmp_path / "a.csv").write_text("\n".join(["message,queue", "x y,bug,z", "x y z,odd", *rows]), encoding="utf-8")
    assert "single row" not in draft_recipe([tmp_path / "a.csv"]).text, "others may stand further below"
    (tmp_path / "b.csv").write_text("\n".join(["message,queue", ",bug", ",idea", *rows[:40]]), encoding="utf-8")
    assert "contradicting" not in draft_recipe([tmp_path / "b.csv"]).text
    lines = ["message,lang", *(f"Where is order {number},en" for number in range(40))]
    (tmp_path / "c.csv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(UserError, match="no column looks like a label or a score"):
        draft_recipe([tmp_path / "c.csv"])


def test_the_lock_file_of_a_table_that_is_open_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "~$a.xlsx").write_bytes(b"lock")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        with pytest.raises(UserError, match=r"~\$a.xlsx"):
            draft_recipe([Path("~$a.xlsx")])


def test_texts_that_the_encoder_does_not_know_are_a_doubt(tmp_path: Path) -> None:
    rows = [f"환불은 언제 되나요 {number},{('결제', '배송')[number % 2]}" for number in range(30)]
    (tmp_path / "a.csv").write_text("\n".join(["내용,분류", *rows]), encoding="utf-8")
    loaded = []

    def load(name: str) -> Any:
        loaded.append(name)
        return tiny_tokenizer()

    draft = draft_recipe([tmp_path / "a.csv"], load_tokenizer=load)
    sentence = "100% of the letters of a are unknown to minilm, or read one by one → name an encoder"
    assert f"  # {sentence}" in draft.text and any(sentence in guess for guess in draft.guesses)
    assert "`encoder: sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2`" in draft.text
    assert f"letters of a are unknown to {tmp_path}" in draft_recipe([tmp_path / "a.csv"], str(tmp_path), load).text
    loaded.clear()
    (tmp_path / "b.csv").write_text("\n".join(["message,queue", *QUEUE_ROWS]), encoding="utf-8")
    assert "unknown" not in draft_recipe([tmp_path / "b.csv"], load_tokenizer=load).text and not loaded

    def missing(name: str) -> Any:
        raise UserError("not installed")

    assert "unknown" not in draft_recipe([tmp_path / "a.csv"], load_tokenizer=missing).text


QUEUE_ROWS = [f"Where is order {number} please,{QUEUES[number % 3]}" for number in range(30)]


def test_the_draft_knows_whether_all_tasks_are_pairs(files: Path) -> None:
    assert draft_recipe([Path("pairs.jsonl")]).pairs
    assert not draft_recipe([Path("tickets.csv"), Path("pairs.jsonl")]).pairs


@pytest.mark.parametrize(("first", "why"), [("sep=;\n", "as the file's first line"), ("", "as the first rows fit")])
def test_the_reason_for_a_separator_is_where_it_was_seen(tmp_path: Path, first: str, why: str) -> None:
    lines = ["message;queue", *(row.replace(",", ";") for row in QUEUE_ROWS)]
    (tmp_path / "a.csv").write_text(first + "\n".join(lines), encoding="utf-8")
    (line,) = [line for line in draft_recipe([tmp_path / "a.csv"]).text.splitlines() if "separator:" in line]
    assert line.split("  # ")[1].startswith(why)


def test_a_column_with_one_value_is_named_as_what_teaches_nothing(tmp_path: Path) -> None:
    for name, value, noun in (("queue", "bug", "label"), ("rating", "5", "score")):
        lines = [f"message,{name}", *(f"Where is order {number} please,{value}" for number in range(9))]
        (tmp_path / "a.csv").write_text("\n".join(lines), encoding="utf-8")
        what = f'every row has the {noun} "{value}" in column "{name}"; there is nothing to learn'
        with pytest.raises(UserError, match=what):
            draft_recipe([tmp_path / "a.csv"])


# Columns whose names and values leave their meaning open -------------------------------------------------------------


def roles(columns: dict[str, list[object]]) -> list[str]:
    """What the columns of a file with these values are taken for."""
    values = [[str(value) for value in column] for column in columns.values()]
    return [column.role for column in profile_columns(list(columns), values)]


TEXTS: list[object] = [f"where is my order {number} please" for number in range(1540)]


@pytest.mark.parametrize(
    ("name", "values", "role"),
    [
        ("label", ["1.0", "2.0", "3.0"] * 20, "label"),
        ("label", ["0.0", "1.0", ""] * 20, "label"),  # pandas writes so where a value is missing
        ("label", [number % 77 for number in range(1540)], "label"),
        ("kind", [number % 77 for number in range(1540)], "score"),
        ("rating", [number % 5 for number in range(60)], "score"),
        ("label", [number / 7 for number in range(60)], "score"),
        ("intent", [f"intent {number % 150}" for number in range(300)], "label"),
        ("intent", [number % 150 for number in range(300)], "label"),
        ("kind", [f"kind {number % 10}" for number in range(30)], "label"),
        ("kind", [f"kind {number % 4}" for number in range(12)], "label"),
        ("kind", [f"kind number {number % 25}" for number in range(30)], "text"),
        ("label_id", [number % 7 for number in range(60)], "label"),
        ("categoryId", [f"c{number % 7}" for number in range(60)], "label"),
        ("class_idx", [number % 7 for number in range(60)], "label"),
        ("customer_id", [number % 7 for number in range(60)], "id"),
        ("label_id", [f"L{number}" for number in range(60)], "id"),
    ],
)
def test_labels_scores_and_ids_are_told_apart_by_name_and_values(name: str, values: list[object], role: str) -> None:
    assert roles({"message": TEXTS[: len(values)], name: values}) == ["text", role]


@pytest.mark.parametrize(
    ("name", "values", "role"),
    [
        ("text", ["你好", "谢谢", "再见", "订单呢"] * 5, "text"),
        ("text", [f"退款{number}" for number in range(20)], "text"),
        ("utterance", ["hi", "thanks", "bye", "hello there"] * 5, "text"),
        ("문의 내용", ["환불", "배송", "결제"] * 6 + ["취소", "교환"], "text"),
        ("has_comment", ["yes", "no"] * 10, "label"),
        ("label_text", ["glad", "angry", "sad", "calm"] * 5, "label"),
        ("input", ["hi", "thanks", "bye", "hello"] * 5, "text"),  # as nothing else is
        ("country", ["Chile", "Peru"] * 10, "label"),
    ],
)
def test_short_texts_are_seen_by_their_name_or_as_the_last_resort(name: str, values: list[object], role: str) -> None:
    queues = ["a", "b"] * 10
    assert roles({name: values, "queue": queues}) == [role, "label"]
    assert roles({"body": TEXTS[:20], "title": ["Mr", "Mrs", "Ms", "Dr"] * 5, "queue": queues}) == [
        "text",
        "label",
        "label",
    ]


@pytest.mark.parametrize(
    "values",
    [
        [f"2024-0{n % 9 + 1}-11" for n in range(40)],
        [f"{n % 28 + 1}.03.2024 10:{n + 10}" for n in range(40)],
        [f"2024-03-11T10:{n + 10}:00Z" for n in range(40)],
        [f"{n % 28 + 1} Mar 2024, 9:15 am" for n in range(40)],
        [f"https://example.org/tickets/{n}" for n in range(40)],
        [f"person{n}@example.org" for n in range(40)],
        [f"+43 660 123 45 {n + 10}" for n in range(40)],
        [f"EUR {n},50 net" for n in range(40)],
        ["2024-03-11", "2024-03-12"] * 20,
        ["EUR 3,50", "4,20 €"] * 20,
        ["3 Mar 2024", "March 12, 2024"] * 20,
        ["9:30", "10:15 am"] * 20,
        ["+43 660 123", "+43 (660) 12-34"] * 20,
        ["ann@example.org", "bob@example.org"] * 20,
    ],
)
def test_dates_addresses_and_amounts_are_neither_texts_nor_labels(values: list[object]) -> None:
    assert roles({"message": TEXTS[:40], "seen": values, "queue": ["a", "b"] * 20}) == ["text", "other", "label"]


def test_texts_with_many_numbers_and_labels_like_codes_stay_what_they_are() -> None:
    prose: list[object] = [f"I am {n} and it is ok to go" for n in range(40)]
    assert roles({"answer": prose, "grade": ["A1", "B2"] * 20}) == ["text", "label"]
    assert roles({"answer": prose, "version": ["v1.0", "v2.0"] * 20}) == ["text", "label"]
    assert roles({"answer": prose, "release": ["1.2.3", "1.3.0"] * 20}) == ["text", "label"]
    logs: list[object] = [f"2024-01-05 12:33:{n + 10} ERROR could not connect to host {n}" for n in range(40)]
    assert roles({"log": logs, "queue": ["billing@example.org", "help@example.org"] * 20}) == ["text", "label"]
    classes: list[object] = ["http://example.org/Company", "http://example.org/MeanOfTransportation"] * 20
    assert roles({"answer": prose, "label": classes}) == ["text", "label"]


# Columns that the user names -----------------------------------------------------------------------------------------


@pytest.fixture
def mails(tmp_path: Path) -> Path:
    """Three columns of prose, of which one is to be read, and labels in columns that do not look so."""
    lines = [
        f"{n},a subject of mail {n},the body of mail {n} is here,our answer to mail {n},{n % 3},{n % 50}"
        for n in range(100)
    ]
    path = tmp_path / "mails.csv"
    path.write_text("\n".join(["nr,subject,body,answer,state,minutes", *lines]), encoding="utf-8")
    return path


def test_named_columns_are_taken_in_the_order_in_which_they_are_named(mails: Path) -> None:
    named = NamedColumns(("answer", "subject"), ("minutes", "state"))
    first, second = infer_tasks([mails], named=named)[0]
    assert first.text == second.text == ("answer", "subject")
    assert (first.label.name, first.kind.name) == ("minutes", "regression")
    assert (second.label.name, second.kind.name) == ("state", "classification")
    doubts = " ".join([*first.doubts, *second.doubts])
    assert not any(what in doubts for what in ("look like text", "a further column", "about pairs"))
    assert "as you named it" in draft_recipe([mails], named=named).text


def test_only_the_label_or_only_the_text_may_be_named(mails: Path) -> None:
    (task,) = infer_tasks([mails], named=NamedColumns(label=("state",)))[0]
    assert (task.text, task.label.name) == (("body",), "state")
    (task,) = infer_tasks([mails], named=NamedColumns(text=("subject",)))[0]
    assert (task.text, task.label.name) == (("subject",), "state")


def test_other_labels_do_not_become_text_where_one_is_named(tmp_path: Path) -> None:
    lines = [f"document {n} is about something,{n % 3},{('sport', 'world', 'film')[n % 3]}" for n in range(60)]
    path = tmp_path / "news.csv"
    path.write_text("\n".join(["document,label,label_text", *lines]), encoding="utf-8")
    (task,) = infer_tasks([path], named=NamedColumns(label=("label",)))[0]
    assert (task.text, task.label.name) == (("document",), "label")


def test_a_named_column_that_cannot_be_used_is_told(mails: Path) -> None:
    text = mails.read_text(encoding="utf-8").splitlines()
    mails.write_text("\n".join([text[0] + ",done", *(line + ",yes" for line in text[1:])]), encoding="utf-8")
    named = NamedColumns(("body", "answer"), ("state", "done"))
    (task,) = infer_tasks([mails], named=named)[0]
    assert 'column "done", which --label names, has one value' in " ".join(task.doubts)
    with pytest.raises(UserError, match=r'every row has the label "yes" in column "done"; there is nothing to learn'):
        infer_tasks([mails], named=NamedColumns(label=("done",)))
    other = write_lines(
        str(mails.parent / "other.csv"), ["body,state", *(f"a body {n} here,{n % 2}" for n in range(40))]
    )
    first, second = infer_tasks([mails, other], named=named)[0]
    assert len(first.text) == 2 and second.text == ("body",)
    assert 'other.csv has no column "answer", which --text names' in second.doubts


def test_a_named_label_may_be_anything_that_repeats(mails: Path) -> None:
    (task,) = infer_tasks([mails], named=NamedColumns(label=("subject",)))[0]
    assert (task.text, task.label.name, task.kind.name) == (("body", "answer"), "subject", "classification")


@pytest.mark.parametrize(
    ("named", "what"),
    [
        (NamedColumns(("bdy",)), "--text bdy: no file has this column; there are nr, subject, body, answer, state"),
        (NamedColumns(label=("queue",)), "--label queue: no file has this column"),
        (NamedColumns(("body",), ("body",)), '"body" is named with --text and with --label'),
        (NamedColumns(("body", "subject", "answer")), "--text is given 3 times"),
    ],
)
def test_names_that_cannot_be_used_are_refused(mails: Path, named: NamedColumns, what: str) -> None:
    with pytest.raises(UserError, match=what):
        infer_tasks([mails], named=named)


def test_what_is_taken_for_want_of_better_is_a_doubt(files: Path) -> None:
    lines = [f"{('hi', 'thanks', 'bye', 'hello')[n % 4]},{n % 2}" for n in range(40)]
    Path("chat.csv").write_text("\n".join(["input,queue", *lines]), encoding="utf-8")
    assert 'no column reads like text; "input" has the most different values' in draft_recipe([Path("chat.csv")]).text
    lines = [f"where is order {n} now,{n % 30}" for n in range(300)]
    Path("many.csv").write_text("\n".join(["message,kind_of_it", *lines]), encoding="utf-8")
    what = "numbers 0 to 29 are taken for scores; write kind: classification if they are classes"
    assert what in draft_recipe([Path("many.csv")]).text


def test_a_further_column_of_many_values_is_no_task(files: Path) -> None:
    lines = [f"2024-01-{n % 20 + 1},where is order {n} now,{QUEUES[n % 3]},{n / 7}" for n in range(60)]
    Path("dated.csv").write_text("\n".join(["date,message,label,rating", *lines]), encoding="utf-8")
    assert [task.label.name for task in infer_tasks([Path("dated.csv")])[0]] == ["label", "rating"]


def test_the_id_of_a_label_that_is_named_is_no_task(files: Path) -> None:
    lines = [f"where is order {n} now,{n % 3},{QUEUES[n % 3]}" for n in range(30)]
    Path("both.csv").write_text("\n".join(["message,label_id,label", *lines]), encoding="utf-8")
    assert [task.label.name for task in infer_tasks([Path("both.csv")])[0]] == ["label"]


# What is said of files that are no task, or not whole ----------------------------------------------------------------


def write_lines(path: str, lines: list[str]) -> Path:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Path(path)


def test_a_refusal_says_how_to_name_the_columns(files: Path) -> None:
    path = write_lines("logs.csv", ["text", *(f"line {n} of the log" for n in range(9))])
    with pytest.raises(UserError, match=r"name them: understill init FILE --text COLUMN --label COLUMN"):
        draft_recipe([path])


def test_a_column_of_one_value_is_not_judged_beyond_the_rows_that_were_read(files: Path) -> None:
    path = write_lines(
        "a.csv", ["message,queue", *(f"order {n} is not here,bug" for n in range(2000)), "where is it,no"]
    )
    said = r'the first 2,000 rows have the label "bug" in column "queue"; others were not looked at → .* name them'
    with pytest.raises(UserError, match=said):
        draft_recipe([path])


def test_pairs_that_come_up_again_are_no_ranking(files: Path) -> None:
    rows = [f"how do I return order {n},can I send order {n} back,{n % 2}" for n in range(40)]
    write_lines("a.csv", ["q1,q2,is_duplicate", *rows * 3])
    assert drafted("a.csv").tasks["a"].kind == "classification"
    rows = [f"how do I return order {n // 4},you send it to shop {n},{n // 4 % 2}" for n in range(80)]
    write_lines("b.csv", ["q1,q2,is_duplicate", *rows])  # no question has a right and a wrong answer
    assert drafted("b.csv").tasks["b"].kind == "classification"


def test_cells_of_several_labels_are_a_doubt_instead_of_rare_labels(files: Path) -> None:
    labels = ["app", "billing", "app;billing", "login", "login;app", "app;login;billing"]
    rows = [f"where is order {n} now,{labels[min(n % 5, 4) if n else 5]}" for n in range(30)]
    path = write_lines("a.csv", ["message,topics", *rows])
    text = draft_recipe([path]).text
    assert 'cells such as "app;billing" hold several labels; understill learns one a row → keep one' in text
    assert "single row" not in text


def test_splits_in_folders_are_one_task(files: Path) -> None:
    lines = ["message,queue", *QUEUE_ROWS]
    paths = [write_lines(f"{folder}/data.csv", lines) for folder in ("train", "dev", "test")]
    (task,), _ = infer_tasks(paths)
    assert task.name == "data" and task.files == {"train": paths[:1], "dev": paths[1:2], "test": paths[2:]}
    beside = [paths[2], write_lines("test/data_dev.csv", lines)]  # a folder in which somebody tries things
    (task,), _ = infer_tasks(beside)
    assert task.files == {"train": beside[:1], "dev": beside[1:]}


def test_rows_that_cannot_be_read_are_counted_and_a_file_of_such_rows_is_refused(files: Path) -> None:
    path = write_lines("a.csv", ["message,queue", *QUEUE_ROWS, *(f"x{n},y,z" for n in range(4))])
    assert (
        "# a.csv: 4 of the first 34 rows cannot be read: 3 cells where the header has 2 → put quotes"
        in draft_recipe([path]).text
    )
    path = write_lines("b.jsonl", ["no json"] * 9)
    with pytest.raises(UserError, match=r"b.jsonl:1: no row can be read: not a JSON object"):
        draft_recipe([path])


def test_of_several_sheets_only_the_first_is_read_and_said_so(files: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    book.active.title = "mails"
    for row in [("message", "queue"), *((f"Where is order {n}?", QUEUES[n % 3]) for n in range(40))]:
        book.active.append(row)
    book.create_sheet("more")
    book.save("mails.xlsx")
    assert '# mails.xlsx: of its 2 sheets only the first is read, "mails"' in draft_recipe([Path("mails.xlsx")]).text
