"""Names: what runs, tasks and teachers may be called in any script, one Unicode form, paths and patterns of files."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from unicodedata import category, normalize

#: Bytes of a name in UTF-8. Folders are named after a teacher, a task and a seed together, and file systems take 255.
LONGEST = 80
#: What a name is made of, for messages.
RULE = f"use letters, digits, - and _, a letter or digit first, at most {LONGEST} bytes"

#: Files and folders that a pattern may look at: minutes pass over those of a whole disk.
MOST_ENTRIES = 100_000


def nfc(text: str) -> str:
    """Return a text with composed characters (NFC), so that what looks the same is the same."""
    return text if text.isascii() else normalize("NFC", text)


def is_name(text: str) -> bool:
    """Tell whether a run, a teacher or a variant may be called so: it can be a folder on every system."""
    return (
        text[:1].isalnum()
        and all(sign in "-_." or category(sign)[0] in "LMN" for sign in text)
        and len(text.encode()) <= LONGEST
        and text == nfc(text)
    )


def is_task_name(text: str) -> bool:
    """Tell whether a task may be called so; a dot would part the keys of a recipe."""
    return is_name(text) and "." not in text


def expanded(path: str) -> Path:
    """Return a path with ~ spelled out; unlike Path's, it leaves the ~ of nobody as it is."""
    return Path(os.path.expanduser(path))


def matching(pattern: str) -> list[str]:
    """Return the paths that fit a pattern; OverflowError where there are too many files to look at."""
    parts = Path(pattern).parts
    first = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    entries, depth = 0, len(parts) if "**" not in parts else float("inf")
    for folder, folders, files in os.walk(Path(*parts[:first])):
        entries += len(folders) + len(files)
        if entries > MOST_ENTRIES:
            raise OverflowError(f"there are more than {MOST_ENTRIES:,} files to look at")
        deeper = len(Path(folder).parts) + 1 < depth
        folders[:] = [name for name in folders if deeper and not name.startswith(".")]
    return sorted(glob.glob(pattern, recursive=True))
