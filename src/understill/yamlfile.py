"""YAML with places: what was written, and on which line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from understill.errors import UserError


class _Loader(yaml.SafeLoader):
    """Safe YAML in which `yes`, `no`, `on` and `off` are words, `1e-4` is a number and keys are unique."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is written twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f'the key "{name}" is written twice', key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


# The resolvers are per class: copy them before changing, so that plain yaml stays as it is.
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:float")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|True|false|False)$"), list("tTfF"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?$"),
    list("-+0123456789."),
)


class Places:
    """Where each value of a file stands."""

    def __init__(self, file: str, lines: dict[tuple[Any, ...], int] | None = None) -> None:
        self.file = file
        self._lines = lines or {}
        self._overrides: dict[tuple[Any, ...], str] = {}

    def override(self, path: tuple[Any, ...], place: str) -> None:
        """Remember that a value was given on the command line."""
        self._overrides[path] = place

    def of(self, path: tuple[Any, ...]) -> str:
        """Return the place of a value, or of the nearest part of the file around it."""
        for end in range(len(path), -1, -1):
            part = path[:end]
            if part in self._overrides:
                return self._overrides[part]
            if part in self._lines and end:
                return f"line {self._lines[part]}"
        return self.file


def read_yaml(path: Path) -> tuple[Any, Places]:
    """Read a YAML file and remember the line of every value."""
    if not path.exists():
        raise UserError(f"{path}: no such file")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the recipe file inside it")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from None
    values, node = _parse(text, str(path))
    lines: dict[tuple[Any, ...], int] = {}
    if node is not None:
        _walk(node, (), lines)
    return values, Places(str(path), lines)


def read_yaml_value(text: str, place: str) -> Any:
    """Read one value as YAML would."""
    return _parse(text, place)[0]


def _parse(text: str, place: str) -> tuple[Any, yaml.Node | None]:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return (None if node is None else loader.construct_document(node)), node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{place}{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{place}: not valid YAML: {error}") from None
    finally:
        loader.dispose()


def _walk(node: yaml.Node, path: tuple[Any, ...], lines: dict[tuple[Any, ...], int]) -> None:
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _walk(value, (*path, key.value), lines)
            lines[(*path, key.value)] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*path, index), lines)
