"""Mistakes in a recipe, put into words: where, what, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from understill.errors import Problem, listed, nearest
from understill.recipe.yamlfile import Places

#: Names people know from other tools, and what they are called here.
FAMILIAR = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "train_batch_size": "batch",
    "per_device_train_batch_size": "batch",
    "num_train_epochs": "epochs",
    "num_epochs": "epochs",
    "max_steps": "steps",
    "warmup_ratio": "warmup",
    "max_grad_norm": "clip",
    "max_seq_length": "max_length",
    "max_seq_len": "max_length",
    "lr_scheduler_type": "schedule",
    "early_stopping_patience": "patience",
    "eval_strategy": "evaluate",
    "adam_epsilon": "eps",
    "report_to": "trackers",
    "model": "encoder",
    "model_name": "encoder",
    "model_name_or_path": "encoder",
    "dataset": "data",
    "validation": "dev",
    "valid": "dev",
    "eval": "dev",
    "train_file": "train",
    "validation_file": "dev",
    "optim": "optimizer",
    "output_dir": "output",
    "text_column": "text",
    "label_column": "label",
    "teacher": "teachers",
    "distill": "distil",
    "distillation": "distil",
    "alpha": "hard",
    "kd_weight": "soft",
    "unlabeled": "unlabelled",
    "num_layers": "layers",
    "ensemble": "combine",
    "augmentation": "augment",
    "n_iter": "times",
    "num_seeds": "seeds",
    "n_seeds": "seeds",
    "variants": "ablations",
    "fp16": "precision",
    "bf16": "precision",
}

Path = tuple[Any, ...]

#: What should stand there instead, by pydantic's kind of error; limits come with the error.
WANTED: dict[str, Callable[[dict[str, Any]], str]] = {
    "int_type": lambda _: "a whole number",
    "int_parsing": lambda _: "a whole number",
    "int_from_float": lambda _: "a whole number",
    "float_type": lambda _: "a number",
    "float_parsing": lambda _: "a number",
    "finite_number": lambda _: "a finite number",
    "bool_type": lambda _: "true or false",
    "bool_parsing": lambda _: "true or false",
    "string_type": lambda _: "text",
    "string_too_short": lambda _: "text",
    "tuple_type": lambda _: "two numbers in brackets",
    "greater_than": lambda limit: f"more than {limit['gt']:g}",
    "greater_than_equal": lambda limit: f"{limit['ge']:g} or more",
    "less_than": lambda limit: f"less than {limit['lt']:g}",
    "less_than_equal": lambda limit: f"{limit['le']:g} or less",
    "string_pattern_mismatch": lambda _: "letters and digits, with . - and _ between them",
}


def explain(
    error: ValidationError,
    root: type[BaseModel],
    places: Places,
    moved: Mapping[str, Sequence[int]],
    values: Mapping[str, Any],
) -> list[Problem]:
    """Turn all that is wrong with a recipe's plain values into problems, in the order of the file.

    `moved` says for lists that were taken apart where their parts stand in the file.
    """
    schema = Schema(root, values)
    found = dict.fromkeys(problem for detail in error.errors() for problem in _problems(detail, schema, places, moved))
    return by_line(found)


def by_line(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems in the order of the file."""
    return sorted(problems, key=lambda problem: int(problem.place[5:]) if problem.place.startswith("line ") else 0)


def shown(value: Any) -> str:
    """Show a value as it might stand in the file."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value[:60]}…"' if len(value) > 60 else f'"{value}"'
    if isinstance(value, (int, float)):
        return f"{value}"[:60]
    return "a list" if isinstance(value, (list, tuple)) else "a mapping" if isinstance(value, dict) else repr(value)


def _problems(detail: Any, schema: Schema, places: Places, moved: Mapping[str, Sequence[int]]) -> Iterator[Problem]:
    path = _as_written(tuple(part for part in detail["loc"] if part != "[key]"), moved)
    if detail["type"] != "faulty":
        yield _problem(detail, path, schema, places)
        return
    for key, words in detail["ctx"]["faults"]:
        whole = _as_written((*path, *key.split(".")), moved) if key else path
        yield _said(places.of(whole), whole, words)


def _as_written(path: Path, moved: Mapping[str, Sequence[int]]) -> Path:
    """Return the way to a part of a list as it stands in the file."""
    if len(path) > 1 and str(path[1]).isdigit() and int(path[1]) < len(moved.get(str(path[0]), ())):
        return (path[0], moved[str(path[0])][int(path[1])], *path[2:])
    return path


def _said(place: str, path: Path, words: str) -> Problem:
    """Take words that say what is wrong and, after an arrow, what to do."""
    what, _, fix = words.partition(" → ")
    return Problem(place, f"{_name(path)}: {what}" if path else what, fix)


def _name(path: Path) -> str:
    return ".".join(str(part) for part in path)


def _problem(detail: Any, path: Path, schema: Schema, places: Places) -> Problem:
    """Turn one of pydantic's errors into place, fault and remedy."""
    place, name, error_type, limits = places.of(path), _name(path), detail["type"], detail.get("ctx") or {}
    given = detail.get("input")
    if error_type == "extra_forbidden":
        return _unknown(place, path, schema)
    if error_type == "value_error":
        return _said(place, path, detail["msg"].removeprefix("Value error, "))
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
        section = schema.section(path[:-1])
        options = get_args(section.model_fields[path[-1]].annotation) if section else ()
        words = [str(word) for option in options for word in (get_args(option) or (option,)) if isinstance(word, str)]
        close = nearest({"gpu": "cuda"}.get(str(given), str(given)), words)
        return close if close.startswith("did you mean") else f"write {listed(words)}"
    if error_type in ("model_type", "dict_type", "model_attributes_type"):
        keys = schema.keys(path)
        return f"write keys under it: {', '.join(keys)}" if keys else "write keys under it"
    if error_type == "tuple_type" and _holds_names(schema, path):
        return "write a name, or several in brackets"
    if error_type == "string_type" and isinstance(given, (int, float)):
        return f'put it in quotes: "{shown(given)}"'
    return f"write {WANTED[error_type](limits)}" if error_type in WANTED else ""


def _holds_names(schema: Schema, path: Path) -> bool:
    """Say whether a list of names stands at a place, rather than numbers."""
    section = schema.section(path[:-1])
    field = section.model_fields.get(str(path[-1])) if section else None
    return field is not None and str in get_args(field.annotation)


# Keys ----------------------------------------------------------------------------------------------------------------


def _unknown(place: str, path: Path, schema: Schema) -> Problem:
    """Say which key was probably meant, here or elsewhere in a recipe."""
    *above, key = path
    name = _name(path)
    here, ours = schema.keys(tuple(above)), FAMILIAR.get(str(key), str(key))
    close = f'did you mean "{ours}"?' if ours in here else nearest(str(key), here)
    if not close.startswith("did you mean") or (ours != key and ours not in here):
        homes = sorted((home for home in _every_key(schema.root) if home[-1] == ours), key=len)
        close = f'did you mean "{_name(homes[0])}"?' if homes else close
    return Problem(place, f"{name}: there is no such key", close)


class Schema:
    """The sections of a recipe as its plain values choose them: where several may stand, a value says which it is."""

    def __init__(self, root: type[BaseModel], values: Any = None) -> None:
        self.root, self.values = root, values

    def wanted(self, path: Path) -> type[BaseModel] | None:
        """Return the section that is wanted at a place, whatever stands there."""
        return self._at(path)[0]

    def section(self, path: Path) -> type[BaseModel] | None:
        """Return the section at a place, or None where there is a plain value or nothing."""
        wanted, value = self._at(path)
        return _chosen(wanted, value)

    def keys(self, path: Path) -> list[str]:
        """Return the keys of the section at a place, with those of others that come with understill and fit there."""
        wanted, value = self._at(path)
        section = _chosen(wanted, value)
        if wanted is None or section is None:
            return []
        members = _members(wanted) if section in _members(wanted) else (section,)
        return list(dict.fromkeys(key for member in members for key in member.model_fields))

    def _at(self, path: Path) -> tuple[type[BaseModel] | None, Any]:
        annotation, value = self.root, self.values
        for part in path:
            annotation, value = _inner(annotation, value, part), _value(value, part)
        return _section(annotation), value


def _inner(annotation: Any, value: Any, part: Any) -> Any:
    """Return what is wanted at a part of what is wanted."""
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]
    if get_origin(annotation) is tuple and _section(annotation):
        return get_args(annotation)[0]
    section = _chosen(_section(annotation), value)
    found = section.model_fields.get(part) if section else None
    return found.annotation if found else None


def _value(value: Any, part: Any) -> Any:
    if isinstance(value, Mapping):
        # One teacher needs no list around it.
        return value if isinstance(part, int) and part not in value else value.get(part)
    if isinstance(value, (list, tuple)) and str(part).isdigit() and int(part) < len(value):
        return value[int(part)]
    return None


def _chosen(section: type[BaseModel] | None, value: Any) -> type[BaseModel] | None:
    try:
        return section.read_as(value) if section is not None and hasattr(section, "read_as") else section
    except ValueError:  # of a type that there is not
        return section


def _members(section: type[BaseModel]) -> tuple[type[BaseModel], ...]:
    return section.members() if hasattr(section, "members") else (section,)


def _every_key(section: type[BaseModel], above: Path = ()) -> Iterator[Path]:
    """Yield the way to every key of the schema; NAME stands for names that the user chooses."""
    fields = {key: value for member in _members(section) for key, value in member.model_fields.items()}
    for key, value in fields.items():
        yield (*above, key)
        mapping = get_origin(value.annotation) is dict
        inner = _section(get_args(value.annotation)[1] if mapping else value.annotation)
        if inner:
            several = ("NAME",) if mapping else ("0",) if get_origin(value.annotation) is tuple else ()
            yield from _every_key(inner, (*above, key, *several))


def _section(annotation: Any) -> type[BaseModel] | None:
    """Find the section in an annotation such as `DemoData | None`."""
    options = [annotation, *get_args(annotation)]
    options += [inner for option in options if get_origin(option) is Annotated for inner in get_args(option)]
    return next((option for option in options if isinstance(option, type) and issubclass(option, BaseModel)), None)
