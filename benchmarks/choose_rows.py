"""How many labels are needed, when rows are chosen at random, by uncertainty, or spread over the texts.

    python3 benchmarks/choose_rows.py --glue path/to/glue --out docs/results/choose-rows.json

The oracle is gold: every row that is asked about gets its right label. The student is a linear model (scikit-learn's
logistic regression) on the frozen encoder's vectors, trained anew after each round, which takes a second instead of
minutes; a fine-tuned student may need other numbers. Rows are chosen by the functions that a recipe's `choose` names.
What is counted: labels until the student first has 99 % of its score with all rows of the pool, for each seed, in
steps of a round. Seeds decide the first round and every tie. Tasks: SST-2 (with --glue) and the demo's `queue`.
"""

from __future__ import annotations

import os
import statistics
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from _side_by_side import common_options, show, write
from understill.data import demo
from understill.data.tokens import encode
from understill.evaluate.predict import features
from understill.models.encoder import load_tokenizer
from understill.models.multitask import new_model
from understill.recipe.schema import EncoderSpec, HeadsSpec
from understill.tasks import Task
from understill.teachers.llm.choose import Rule, choose

#: The share of the score with all rows that has to be reached.
SHARE = 0.99


class Pool(NamedTuple):
    """The vectors of rows that may be asked about and of those that are scored, and their gold."""

    vectors: NDArray[np.float32]
    gold: NDArray[np.str_]
    test: NDArray[np.float32]
    test_gold: NDArray[np.str_]


def student(vectors: NDArray[np.float32], gold: NDArray[np.str_]) -> LogisticRegression:
    """Fit the linear model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of solvers that stop before the last digit
        return LogisticRegression(C=10.0, max_iter=200).fit(vectors, gold)


def curve(pool: Pool, rule: Rule, seed: int, step: int, most: int) -> Iterator[tuple[int, float]]:
    """Yield the number of labels after each round, and the student's accuracy."""
    ids = [f"{number:06}" for number in range(len(pool.gold))]
    places: list[int] = []
    logits = None
    while len(places) < min(most, len(ids)):
        known = [ids[place] for place in places]
        first = rule if rule != "uncertainty" or logits is not None else "random"
        places += choose(first, ids, step, known, logits=logits, vectors=pool.vectors, seed=seed).tolist()
        if len(set(pool.gold[places])) < 2:
            continue
        model = student(pool.vectors[places], pool.gold[places])
        yield len(places), float((model.predict(pool.test) == pool.test_gold).mean())
        logits = np.log(model.predict_proba(pool.vectors) + 1e-12)


def needed(pool: Pool, rule: Rule, seed: int, step: int, goal: float) -> int | None:
    """Return after how many labels a goal is reached; None where it never is."""
    return next((count for count, score in curve(pool, rule, seed, step, len(pool.gold)) if score >= goal), None)


def embed(texts: Sequence[str], encoder: str) -> NDArray[np.float32]:
    """Return the mean-pooled vectors of texts, of length one."""
    task = Task("choose", "classification", ("text",), "label", ("no", "yes"))
    model = new_model(EncoderSpec(name=encoder, pooling="mean", max_length=128), HeadsSpec(), [task], 0).eval()
    vectors = features(model, encode(texts, load_tokenizer(encoder), 128), task, 64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def pool_of(pairs: list[tuple[str, str]], test: list[tuple[str, str]], encoder: str) -> Pool:
    """Embed a task's rows."""
    vectors = embed([text for text, _ in [*pairs, *test]], encoder)
    gold = np.array([label for _, label in [*pairs, *test]])
    return Pool(vectors[: len(pairs)], gold[: len(pairs)], vectors[len(pairs) :], gold[len(pairs) :])


def demo_rows(name: str, split: str, count: int) -> list[tuple[str, str]]:
    """Return rows of the demo data."""
    return [
        (row["message"], row["label"]) for batch in demo.batches(name, split, count, 0) for row in batch.to_pylist()
    ]


def glue_rows(path: Path, count: int) -> list[tuple[str, str]]:
    """Return rows of a GLUE file, drawn by a fixed seed."""
    table = pq.read_table(path)
    rows = np.random.default_rng(0).permutation(table.num_rows)[:count]
    table = table.take(np.sort(rows))
    return list(zip(table["sentence1"].to_pylist(), map(str, table["label"].to_pylist()), strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options, measure, print and write the figures."""
    parser = common_options(__doc__)
    parser.add_argument("--glue", type=Path, help="folder with GLUE as Parquet, for SST-2")
    parser.add_argument("--rows", type=int, help="rows of the pool; 3,000 or, with --small, 80")
    parser.add_argument("--step", type=int, help="labels of a round; 25 or, with --small, 20")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    rows = options.rows or (80 if options.small else 3000)
    step = options.step or (20 if options.small else 25)
    encoder = options.encoder or "minilm"
    sources = {"queue": (demo_rows("queue", "train", rows), demo_rows("queue", "test", rows // 3))}
    if options.glue:
        files = options.glue / "SST-2"
        sources["sst2"] = (glue_rows(files / "train.parquet", rows), glue_rows(files / "dev.parquet", rows))
    figures: list[dict[str, Any]] = []
    for name, (pairs, test) in sources.items():
        pool = pool_of(pairs, test, encoder)
        full = float((student(pool.vectors, pool.gold).predict(pool.test) == pool.test_gold).mean())
        for rule in get_args(Rule):
            counts = [needed(pool, rule, seed, step, SHARE * full) for seed in range(options.seeds)]
            figures.append({"task": name, "rule": rule, "labels": counts, "full": full, "pool": len(pairs)})
            print(f"{name}, {rule}: {counts}", flush=True)
    show(
        f"Labels until {SHARE:.0%} of the score with all rows, {options.seeds} seeds",
        2,
        ["task", "rule", "all rows", "score", "labels, median", "lowest", "highest"],
        [_line(each) for each in figures],
    )
    write(options.out, "cpu", {"encoder": encoder, "step": step, "seeds": options.seeds, "share": SHARE}, figures)


def _line(figure: dict[str, Any]) -> list[str]:
    counts = [count if count is not None else figure["pool"] for count in figure["labels"]]
    numbers = (statistics.median(counts), min(counts), max(counts))
    score = f"{100 * figure['full']:.1f}"
    return [figure["task"], figure["rule"], f"{figure['pool']:,}", score, *(f"{number:,.0f}" for number in numbers)]


if __name__ == "__main__":
    main()
