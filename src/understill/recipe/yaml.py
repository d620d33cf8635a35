"""YAML 1.2 by PyYAML, with the line of every value and parser errors in plain words.

ruamel.yaml would not do with less: its plain loader has no lines, its round-trip loader has types of its own, and rules
for numbers, messages and writing would be needed all the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from understill.errors import UserError
from understill.names import nfc

Lines = dict[tuple[str, ...], int]

#: No recipe has more bytes, nor more values once aliases are written out, of which a few can mean billions.
MOST_BYTES, MOST_VALUES = 250_000, 20_000


class _Loader(yaml.SafeLoader):
    """Safe YAML in which `yes`, `no`, `on` and `off` are words and `1e-4` is a number."""


#: Plain words that are not strings, as YAML 1.2 has it: 1:30 and 2024-01-01 are words, 010 is ten.
_PLAIN = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?\d+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (r"[-+]?(\d+\.\d*|\.\d+)([eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+", "-+.0123456789"),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "merge": (r"<<", "<"),
}


class _Dumper(yaml.SafeDumper):
    """Writes strings so that this reader, and one of YAML 1.1, read the same strings."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # Only double quotes have escapes; without, odd line breaks would come back as spaces.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if text.isprintable() else '"')


_Dumper.add_representer(str, _text)


def _resolve_plain(kind: Any) -> None:
    for name, (pattern, first) in _PLAIN.items():
        kind.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(rf"^(?:{pattern})$"), list(first))


# The resolvers are per class: the reader starts from none, the writer adds to those of plain YAML.
_Loader.yaml_implicit_resolvers = {}
_resolve_plain(_Loader)
_resolve_plain(_Dumper)


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)


@dataclass(frozen=True)
class Places:
    """Where each value of a recipe stands: in its file, or on the command line."""

    file: str
    lines: Lines = field(default_factory=dict)
    overrides: dict[tuple[str, ...], str] = field(default_factory=dict)  # of values that were given elsewhere

    def of(self, path: tuple[Any, ...]) -> str:
        """Return the place of a value, or of the nearest part of the file around it."""
        names = tuple(str(part) for part in path)
        if names not in self.overrides and names not in self.lines:
            # A key that was only given elsewhere, with others below it.
            for known, place in self.overrides.items():
                if names and known[: len(names)] == names:
                    return place
        for end in range(len(names), 0, -1):
            part = names[:end]
            if part in self.overrides:
                return self.overrides[part]
            if part in self.lines:
                return f"line {self.lines[part]}"
        return self.file


def read_yaml(path: Path) -> tuple[Any, Places]:
    """Read a YAML file, and the line of every value."""
    if not path.exists():
        raise UserError(f"{path}: no such file")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the recipe file inside it")
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    values, lines = _parse(text, str(path))
    return values, Places(str(path), lines)


def dump_yaml(values: Any) -> str:
    """Write values so that `read_yaml` gives them back."""
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def read_yaml_value(text: str, place: str) -> Any:
    """Read one value as YAML would."""
    return _parse(text, place)[0]


def _parse(text: str, place: str) -> tuple[Any, Lines]:
    if len(text.encode()) > MOST_BYTES:
        raise UserError(f"{place}: more than {MOST_BYTES:,} bytes, which no recipe has → name data in files of its own")
    lines: Lines = {}
    try:
        loader = _Loader(nfc(text))
        node = loader.get_single_node()
        if node is not None:
            _walk(node, (), lines, {})
        return (None if node is None else loader.construct_document(node)), lines
    except yaml.MarkedYAMLError as error:
        line, what = _in_words(error)
        raise UserError(f"{place}, line {line}: not valid YAML: {what}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"there is a control character, U+{int(error.character):04X}; delete it"
        raise UserError(f"{place}, line {line}: not valid YAML: {what}") from None
    except ValueError:  # int() has a limit
        raise UserError(f"{place}: not valid YAML: a number has thousands of digits") from None
    except RecursionError:
        raise UserError(f"{place}: not valid YAML: brackets inside brackets, hundreds of them") from None


#: What the parser reports, whose line counts (where the construct starts, or the point of failure), and our words.
_MEANS = (
    ("'\\t'", "point", "there is a tab; indent with spaces"),
    ("quoted scalar found unexpected end", "start", "the quote that is opened here is never closed"),
    ("expected ',' or", "start", "the bracket that is opened here is never closed"),
    (
        "mapping values are not allowed",
        "point",
        "a colon where none can stand; correct the indentation, or use quotes",
    ),
    ("sequence entries are not allowed", "point", "a list begins where none can stand; put it on a line of its own"),
    ("expected <block end>", "point", "the line does not fit in; correct the indentation and the quotes"),
    ("could not find expected ':'", "point", "a colon is missing; write key: value"),
    ("cannot start any token", "point", "a value cannot begin with this sign; put it in quotes"),
    ("could not determine a constructor", "point", "tags, such as !this, have no meaning in a recipe; leave it out"),
    ("single document", "point", "a second document begins with ---; leave one"),
)


def _in_words(error: yaml.MarkedYAMLError) -> tuple[int, str]:
    """Return the line of a mistake, and what it is."""
    problem = " ".join(part for part in (error.context, error.problem) if part)
    marks = {"point": error.problem_mark or error.context_mark, "start": error.context_mark or error.problem_mark}
    where, what = next(((where, what) for sign, where, what in _MEANS if sign in problem), ("point", problem))
    mark = marks[where]
    return (mark.line + 1 if mark else 1), what


def _walk(node: yaml.Node, path: tuple[str, ...], lines: Lines, sizes: dict[int, int]) -> int:
    """Note the line of every value, refuse keys that are written twice, and return how many values there are in all.

    An alias counts as often as it stands somewhere; what is inside has its place where it is written.
    """
    lines[path] = node.start_mark.line + 1
    if id(node) in sizes:
        if not sizes[id(node)]:
            raise _slip("an alias holds itself; write its value out", node)
        return sizes[id(node)]
    sizes[id(node)] = 0
    inner: list[tuple[str, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        names = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _slip("a list or mapping cannot be a key", key)
            if key.value in names:
                raise _slip(f'the key "{key.value}" is written twice', key)
            names.add(key.value)
            inner.append((key.value, value))
    elif isinstance(node, yaml.SequenceNode):
        inner = [(str(index), value) for index, value in enumerate(node.value)]
    size = 1 + sum(_walk(value, (*path, name), lines, sizes) for name, value in inner)
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        lines[(*path, key.value)] = key.start_mark.line + 1
    if size > MOST_VALUES:
        raise _slip(f"aliases included, there are more than {MOST_VALUES:,} values; write fewer", node)
    sizes[id(node)] = size
    return size


def _slip(what: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=node.start_mark)
