"""Names: what runs, tasks and teachers may be called in any script, and text in one Unicode form."""

from __future__ import annotations

from unicodedata import category, normalize

#: Bytes of a name in UTF-8. Folders are named after a teacher, a task and a seed together, and file systems take 255.
LONGEST = 80
#: What a name is made of, for messages.
RULE = f"use letters, digits, - and _, a letter or digit first, at most {LONGEST} bytes"


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
