"""GLUE on disk: the official TSV layout, written here in small, and the Parquet layout."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from understill.data import glue_files
from understill.data.encode import all_gold
from understill.data.groups import count_queries, groups_of
from understill.data.load import LoadedTask, load_tasks
from understill.errors import DataError, UserError
from understill.recipe import make_recipe
from understill.tasks import GLUE, RANKING

SHARED = Path(__file__).parents[2].parent / "shared" / "glue"

MNLI = "index\tpromptID\tpairID\tgenre\ts1b\ts2b\ts1p\ts2p\tsentence1\tsentence2\t"
STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
#: Every official file in small, with the traits that trip readers: no header, stray quotes, labels in odd columns.
OFFICIAL = {
    "CoLA/train.tsv": 'gj04\t1\t\tThe cat sleeps.\ngj04\t0\t*\tCat the "sleeps.\n',
    "CoLA/dev.tsv": "gj04\t1\t\tDogs bark at sentence ends.\n",
    "CoLA/test.tsv": "index\tsentence\n0\tIs this one fine?\n",
    "SST-2/train.tsv": 'sentence\tlabel\na "fine film \t1\ndull \t0\n',
    "SST-2/dev.tsv": "sentence\tlabel\nlovely \t1\n",
    "SST-2/test.tsv": "index\tsentence\n0\twho knows\n",
    "MRPC/train.tsv": '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\tHe "left.\tHe went.\r\n',
    "MRPC/dev.tsv": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tIt rains.\tIt pours cats.\n",
    "MRPC/test.tsv": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tOne.\tTwo.\n",
    "STS-B/train.tsv": f'{STSB}\tscore\n0\tnews\tf\t2012\t1\ta\tb\tA man "eats.\tA man is eating.\t4.800\n',
    "STS-B/dev.tsv": f"{STSB}\tscore\n0\tnews\tf\t2012\t1\ta\tb\tRain.\tSnow.\t1\n",
    "STS-B/test.tsv": f"{STSB}\n0\tnews\tf\t2012\t1\ta\tb\tSun.\tMoon.\n",
    "QQP/train.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    "1\t2\t3\tWhy?\tHow come?\t1\n4\t5\t6\tWhat is\nbroken here?\tSo what?\t0\n7\t8\t9\tEmpty?\t\t0\n",
    "QQP/dev.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tWhere?\tWhen?\t0\n",
    "QQP/test.tsv": "id\tquestion1\tquestion2\n0\tWho?\tWhom?\n",
    "MNLI/train.tsv": f"{MNLI}label1\tgold_label\n"
    '0\t1\t1e\tfiction\t-\t-\t-\t-\tHe said "no.\tHe spoke.\tneutral\tentailment\n',
    "MNLI/dev_matched.tsv": f"{MNLI}label1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
    "0\t1\t1e\tslate\t-\t-\t-\t-\tIt is late.\tIt is early.\t-\t-\tneutral\tneutral\tneutral\tcontradiction\n",
    "MNLI/dev_mismatched.tsv": f"{MNLI}label1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
    "0\t1\t1e\tletters\t-\t-\t-\t-\tWe met.\tWe ate.\tneutral\tneutral\tneutral\tneutral\tneutral\tneutral\n",
    "MNLI/test_matched.tsv": MNLI.rstrip("\t") + "\n0\t1\t1e\tslate\t-\t-\t-\t-\tA is.\tB is.\n",
    "MNLI/test_mismatched.tsv": MNLI.rstrip("\t") + "\n0\t1\t1e\tslate\t-\t-\t-\t-\tC is.\tD is.\n",
    "QNLI/train.tsv": 'index\tquestion\tsentence\tlabel\n0\tWho "won?\tBo won.\tentailment\n',
    "QNLI/dev.tsv": "index\tquestion\tsentence\tlabel\n0\tWho lost?\tIt rained.\tnot_entailment\n",
    "QNLI/test.tsv": "index\tquestion\tsentence\n0\tWho?\tBo.\n",
    "RTE/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tBo ran.\tBo moved.\tentailment\n",
    "RTE/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tBo ran.\tBo flew.\tnot_entailment\n",
    "RTE/test.tsv": "index\tsentence1\tsentence2\n0\tBo.\tMo.\n",
    "WNLI/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tIt fell off it.\tThe cup fell.\t1\n",
    "WNLI/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tIt fell off it.\tThe desk fell.\t0\n",
    "WNLI/test.tsv": "index\tsentence1\tsentence2\n0\tIt.\tThat.\n",
    "diagnostic/diagnostic-full.tsv": "Lexical Semantics\tLogic\tKnowledge\tDomain\tPremise\tHypothesis\tLabel\n"
    "\t\t\t\tBo ran.\tBo did not run.\tcontradiction\n",
    "diagnostic/diagnostic.tsv": "index\tsentence1\tsentence2\n0\tBo ran.\tBo did not run.\n",
}


def lay_out(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="")
    return folder


def load(folder: Path, cache: Path, *names: str) -> dict[str, LoadedTask]:
    return load_tasks(make_recipe({"data": {"glue": str(folder)}, "tasks": list(names)}), cache)


def load_texts(folder: Path, cache: Path, name: str, files: str | list[str]) -> LoadedTask:
    """Load one task with files of unlabelled texts."""
    tasks = {"mnli": {}, name: {"unlabelled": files}}
    return load_tasks(make_recipe({"data": {"glue": str(folder)}, "tasks": tasks, "teachers": [{}]}), cache)[name]


def content(task: LoadedTask, split: str) -> list[tuple[object, ...]]:
    return [tuple(row.values())[1:] for row in task.splits[split].table().to_pylist()]


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedTask]:
    folder = lay_out(tmp_path_factory.mktemp("glue"), OFFICIAL)
    return load(folder, tmp_path_factory.mktemp("cache"), *GLUE)


@pytest.mark.parametrize(
    ("name", "split", "rows"),
    [
        ("cola", "train", [("The cat sleeps.", "acceptable"), ('Cat the "sleeps.', "unacceptable")]),
        ("cola", "dev", [("Dogs bark at sentence ends.", "acceptable")]),
        ("cola", "test", [("Is this one fine?", None)]),
        ("sst2", "train", [('a "fine film ', "positive"), ("dull ", "negative")]),
        ("sst2", "test", [("who knows", None)]),
        ("mrpc", "train", [('He "left.', "He went.", "paraphrase")]),
        ("mrpc", "dev", [("It rains.", "It pours cats.", "not_paraphrase")]),
        ("mrpc", "test", [("One.", "Two.", None)]),
        ("stsb", "train", [('A man "eats.', "A man is eating.", 4.8)]),
        ("stsb", "dev", [("Rain.", "Snow.", 1.0)]),
        ("stsb", "test", [("Sun.", "Moon.", None)]),
        ("qqp", "train", [("Why?", "How come?", "paraphrase"), ("Empty?", "", "not_paraphrase")]),
        ("qqp", "test", [("Who?", "Whom?", None)]),
        ("mnli", "train", [('He said "no.', "He spoke.", "entailment")]),
        ("mnli", "dev", [("It is late.", "It is early.", "contradiction")]),
        ("mnli", "dev_mismatched", [("We met.", "We ate.", "neutral")]),
        ("mnli", "test", [("A is.", "B is.", None)]),
        ("mnli", "test_mismatched", [("C is.", "D is.", None)]),
        ("qnli", "train", [('Who "won?', "Bo won.", "entailment")]),
        ("qnli", "test", [("Who?", "Bo.", None)]),
        ("rte", "dev", [("Bo ran.", "Bo flew.", "not_entailment")]),
        ("wnli", "train", [("It fell off it.", "The cup fell.", "entailment")]),
        ("wnli", "dev", [("It fell off it.", "The desk fell.", "not_entailment")]),
        ("ax", "dev", [("Bo ran.", "Bo did not run.", "contradiction")]),
    ],
)
def test_the_official_files_are_read_as_they_are_meant(
    official: dict[str, LoadedTask], name: str, split: str, rows: list[tuple[object, ...]]
) -> None:
    assert content(official[name], split) == rows


def test_every_official_file_is_used(official: dict[str, LoadedTask]) -> None:
    splits = sum(len(task.splits) for task in official.values())
    assert splits == len(OFFICIAL) - 1  # the unlabelled diagnostic file stands back behind the labelled one


def test_lines_that_the_official_qqp_file_breaks_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = lay_out(tmp_path, {name: text for name, text in OFFICIAL.items() if name.startswith("QQP")})
    with caplog.at_level(logging.WARNING):
        load(folder, tmp_path / "cache", "qqp")
    assert "2 broken lines left out" in caplog.text


def test_a_short_line_of_another_task_is_a_bad_row(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, {**OFFICIAL, "RTE/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tcut"})
    with pytest.raises(DataError, match=r"train.tsv:2: 2 columns where 4 are due"):
        load(folder, tmp_path / "cache", "rte")


def test_folder_names_are_matched_without_case_and_signs(tmp_path: Path) -> None:
    renamed = {"CoLA": "cola", "SST-2": "SST2", "STS-B": "stsb"}
    files = {
        f"{renamed[k.split('/')[0]]}/{k.split('/')[1]}": v for k, v in OFFICIAL.items() if k.split("/")[0] in renamed
    }
    folder = lay_out(tmp_path, files)
    assert set(load(folder, tmp_path / "cache", "cola", "sst2", "stsb")) == {"cola", "sst2", "stsb"}


def test_the_diagnostic_set_may_lie_in_the_folder_of_mnli(tmp_path: Path) -> None:
    files = {name: text for name, text in OFFICIAL.items() if name.startswith("MNLI")}
    files["MNLI/diagnostic.tsv"] = OFFICIAL["diagnostic/diagnostic.tsv"]
    loaded = load(lay_out(tmp_path, files), tmp_path / "cache", "mnli", "ax")
    assert content(loaded["ax"], "dev") == [("Bo ran.", "Bo did not run.", None)]


def test_parquet_has_label_ids_and_minus_one_for_none(tmp_path: Path) -> None:
    def table(labels: list[float]) -> pa.Table:
        texts = [f"text {index}" for index in range(len(labels))]
        return pa.table({"idx": range(len(labels)), "sentence1": texts, "sentence2": texts, "label": labels})

    for name, labels in {
        "MNLI/train": [0, 1, 2],
        "MNLI/dev_matched": [2],
        "MNLI/dev_mismatched": [1],
        "MNLI/test_matched": [-1],
        "AX/test": [-1],
        "STS-B/train": [0.0, 2.5],
        "STS-B/dev": [5.0],
        "STS-B/test": [-1.0],
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(table(labels), tmp_path / f"{name}.parquet")
    loaded = load(tmp_path, tmp_path / "cache", "mnli", "ax", "stsb")
    assert [row[-1] for row in content(loaded["mnli"], "train")] == ["entailment", "neutral", "contradiction"]
    assert [row[-1] for row in content(loaded["mnli"], "dev_mismatched")] == ["neutral"]
    assert [content(loaded[name], split)[0][-1] for name, split in (("mnli", "test"), ("ax", "dev"))] == [None, None]
    assert [row[-1] for row in content(loaded["stsb"], "train")] == [0.0, 2.5]
    assert content(loaded["stsb"], "test")[0][-1] is None


def test_missing_splits_are_reported_only_where_they_are_needed(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, {name: OFFICIAL[name] for name in ("RTE/train.tsv", "RTE/dev.tsv", "WNLI/train.tsv")})
    load(folder, tmp_path / "cache", "rte")
    with pytest.raises(DataError) as error:
        load(folder, tmp_path / "cache", "wnli", "sst2")
    assert "has no dev data of wnli → put WNLI/dev.parquet or .tsv there" in str(error.value)
    assert "has no train data of sst2" in str(error.value)


def test_rows_of_train_may_take_the_place_of_a_dev_set_which_then_only_reports(tmp_path: Path) -> None:
    rows = "".join(f"gj04\t{number % 2}\t\tSentence number {number}.\n" for number in range(200))
    folder = lay_out(tmp_path / "glue", {**OFFICIAL, "CoLA/train.tsv": rows})
    data = {"glue": str(folder), "dev": 0.25}
    whole = load(folder, tmp_path / "cache", "cola")["cola"]
    task = load_tasks(make_recipe({"data": data, "tasks": ["cola"]}), tmp_path / "cache")["cola"]
    train, dev = content(task, "train"), content(task, "dev")
    assert 30 <= len(dev) <= 70 and sorted(train + dev) == sorted(content(whole, "train"))
    assert content(task, "dev_official") == content(whole, "dev")
    assert task.splits["train"].fingerprint != whole.splits["train"].fingerprint


def test_ax_needs_mnli_and_glue_needs_its_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ax is answered by the head of mnli → add mnli to tasks"):
        load(tmp_path, tmp_path / "cache", "ax")
    with pytest.raises(UserError, match=r"data.glue: there is no folder .*absent"):
        load(tmp_path / "absent", tmp_path / "cache", "rte")


def test_a_file_with_other_columns_is_named(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, {**OFFICIAL, "SST-2/train.tsv": "review\tstars\nfine\t1\n"})
    with pytest.raises(UserError, match=r"not a file of sst2; its columns are: review, stars"):
        load(folder, tmp_path / "cache", "sst2")


def test_counts_are_compared_with_the_official_ones(tmp_path: Path) -> None:
    counts = glue_files.verify_counts(
        lay_out(tmp_path, {name: OFFICIAL[name] for name in ("CoLA/train.tsv", "RTE/dev.tsv")})
    )
    assert len(counts) == 30
    assert ("cola", "train", 2, 8551) in counts
    assert ("rte", "dev", 1, 277) in counts
    assert ("rte", "train", 0, 2490) in counts


@pytest.mark.parametrize(
    ("column", "numbers", "ordered"),
    [
        ("idx", [0, 1, 2], True),
        ("idx", [0, 2, 1], False),
        ("Index", [1, 2, 3], False),
        ("id", ["0", "1", "2"], True),
        ("year", [2012, 2012, 2013], True),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "tsv"])
def test_rows_that_carry_a_number_are_known_to_be_in_order_or_not(
    column: str, numbers: list[Any], ordered: bool, form: str, tmp_path: Path
) -> None:
    path = tmp_path / "RTE" / f"test.{form}"
    path.parent.mkdir()
    columns = {"sentence1": ["a", "b", "c"], column: numbers, "sentence2": ["d", "e", "f"]}
    if form == "parquet":
        pq.write_table(pa.table(columns), path)
    else:
        lines = [list(columns), *([str(value) for value in row] for row in zip(*columns.values(), strict=True))]
        path.write_text("".join("\t".join(line) + "\n" for line in lines))
    assert glue_files.numbered_in_order(glue_files.find_files(tmp_path, "rte")["test"]) == ordered


def test_an_index_goes_on_from_shard_to_shard(tmp_path: Path) -> None:
    (tmp_path / "RTE").mkdir()
    for number, rows in enumerate([[0, 1], [2]]):
        columns = {"idx": rows, "sentence1": ["a"] * len(rows), "sentence2": ["b"] * len(rows)}
        pq.write_table(pa.table(columns), tmp_path / "RTE" / f"test-0000{number}-of-00002.parquet")
    files = glue_files.find_files(tmp_path, "rte")["test"]
    assert glue_files.numbered_in_order(files)
    assert not glue_files.numbered_in_order(files[::-1])


# Pairs as queries with candidates


QUESTIONS = {
    "QNLI/train.tsv": "index\tquestion\tsentence\tlabel\n0\tWho won?\tBo won.\tentailment\n"
    "1\tWhen?\tNow.\tentailment\n2\tWho won?\tIt rained.\tnot_entailment\n",
    "QNLI/dev.tsv": "index\tquestion\tsentence\tlabel\n0\tWhy?\tWell.\tnot_entailment\n1\tWhy?\tSo.\tentailment\n",
}


def ranked(folder: Path, cache: Path, name: str, **changes: Any) -> LoadedTask:
    tasks = {name: {"kind": "ranking", **changes}}
    return load_tasks(make_recipe({"data": {"glue": str(folder)}, "tasks": tasks}), cache)[name]


def test_qnli_can_be_a_ranking_of_sentences_by_question(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "glue", QUESTIONS)
    loaded = ranked(folder, tmp_path / "cache", "qnli")
    assert (loaded.task.kind.name, loaded.task.labels) == ("ranking", ("not_entailment", "entailment"))
    assert (loaded.task.metrics, loaded.task.group) == (("precision_at_1", "mrr", "accuracy"), None)
    assert content(loaded, "train") == [
        ("Who won?", "Bo won.", "Who won?", "entailment"),
        ("When?", "Now.", "When?", "entailment"),
        ("Who won?", "It rained.", "Who won?", "not_entailment"),
    ]
    assert groups_of(loaded.splits["train"]).tolist() == [0, 1, 0]
    assert all_gold(loaded.splits["train"]).tolist() == [1, 1, 0]
    assert ranked(folder, tmp_path / "cache", "qnli", metrics="mrr").task.metrics == ("mrr",)
    plain = load(folder, tmp_path / "cache", "qnli")["qnli"]
    assert plain.task == GLUE["qnli"].task
    assert all_gold(plain.splits["train"]).tolist() == [0, 0, 1]


def test_label_ids_mean_the_same_in_a_ranking(tmp_path: Path) -> None:
    (tmp_path / "QNLI").mkdir()
    table = pa.table({"question": ["Who?"] * 3, "sentence": ["Bo.", "Rain.", "Mo."], "label": [0, 1, 0]})
    for split in ("train", "validation"):
        pq.write_table(table, tmp_path / "QNLI" / f"{split}.parquet")
    loaded = ranked(tmp_path, tmp_path / "cache", "qnli")
    assert [row[-1] for row in content(loaded, "train")] == ["entailment", "not_entailment", "entailment"]


def test_only_pairs_with_two_labels_can_be_a_ranking(tmp_path: Path) -> None:
    can = {name for name, entry in GLUE.items() if RANKING.recast(entry.task)}
    assert can == {"mrpc", "qqp", "qnli", "rte", "wnli"}
    for name in can:
        task = RANKING.recast(GLUE[name].task)
        assert task is not None and task.labels[1] in ("entailment", "paraphrase") and not task.symmetric
        assert set(task.labels) == set(GLUE[name].task.labels)
    for name in GLUE.keys() - can - {"ax"}:
        with pytest.raises(UserError, match=rf"tasks.{name}.kind: {name} cannot be made a ranking task"):
            ranked(tmp_path, tmp_path / "cache", name)


@pytest.mark.parametrize("change", [{"kind": "regression"}, {"kind": "ranking", "group": "question"}])
def test_nothing_else_about_a_glue_task_can_be_another_kind(tmp_path: Path, change: dict[str, str]) -> None:
    with pytest.raises(UserError, match="qnli is a known task, which has its own"):
        ranked(lay_out(tmp_path, QUESTIONS), tmp_path / "cache", "qnli", **change)


# Texts that only teachers label


@pytest.mark.parametrize(
    ("name", "files", "rows"),
    [
        ("mnli", ["MNLI/train.tsv"], [('He said "no.', "He spoke.")]),
        ("rte", ["MNLI/train.tsv", "QNLI/dev.tsv"], [('He said "no.', "He spoke."), ("Who lost?", "It rained.")]),
        ("mrpc", ["QQP/dev.tsv"], [("Where?", "When?")]),
        ("qqp", ["QQP/train.tsv"], [("Why?", "How come?"), ("Empty?", "")]),
        ("stsb", ["STS-B/train.tsv"], [('A man "eats.', "A man is eating.")]),
        ("sst2", ["SST-2/dev.tsv", "RTE/train.tsv"], [("lovely ",), ("Bo ran.",)]),
        ("sst2", ["CoLA/train.tsv"], [("The cat sleeps.",), ('Cat the "sleeps.',)]),
        ("cola", ["CoLA/train.tsv"], [("The cat sleeps.",), ('Cat the "sleeps.',)]),
        # Four columns, as CoLA's have, but with a header.
        ("cola", ["RTE/train.tsv"], [("Bo ran.",)]),
        ("cola", ["texts.csv", "texts.jsonl"], [("Say, what?",), ("So.",)]),
    ],
)
def test_unlabelled_texts_are_read_by_any_of_the_names_columns_have_and_without_labels(
    name: str, files: list[str], rows: list[tuple[str, ...]], tmp_path: Path
) -> None:
    more = {
        "texts.csv": 'Sentence,label\n"Say, what?",acceptable\n',
        "texts.jsonl": '{"label": 1, "sentence1": "So."}\n',
    }
    folder = lay_out(tmp_path / "glue", {**OFFICIAL, **more})
    task = load_texts(folder, tmp_path / "cache", name, files)
    assert content(task, "unlabelled") == [(*texts, None) for texts in rows]
    assert {row["label"] for row in task.splits["train"].table().to_pylist()} <= {*task.task.labels, 4.8}


def test_unlabelled_parquet_gives_no_label_ids_either(tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "glue", OFFICIAL)
    texts = {"premise": ["A.", "B."], "hypothesis": ["C.", "D."], "label": [0, 2]}
    pq.write_table(pa.table(texts), folder / "MNLI" / "train_extra.parquet")
    for files in ("MNLI/train_extra.parquet", str(folder / "MNLI" / "train_*.parquet")):
        task = load_texts(folder, tmp_path / "cache", "mnli", files)
        assert content(task, "unlabelled") == [("A.", "C.", None), ("B.", "D.", None)]
        assert set(task.foreseen) == {"dev", "dev_mismatched", "test", "test_mismatched"}


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("rte", "absent.tsv", "absent.tsv: no such file"),
        ("rte", "SST-2/dev.tsv", "not a file of rte; its columns are: sentence, label .*call its texts sentence1 and"),
        ("sst2", "QQP/dev.tsv", "not a file of sst2; its columns are: id, qid1.* or call its texts sentence$"),
        ("rte", "blank.tsv", "not a file of rte"),
        ("ax", "MNLI/train.tsv", "tasks.ax.unlabelled: ax is only scored, never trained on → give these texts to mnli"),
    ],
)
def test_unlabelled_texts_that_cannot_be_had_are_explained(name: str, files: str, message: str, tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "glue", {**OFFICIAL, "blank.tsv": "\n\n"})
    with pytest.raises(UserError, match=message):
        load_texts(folder, tmp_path / "cache", name, files)


PARTIAL = {("mnli", "train"): 93_735, ("qqp", "train"): 64_635, ("qnli", "train"): 23_060, ("qqp", "test"): 0}


@pytest.mark.skipif(not SHARED.is_dir(), reason="no GLUE data in ../shared/glue")
def test_the_real_data_has_the_official_counts() -> None:
    counts = glue_files.verify_counts(SHARED)
    for count in counts:
        assert count.rows == PARTIAL.get((count.task, count.split), count.official), count


@pytest.mark.skipif(not SHARED.is_dir(), reason="no GLUE data in ../shared/glue")
def test_the_real_data_loads_without_a_bad_row(tmp_path: Path) -> None:
    loaded = load(SHARED, tmp_path, "cola", "mrpc", "stsb", "rte", "wnli")
    assert loaded["cola"].overlap == {"dev": 16, "test": 19}
    assert {row["label"] for row in loaded["rte"].splits["dev"].table().to_pylist()} == set(loaded["rte"].task.labels)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no GLUE data in ../shared/glue")
def test_few_questions_of_the_real_qnli_have_a_choice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loaded = ranked(SHARED, tmp_path, "qnli")
    assert count_queries(loaded.splits["train"]) == (2541, 20514)
    assert count_queries(loaded.splits["dev"]) == (1362, 4100)
    assert "qnli/train: 2,541 of 20,514 queries have both a right and a wrong candidate" in caplog.text
