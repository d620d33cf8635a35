"""Plug-ins: registries of what a recipe may name, filled by understill, installed packages or Python code."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from understill.errors import UserError, nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """Named objects of one kind: built in, from entry points of installed packages, or registered by Python code.

    Entry points are imported on first use, so that a broken plug-in matters only to recipes that name it.
    """

    def __init__(self, what: str, group: str, own: tuple[str, ...] = ()) -> None:
        self.what, self.group = what, group  # "loss", "understill.losses"
        self._names = dict.fromkeys(own)  # what understill brings, known before its modules are imported
        self._own: dict[str, T] = {}  # what understill brings
        self._added: dict[str, T] = {}  # by a decorator, or loaded from an entry point
        self._points: dict[str, EntryPoint] | None = None  # of installed packages, once they are asked for

    def own(self, name: str) -> Callable[[T], T]:
        """Register what understill itself brings."""

        def add(thing: T) -> T:
            if name in self._added:  # which was registered before this module was imported
                raise self._taken(name)
            self._own[name] = thing
            self._names[name] = None
            return thing

        return add

    def register(self, name: str) -> Callable[[T], T]:
        """Register something from Python; a name that understill has is taken, one registered before is replaced."""

        def add(thing: T) -> T:
            if name in self._names:
                raise self._taken(name)
            self._added[name] = thing
            return thing

        return add

    def _taken(self, name: str) -> UserError:
        return UserError(f'understill has a {self.what} "{name}" of its own → choose another name')

    def __getitem__(self, name: str) -> T:
        if name in self._own:
            return self._own[name]
        if name not in self._added:
            self._added[name] = self._load(name)
        return self._added[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names or name in self._added or name in self._entries()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._names, *self._added, *self._entries())))

    def is_own(self, name: str) -> bool:
        """Tell whether understill brings it."""
        return name in self._names

    def facts(self, name: str) -> dict[str, Any]:
        """Return what stands for a plug-in in fingerprints; nothing for what understill brings.

        A changed plug-in makes new artefacts: the version of its package counts, or the source file it was written in.
        """
        if name in self._names:
            return {}
        if (point := self._entries().get(name)) and point.dist:
            return {"plugin": name, "package": point.dist.name, "version": point.dist.version}
        thing: Any = inspect.unwrap(self[name])  # type: ignore[arg-type]
        source = inspect.getsourcefile(thing if inspect.isroutine(thing) or inspect.isclass(thing) else type(thing))
        digest = hashlib.sha256(Path(source).read_bytes()).hexdigest() if source else ""
        return {"plugin": name, "source": digest}

    def _entries(self) -> dict[str, EntryPoint]:
        if self._points is None:
            self._points = {point.name: point for point in entry_points(group=self.group)}
        return self._points

    def _load(self, name: str) -> T:
        point = self._entries().get(name)
        if point is None:
            raise UserError(f'there is no {self.what} "{name}" → {nearest(name, self)}')
        try:
            loaded: T = point.load()
        except Exception as error:
            owner = f"package {point.dist.name}" if point.dist else point.value
            raise UserError(f'the {self.what} "{name}" of {owner} cannot be loaded: {error}') from error
        return loaded


#: Loss terms, as in understill.losses; `student.distil.loss` names those of plug-ins.
LOSSES: Registry[Any] = Registry(
    "loss",
    "understill.losses",
    (
        "cross_entropy",
        "soft_cross_entropy",
        "logits",
        "squared_error",
        "soft_squared_error",
        "listwise",
        "soft_listwise",
    ),
)
#: Shapes of annealing: functions from the share of the run that is done, 0 to 1, to the share of the way that λ has
#: gone, 0 to 1. One that takes tensors as well as numbers is trained with on the fast path.
ANNEALING: Registry[Callable[[Any], Any]] = Registry(
    "annealing shape", "understill.annealing", ("linear", "cosine", "quadratic")
)
#: Types of teachers, which `teachers.N.type` may name: as in understill.teachers.
TEACHERS: Registry[Any] = Registry(
    "type of teacher", "understill.teachers", ("trained", "checkpoint", "predictions", "llm")
)
#: Networks over words, which `encoder.name` may name: classes, as in understill.models.textnet.
NETWORKS: Registry[Any] = Registry("network", "understill.networks", ("bilstm", "static"))
#: Taggers, which `student.augment.tagger` may name: functions, as in understill.data.taggers.
TAGGERS: Registry[Any] = Registry("tagger", "understill.taggers", ("spacy", "textblob"))
