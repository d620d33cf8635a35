"""Plans: what a recipe would run, the data it reads, and tasks that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from understill.numbers import duration
from understill.terminal import console

if TYPE_CHECKING:
    from understill.data.load import LoadedTask
    from understill.estimate import Estimate
    from understill.pipeline import Plan, Study
    from understill.tasks import Task


def show_plan(study: Study, times: Mapping[str, Estimate] | None = None) -> None:
    """Show what would run, what is there already, and, where it was measured, about how long the rest takes."""
    # Where runs read other splits of a task, those of the one that reads most are shown.
    loaded: dict[str, LoadedTask] = {}
    for name, task in ((name, task) for _, plan in study.cells for name, task in plan.loaded.items()):
        loaded[name] = max(loaded.get(name, task), task, key=lambda each: len(each.splits))
    show_data(loaded, 0)
    timed = any(each.timed for each in (times or {}).values())
    _show_stages(study, times, timed)
    alone = len(study.cells) == 1
    if not alone:
        console.say(f"{len(study.cells)} runs: {_counted(study)}; what they have in common is made once")
    if study.plan.choice and (candidates := study.plan.candidates):
        console.say(
            f"which {study.plan.choice.rule.count} of the {len(candidates)} candidates are fine-tuned and teach "
            "is known when they are trained"
        )
    _show_choices(study)
    if times is None:
        models = [each.model for each in study.models]
        # Of what only the chosen among candidates go on to, as many as will be chosen.
        every = round(sum(model.odds for model in models))
        missing = round(sum(model.odds for model in models if not model.done))
        console.say(f"nothing was run; {missing} of {every} models are to be trained")
        return
    _show_exports(study.plan)
    total = sum(each.seconds * each.odds for each in times.values())
    how = "timed by real steps of each model" if timed else "reckoned from sizes; --time takes real steps"
    console.say(
        f"recipe and data are fine; training would take about {duration(total)} here ({how})"
        if times
        else "nothing is left to train"
    )


def _show_stages(study: Study, times: Mapping[str, Estimate] | None, timed: bool) -> None:
    """Show the stages of all runs, in the order in which one at a time would be run."""
    from understill.pipeline.engine import required, study_stages, wanted_keys

    stages = study_stages(study)
    left = {stage.key for stage in required(stages, wanted_keys(stages)) if not stage.done()}
    last = ("folder",) if times is None else ("steps", "timed" if timed else "about")
    table = console.table("stages", "stage", "of", "tasks", "state", *last)
    names: dict[str, list[str]] = {}  # of a model of one run, which may play several parts
    for model in study.plan.models if len(study.cells) == 1 else ():
        names.setdefault(model.folder.name, []).append(model.name)
    for stage in (stage for stage in stages if not stage.dropped()):
        name = " = ".join(names.get(stage.key, [stage.name]))
        tasks = ", ".join(stage.tasks) if stage.resources.places else ""
        state = "done" if stage.key not in left else stage.state()
        time_of = (times or {}).get(stage.name) if stage.resources.places else None
        cells = (f"{time_of.steps:,}", duration(time_of.seconds)) if time_of else ("", "")
        folder = stage.makes.folder.name if stage.makes and stage.action != "evaluate" else ""
        table.add_row(stage.action, name, tasks, state, *(cells if times is not None else (folder,)))
    console.out.print(table)


def _show_choices(study: Study) -> None:
    """Show what the recipe leaves open and the rule chooses, with what will be tried."""
    open_ones = [each for each in study.models if each.model.settings.training.lr == "auto" and not each.model.done]
    if not open_ones:
        return
    from understill.pipeline.tuning import foreseen

    for plan, model, title in open_ones:
        for reason in foreseen(plan, model)[0].reasons:
            console.say(f"{title}: {reason}")


def _show_exports(plan: Plan) -> None:
    """Show what the models that a run is made for can be exported to."""
    main = [each for each in plan.models if each.role in ("student", "model")]
    if not main:
        return
    from understill.export.formats import allowed, kind_at
    from understill.models.shape import WORDS

    start, settings = main[0].start, main[0].settings
    if settings.training.lr == "auto":
        from understill.pipeline.tuning import foreseen

        settings = foreseen(plan, main[0])[0].settings
    while start.model:
        start = start.model.start
    kind, tasks = WORDS if start.words else kind_at(start.place), [task for each in main for task in each.tasks]
    for form, what in allowed(kind, settings.encoder.pooling, settings.heads, tasks).items():
        console.say(f"export --to {form}: {what}")


def _counted(study: Study) -> str:
    """Say what the runs of a study differ in."""
    variants, seeds = ({getattr(cell, part) for cell, _ in study.cells} for part in ("variant", "seed"))
    parts = {"variant": len(variants), "seed": len(seeds)}
    return " × ".join(f"{count} {part}s" for part, count in parts.items() if count > 1)


def show_data(loaded: Mapping[str, LoadedTask], examples: int) -> None:
    """Show the tasks of a recipe with their rows and, if wanted, some of them."""
    table = console.table("tasks", "task", "kind", "texts", "labels", "rows", "notes")
    for task in loaded.values():
        rows = ", ".join(f"{split} {data.rows:,}" for split, data in task.splits.items())
        notes = [f"{count:,} rows of {split} are in train" for split, count in task.overlap.items() if count]
        notes += [f"{count:,} rows of {split} are in train of {other}" for (split, other), count in task.across.items()]
        notes += [f"{count:,} rows of {split} are in unlabelled" for split, count in task.foreseen.items() if count]
        notes += [f"{data.rejected:,} rows of {split} left out" for split, data in task.splits.items() if data.rejected]
        table.add_row(task.task.name, *_about(task.task), rows, "; ".join(notes))
    console.out.print(table)
    for task in loaded.values():
        for split, data in list(task.splits.items())[:1] if examples else []:
            console.say(f"{task.task.name} ({split}):")
            for row in data.table().slice(0, examples).to_pylist():
                texts = " | ".join(str(row[name]) for name in ("text1", "text2") if name in row)
                console.say(f"  {row['label'] if row['label'] is not None else '?'}: {texts}")


def _about(task: Task) -> tuple[str, str, str]:
    return task.kind.name, ", ".join(task.text), task.kind.gold_range(task)


def show_tasks(groups: Mapping[str, Sequence[Task]]) -> None:
    """Show the tasks that need no files of the user's."""
    for title, tasks in groups.items():
        table = console.table(title, "task", "kind", "texts", "labels", "metrics")
        for task in tasks:
            table.add_row(task.name, *_about(task), ", ".join(task.metrics))
        console.out.print(table)


def show_counts(counts: Sequence[Any]) -> None:
    """Show the rows found in a GLUE folder beside the official ones."""
    table = console.table("GLUE", "task", "split")
    for column in ("rows", "official", ""):
        table.add_column(column, justify="right" if column else "left")
    for task, split, found, official in counts:
        same = "" if official is None else "complete" if found == official else "missing" if not found else "differs"
        shown = "–" if official is None else f"{official:,}"
        table.add_row(task, split, "–" if found is None else f"{found:,}", shown, same)
    console.out.print(table)
