"""Write the reference pages from the program itself: `python docs/generate.py` (`make docs` does it first)."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import typer.main

import understill
from understill.cli import app

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "docs" / "reference"
NOTE = "<!-- Written by `python docs/generate.py`; change the source, not this page. -->"


def plain(text: str | None) -> str:
    """Return help without rich's markup, in one line."""
    return " ".join(re.sub(r"\[/?[a-z ]+\]", "", text or "").split())


def safe(text: str) -> str:
    """Keep Markdown from reading angle brackets and stars as its own."""
    return text.replace("<", "&lt;").replace("*", "\\*")


def option_line(option: Any) -> str:
    """Return one argument or option as an item of a list."""
    if option.param_type_name == "argument":
        name = option.name.upper() + ("…" if option.nargs == -1 else "")
    else:
        spellings = ", ".join([*option.opts, *option.secondary_opts])
        takes = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
        name = spellings + takes
    default = option.opts[0] if option.default is True else option.default
    shown = "" if callable(default) or default in (None, False, ()) or option.required else f" (default: {default})"
    needed = " Required." if option.required else ""
    return f"- `{name}`{shown}: {safe(plain(option.help))}{needed}"


def command_line_page() -> str:
    """Return the page of verbs, with their options and examples."""
    program: Any = typer.main.get_command(app)
    verbs = {name: verb for name, verb in program.commands.items() if not verb.hidden}
    lines = [
        "# Command line",
        "",
        NOTE,
        "",
        safe(plain(program.help)),
        "",
        "A user's mistake exits with 2 and one sentence, an interrupted run with 130; the same command resumes it.",
        "`understill VERB --help` shows what stands here.",
        "",
        "| verb | purpose |",
        "|---|---|",
    ]
    for name, verb in verbs.items():
        lines.append(f"| [`{name}`](#understill-{name}) | {safe(plain(verb.help).split('. ')[0].rstrip('.'))} |")
    for name, verb in verbs.items():
        about = [safe(plain(part)) for part in inspect.cleandoc(verb.help or "").split("\n\n")]
        lines += ["", f"## understill {name}", "", *"\n\n".join(about).split("\n"), ""]
        lines += [option_line(option) for option in verb.params if option.name != "help"]
        examples = [plain(line) for line in (verb.epilog or "").split("\n\n")[1:]]
        lines += ["", "```bash", *examples, "```"]
    return "\n".join(lines) + "\n"


def summary(thing: Any) -> str:
    """Return a docstring, its first paragraph on one line and the rest as it is."""
    first, _, rest = (inspect.getdoc(thing) or "").partition("\n\n")
    return safe(" ".join(first.split())) + (f"\n\n{safe(rest)}" if rest else "")


def signature(name: str, thing: Any) -> str:
    """Return a call as Python writes it, without the module names in annotations."""
    text = re.sub(r"<function (\w+) at \w+>", r"\1", f"{name}{inspect.signature(thing)}")
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text.replace("'", ""))


def python_page() -> str:
    """Return the page of public names: what `import understill` gives."""
    lines = [
        "# Python API",
        "",
        NOTE,
        "",
        "What `import understill` gives; every other name may change between releases.",
    ]
    for name in understill.__all__:
        thing = getattr(understill, name)
        lines += ["", f"## understill.{name}", ""]
        if inspect.isclass(thing):
            lines += [summary(thing)]
            if issubclass(thing, Exception) or hasattr(thing, "model_fields"):
                continue
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                if not method.startswith("_"):
                    lines += ["", f"**`{signature(method, function)}`**", "", summary(function)]
        else:
            lines += [f"`{signature(name, thing)}`", "", summary(thing)]
    lines += [
        "",
        "Recipes are described key by key in [the recipe](../recipe.md), plug-ins in [Extend](../plugins.md).",
    ]
    return "\n".join(lines) + "\n"


def modules_page() -> str:
    """Return the page of modules: each file with the first sentence of its docstring."""
    package = ROOT / "src" / "understill"
    lines = ["# Modules", "", NOTE, "", "Every file of `src/understill` with its first line."]
    folders = [package, *sorted(path for path in package.rglob("*") if path.is_dir() and list(path.glob("*.py")))]
    for folder in folders:
        place = folder.relative_to(package)
        lines += ["", f"## {'understill' if folder == package else place.as_posix() + '/'}", ""]
        for path in sorted(folder.glob("*.py"), key=lambda path: (path.stem != "__init__", path.stem)):
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            lines.append(f"- `{path.stem}`: {safe(' '.join(text.partition(chr(10) * 2)[0].split()))}")
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Return the content of every page that is generated."""
    return {
        PLACE / "cli.md": command_line_page(),
        PLACE / "modules.md": modules_page(),
        PLACE / "python.md": python_page(),
    }


if __name__ == "__main__":
    for path, content in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}", file=sys.stderr)
