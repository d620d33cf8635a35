"""Plans: what a recipe would run, and about how long that takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from understill.numbers import duration, file_size
from understill.terminal import console
from understill.terminal.listings import show_data

if TYPE_CHECKING:
    from pathlib import Path

    from understill.data.load import LoadedTask
    from understill.data.recipe_draft import Draft
    from understill.engines.cost_model import Cluster, Cost
    from understill.estimate import Estimate
    from understill.pipeline.llm_estimate import AskEstimate
    from understill.pipeline.plan.parts import Plan, Study


def show_draft(path: Path, draft: Draft) -> None:
    """Show what was guessed for a recipe, and what to type next."""
    console.say(f"wrote {path}, guessed from the first rows of your files; look it over:")
    for guess in draft.guesses:
        console.say(f"  {guess}")
    recipe = quote(str(path))
    console.say("then type:")
    console.say(f"  understill check {recipe}   # reads all rows; says what would run, and about how long it takes")
    console.say(f"  understill run {recipe}     # trains, scores, and writes a report")
    texts = '--text "…" --second "…"' if draft.pairs else '--text "…"'
    console.say(f"  understill predict {quote(f'runs/{draft.name}')} {texts}")


def show_scale(costs: Sequence[Cost], cluster: Cluster) -> None:
    """Show what a recipe would take on a cluster."""
    rows = []
    for cost in costs:
        time, money = duration(3600 * cost.hours), f"{cost.gpu_hours * cluster.price:,.2f}"
        rows.append((cost.what, time, f"{cost.gpu_hours:,.2f}", money, file_size(cost.bytes), cost.bound))
    head = ("time", "GPU hours", f"at {cluster.price:g}/h", "written")
    title = f"on {cluster.gpus:,} GPUs like an H200, by the cost model of docs/scale.md; nothing of it was run"
    console.show_table(title, ("what",), head, rows, last="bound by")


def show_asks(asks: Sequence[AskEstimate]) -> None:
    """Show what language models will be asked, and what that takes."""
    if not asks:
        return
    columns = ("teacher", "task", "rows", "requests", "kept", "tokens", "about", "cost")
    rows = [
        (
            each.teacher,
            each.task,
            f"{each.rows:,}",
            f"{each.requests:,}",
            f"{each.kept:,}",
            f"{each.tokens_in:,.0f} + {each.tokens_out:,.0f}",
            duration(60 * each.minutes),
            "no prices given" if each.cost is None else f"{each.cost:,.4f}",
        )
        for each in asks
    ]
    console.show_table("to be asked", columns, (), rows)
    if not all(each.timed for each in asks):
        console.say("times assume a second for each answer; after the first answers they are the server's own")
    if (draws := max(each.draws for each in asks)) > 1:
        console.say(
            f"a server that gives no log-probabilities is asked {draws} times about each row: samples: 1 for once"
        )
    for short in dict.fromkeys(each.short for each in asks if each.short):
        console.say(short)


def show_plan(study: Study, times: Mapping[str, Estimate] | None = None) -> None:
    """Show what would run, what is there already, and, where it was measured, about how long the rest takes."""
    # Where runs read other splits of a task, those of the one that reads most are shown.
    loaded: dict[str, LoadedTask] = {}
    for name, task in ((name, task) for _, plan in study.cells for name, task in plan.loaded.items()):
        loaded[name] = max(loaded.get(name, task), task, key=lambda each: len(each.splits))
    show_data(loaded, 0)
    timed = any(each.timed for each in (times or {}).values())
    _show_stages(study, times, timed)
    if len(study.cells) > 1:
        console.say(f"{len(study.cells)} runs: {_counted(study)}; what they have in common is made once")
    if study.plan.choice and (candidates := study.plan.candidates):
        console.say(
            f"the best {study.plan.choice.rule.count} of the {len(candidates)} candidates are fine-tuned and become "
            "teachers; which these are is known when all are trained"
        )
    _show_choices(study)
    if times is None:
        from understill.pipeline.run_folder import code_change

        models = [each.model for each in study.models]
        # Of what only the chosen among candidates go on to, as many as will be chosen.
        every = round(sum(model.odds for model in models))
        missing = round(sum(model.odds for model in models if not model.done))
        if change := code_change(study.recipe):
            console.say(change)
        console.say(f"nothing was run; {missing} of {every} models are to be trained")
        return
    _show_exports(study.plan)
    total = sum(each.seconds * each.odds for each in times.values())
    how = "measured on real steps of each model" if timed else "estimated from sizes; --time measures real steps"
    console.say(
        f"recipe and data are fine; training would take about {duration(total)} here ({how})"
        if times
        else "nothing is left to train"
    )


def _show_stages(study: Study, times: Mapping[str, Estimate] | None, timed: bool) -> None:
    """Show the stages of all runs, in the order in which one at a time would be run."""
    from understill.pipeline.graph import required, study_stages, wanted_keys

    stages = study_stages(study)
    left = {stage.key for stage in required(stages, wanted_keys(stages)) if not stage.done()}
    last = ("folder",) if times is None else ("steps", "timed" if timed else "about")
    rows = []
    names: dict[str, list[str]] = {}  # of a model of one run, which may play several parts
    for model in study.plan.models if len(study.cells) == 1 else ():
        names.setdefault(model.folder.name, []).append(model.name)
    for stage in (stage for stage in stages if not stage.dropped()):
        name = " = ".join(names.get(stage.key, [stage.name]))
        tasks = ", ".join(stage.tasks) if stage.trains else ""
        state = "done" if stage.key not in left else stage.state()
        time_of = (times or {}).get(stage.name) if stage.trains else None
        cells = (f"{time_of.steps:,}", duration(time_of.seconds)) if time_of else ("", "")
        folder = stage.makes.folder.name if stage.makes and stage.action != "evaluate" else ""
        rows.append((stage.action, name, tasks, state, *(cells if times is not None else (folder,))))
    console.show_table("stages", ("stage", "of", "tasks", "state", *last), (), rows)


def _show_choices(study: Study) -> None:
    """Show which hyperparameters are chosen automatically, and what will be tried."""
    open_ones = [each for each in study.models if each.model.settings.training.lr == "auto" and not each.model.done]
    if not open_ones:
        return
    from understill.pipeline.hyperparameter_search import foreseen

    for _, model, title in open_ones:
        for reason in foreseen(model)[0].reasons:
            console.say(f"{title}: {reason}")


def _show_exports(plan: Plan) -> None:
    """Show what the student or the models of a run can be exported to."""
    main = [each for each in plan.models if each.role in ("student", "model")]
    if not main:
        return
    from understill.export.formats import allowed, kind_at
    from understill.models.shape import WORDS

    start, settings, undecided = main[0].start.root, main[0].settings, False
    if settings.training.lr == "auto":
        from understill.pipeline.hyperparameter_search import foreseen

        choice, _ = foreseen(main[0])
        settings, undecided = choice.settings, "siamese" in choice.trial
    kind, tasks = WORDS if start.words else kind_at(start.place), [task for each in main for task in each.tasks]
    for form, what in allowed(kind, settings.encoder.pooling, settings.heads, tasks).items():
        depends = undecided and form == "huggingface"
        console.say(f"export --to {form}: {'known after the trial: pairs must be read together' if depends else what}")


def _counted(study: Study) -> str:
    """Say what the runs of a study differ in."""
    variants, seeds = ({getattr(cell, part) for cell, _ in study.cells} for part in ("variant", "seed"))
    parts = {"variant": len(variants), "seed": len(seeds)}
    return " × ".join(f"{count} {part}s" for part, count in parts.items() if count > 1)
