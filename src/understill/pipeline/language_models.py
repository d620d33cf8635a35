"""Rows that a language model answers before the run is planned: labels where there are none, and within a budget."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understill.atomic import fingerprint, write_bytes, write_json
from understill.data.encode import all_gold
from understill.data.groups import grouping
from understill.data.load import LoadedTask
from understill.data.taskdata import TaskData
from understill.errors import UserError
from understill.evaluate.metrics import primary
from understill.evaluate.predict import features, predict
from understill.events import Labelling, RoundDone, Watch, counting, silent
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model
from understill.pipeline.dataloader import Tokeniser, tokeniser_of
from understill.pipeline.linear_probe import frozen_encoder
from understill.pipeline.model_training import TrainedModel
from understill.pipeline.plan.parts import cache_folder, max_length
from understill.pipeline.plan.recipe_inputs import locate_encoder
from understill.pipeline.recipe_data import read_data
from understill.pipeline.teacher_selection import too_weak
from understill.recipe import Recipe
from understill.recipe.schema import LlmSpec, TaskSpec
from understill.teachers import LlmTeacher, LlmType, Opening
from understill.teachers.llm.choose import choose
from understill.teachers.llm.prompts import texts_of
from understill.teachers.verdict import examine
from understill.train.device import pick_device

log = logging.getLogger(__name__)

#: Trains the students of a recipe.
Train = Callable[[Recipe, Watch], Sequence[TrainedModel]]
Chosen = dict[str, list[str]]  # ids by task


def unanswered(recipe: Recipe) -> list[int]:
    """Return the places of the language models that have to be asked before a run can be planned."""
    return [
        number
        for number, spec in enumerate(recipe.teachers)
        if isinstance(spec, LlmSpec)
        and (
            (spec.llm.budget and not spec.llm.only)
            or any(recipe.tasks[name].goldless for name in _taught(recipe, spec))
        )
    ]


def answer_rows(recipe: Recipe, watch: Watch, train: Train) -> Recipe:
    """Return a recipe whose tasks have labels and whose language models know their rows, in all its variants."""
    return recipe.mapped(lambda each: _answered(each, watch, train))


def _answered(recipe: Recipe, watch: Watch, train: Train) -> Recipe:
    for number in unanswered(recipe):
        recipe = _Rounds(recipe, number, watch, train).run()
    return recipe


def _taught(recipe: Recipe, spec: LlmSpec) -> list[str]:
    return [name for name in recipe.tasks if spec.teaches_task(name)]


def open_llms(recipe: Recipe, watch: Watch = silent) -> Iterator[tuple[LlmTeacher, LoadedTask]]:
    """Yield every language model of a recipe with each task that it teaches."""
    specs = [spec for spec in recipe.teachers if isinstance(spec, LlmSpec)]
    loaded = read_data(recipe, watch) if specs else {}
    for spec in specs:
        for name in _heads(recipe, spec, loaded):
            yield open_llm(recipe, spec, loaded[name]), loaded[name]


def _heads(recipe: Recipe, spec: LlmSpec, loaded: Mapping[str, LoadedTask]) -> list[str]:
    """Name the tasks that a language model teaches; another task's head answers a diagnostic set."""
    return [name for name in _taught(recipe, spec) if loaded[name].task.head == name]


def open_llm(recipe: Recipe, spec: LlmSpec, loaded: LoadedTask) -> LlmTeacher:
    """Make a language model ready to be asked, without a plan."""
    opened = LlmType.open(spec, Opening(str(spec.name), "", recipe, loaded))
    assert isinstance(opened, LlmTeacher)
    return opened


def show_prompts_of(recipe: Recipe, count: int) -> Iterator[tuple[str, str]]:
    """Yield real prompts of every language model, each with a title; nothing is asked."""
    if not any(isinstance(spec, LlmSpec) for spec in recipe.teachers):
        raise UserError("--show-prompts: no teacher of this recipe is a language model → add {llm: {…}} to teachers")
    for teacher, loaded in open_llms(recipe):
        data = loaded.splits["train"]
        for place, texts in texts_of(data, list(range(min(count, data.rows)))).items():
            yield f"{teacher.name}, {data.place}, row {place + 1}", teacher.prompt(texts)


class _Rounds:
    """The rounds of one language model: choose rows, ask about them, distil, look."""

    def __init__(self, recipe: Recipe, number: int, watch: Watch, train: Train) -> None:
        spec = recipe.teachers[number]
        assert isinstance(spec, LlmSpec)
        self.recipe, self.number, self.watch, self.train = recipe, number, watch, train
        self.spec, self.loaded = spec, read_data(recipe, watch)
        self.tasks = _heads(recipe, spec, self.loaded)
        self.teachers = {name: open_llm(recipe, spec, self.loaded[name]) for name in self.tasks}
        self.vectors: dict[str, NDArray[np.float32]] = {}

    def run(self) -> Recipe:
        """Spend the budget in rounds, until the dev score no longer rises; return the recipe of the best one."""
        settings, chosen = self.spec.llm, {name: list[str]() for name in self.tasks}
        self._examine()
        if settings.budget is None:
            return self._settle(None)
        best: tuple[float, Recipe] | None = None
        history: list[dict[str, Any]] = []
        students: Sequence[TrainedModel] = ()
        for number in range(1, settings.rounds + 1):
            goal = settings.budget * number // settings.rounds
            before = sum(map(len, chosen.values()))
            for name in self.tasks:
                chosen[name] += self._choose(name, goal - len(chosen[name]), chosen[name], students)
            if (rows := sum(map(len, chosen.values()))) == before:
                break  # the pool is empty
            recipe = self._settle(chosen)
            if settings.rounds == 1:
                return recipe
            students = self.train(recipe, self.watch)
            score = _score(students, self.loaded)
            history.append({"round": number, "rows": rows, "score": score})
            self.watch(RoundDone(str(self.spec.name), number, rows, score))
            if best is not None and score <= best[0]:
                break
            best = score, recipe
        assert best is not None
        write_json(self._folder(["rounds", best[1].model_dump(mode="json")]) / "rounds.json", {"rounds": history})
        return best[1]

    def _examine(self) -> None:
        """Ask about hand-labelled dev rows first, so that a model that guesses is refused before the rest is paid."""
        faults: dict[tuple[str, str], str] = {}
        for name in self.tasks if self.recipe.targets.weak == "stop" else ():
            data, train = (self.loaded[name].splits[split] for split in ("dev", "train"))
            if not np.isnan(gold := all_gold(data)).all():
                logits = self._asked(self.teachers[name], data)
                verdict = examine(data.task, gold, logits, all_gold(train), groups=grouping(data), surely=True)
                faults |= {(str(self.spec.name), name): verdict.fault} if verdict.fault else {}
        if faults:
            raise too_weak(faults, len(self.tasks))

    # Which rows ------------------------------------------------------------------------------------------------------

    def _pools(self, name: str) -> list[TaskData]:
        """Return the splits that rows are chosen from."""
        rows, splits = self.spec.llm.rows, self.loaded[name].splits
        if self.recipe.tasks[name].goldless:
            rows = "train"
        return [splits[split] for split in ("train", "unlabelled") if rows in (split, "all") and split in splits]

    def _choose(self, name: str, count: int, chosen: list[str], students: Sequence[TrainedModel]) -> list[str]:
        """Choose further rows of a task."""
        rule, pools = self.spec.llm.choose, self._pools(name)
        ids = [each for data in pools for each in data.table()["id"].to_pylist()]
        first = {each: place for place, each in reversed(list(enumerate(ids)))}  # texts may be there twice
        places = np.array(sorted(first.values()), np.int64)
        logits = vectors = None
        if rule == "uncertainty" and students:
            logits = np.concatenate([self._predictions(data, students) for data in pools])[places]
        if rule == "diverse":
            if name not in self.vectors:
                self.vectors[name] = np.concatenate([self._embedded(data) for data in pools])[places]
            vectors = self.vectors[name]
        own = [ids[place] for place in places]
        picked = choose(rule, own, count, chosen, logits=logits, vectors=vectors, seed=self.spec.llm.seed)
        return [own[place] for place in picked]

    def _predictions(self, data: TaskData, students: Sequence[TrainedModel]) -> NDArray[np.float32]:
        """Return a student's logits for every row of a pool."""
        for student in students:
            folder = load_model(student.folder)
            if data.task.name in {task.name for task in folder.tasks}:
                tokens = tokeniser_of(folder, self.recipe, self.watch)
                network = folder.model.to(pick_device(self.recipe.machine))
                return predict(network, tokens(data), data.task, self.recipe.evaluation.batch).logits
        raise AssertionError(f"no student of {data.task.name}")

    def _embedded(self, data: TaskData) -> NDArray[np.float32]:
        """Return a vector of each text: by the student's encoder as it comes, or by its words where it has none."""
        settings = self.recipe.settings(self.recipe.student)
        length = max_length(self.recipe, settings, data.task.name)
        teachers = {str(teacher.name): teacher for teacher in self.recipe.trained}
        while teacher := teachers.pop(settings.encoder.name, None):  # cut out of a teacher, that has learnt nothing yet
            settings = self.recipe.settings(teacher)
        if settings.encoder.own:
            from sklearn.decomposition import TruncatedSVD
            from sklearn.feature_extraction.text import TfidfVectorizer

            words = TfidfVectorizer(sublinear_tf=True).fit_transform(
                [" ".join(texts) for texts in texts_of(data).values()]
            )
            size = max(1, min(64, words.shape[1] - 1))
            vectors: NDArray[np.float32] = TruncatedSVD(size, random_state=0).fit_transform(words).astype(np.float32)
            return vectors
        name = settings.encoder.name
        place = locate_encoder(self.recipe, name)
        tokens = Tokeniser(load_tokenizer(name, place), {data.task.name: length}, cache_folder(self.recipe), self.watch)
        network = frozen_encoder(name, place, [data.task], length, self.recipe.machine)
        return features(network, tokens(data), data.task, self.recipe.evaluation.batch)

    # What is asked, and written down ---------------------------------------------------------------------------------

    def _settle(self, chosen: Chosen | None) -> Recipe:
        """Return the recipe with the chosen rows: their ids where a task has gold, and their answers where not."""
        tasks, settings = dict(self.recipe.tasks), self.spec.llm
        for name in self.tasks:
            if tasks[name].goldless:
                tasks[name] = self._labelled(name, tasks[name], None if chosen is None else chosen[name])
        if chosen is not None:
            ids = sorted(each for rows in chosen.values() for each in rows)
            path = self._folder(ids) / "ids.txt"
            write_bytes(path, "\n".join(ids).encode())
            settings = settings.model_copy(update={"only": str(path)})
        spec = self.spec.model_copy(update={"llm": settings})
        teachers = (*self.recipe.teachers[: self.number], spec, *self.recipe.teachers[self.number + 1 :])
        return self.recipe.model_copy(update={"tasks": tasks, "teachers": teachers})

    def _labelled(self, name: str, spec: TaskSpec, chosen: list[str] | None) -> TaskSpec:
        """Ask for the labels of a task that has none, and return it with files of them."""
        loaded, column = self.loaded[name], spec.label or "label"
        teacher = replace(self.teachers[name], only=None if chosen is None else frozenset(chosen))
        files = {"train": self._answers(teacher, loaded.splits["train"], column)}
        if np.isnan(all_gold(loaded.splits["dev"])).all():
            files["dev"] = self._answers(teacher, loaded.splits["dev"], column)
            log.warning(
                "%s: there is no hand-labelled row, so scores only say how far models agree with %s", name, teacher.name
            )
        places = {split: (str(path),) for split, path in files.items()}
        return spec.model_copy(update={**places, "unlabelled": (), "label": column, "silver": tuple(files)})

    def _answers(self, teacher: LlmTeacher, data: TaskData, column: str) -> Path:
        """Write the rows of a split with the answers of a language model as labels; those without one are left out."""
        logits = self._asked(teacher, data)
        known = np.flatnonzero(~np.isnan(logits[:, 0]))
        if not len(known):
            raise UserError(f"teacher {teacher.name}: no answer about {data.place} can be read → try --show-prompts 3")
        task = data.task
        answers, texts = task.kind.answers(task, logits[known]), texts_of(data, known.tolist())
        lines = [
            json.dumps({**dict(zip(task.text, row, strict=True)), column: answer}, ensure_ascii=False)
            for row, answer in zip(texts.values(), answers, strict=True)
        ]
        path = self._folder([teacher.digest, data.fingerprint, lines]) / f"{data.split}.jsonl"
        write_bytes(path, "".join(f"{line}\n" for line in lines).encode())
        return path

    def _asked(self, teacher: LlmTeacher, data: TaskData) -> NDArray[np.float32]:
        """Return a language model's answers to a split."""
        progress = counting(
            self.watch, lambda rows: Labelling(teacher.name, data.place, rows, data.rows, teacher.spending())
        )
        return teacher.logits(data, progress)

    def _folder(self, facts: Any) -> Path:
        """Return a folder for what was chosen or answered, by all that decided it."""
        folder = cache_folder(self.recipe) / "answers" / fingerprint(facts)[:16]
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _score(students: Sequence[TrainedModel], loaded: dict[str, LoadedTask]) -> float:
    """Return the mean of the students' primary metrics on dev."""
    scores = [
        primary(loaded[task].task, values)
        for student in students
        for place, values in student.scores.items()
        for task, split in [place.split("/")]
        if split == "dev"
    ]
    return float(np.mean(scores))
