"""A report is one whole page that asks for nothing, says what its Markdown says, and is there for every kind of run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_cases import EVIL, STUDENT

from browser import CHROMIUM, Browser
from understill import cli, pipeline
from understill.evaluate.significance import summarise
from understill.recipe import Recipe, load_recipe
from understill.report import is_current, write_report
from understill.report.blocks import Paragraph, ReportSection, Table, Tiles
from understill.report.facts import Facts, ScoreRow
from understill.report.html import to_html
from understill.report.markdown import to_markdown
from understill.report.sections import sections

ROOT = Path(__file__).parents[2]
VOID = {"meta", "link", "input", "br"}
EACH = {"teachers": [{"tasks": "each"}], "student": STUDENT}
FACTORS = {
    "labels": {"hard": {"student.distil": {"hard": 1, "soft": 0}}, "soft": {"student.distil": {"hard": 0, "soft": 1}}},
    "rate": {"slow": None, "quick": {"student.training.lr": 1e-2}},
}
KINDS: dict[str, dict[str, Any]] = {
    "without-teachers": {"tasks": ["mood", "queue"]},
    "each-by-itself": {"tasks": ["mood", "similar"], "models": "each"},
    "scores-only": {"tasks": ["similar"], **EACH},
    "errors-only": {"tasks": {"similar": {"metrics": ["mse"]}}, **EACH},
    "ranking": {"tasks": ["answer"], **EACH},
    "ranking-alone": {"tasks": ["answer"]},
    "finetuned": {"tasks": ["mood", "follows"], **EACH, "student": {**STUDENT, "finetune": {"steps": 2}}},
    "seeds": {"tasks": ["mood", "similar"], **EACH, "seeds": 3},
    "ablations": {"tasks": ["mood"], **EACH, "seeds": 2, "ablations": {"half": {"student.distil.anneal": 0.5}}},
    "factors": {"tasks": ["mood"], **EACH, "seeds": 2, "factors": FACTORS},
}


class Page(HTMLParser):
    """What a page holds: tables, headings and addresses; tags must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.headings: list[int] = []
        self.addresses: list[str] = []
        self.pictures: list[dict[str, str | None]] = []
        self.inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.addresses += [value or "" for key, value in attributes if key in ("href", "src", "action", "data")]
        if tag == "svg" and given.get("role") == "img":
            self.pictures.append(given)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.inside = True
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Shapes of pictures hold nothing."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.tables[-1][-1][-1] += data


def check(text: str) -> Page:
    """Look at what every page must have."""
    page = Page(text)
    assert not page.open, "all tags are closed"
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(page.headings, page.headings[1:], strict=False))
    assert page.pictures and all(picture.get("aria-label") for picture in page.pictures)
    assert "nan" not in re.sub(r"<[^>]*>", " ", text).split(), "nothing that is no number is shown as one"
    return page


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_a_report(kind: str, made: Callable[..., Recipe]) -> None:
    recipe = made(kind, **KINDS[kind])
    folder = pipeline.run(recipe).folder
    page = check(write_report(folder, recipe, timing=False).read_text(encoding="utf-8"))
    message = (folder / "report.md").read_text(encoding="utf-8")
    assert message.startswith("# ") and page.tables
    for word, kinds in {
        "Ablations": ("ablations",),
        "Effects of the factors": ("factors",),
        "Seeds": ("seeds",),
        "Where the model is wrong": ("without-teachers", "each-by-itself", "ranking-alone"),
        "Reliability": (),
    }.items():
        assert (f"## {word}" in message) == (kind in kinds), word


def test_the_markdown_says_what_the_page_says(facts: Facts) -> None:
    parts = sections(facts)
    page = check(to_html("taught", parts))
    message = to_markdown("taught", parts)
    lines = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in message.splitlines() if line.startswith("| ")]
    plain = [[re.sub(r"\\(.)", r"\1", cell).strip() for cell in line] for line in lines]
    for table in page.tables:
        for row in table[:21]:  # Markdown shows the first rows of examples only
            assert [" ".join(cell.split()) for cell in row] in plain
    assert not re.search(r"(?<!\\)[<>]", message.partition("```")[0]), "nothing in it is HTML"


def test_what_is_below_what_it_should_beat_is_said_first_and_marked_in_the_table(facts: Facts) -> None:
    def output(**scores: float) -> list[ReportSection]:
        result = {name: summarise([value]) for name, value in scores.items()}
        result["linear probe"] = result.pop("probe")
        return sections(replace(facts, scores=(ScoreRow("note/dev", "accuracy", result),)))

    first, second = output(majority=0.5, probe=0.9, teachers=0.6, baseline=0.65, student=0.7)[0].blocks[:2]
    assert isinstance(first, Paragraph) and first.strong and isinstance(second, Paragraph)
    assert first.text.startswith("note: the student (70.0) is below a linear head on the frozen encoder (90.0) → ")
    assert second.text.startswith("note: the teachers (60.0) are below the baseline (65.0) and the student (70.0), ")
    parts = output(majority=0.5, probe=0.9, teachers=0.6, baseline=0.65, student=0.7)
    table = next(block for block in parts[1].blocks if isinstance(block, Table))
    assert [cell.endswith("↓") for cell in table.rows[0]] == [False] * 4 + [True, False, True]
    assert "↓ below its reference model" in table.caption
    parts = output(majority=0.5, probe=0.6, teachers=0.9, baseline=0.65, student=0.7)
    assert isinstance(parts[0].blocks[0], Tiles) and "↓" not in to_markdown("run", parts)


def test_what_a_text_holds_stays_text(facts: Facts) -> None:
    text = to_html("taught", sections(facts))
    assert "<script>document" not in text and "&lt;script&gt;document.title" in text
    shown = [row for table in Page(text).tables for row in table if any(EVIL in cell for cell in row)]
    assert len(shown) == len(facts.places[0].examples.shown)


def test_the_verb_writes_the_page_where_it_is_told(
    taught: pipeline.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.html"
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", str(taught.folder), "--out", str(out), "--by", "region"])
    assert not stop.value.code
    assert str(out) in capsys.readouterr().out
    page, message = out.read_text(encoding="utf-8"), out.with_suffix(".md").read_text(encoding="utf-8")
    assert "column region" in page and "column region" in message
    assert "milliseconds for one text" in page and "texts/s" in message, "models were measured"
    assert [row[0] for table in check(page).tables if "texts/s" in table[0] for row in table[1:]] == [
        "student",
        "baseline",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no recipe.yaml here, so this is no run → name the folder that a run printed"),
        (["RUN", "--out", "x.pdf"], "--out x.pdf: a report is a page → write a name that ends in .html"),
        (["RUN", "--out", "no/x.html"], "--out no/x.html: there is no folder no"),
        (["RUN", "--by", "regoin"], "--by regoin: no dev set comes from files of yours with such a column"),
    ],
)
def test_a_mistake_is_said_in_one_line(
    arguments: list[str], message: str, taught: pipeline.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", *(str(taught.folder) if each == "RUN" else each for each in arguments)])
    assert stop.value.code == 2
    output = capsys.readouterr().err
    assert message in output and output.count("\n") == 1


def test_a_report_is_written_again_when_results_change_and_not_before(
    made: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe = made("again", tasks=["mood"], output={"folder": str(tmp_path / "runs")})
    folder = pipeline.run(recipe).folder
    assert not is_current(folder), "there is none"
    write_report(folder, recipe, timing=False)
    assert not is_current(folder), "it shows less than a run's own"
    page = write_report(folder, recipe)
    assert is_current(folder)
    pipeline.run(recipe)
    assert is_current(folder), "nothing was made"
    page.with_suffix(".md").unlink()
    assert not is_current(folder), "one of its files is gone"
    write_report(folder, recipe)
    pipeline.run(made("again", tasks=["mood"], seed=7, output={"folder": str(tmp_path / "runs")}))
    assert not is_current(folder)
    assert page.read_text(encoding="utf-8").rstrip().endswith("-->")


def test_a_single_run_has_no_table_of_seeds_and_a_tiny_dev_set_a_caveat(facts: Facts) -> None:
    text = to_markdown("taught", sections(facts))
    assert "Scores over seeds" not in text and "mostly chance" not in text
    tiny = replace(facts, places=tuple(replace(place, rows=3) for place in facts.places))
    assert "dev score, of only 3 dev rows: mostly chance" in to_markdown("taught", sections(tiny))


def test_a_report_that_fails_does_not_lose_the_run(
    made: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("understill.report.write_report", fail)
    file = tmp_path / "recipe.yaml"
    file.write_text(made("whole", tasks=["mood"]).to_yaml(), encoding="utf-8")
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", str(file)])
    assert not stop.value.code
    assert "run folder: " in capsys.readouterr().out
    assert next(record.getMessage() for record in caplog.records if "report" in record.getMessage()).startswith(
        "there is no report: the disk is full; the run itself is whole. Try: understill report "
    )


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
def test_a_browser_shows_all_of_it_and_asks_for_nothing(taught: pipeline.Run, recipe: Recipe, tmp_path: Path) -> None:
    file = write_report(taught.folder, recipe, out=tmp_path / "report.html")
    with Browser() as browser:
        browser.open(file)
        assert browser.errors == []
        assert browser.requests == [file.resolve().as_uri()]
        assert browser.run("document.title") == "taught · understill", "no text of a row was run"
        assert browser.run("document.querySelectorAll('figure').length") == browser.run(
            "[...document.querySelectorAll('figure .draw > svg')].filter(each => each.clientHeight > 90).length"
        )
        assert browser.run("document.querySelectorAll('section script, td b').length") == 0
        shown = "[...document.querySelectorAll('.rows tbody tr')].filter(row => row.offsetHeight > 0).length"
        everything = browser.run("document.querySelectorAll('.rows tbody tr').length")
        assert browser.run(shown) == min(everything, 20) > 1
        first = browser.run("document.querySelector('.rows td').textContent")
        word = re.search(r"note \d+ ", first)
        assert word
        field = "document.querySelector('.rows input')"
        search = f"{field}.value = {{!r}}; {field}.dispatchEvent(new Event('input'))"
        browser.run(search.format(f"{word.group().upper()} <script>"))
        assert browser.run(shown) == 1
        browser.run(search.format("nowhere to be found"))
        assert browser.run(shown) == 0
        # On a phone only tables may be wider than the page, and these scroll by themselves.
        browser.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
        assert browser.run("document.documentElement.scrollWidth") <= 360
        assert browser.errors == []


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
def test_the_report_of_the_demo_opens_in_a_browser(deep: Path, tmp_path: Path) -> None:
    small = [f"encoder.name={deep}", f"output.folder={tmp_path / 'runs'}", "data.demo=40", "targets.weak=keep"]
    quick = ["training.steps=3", "teachers.0.training.steps=3", "machine.device=cpu", "machine.threads=1"]
    recipe = load_recipe(ROOT / "recipes" / "quickstart.yaml", (*small, *quick))
    file = write_report(pipeline.run(recipe).folder, recipe)
    with Browser() as browser:
        browser.open(file)
        assert browser.errors == [] and browser.requests == [file.resolve().as_uri()]
        figures = "document.querySelectorAll('figure').length"
        drawn = "[...document.querySelectorAll('figure .draw > svg')].filter(each => each.clientHeight > 90).length"
        assert browser.run(figures) == browser.run(drawn) >= 8
        titles = browser.run("[...document.querySelectorAll('h2')].map(each => each.textContent).join('|')").split("|")
        assert {"Scores", "Score against time and size", "Where student and teachers differ"} <= set(titles)
