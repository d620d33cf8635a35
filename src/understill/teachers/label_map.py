"""Labels matched by name: which output of a teacher stands for which label of a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from understill.data.files import shortened
from understill.errors import UserError
from understill.names import nfc
from understill.tasks import Task


def by_name(labels: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    """Find labels among names: as they are written, else without regard to case, blanks, hyphens and underscores."""
    names = [nfc(name) for name in names]
    exact = {label: names.index(label) for label in labels if label in names}
    free = {number: bare(name) for number, name in enumerate(names) if number not in exact.values()}
    rest = {label: bare(label) for label in labels if label not in exact}
    known, asked = Counter(free.values()), Counter(rest.values())
    numbers = {bare: number for number, bare in free.items()}
    # Two names that only differ in this way could each be meant.
    return exact | {label: numbers[bare] for label, bare in rest.items() if known[bare] == asked[bare] == 1}


def bare(name: str) -> str:
    """Return a name without what two writers of it may do differently."""
    return nfc("".join(nfc(name).casefold().replace("-", " ").replace("_", " ").split()))


def match_labels(teacher: str, outputs: Sequence[str], task: Task, given: Mapping[str, str]) -> list[int]:
    """Return which output of a teacher stands for each of the task's labels; `given` maps its names to the task's.

    Given names may also be "LABEL_0" or "0". Without them every output must have a label of the same name.
    """
    if given:
        places = {label: _number(key, outputs) for key, label in given.items()}
        whole = len(places) == len(given) and set(places) == set(task.labels)
        if whole and None not in places.values() and len(set(places.values())) == len(places):
            return [number for label in task.labels if (number := places[label]) is not None]
        why = "labels must name one of its labels for each of the task's"
    else:
        numbers = by_name(task.labels, outputs)
        if len(numbers) == len(task.labels) == len(outputs):
            return [numbers[label] for label in task.labels]
        why = "its labels are not those of the task"
    raise UserError(
        f"teacher {teacher}: {why}; it has {shortened(outputs, 20)}, {task.name} has {shortened(task.labels, 20)} "
        f"→ say which is which, for instance labels: {{{suggestion(outputs, task.labels)}}}"
    )


def suggestion(names: Sequence[str], labels: Sequence[str]) -> str:
    """Write which name may stand for which label: by name as far as that tells, the others in their order."""
    known = {place: label for label, place in by_name(labels, names).items()}
    rest = iter([label for label in labels if label not in known.values()])
    pairs = [(name, known.get(place) or next(rest, None)) for place, name in enumerate(names)]
    return ", ".join(f"{name}: {label}" for name, label in pairs if label is not None)


def _number(key: str, outputs: Sequence[str]) -> int | None:
    numbers = {str(number): number for number in range(len(outputs))}
    numbers |= {f"LABEL_{number}": number for number in range(len(outputs))}
    return (numbers | {nfc(name): number for number, name in enumerate(outputs)}).get(key)
