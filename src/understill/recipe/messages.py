"""Messages: pydantic's errors turned into where, what, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from pydantic import ValidationError

from understill.errors import Problem, listed, nearest
from understill.recipe.section import MOST_FAULTS, Section, shown
from understill.recipe.yaml import Places

#: Our names, each with those that people know from other tools.
_ELSEWHERE = {
    "lr": "learning_rate",
    "batch": "batch_size train_batch_size per_device_train_batch_size",
    "epochs": "num_train_epochs num_epochs",
    "steps": "max_steps",
    "warmup": "warmup_ratio",
    "clip": "max_grad_norm",
    "max_length": "max_seq_length max_seq_len",
    "schedule": "lr_scheduler_type",
    "patience": "early_stopping_patience",
    "evaluate": "eval_strategy",
    "eps": "adam_epsilon",
    "trackers": "report_to",
    "encoder": "model model_name model_name_or_path",
    "data": "dataset",
    "dev": "validation valid eval validation_file",
    "train": "train_file",
    "optimizer": "optim",
    "output": "output_dir",
    "text": "text_column",
    "label": "label_column",
    "teachers": "teacher",
    "distil": "distill distillation",
    "hard": "alpha",
    "soft": "kd_weight",
    "unlabelled": "unlabeled",
    "layers": "num_layers",
    "combine": "ensemble",
    "augment": "augmentation",
    "times": "n_iter",
    "seeds": "num_seeds n_seeds",
    "ablations": "variants",
    "precision": "fp16 bf16",
}
FAMILIAR = {name: ours for ours, names in _ELSEWHERE.items() for name in names.split()}

Path = tuple[Any, ...]
Moved = Mapping[str, Sequence[int]]  # of lists that were expanded: where each part stands in the file

#: What should stand there instead, by pydantic's type of error; limits come with the error.
WANTED: dict[str, Callable[[dict[str, Any]], str]] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), lambda _: "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), lambda _: "a number"),
    "finite_number": lambda _: "a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), lambda _: "true or false"),
    **dict.fromkeys(("string_type", "string_too_short"), lambda _: "text"),
    "tuple_type": lambda _: "two numbers in brackets",
    "greater_than": lambda limit: f"more than {limit['gt']:g}",
    "greater_than_equal": lambda limit: f"{limit['ge']:g} or more",
    "less_than": lambda limit: f"less than {limit['lt']:g}",
    "less_than_equal": lambda limit: f"{limit['le']:g} or less",
}


def explain(
    error: ValidationError, root: type[Section], places: Places, moved: Moved, values: Mapping[str, Any]
) -> list[Problem]:
    """Return all that is wrong with a recipe's plain values as problems, in the order of the file."""
    schema = Schema(root, values)
    return by_line(
        dict.fromkeys(
            problem for detail in error.errors()[:MOST_FAULTS] for problem in _problems(detail, schema, places, moved)
        )
    )


def by_line(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems in the order of the file."""
    return sorted(problems, key=lambda problem: int(problem.place[5:]) if problem.place.startswith("line ") else 0)


def _problems(detail: Any, schema: Schema, places: Places, moved: Moved) -> Iterator[Problem]:
    path = _as_written(tuple(part for part in detail["loc"] if part != "[key]"), moved)
    if detail["type"] != "faulty":
        yield _problem(detail, path, schema, places)
        return
    for key, words in detail["ctx"]["faults"]:
        whole = _as_written((*path, *key.split(".")), moved) if key else path
        yield _from_words(places.of(whole), whole, words)


def _as_written(path: Path, moved: Moved) -> Path:
    """Return the path to a part of a list as it stands in the file."""
    if len(path) > 1 and str(path[1]).isdecimal() and int(path[1]) < len(moved.get(str(path[0]), ())):
        return (path[0], moved[str(path[0])][int(path[1])], *path[2:])
    return path


def _from_words(place: str, path: Path, words: str) -> Problem:
    """Return the problem of a sentence that says what is wrong and, after an arrow, what to do."""
    what, _, fix = words.partition(" → ")
    return Problem(place, f"{_name(path)}: {what}" if path else what, fix)


def _name(path: Path) -> str:
    return ".".join(map(str, path))


def _problem(detail: Any, path: Path, schema: Schema, places: Places) -> Problem:
    """Turn one of pydantic's errors into place, fault and remedy."""
    place, name, error_type, limits = places.of(path), _name(path), detail["type"], detail.get("ctx") or {}
    given = detail.get("input")
    if error_type == "extra_forbidden":
        return Problem(place, f"{name}: there is no such key", _meant(path, schema))
    if error_type == "value_error":
        return _from_words(place, path, detail["msg"].removeprefix("Value error, "))
    if error_type == "missing":
        if isinstance(path[-1], int):  # of a pair of numbers
            return Problem(place, f"{_name(path[:-1])}: one number is not enough", "write two numbers in brackets")
        example = ", for instance tasks: [mood, queue]" if name == "tasks" else ""
        return Problem(place, f"{name} is missing", f"add it{example}")
    if error_type == "too_short":
        return Problem(place, f"{name}: nothing is named", f"name at least {limits['min_length']}")
    if error_type == "too_long":
        return Problem(place, f"{name}: these are too many", f"name at most {limits['max_length']}")
    wrong = f"{name}: there is no value" if given is None else f"{name}: {shown(given)} is not allowed"
    return Problem(place, wrong, _wanted(error_type, limits, given, path, schema) or detail["msg"])


def _wanted(error_type: str, limits: dict[str, Any], given: Any, path: Path, schema: Schema) -> str:
    """Say what to write instead."""
    if error_type == "literal_error":
        options = get_args(schema.annotation(path))
        words = [str(word) for option in options for word in (get_args(option) or (option,)) if isinstance(word, str)]
        return nearest({"gpu": "cuda"}.get(str(given), str(given)), words, f"write {listed(words)}")
    if error_type in ("model_type", "dict_type", "model_attributes_type"):
        keys = schema.keys(path)
        return f"write keys under it: {', '.join(keys)}" if keys else "write keys under it"
    if error_type == "tuple_type" and str in get_args(schema.annotation(path)):
        return "write a name, or several in brackets"
    if error_type == "string_type" and isinstance(given, (int, float)):
        return f'put it in quotes: "{shown(given)}"'
    return f"write {WANTED[error_type](limits)}" if error_type in WANTED else ""


def _meant(path: Path, schema: Schema) -> str:
    """Say which key was probably meant, here or elsewhere in a recipe."""
    *above, key = path
    here, ours = schema.keys(tuple(above)), FAMILIAR.get(str(key), str(key))
    close = f'did you mean "{ours}"?' if ours in here else nearest(str(key), here)
    if not close.startswith("did you mean") or (ours != key and ours not in here):
        homes = sorted((home for home in _all_keys(schema.root) if home[-1] == ours), key=len)
        close = f'did you mean "{_name(homes[0])}"?' if homes else close
    return close


class Schema:
    """The sections of a recipe as its plain values choose them: where several may stand, a value says which it is."""

    def __init__(self, root: type[Section], values: Any = None) -> None:
        self.root, self.values = root, values

    def section(self, path: Path) -> type[Section] | None:
        """Return the section that belongs at a path, whatever its type."""
        return _section(self._at(path)[0])

    def annotation(self, path: Path) -> Any:
        """Return what the schema says of the value at a path; None where it has no such key."""
        return self._at(path)[0]

    def keys(self, path: Path) -> list[str]:
        """Return the keys of the section at a path, with those of the other built-in types that fit there."""
        annotation, value = self._at(path)
        section, chosen = _section(annotation), _chosen(annotation, value)
        if section is None or chosen is None:
            return []
        members = section.members() if chosen in section.members() else (chosen,)
        return list(dict.fromkeys(key for member in members for key in member.proposed()))

    def _at(self, path: Path) -> tuple[Any, Any]:
        annotation, value = self.root, self.values
        for part in path:
            annotation, value = _inner(annotation, value, part), _value(value, part)
        return annotation, value


def _inner(annotation: Any, value: Any, part: Any) -> Any:
    """Return the annotation of a part of what is annotated."""
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]
    if get_origin(annotation) is tuple and _section(annotation):
        return get_args(annotation)[0]
    section = _chosen(annotation, value)
    return section.model_fields[part].annotation if section and part in section.model_fields else None


def _value(value: Any, part: Any) -> Any:
    if isinstance(value, Mapping):
        # One teacher needs no list around it.
        return value if isinstance(part, int) and part not in value else value.get(part)
    if isinstance(value, (list, tuple)) and str(part).isdecimal() and int(part) < len(value):
        return value[int(part)]
    return None


def _chosen(annotation: Any, value: Any) -> type[Section] | None:
    """Return the section that a value is read as; None where a plain value belongs."""
    section = _section(annotation)
    try:
        return section.read_as(value) if section is not None else None
    except ValueError:  # of an unknown type
        return section


@cache
def _all_keys(root: type[Section]) -> tuple[Path, ...]:
    return tuple(_every_key(root))


def _every_key(section: type[Section], above: Path = ()) -> Iterator[Path]:
    """Yield the path to every key of the schema; NAME stands for names that the user chooses."""
    fields = {key: value.annotation for member in section.members() for key, value in member.proposed().items()}
    for key, annotation in fields.items():
        yield (*above, key)
        mapping = get_origin(annotation) is dict
        if inner := _section(get_args(annotation)[1] if mapping else annotation):
            several = ("NAME",) if mapping else ("0",) if get_origin(annotation) is tuple else ()
            yield from _every_key(inner, (*above, key, *several))


def _section(annotation: Any) -> type[Section] | None:
    """Return the section in an annotation such as `DemoData | None`."""
    options = [annotation, *get_args(annotation)]
    options += [inner for option in options if get_origin(option) is Annotated for inner in get_args(option)]
    return next((option for option in options if isinstance(option, type) and issubclass(option, Section)), None)
