"""The teach stage: models trained, saved and scored, or taken as they are when they are finished already."""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from understill.disk import write_json
from understill.events import Evaluated, Fitted, Report, Resumed, Scored, Scores, Teaching, Turn, Watch, silent
from understill.losses.choose import make_objective
from understill.models.encoder import load_tokenizer
from understill.models.folder import load_model, save_model, save_scores
from understill.pipeline.initialise import first_weights, prepare_heads
from understill.pipeline.labelling import join_targets
from understill.pipeline.locking import patiently
from understill.pipeline.plan import ModelPlan, Plan, Role, Wanted, cache_folder, dev_sets, max_length, once_each
from understill.pipeline.rule import Choice
from understill.pipeline.scoring import dev_score, score_model
from understill.pipeline.tokenising import Tokeniser, make_batches
from understill.pipeline.tuning import tune
from understill.pipeline.wording import make_words
from understill.train.device import make_accelerator, pick_device
from understill.train.fit import fit
from understill.train.loop import Step
from understill.train.turns import Job, places_of, places_on, take_turns


@dataclass(frozen=True)
class TrainedModel:
    """A finished model's folder and scores."""

    name: str
    role: Role
    folder: Path
    scores: Scores
    history: list[dict[str, Any]]
    seconds: float
    chosen: Mapping[str, Any] | None = None  # what the recipe left open, and why


def teach(plan: Plan, models: Sequence[ModelPlan], watch: Watch = silent) -> list[TrainedModel]:
    """Train models of a plan after all that they need, or take them as they are when they are finished already."""
    return teach_all([Wanted(plan, model, model.name) for model in models], watch)


def teach_all(wanted: Sequence[Wanted], watch: Watch = silent) -> list[TrainedModel]:
    """Train models of any plans, each folder once, after all that they need."""
    done: dict[Path, dict[str, Any]] = {}
    titles = {each.model.folder: each.title for each in wanted}
    needs = once_each(_with_needs(wanted))
    waiting = [each._replace(title=titles.get(each.model.folder, each.title)) for each in needs]
    places = places_on(waiting[0].plan.recipe.machine) if _may_share(waiting) else 1
    if places > 1:
        needed = {each.folder for one in waiting for each in one.model.needs}
        # Those that others wait for, and long ones, come first, so that none is left to run alone at the end.
        waiting.sort(key=lambda each: (each.model.folder not in needed, -_work(each.plan, each.model)))

    def begin() -> Job | None:
        ready = (each for each in waiting if each.model.done or all(need.done for need in each.model.needs))
        if (one := next(ready, None)) is None:
            return None
        waiting.remove(one)
        return Job(_lesson(one, watch, done), places_of(one.model.settings.training.batch))

    take_turns(begin, places)
    return [_trained(each.model, done[each.model.folder]) for each in wanted]


def _with_needs(wanted: Iterable[Wanted]) -> Iterator[Wanted]:
    """Name models after those that they need; what a finished one needed is not needed any more."""
    for each in wanted:
        if not each.model.done:
            yield from _with_needs(Wanted(each.plan, need, need.name) for need in each.model.needs)
        yield each


def _may_share(wanted: Sequence[Wanted]) -> bool:
    """Tell whether models can be trained at once: accelerate has one precision and most trackers one run at a time."""
    precisions = {each.model.settings.training.precision for each in wanted}
    trackers = {tracker for each in wanted for tracker in each.plan.recipe.output.trackers}
    return len(precisions) == 1 and "fp16" not in precisions and trackers <= {"tensorboard"}


def _work(plan: Plan, model: ModelPlan) -> float:
    """Return about how many rows a model's training reads."""
    training = model.settings.training
    rows = sum(plan.loaded[task.name].splits[model.split(task.name)].rows for task in model.tasks)
    return float(training.steps * training.batch if training.steps else training.passes * rows)


def _trained(model: ModelPlan, facts: dict[str, Any]) -> TrainedModel:
    return TrainedModel(
        model.name,
        model.role,
        model.folder / "model",
        facts["scores"],
        facts["history"],
        facts["seconds"],
        facts.get("chosen"),
    )


def _lesson(wanted: Wanted, watch: Watch, done: dict[Path, dict[str, Any]]) -> Generator[None]:
    """Train one model, step by step, and put its facts among those of what is done."""
    plan, model, title = wanted
    lock = yield from patiently(model.folder, title, watch)
    try:
        if not model.done:
            watch(Teaching(title, "resumed" if model.started else "new"))
            fitted, choice = yield from _train(wanted, watch)
            _finish(plan, model, fitted, choice, watch)
        else:
            watch(Teaching(title, "done"))
        shutil.rmtree(model.folder / "work", ignore_errors=True)
        facts = _scored(plan, model, watch)
    finally:
        lock.release()
    watch(Scored(title, facts["scores"]))
    done[model.folder] = facts


def _train(wanted: Wanted, watch: Watch) -> Generator[None, None, tuple[Fitted, Choice | None]]:
    """Train a model, or go on training it, and save its folder."""
    plan, model, title = wanted
    recipe, settings, distillation = plan.recipe, model.settings, model.distillation
    joined = join_targets(plan, distillation, watch) if distillation else {}
    if model.start.words:
        make_words(plan, model.start.words)
    tokenizer = load_tokenizer(model.start.name, model.start.place)
    tokens = _tokeniser(plan, model, tokenizer, watch)
    choice = None
    if settings.training.lr == "auto":
        choice = yield from tune(plan, model, title, tokens, joined, watch)
        settings = choice.settings
        model = replace(model, settings=settings)
    batches = make_batches(plan, model, tokens, joined)
    dev = {(task.task.name, "dev"): tokens(task, "dev") for task in model.scored if task.task in model.tasks}
    network = first_weights(model)
    if not model.started:
        network.to(pick_device(recipe.machine))
        yield from prepare_heads(plan, model, network, tokens, batches, title, watch)
    accelerator = make_accelerator(recipe.machine, settings.training.precision, recipe.output.trackers, model.folder)
    accelerator.init_trackers(f"{recipe.name}-{model.name}")
    for event in fit(
        network,
        make_objective(model.tasks, settings.heads.regression, distillation.distil if distillation else None),
        batches,
        settings.training,
        accelerator=accelerator,
        seed=model.seed,
        folder=model.folder / "work",
        evaluate=lambda current: dev_score(current, model, dev, recipe.evaluation.batch),
        fast=recipe.machine.fast == "auto",
    ):
        if isinstance(event, Step):
            yield
            continue
        if not isinstance(event, Resumed):
            accelerator.log(_numbers(event), step=event.step)
        watch(Turn(title))
        watch(event)
        if isinstance(event, Fitted):
            fitted = event
    accelerator.end_training()
    network = accelerator.unwrap_model(network, keep_fp32_wrapper=False).cpu()
    save_model(
        model.folder / "model", network, tokenizer, tokens.lengths, recipe.to_yaml(), {}, taught=_distilled(model)
    )
    return fitted, choice


def _distilled(model: ModelPlan) -> bool:
    """Tell whether a model, or the one that it begins as, learns from teachers."""
    return model.distillation is not None or bool(model.start.model and _distilled(model.start.model))


def _tokeniser(plan: Plan, model: ModelPlan, tokenizer: Any, watch: Watch) -> Tokeniser:
    lengths = {task.name: max_length(plan.recipe, model.settings, task.name) for task in model.tasks}
    return Tokeniser(tokenizer, lengths, cache_folder(plan.recipe), watch)


def _finish(plan: Plan, model: ModelPlan, fitted: Fitted, choice: Choice | None, watch: Watch) -> None:
    """Score a freshly saved model and mark it as finished."""
    scores = _score(plan, model, watch)
    shutil.copyfile(model.folder / "work" / "log.jsonl", model.folder / "log.jsonl")
    facts = {
        "fingerprint": model.fingerprint,
        "scores": scores,
        "scored_on": _scored_on(model),
        "history": fitted.history,
        "seconds": fitted.seconds + (choice.seconds if choice else 0.0),
        "chosen": choice.facts() if choice else None,
    }
    write_json(model.folder / "done.json", facts)


def _score(plan: Plan, model: ModelPlan, watch: Watch) -> Scores:
    """Score a saved model from its folder, as anybody else would load it, so that the figures are the folder's."""
    folder = load_model(model.folder / "model")
    tokens = _tokeniser(plan, model, folder.tokenizer, watch)
    scores = score_model(folder, model.scored, tokens, plan.recipe, model.folder / "predictions")
    save_scores(folder.path, scores)
    return scores


def _scored_on(model: ModelPlan) -> dict[str, str]:
    """Name the dev sets a model is scored on, with what they hold; not all of them take part in its training."""
    loaded = {task.task.name: task for task in model.scored}
    sets = [place for task in model.tasks for place in dev_sets(loaded, task.name)]
    return {f"{task.task.name}/{split}": task.splits[split].fingerprint for task, split in sets}


def _scored(plan: Plan, model: ModelPlan, watch: Watch) -> dict[str, Any]:
    """Return the facts of a finished model, scored anew where a dev set was added or has changed."""
    facts: dict[str, Any] = json.loads((model.folder / "done.json").read_text(encoding="utf-8"))
    if facts["scored_on"] != _scored_on(model):
        facts |= {"scores": _score(plan, model, watch), "scored_on": _scored_on(model)}
        write_json(model.folder / "done.json", facts)
    return facts


def _numbers(event: Report | Evaluated | Fitted) -> dict[str, float]:
    """Return what a tracker should draw."""
    if isinstance(event, Report):
        parts = {f"loss/{name}": value for name, value in event.parts.items()}
        mix = {} if event.mix is None else {"lambda": event.mix}
        return {"loss": event.loss, "rate": event.rate, "rows_per_second": event.rows_per_second, **mix, **parts}
    if isinstance(event, Fitted):
        return {"best_step": float(event.best_step)}
    flat = {f"{place}/{metric}": value for place, values in event.scores.items() for metric, value in values.items()}
    return {"dev": event.score, **flat}
