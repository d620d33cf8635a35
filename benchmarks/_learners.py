"""The methods of first_run.py: each learns from the same rows, answers the same test rows, and says how long it took.

The name begins with a line so that `make bench` does not take it for a benchmark. Heavy imports stand inside the
methods, so that the interpreter of one need not have the packages of another.
"""

from __future__ import annotations

import csv
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _battery import Row, Task

#: When this process began, as far as a method's seconds go: importing its packages counts.
START = time.perf_counter()
#: Sizes below this are rows a class; others are rows.
FEW = 50
#: SetFit's num_iterations before 1.0, when it had a default: so many positive and as many negative pairs a row.
ITERATIONS = 20
#: The batch of SetFit's defaults.
SETFIT_BATCH = 16


@dataclass(frozen=True)
class Trial:
    """All that a method is given."""

    task: Task
    rows: list[Row]  # to learn from
    seed: int
    encoder: str  # as a recipe names it
    encoder_folder: str  # the same, as Hugging Face's loaders take it
    device: str  # auto or cpu
    setfit_steps: int
    limit: int  # seconds that a program started here may take

    @property
    def texts(self) -> list[tuple[str, ...]]:
        """The texts of the test rows."""
        return [row[:-1] for row in self.task.test]

    @property
    def is_score(self) -> bool:
        """Tell whether a number is asked for."""
        return bool(self.task.meta["kind"] == "score")

    @property
    def on_cpu(self) -> bool:
        """Tell whether the CPU is to be used."""
        import torch

        return self.device == "cpu" or not torch.cuda.is_available()


@dataclass(frozen=True)
class Outcome:
    """What came of a method: an answer for each test row, and seconds."""

    answers: Sequence[Any]
    train_seconds: float  # of training alone
    seconds: float  # from the start of the program until the model is trained
    note: str = ""


# Rows and scores -----------------------------------------------------------------------------------------------------


def rows_of(task: Task, size: str, draw: int) -> list[Row] | None:
    """Draw the rows of a size, stratified by class; None where the pool has not enough."""
    rows = random.Random(draw).sample(task.pool, len(task.pool))
    if size == "all":
        return rows
    count, is_score = int(size), task.meta["kind"] == "score"
    if count < FEW:
        # A score has no classes; it gets as many rows as six of them would.
        return rows[: 6 * count] if is_score else rows_per_class(rows, count)
    if count >= len(rows):
        return None
    return rows[:count] if is_score else stratified(rows, count, draw)


def rows_per_class(rows: Sequence[Row], count: int) -> list[Row]:
    """Take the first so many rows of each class."""
    seen: Counter[Any] = Counter()
    kept = []
    for row in rows:
        seen[row[-1]] += 1
        if seen[row[-1]] <= count:
            kept.append(row)
    return kept


def stratified(rows: Sequence[Row], count: int, seed: int) -> list[Row]:
    """Take so many rows, each class in proportion to its size."""
    dice = random.Random(seed)
    totals = Counter(row[-1] for row in rows)
    offsets = {label: dice.random() for label in sorted(totals)}
    seen: dict[Any, int] = defaultdict(int)
    places = []
    for number, row in enumerate(rows):
        label = row[-1]
        places.append(((seen[label] + offsets[label]) / totals[label], number))
        seen[label] += 1
    return [rows[number] for _, number in sorted(sorted(places)[:count], key=lambda place: place[1])]


def score(metric: str, answers: Sequence[Any], gold: Sequence[Any]) -> float:
    """Return the primary metric, in percent."""
    if metric == "accuracy":
        return 100 * sum(answer == label for answer, label in zip(answers, gold, strict=True)) / len(gold)
    if metric == "matthews":
        from sklearn.metrics import matthews_corrcoef

        return 100 * float(matthews_corrcoef(list(gold), list(answers)))
    from scipy.stats import pearsonr, spearmanr

    if len(set(answers)) == 1:
        return 0.0  # a constant correlates with nothing
    return 50 * float(pearsonr(answers, gold).statistic + spearmanr(answers, gold).statistic)


# understill ----------------------------------------------------------------------------------------------------------


def default(trial: Trial) -> Outcome:
    """Run understill with a recipe that names the task and the encoder, and nothing else."""
    return understill(trial, {"encoder": trial.encoder})


def pinned(trial: Trial) -> Outcome:
    """Run understill with the settings that `init` wrote into recipes before there were defaults for the first run."""
    encoder = {"name": trial.encoder, "pooling": "default"}
    return understill(trial, {"encoder": encoder, "training": {"epochs": 3, "batch": 32, "lr": 1e-4}})


def understill(trial: Trial, settings: dict[str, Any]) -> Outcome:
    """Train by the command line, as a user does, and ask the model for the test rows."""
    columns = ["text1", "text2"] if trial.task.meta["pair"] else ["text"]
    spec = {"train": "train.csv", "text": columns, "label": "label"}
    if trial.is_score:
        spec["kind"] = "regression"
    recipe = {"name": "first", "tasks": {"task": spec}, "seed": trial.seed, **settings}
    device = ["--set", "machine.device=cpu"] if trial.device == "cpu" else []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_csv(folder / "train.csv", columns, trial.rows)
        write_csv(folder / "test.csv", columns, trial.task.test)
        # JSON is YAML.
        (folder / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
        start = time.time()
        command(folder, trial.limit, "run", "recipe.yaml", "--no-report", *device)
        # The clock of the others stops when the model is trained; ours when it is on the disk, before the tables.
        seconds = max(path.stat().st_mtime for path in folder.glob("runs/artifacts/model-*/model/*")) - start
        models = json.loads((folder / "runs/first/run.json").read_text(encoding="utf-8"))["models"]
        ask = ("predict", "runs/first", "--file", "test.csv", "--out", "answers.csv", "--device", trial.device)
        command(folder, trial.limit, *ask)
        with (folder / "answers.csv").open(encoding="utf-8", newline="") as file:
            answers = [row["task_predicted"] for row in csv.DictReader(file)]
    train_seconds = sum(model["seconds"] for model in models.values())
    return Outcome([float(answer) for answer in answers] if trial.is_score else answers, train_seconds, seconds)


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Write rows as a CSV file with a header."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "label"])
        writer.writerows(rows)


def command(folder: Path, limit: int, *words: str) -> None:
    """Run a verb of understill in a folder."""
    # The search path may name folders relative to where this program was started.
    path = os.pathsep.join(str(Path(place).resolve()) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep))
    result = subprocess.run(
        [sys.executable, "-m", "understill", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=limit,
    )
    if result.returncode:
        raise RuntimeError(f"understill {words[0]} ended with {result.returncode}: {result.stderr[-600:]}")


# Others --------------------------------------------------------------------------------------------------------------


def frozen(trial: Trial) -> Outcome:
    """Fit a linear model to the embeddings of the encoder as it is."""
    from sklearn.linear_model import LogisticRegression, Ridge

    start = time.perf_counter()
    gold = [row[-1] for row in trial.rows]
    model = Ridge() if trial.is_score else LogisticRegression(max_iter=1000)
    model.fit(features(trial, [row[:-1] for row in trial.rows]), gold)
    end = time.perf_counter()
    return Outcome(model.predict(features(trial, trial.texts)).tolist(), end - start, end - START)


def features(trial: Trial, texts: Sequence[tuple[str, ...]]) -> Any:
    """Return u for one text, and u, v, |u − v| and u · v for two."""
    import numpy as np

    parts = [embeddings(trial, [row[place] for row in texts]) for place in range(len(texts[0]))]
    if len(parts) == 1:
        return parts[0]
    one, two = parts
    return np.concatenate([one, two, np.abs(one - two), one * two], axis=1)


def embeddings(trial: Trial, texts: Sequence[str]) -> Any:
    """Return the mean-pooled embeddings of texts, of length one."""
    import numpy as np
    import torch
    from transformers import AutoModel, AutoTokenizer

    device = "cpu" if trial.on_cpu else "cuda"
    tokenizer = AutoTokenizer.from_pretrained(trial.encoder_folder)
    model = AutoModel.from_pretrained(trial.encoder_folder).to(device).eval()
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    vectors = np.zeros((len(texts), model.config.hidden_size), dtype=np.float32)
    for start in range(0, len(order), 64):
        chosen = order[start : start + 64]
        batch = tokenizer([texts[number] for number in chosen], padding=True, truncation=True, max_length=256)
        inputs = {name: torch.tensor(values, device=device) for name, values in batch.items()}
        with torch.inference_mode():
            states, mask = model(**inputs).last_hidden_state, inputs["attention_mask"].unsqueeze(-1)
            pooled = (states * mask).sum(1) / mask.sum(1)
            vectors[chosen] = torch.nn.functional.normalize(pooled, dim=1).float().cpu().numpy()
    return vectors


def setfit(trial: Trial) -> Outcome:
    """Train SetFit with its defaults, except that it draws a bounded number of pairs."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    labels = sorted({row[-1] for row in trial.rows})
    steps = setfit_limit(trial)
    with tempfile.TemporaryDirectory() as place:
        settings = {"max_steps": steps} if steps else {}
        arguments = TrainingArguments(
            output_dir=place,
            seed=trial.seed,
            report_to="none",
            save_strategy="no",
            show_progress_bar=False,
            **settings,
        )
        device = "cpu" if trial.on_cpu else "cuda"
        model = SetFitModel.from_pretrained(trial.encoder_folder, labels=labels, device=device)
        data = Dataset.from_dict(
            {"text": [row[0] for row in trial.rows], "label": [labels.index(row[-1]) for row in trial.rows]}
        )
        start = time.perf_counter()
        Trainer(model=model, args=arguments, train_dataset=data).train()
        end = time.perf_counter()
    answers = [str(answer) for answer in model.predict([texts[0] for texts in trial.texts])]
    return Outcome(answers, end - start, end - START, f"max_steps={steps}" if steps else "all pairs")


def setfit_limit(trial: Trial) -> int | None:
    """Return the steps after which SetFit has to stop; None where its own sampling draws no more pairs than that."""
    counts = Counter(row[-1] for row in trial.rows).values()
    count = sum(counts)
    same = sum(number * (number + 1) // 2 for number in counts)
    drawn = 2 * max(same, count * (count + 1) // 2 - same)
    limit = min(math.ceil(2 * ITERATIONS * count / SETFIT_BATCH), trial.setfit_steps)
    return limit if drawn > limit * SETFIT_BATCH else None


def trainer(trial: Trial) -> Outcome:
    """Train a sequence classifier with Hugging Face Trainer and its defaults."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    set_seed(trial.seed)
    labels = [] if trial.is_score else sorted({row[-1] for row in trial.rows})
    tokenizer = AutoTokenizer.from_pretrained(trial.encoder_folder)
    kind = {"num_labels": 1, "problem_type": "regression"} if trial.is_score else {"num_labels": len(labels)}
    model = AutoModelForSequenceClassification.from_pretrained(trial.encoder_folder, **kind)

    def encoded(rows: Sequence[Row]) -> list[dict[str, Any]]:
        texts = [list(column) for column in zip(*(row[:-1] for row in rows), strict=True)]
        batch = tokenizer(*texts, truncation=True)
        return [{name: values[number] for name, values in batch.items()} for number in range(len(rows))]

    data = [
        {**row, "label": gold[-1] if trial.is_score else labels.index(gold[-1])}
        for row, gold in zip(encoded(trial.rows), trial.rows, strict=True)
    ]
    with tempfile.TemporaryDirectory() as place:
        arguments = TrainingArguments(
            output_dir=place, seed=trial.seed, use_cpu=trial.on_cpu, report_to="none", save_strategy="no"
        )
        run = Trainer(model=model, args=arguments, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer))
        start = time.perf_counter()
        run.train()
        end = time.perf_counter()
        logits = run.predict(encoded(trial.task.test)).predictions
    answers = logits[:, 0].tolist() if trial.is_score else [labels[number] for number in logits.argmax(1)]
    return Outcome(answers, end - start, end - START)


METHODS: dict[str, Callable[[Trial], Outcome]] = {
    "default": default,
    "pinned": pinned,
    "frozen": frozen,
    "setfit": setfit,
    "trainer": trainer,
}


def applies(method: str, meta: dict[str, Any]) -> bool:
    """Tell whether a method can do a task: SetFit classifies single texts only."""
    return method != "setfit" or (meta["kind"] == "classes" and not meta["pair"])
