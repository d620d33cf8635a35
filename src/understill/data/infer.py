"""Inference of tasks: what each file is probably for, by its name and the first rows of it and of others."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from understill.data.columns import (
    ID_NAME,
    LABEL_NAME,
    MOST_INTEGERS,
    NONE_NAMED,
    SCORE_NAME,
    ColumnProfile,
    NamedColumns,
)
from understill.data.delimited import OWN, names_separator
from understill.data.doubts import HEADED, contradictions, header_doubt, several_labels, singles, spellings
from understill.data.file_profile import FileProfile, profile_file
from understill.data.files import File, find_files
from understill.errors import UserError
from understill.names import nfc
from understill.tasks import CLASSIFICATION, RANKING, REGRESSION, Kind
from understill.tasks.ranking import wrong_and_right

#: What to do where the columns of a file are not seen for what they are.
UNSEEN = "if the file has both, name them: understill init FILE --text COLUMN --label COLUMN"
#: Labels of a further column whose name does not say that it holds labels, as a share of the rows.
FURTHER = 0.3
#: Bytes of a task's name; a number may be added.
LONGEST_NAME = 60
SPLIT_NAME = re.compile(r"(?P<base>.*?)[-_. ]?(?P<word>train|training|dev|valid|validation|val|eval|test)", re.I)
ROLES = {"train": "train", "training": "train", "test": "test"}  # every other word of SPLIT_NAME means dev


@dataclass(frozen=True)
class InferredTask:
    """What a group of files is probably meant for."""

    name: str
    files: dict[str, list[Path]]  # train, dev, test, unlabelled
    profile: FileProfile  # of the first training file
    text: tuple[str, ...]
    label: ColumnProfile
    kind: Kind
    doubts: tuple[str, ...] = ()
    encoding: str | None = None
    separator: str | None = None  # where it is not the usual one
    separator_said: bool = False  # by the file's first line


# From files to tasks --------------------------------------------------------------------------------------------------


@dataclass
class _Group:
    """Files that are about the same, by their roles."""

    base: str
    files: dict[str, list[FileProfile]] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)

    @property
    def all(self) -> list[FileProfile]:
        """Every file."""
        return [profile for profiles in self.files.values() for profile in profiles]

    @property
    def profile(self) -> FileProfile:
        """The file that says what the columns are."""
        return self.files["train"][0]

    @property
    def texts(self) -> list[ColumnProfile]:
        """The columns to be read: one, or two of a pair."""
        texts = sorted(self.profile.with_role("text"), key=lambda column: column.given)
        return texts if len(texts) <= 2 else [max(texts, key=lambda column: column.length)]

    @property
    def golds(self) -> list[ColumnProfile]:
        """The columns to be learnt, the likeliest first; a column with one value teaches nothing."""
        golds = [column for column in self.profile.with_role("label", "score") if column.distinct > 1]
        if any(column.given for column in golds):
            return sorted(golds, key=lambda column: column.given)
        # An id of a class that is named in another column says the same once more.
        named = [column for column in golds if column.role == "label" and not ID_NAME.search(column.name)]
        golds = [column for column in golds if column in named or not named or not ID_NAME.search(column.name)]
        if not golds:
            return []
        best = max(golds, key=lambda each: (bool(LABEL_NAME.search(each.name)), bool(SCORE_NAME.search(each.name))))
        # Further numbers are more often amounts or dates than scores, unless they are called so.
        others = [column for column in golds if column.role == "label" or SCORE_NAME.search(column.name)]
        # And words with few rows each are more often dates or people than labels.
        words = [column for column in others if column.role == "label" and not column.whole]
        rare = [column for column in words if column.distinct > max(2, FURTHER * self.profile.rows)]
        others = [column for column in others if column not in rare or LABEL_NAME.search(column.name)]
        return [best, *(column for column in others if column is not best)]

    @property
    def constant(self) -> ColumnProfile | None:
        """The column that is named like labels or scores, and has one value in every row."""
        alike = [column for column in self.profile.with_role("label", "score") if column.distinct == 1]
        given = [column for column in alike if column.given]
        names = LABEL_NAME, SCORE_NAME
        return next(iter((*given, *(each for name in names for each in alike if name.search(each.name)))), None)

    def missing(self) -> str:
        """Say what keeps these files from being a task; nothing where they are one."""
        if self.texts and self.golds:
            return ""
        if self.texts and self.constant:
            only = self.constant
            value = f'the {only.role} "{only.examples[0][:100]}" in column "{only.name}"'
            if self.profile.whole:
                return f"{self.profile.path}: every row has {value}; there is nothing to learn"
            return f"{self.profile.path}: the first {self.profile.rows:,} rows have {value}; others were not looked at"
        shown = ", ".join(f"{column.name} ({column.role})" for column in self.profile.columns)
        what = "a label or a score" if self.texts else "text"
        return f"{self.profile.path}: no column looks like {what}; columns: {shown}"


def infer_tasks(
    paths: Sequence[Path], distil: bool = False, named: NamedColumns = NONE_NAMED
) -> tuple[list[InferredTask], list[str]]:
    """Group files into tasks, such as tickets.csv with tickets_dev.csv; return also why any was left out.

    Where a student is distilled, files with the texts of a task and no labels are for its teachers to label.
    """
    if not paths:
        raise UserError("name the files to look at, for instance: understill init tickets.csv tickets_dev.csv")
    if len(named.text) > 2:
        raise UserError(f"--text is given {len(named.text)} times; a task reads one text, or two of a pair")
    if both := [name for name in named.text if name in named.label]:
        raise UserError(f'"{both[0]}" is named with --text and with --label → name a column once')
    groups = _groups(paths, named)
    _refuse_absent(groups, named)
    whole = [group for group in groups if not group.missing()]
    left_out = []
    for group in groups:
        if group in whole:
            continue
        homes = [home for home in whole if _has(group.all, [column.name for column in home.texts])]
        if homes and distil:
            for home in homes:
                home.files.setdefault("unlabelled", []).extend(group.all)
        else:
            left_out.append(group.missing() + ("; with --distil, teachers can label its texts" if homes else ""))
    if not whole:
        fix = f"a task needs a column of text and one of labels or scores; {UNSEEN}"
        if all(group.texts and group.constant and group.profile.whole for group in groups):
            fix = "use data with two labels or more"
        raise UserError("; ".join(left_out) + f" → {fix}")
    inferred: list[InferredTask] = []
    for group in whole:
        inferred += _infer(group, [task.name for task in inferred])
    return inferred, left_out


def _refuse_absent(groups: Sequence[_Group], named: NamedColumns) -> None:
    """Refuse named columns that no file has."""
    columns = list(dict.fromkeys(name for group in groups for profile in group.all for name in profile.names))
    for option, names in (("--text", named.text), ("--label", named.label)):
        for name in names:
            if name not in columns:
                raise UserError(f"{option} {name}: no file has this column; there are {', '.join(columns)}")


def _has(profiles: Sequence[FileProfile], columns: Sequence[str]) -> bool:
    return all(set(columns) <= set(profile.names) for profile in profiles)


def _groups(paths: Sequence[Path], named: NamedColumns) -> list[_Group]:
    groups: dict[tuple[Path, str], _Group] = {}
    files = [file for each in paths for file in find_files([str(each)])]
    folders = {file.path: file.path.parent.parent / file.path.name for file in files if _role_of_folder(file)}
    for file in files:
        path, folder = file.path, file.path.parent
        base, role = _base_and_role(file)
        # One folder called train or test says nothing: the user may just work there.
        if path in folders and list(folders.values()).count(folders[path]) > 1:
            folder, role = folder.parent, _role_of_folder(file)
        group = groups.setdefault((folder, base), _Group(base or folder.resolve().name))
        group.files.setdefault(role, []).append(profile_file(path, named))
    for group in groups.values():
        for profile in group.all:
            absent = [name for name in named.text if name not in profile.names]
            if 0 < len(absent) < len(named.text):
                group.doubts.append(f'{profile.path.name} has no column "{absent[0]}", which --text names')
        if "train" not in group.files:
            group.files["train"] = group.files.pop("dev" if "dev" in group.files else "test")
            group.doubts.append("no training file was given, so this one is used as such")
    return list(groups.values())


def _role_of_folder(file: File) -> str:
    """Name the split that a file's folder is called after; nothing where the file's own name says it."""
    ending = "".join(file.path.suffixes[-2 if file.codec else -1 :])
    match = SPLIT_NAME.fullmatch(file.path.parent.name)
    if not match or match["base"] or SPLIT_NAME.fullmatch(file.path.name.removesuffix(ending)):
        return ""
    return ROLES.get(match["word"].lower(), "dev")


def _base_and_role(file: File) -> tuple[str, str]:
    """Split a file's name into what it is about and which split it holds."""
    ending = "".join(file.path.suffixes[-2 if file.codec else -1 :])
    name = file.path.name.removesuffix(ending)
    match = SPLIT_NAME.fullmatch(name)
    if not match:
        return name, "train"
    return match["base"], ROLES.get(match["word"].lower(), "dev")


def _name(text: str, taken: Sequence[str], other: str = "task") -> str:
    """Make a task name out of a file's or a column's, unlike those that are taken."""
    name, spare = (re.sub(r"[^\w-]+", "_", nfc(each)).strip("_-") for each in (text, other))
    name = (name or spare or "task").encode()[:LONGEST_NAME].decode(errors="ignore")
    return next(n for n in itertools.chain([name], (f"{name}_{i}" for i in itertools.count(2))) if n not in taken)


def _infer(group: _Group, taken: Sequence[str]) -> list[InferredTask]:
    """Infer the tasks of a group of files, one for each column of labels or scores."""
    profile, texts, golds = group.profile, group.texts, group.golds
    encoding, separator = _one_encoding(group), _one_separator(group)
    columns = tuple(column.name for column in texts)
    inferred: list[InferredTask] = []
    for gold in golds:
        given = [*taken, *(task.name for task in inferred)]
        name = _name(group.base, given) if len(golds) == 1 else _name(gold.name, given, group.base)
        files, unused = _files(group, [*columns, gold.name])
        kind, why = _task_kind(profile, texts, gold)
        said = separator is not None and names_separator(profile.file)
        notes = [*group.doubts, *why, *unused, *_data_doubts(profile, texts, gold, kind)]
        notes += [f"{each.path.name}: {doubt}" for each in group.all for doubt in each.doubts]
        for column in profile.with_role("label", "score"):
            if column.given and column.distinct < 2:
                notes.append(f'column "{column.name}", which --label names, has one value; there is nothing to learn')
        if gold.blank:
            notes.append(f"{gold.blank:,} of the first {profile.rows:,} rows have no {kind.noun} and are left out")
        if texts[0].last_resort:
            what = f'no column reads like text; "{texts[0].name}" has the most different values'
            notes.append(f"{what}, so it was taken; name another if it is none")
        if len(profile.with_role("text")) > 2:
            notes.append("several columns look like text; the longest was taken")
        if gold is not golds[0] and not gold.given:
            what = f"a further column of {profile.path.name} looks like {gold.role}s"
            notes.append(f"{what}, so it is a task too; delete this task if it is not wanted")
        inferred.append(
            InferredTask(name, files, profile, columns, gold, kind, tuple(notes), encoding, separator, said)
        )
    return inferred


def _data_doubts(profile: FileProfile, texts: Sequence[ColumnProfile], gold: ColumnProfile, kind: Kind) -> list[str]:
    """Say what is doubtful about the labels and the header of a file, as far as its first rows tell."""
    doubts = []
    if kind is REGRESSION and gold.whole and gold.distinct <= min(MOST_INTEGERS, profile.rows / 2):
        what = f"numbers {gold.whole[0]} to {gold.whole[1]} are taken for scores"
        doubts.append(f"{what}; write kind: classification if they are classes")
    if kind.has_classes and not kind.grouped:
        labels = [label if isinstance(label, str) else None for label in gold.keys]
        counts = Counter(label for label in labels if label is not None)
        rows = [each for each in zip(*(text.keys for text in texts), labels, strict=True) if None not in each]
        keys = [each[:-1] for each in rows]
        doubts += [contradictions(keys, [each[-1] for each in rows], len(texts) == 2), spellings(counts)]
        several = several_labels(counts)
        doubts += [several or (singles(counts) if profile.whole else "")]  # others may stand further below
    if profile.file.format in HEADED:
        values = {each.name for each in [*texts, gold] if each.named_so}
        doubts.append(header_doubt([each.name for each in texts], gold.name, values))
    return [doubt for doubt in doubts if doubt]


def _task_kind(profile: FileProfile, texts: Sequence[ColumnProfile], gold: ColumnProfile) -> tuple[Kind, list[str]]:
    """Infer the kind of a task, with what should be looked over about it."""
    if len(texts) == 2 and wrong_and_right(gold.examples) is not None and _ranks(texts[0], texts[1], gold):
        return RANKING, ["the same first text comes with several second ones, wrong and right, so these are ranked"]
    pair = "two columns look like text, so the task is about pairs; keep one if the other is something else"
    inferred = len(texts) == 2 and not texts[0].given
    return REGRESSION if gold.role == "score" else CLASSIFICATION, [pair] if inferred else []


def _ranks(first: ColumnProfile, second: ColumnProfile, gold: ColumnProfile) -> bool:
    """Tell whether first texts come with several second ones, and some with a wrong and a right one."""
    rows = {row for row in zip(first.keys, second.keys, gold.keys, strict=True) if None not in row}
    pairs = {row[:2] for row in rows}
    judged = {(one, label) for one, _, label in rows}
    firsts = {one for one, _ in pairs}
    return 2 * len(firsts) <= len(pairs) and len(judged) > len(firsts)


def _files(group: _Group, columns: Sequence[str]) -> tuple[dict[str, list[Path]], list[str]]:
    """Return the files that have a task's columns, by role, and a note about the others."""
    files, unused = {}, []
    for role, profiles in group.files.items():
        needed = columns if role in ("train", "dev") else columns[:-1]
        if role == "train" or _has(profiles, needed):
            files[role] = [profile.path for profile in profiles]
            continue
        absent = [(profile, name) for profile in profiles for name in needed if name not in profile.names]
        unused.append(f'{absent[0][0].path.name} has no column "{absent[0][1]}", so it is not used here')
    return files, unused


def _one_encoding(group: _Group) -> str | None:
    """Return the encoding that all files of a group need to be read by, if any."""
    named = {profile.encoding: profile for profile in group.all if profile.encoding}
    if not named:
        return None
    one, *others = named.values()
    # What is plain ASCII, or begins with a mark, can be read whatever the task says.
    others += [profile for profile in group.all if profile.file.encoding == "utf-8" and not profile.ascii]
    if others:
        what = f"{one.path} looks like {one.encoding}, and {others[0].path} like {others[0].file.encoding}"
        raise UserError(f"{what}; a task has one encoding → save both as UTF-8")
    return one.encoding


def _one_separator(group: _Group) -> str | None:
    """Return the separator of a group's files where it is not the usual one; None where they differ."""
    separators = {(profile.file.separator, OWN[profile.file.format]) for profile in group.all if profile.file.separator}
    if len({sign for sign, _ in separators}) != 1:
        return None
    ((sign, own), *_) = separators
    return sign if sign != own else None
