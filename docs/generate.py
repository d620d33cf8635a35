"""Write the reference pages from the program itself: `python docs/generate.py` (`make docs` does it first)."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import typer.main

import understill
from understill.cli import app

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "docs" / "reference"
RESULTS = ROOT / "docs" / "results"
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


def interval(values: list[float]) -> tuple[float, float]:
    """Return the mean, and half of its 95 % interval by Student's t."""
    from scipy import stats

    half = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return fmean(values), float(half)


def measured() -> list[tuple[str, str, str, list[float], list[float]]]:
    """Return student, what is scored, teachers, and the scores without and with teachers by seed, as they are kept."""
    kept = {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in ("bam-seeds", "bilstm", "classic")}
    first = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"]

    def glue(model: str) -> float:
        scores = kept["bam-seeds"]["models"][model]["scores"]
        return 100 * fmean(next(iter(scores[f"{task}/dev"].values())) for task in first)

    def classic(recipe: str, role: str) -> list[float]:
        return [kept["classic"]["scores"][f"{recipe}, seed {seed}"]["mean"][role] for seed in range(3)]

    def words(part: str, name: str, task: str) -> list[float]:
        models = kept["bilstm"][part].get("models", kept["bilstm"][part])
        return [models[name.format(seed)]["dev"][f"{task}/dev"]["accuracy"] for seed in range(3)]

    rows = [
        (
            "BiLSTM, word vectors",
            "SST-2",
            "91.4",
            words("plain at its own best", "dropout of vectors 0.5, seed {}", "sst2"),
            words("with word vectors, 20,000 steps", "potion, both, seed {}", "sst2"),
        )
    ]
    for task, name in (("qqp", "QQP"), ("mnli", "MNLI-m")):
        teacher = kept["bilstm"][task]["models"][f"teacher-{task}"]["dev"][f"{task}/dev"]["accuracy"]
        both = (words(task, f"seed{{}}/{role}", task) for role in ("baseline", "student"))
        rows.append(("BiLSTM", name, f"{teacher + 1e-9:.1f}", *both))
    both = ([glue(f"bam-{seed}/{role}") for seed in range(3)] for role in ("baseline", "student"))
    rows.append(("`bam`, 6 layers", "GLUE", "–", *both))
    for recipe, student in (
        ("hinton", "3 layers"),
        ("born_again_single", "6 layers"),
        ("born_again_multi", "6 layers"),
    ):
        teachers, baseline, distilled = (classic(recipe, role) for role in ("teachers", "baseline", "student"))
        rows.append((f"`{recipe}`, {student}", "GLUE", f"{teachers[0]:.1f}", baseline, distilled))
    return rows


def results_table() -> str:
    """Return the README's table of results, from the scores in docs/results."""
    lines = [
        "| student | task | teachers | without teachers | distilled | gain |",
        "|---|---|---|---|---|---|",
    ]
    for student, task, teachers, without, distilled in measured():
        gain, half = interval([after - before for before, after in zip(without, distilled, strict=True)])
        before, after = ("{:.1f} ± {:.1f}".format(*interval(scores)) for scores in (without, distilled))
        ends = f"{gain - half:+.1f} to {gain + half:+.1f}".replace("-", "−")
        shown = f"{gain:+.1f} ({ends})".replace("-", "−")
        lines.append(f"| {student} | {task} | {teachers} | {before} | {after} | {shown} |")
    return "\n".join(lines) + "\n"


def with_results(readme: str) -> str:
    """Return the README with its table renewed."""
    return re.sub(
        r"(<!-- results: .*? -->\n).*?(<!-- /results -->)",
        lambda match: f"{match[1]}\n{results_table()}\n{match[2]}",
        readme,
        flags=re.S,
    )


def pages() -> dict[Path, str]:
    """Return the content of every page that is generated, in whole or in part."""
    readme = ROOT / "README.md"
    return {
        PLACE / "cli.md": command_line_page(),
        PLACE / "modules.md": modules_page(),
        PLACE / "python.md": python_page(),
        readme: with_results(readme.read_text(encoding="utf-8")),
    }


if __name__ == "__main__":
    for path, content in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}", file=sys.stderr)
