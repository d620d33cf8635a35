"""The page, driven in a browser against a real server: what is typed or put in is answered as the model answers it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from browser import CHROMIUM, Browser
from kinds import ALIKE, BEST, FOLLOWS, MOOD, STARS, TOPIC
from number_cases import DURATIONS
from serving import export_tiny, serving
from understill.inference.loading import load
from understill.inference.predictor import Answer, Predictor

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")

#: A label that would be an element of the page, were it not text.
MARKUP = "<img src=x onerror=document.title='gone'>"
QUEUE = replace(TOPIC, name="queue", head="queue", labels=tuple(f"queue {number}" for number in range(9)))
TASKS = (MOOD, replace(TOPIC, labels=("delivery", MARKUP, "access")), STARS, QUEUE, FOLLOWS, ALIKE, BEST)
SINGLE = [task.name for task in TASKS if not task.pair]
PAIR = [task.name for task in TASKS if task.pair]

TEXT, SECOND = "The parcel never came, and I was charged twice!", "my account is locked"
#: Small enough that files come to their edges; the page shows all classes, whatever top_k the server has.
OPTIONS = ("--drain", "0", "--max-rows", "12", "--max-characters", "200", "--max-bytes", "1500", "--top-k", "1")


# Servers, and what their models say ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Exported models: a student, a teacher that is another network, and a teacher that has but some of the tasks."""
    root = tmp_path_factory.mktemp("models")
    tasks = {"bert": TASKS, "bilstm": TASKS, "static": (MOOD, STARS)}
    names = {"bert": "student", "bilstm": "teacher", "static": "partial"}
    return {names[network]: export_tiny(root, network, some) for network, some in tasks.items()}


@pytest.fixture(scope="module")
def alone(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of the student."""
    with serving(models["student"], tmp_path_factory.mktemp("alone"), *OPTIONS) as server:
        yield server.url


@pytest.fixture(scope="module")
def beside(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with the teacher beside the student."""
    place = tmp_path_factory.mktemp("beside")
    with serving(models["student"], place, "--teacher", models["teacher"], *OPTIONS) as server:
        yield server.url


@pytest.fixture(scope="module")
def partly(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with a teacher that has but some of the tasks."""
    place = tmp_path_factory.mktemp("partly")
    with serving(models["student"], place, "--teacher", models["partial"], *OPTIONS) as server:
        yield server.url


@pytest.fixture(scope="module")
def student(models: dict[str, Path]) -> Predictor:
    return load(models["student"])


@pytest.fixture(scope="module")
def teacher(models: dict[str, Path]) -> Predictor:
    return load(models["teacher"])


@cache
def row_of(model: Predictor, text: str, second: str = "") -> dict[str, Answer]:
    """What a model says of one row: of the first text, and of both where there is a second."""
    result = model.predict([text]) if text.strip() else {}
    if text.strip() and second.strip():
        result |= model.predict([text], [second])
    return {task: answers[0] for task, answers in result.items()}


def differing(one: dict[str, Answer], other: dict[str, Answer]) -> list[str]:
    """The tasks whose labels differ, or whose scores lie more than a tenth of their range apart."""
    result = []
    for task in TASKS:
        if task.name in one:
            a, b = one[task.name], other[task.name]
            if a.score is None or b.score is None:
                apart = a.label != b.label
            else:
                apart = task.range is not None and abs(a.score - b.score) > 0.1 * (task.range[1] - task.range[0])
            result += [task.name] * apart
    return result


# The page in a browser -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with Browser() as browser:
        browser.call("DOM.enable")
        yield browser


@pytest.fixture
def page(window: Browser) -> Iterator[Browser]:
    """A browser that has forgotten what was before; whatever a test does, no other host is asked and nothing breaks."""
    window.open("about:blank")
    window.call("Emulation.clearDeviceMetricsOverride")
    window.call("Emulation.setEmulatedMedia", features=[])
    window.events.clear()
    yield window
    asked = [address for address in window.requests if not address.startswith(("about:", "blob:"))]
    assert len({re.match(r"http://127\.0\.0\.1:\d+/", address).group() for address in asked}) == 1  # type: ignore[union-attr]
    assert not [address for address in asked if "?" in address or "#" in address], "no text stands in an address"
    assert window.errors == []
    stored = "[document.cookie, localStorage.length, sessionStorage.length, history.length > 50, location.hash].join()"
    assert window.run(stored) == ",0,0,false,", "nothing is kept"


def enter(page: Browser, address: str) -> None:
    page.open(address + "/")
    page.wait("!document.querySelector('#ready').hidden")


def asked_by(page: Browser) -> list[dict[str, Any]]:
    """The questions that the page has sent."""
    return [
        json.loads(event["params"]["request"]["postData"])
        for event in page.events
        if event["method"] == "Network.requestWillBeSent" and event["params"]["request"].get("postData")
    ]


def settle(page: Browser, task: str) -> None:
    """Wait until a task's answer is there and nothing is on its way."""
    page.wait(
        f"document.querySelector('[data-task={task}]')?.checkVisibility()"
        " && document.querySelector('#answers').ariaBusy === 'false'"
    )


def cards(page: Browser) -> dict[str, Any]:
    """All cards that are to be seen: what is said, the numbers of the bars, and the mark that they differ."""
    return {
        card.pop("task"): card
        for card in json.loads(
            page.run(
                """JSON.stringify([...document.querySelectorAll('.card')].filter((card) => card.checkVisibility()).map(
                (card) => ({
                  task: card.querySelector('h3').textContent,
                  words: [...card.querySelectorAll('.said strong')].map((word) => word.textContent),
                  bars: [...card.querySelectorAll('.bars li')].filter((bar) => bar.checkVisibility()).map((bar) => [
                    bar.querySelector('.label').textContent,
                    [...bar.querySelectorAll('.numbers > span')].map((each) => parseFloat(each.lastChild.data)),
                    [...bar.querySelectorAll('.fill')].map((each) => parseFloat(each.style.width))]),
                  marks: [...card.querySelectorAll('.mark')].map((mark) => parseFloat(mark.style.left)),
                  apart: card.querySelector('.differ').checkVisibility(),
                })))"""
            )
        )
    }


def check_cards(shown: dict[str, Any], *output: dict[str, Answer]) -> None:
    """Compare cards with what one or two models say."""
    assert set(shown) == set(output[0])
    for task in (task for task in TASKS if task.name in shown):
        card, answers = shown[task.name], [each[task.name] for each in output]
        for place, answer in enumerate(answers):
            if answer.probabilities is None:
                assert float(card["words"][place]) == pytest.approx(answer.score, abs=0.006)
            else:
                assert card["words"][place] == answer.label
                for label, numbers, widths in card["bars"]:
                    assert numbers[place] == pytest.approx(100 * answer.probabilities[label], abs=0.06)
                    assert widths[place] == pytest.approx(100 * answer.probabilities[label], abs=0.01)
            if task.range and answer.score is not None:
                share = (answer.score - task.range[0]) / (task.range[1] - task.range[0])
                assert card["marks"][place] == pytest.approx(100 * min(1, max(0, share)), abs=0.01)
        assert len(card["words"]) == len(output)


# A text --------------------------------------------------------------------------------------------------------------


def test_answers_come_as_a_text_is_typed_and_are_the_models(page: Browser, alone: str, student: Predictor) -> None:
    enter(page, alone)
    assert cards(page) == {}
    assert "Type a text to see what the model says of it." in page.shown_text
    page.type("#first", TEXT)
    settle(page, "mood")
    check_cards(cards(page), row_of(student, TEXT))
    assert "Type a second text to see follows, alike, best." in page.shown_text
    assert re.search(r"First text\s+[\d.]+\sms", page.shown_text)
    spoken = page.run("document.querySelector('#spoken').textContent")
    mood = row_of(student, TEXT)["mood"]
    assert f"mood: {mood.label} {100 * mood.probabilities[mood.label]:.1f}" in spoken  # type: ignore[index]

    page.type("#second", SECOND)
    settle(page, "follows")
    check_cards(cards(page), row_of(student, TEXT, SECOND))
    assert re.search(r"Both texts\s+[\d.]+\sms", page.shown_text)


def test_tasks_that_read_two_texts_bring_the_second_field_and_picks_decide_what_is_asked(
    page: Browser, alone: str, student: Predictor
) -> None:
    enter(page, alone)
    page.type("#first", TEXT)
    page.type("#second", SECOND)
    settle(page, "follows")
    for number in range(len(SINGLE)):
        page.click(f"#tasks label:nth-of-type({number + 1}) span")
    page.wait("!document.querySelector('[data-task=mood]').checkVisibility()")
    settle(page, "follows")
    output = row_of(student, TEXT, SECOND)
    check_cards(cards(page), {name: output[name] for name in PAIR})

    for number in range(len(TASKS)):
        page.click(f"#tasks label:nth-of-type({number + 1}) span")
    settle(page, "mood")
    page.wait("!document.querySelector('#second').checkVisibility()")
    check_cards(cards(page), {name: output[name] for name in SINGLE})
    question = {"texts": [TEXT], "pairs": None, "tasks": SINGLE, "teacher": False, "top_k": 9}
    assert asked_by(page)[-1] == question

    for number in range(len(SINGLE)):
        page.click(f"#tasks label:nth-of-type({number + 1}) span")
    page.wait("document.querySelector('#none').checkVisibility()")
    assert cards(page) == {} and "Pick a task to see its answer." in page.shown_text


def test_many_tasks_can_be_dropped_and_taken_at_once(page: Browser, alone: str) -> None:
    script = """{
      const real = window.fetch;
      const more = ({ tasks, ...rest }) => ({ ...rest, tasks: [...tasks, ...tasks.map((task) => ({ ...task }))] });
      window.fetch = async (address, asked) => {
        const response = await real(address, asked);
        return address === "v1/tasks" ? Response.json(more(await response.json())) : response;
      };
    }"""
    enter(page, alone)
    assert "Pick none" not in page.shown_text
    added = page.call("Page.addScriptToEvaluateOnNewDocument", source=script)
    enter(page, alone)
    page.call("Page.removeScriptToEvaluateOnNewDocument", **added)
    picked = "document.querySelectorAll('#tasks :checked').length"
    assert page.run(picked) == 2 * len(TASKS)
    page.click("#tasks button")
    assert page.run(picked) == 0 and "Pick a task to see its answer." in page.shown_text
    page.click("#tasks label:nth-of-type(1) span")
    assert page.run("document.querySelector('#tasks button').textContent") == "Pick none"
    page.click("#tasks button")
    page.click("#tasks button")
    assert page.run(picked) == 2 * len(TASKS) and "Pick a task" not in page.shown_text


def test_an_answer_that_comes_late_does_not_replace_a_newer_one(page: Browser, alone: str, student: Predictor) -> None:
    enter(page, alone)
    # The first request is held up, and goes on although the page has given it up.
    page.run(
        """{
          const real = window.fetch;
          window.arrived = 0;
          const held = new Promise((resolve) => { window.release = resolve; });
          let number = 0;
          window.fetch = async (address, { signal, ...rest }) => {
            const first = number++ === 0;
            if (first) await held;
            const response = await real(address, rest);
            const text = await response.text();
            if (first) setTimeout(() => { window.arrived = 1; }, 50);
            return new Response(text, response);
          };
        }"""
    )
    page.type("#first", "bad")
    page.press("Enter", modifiers=2)
    page.type("#first", TEXT)
    settle(page, "mood")
    check_cards(cards(page), row_of(student, TEXT))
    page.run("window.release()")
    page.wait("window.arrived")
    check_cards(cards(page), row_of(student, TEXT))


def test_control_and_enter_ask_at_once_and_escape_clears(page: Browser, alone: str) -> None:
    enter(page, alone)
    page.run("window.setTimeout = () => 0")  # what waits for a rest from typing never comes
    page.type("#first", TEXT)
    page.press("Enter", modifiers=2)
    settle(page, "mood")
    page.type("#second", SECOND)
    page.press("Escape")
    page.wait("document.querySelectorAll('.card').length && document.querySelector('#first').value === ''")
    assert cards(page) == {}
    assert page.run("document.querySelector('#second').value + document.activeElement.id") == "first"


def test_many_classes_begin_with_the_likeliest(page: Browser, alone: str, student: Predictor) -> None:
    enter(page, alone)
    page.type("#first", TEXT)
    settle(page, "queue")
    output = row_of(student, TEXT)["queue"].probabilities
    assert output
    ranked = sorted(output, key=lambda label: -output[label])
    assert [label for label, *_ in cards(page)["queue"]["bars"]] == ranked[:5]
    page.click("[data-task=queue] .more")
    assert [label for label, *_ in cards(page)["queue"]["bars"]] == ranked
    assert page.run("document.querySelector('[data-task=queue] .more').ariaExpanded") == "true"


def test_what_looks_like_markup_stays_text(page: Browser, beside: str, tmp_path: Path) -> None:
    enter(page, beside)
    page.type("#first", MARKUP)
    settle(page, "topic")
    assert MARKUP in [label for label, *_ in cards(page)["topic"]["bars"]]
    file = tmp_path / f"{MARKUP.replace('/', '')}.csv"
    file.write_text(f"text,{MARKUP}\n{MARKUP},{MARKUP}\n{TEXT!r},b\n", encoding="utf-8")
    page.give("#choose", file)
    page.wait("document.querySelector('#sheet').checkVisibility()")
    page.click("#start")
    page.wait("document.querySelector('#download').checkVisibility()")
    assert MARKUP in page.shown_text
    assert page.run("document.querySelectorAll('img, script:not([src])').length") == 0
    assert page.run("document.title") == "bert · understill"


def test_a_text_that_the_server_refuses_is_told_of_in_its_words(page: Browser, alone: str) -> None:
    enter(page, alone)
    page.type("#first", "a" * 201)
    page.wait("document.querySelector('#trouble').checkVisibility()")
    assert "201 characters; 200 may be sent" in page.run("document.querySelector('#trouble').textContent")
    forget_refusals(page)
    page.type("#first", "a" * 200)
    settle(page, "mood")
    assert not page.run("document.querySelector('#trouble').checkVisibility()")
    assert page.run("document.querySelector('#spoken').textContent").startswith("mood: ")
    page.type("#first", "a" * 201)
    page.wait("document.querySelector('#trouble').checkVisibility()")
    assert page.run("document.querySelector('#spoken').textContent") == "", "no old answer is left to be read out"
    forget_refusals(page)


def test_answers_about_one_text_stay_when_those_about_two_are_refused(
    page: Browser, alone: str, student: Predictor
) -> None:
    enter(page, alone)
    refuse(page, '"pairs":["', 500, "the model failed")
    page.type("#first", TEXT)
    page.type("#second", SECOND)
    page.wait("document.querySelector('#trouble').checkVisibility()")
    settle(page, "mood")
    assert "the model failed" in page.run("document.querySelector('#trouble').textContent")
    check_cards(cards(page), row_of(student, TEXT))
    spoken = page.run("document.querySelector('#spoken').textContent")
    assert "mood: " in spoken and "follows" not in spoken


def refuse(page: Browser, part: str, status: int, sentence: str) -> None:
    """Let the server refuse whatever has a part in its body."""
    values = {"part": part, "status": status, "refusal": json.dumps({"error": sentence})}
    page.run(
        f"""{{
          const real = window.fetch;
          const {{ part, status, refusal }} = {json.dumps(values)};
          window.fetch = async (address, asked) =>
            asked.body?.includes(part) ? new Response(refusal, {{ status }}) : real(address, asked);
        }}"""
    )


def forget_refusals(page: Browser) -> None:
    """Drop what the browser itself logs of answers that are no success."""
    page.run("0")
    reported = "Failed to load resource"
    page.events[:] = [
        event
        for event in page.events
        if not (event["method"] == "Log.entryAdded" and reported in event["params"]["entry"]["text"])
    ]


# Student and teacher --------------------------------------------------------------------------------------------------


def test_student_and_teacher_stand_side_by_side_and_differences_are_marked(
    page: Browser, beside: str, student: Predictor, teacher: Predictor
) -> None:
    enter(page, beside)
    assert "beside its teacher bilstm" in page.shown_text
    marked = set()
    for text in (TEXT, "good", "the film was far too long"):
        page.type("#first", text)
        page.type("#second", SECOND)
        page.press("Enter", modifiers=2)
        settle(page, "best")
        one, other = row_of(student, text, SECOND), row_of(teacher, text, SECOND)
        shown = cards(page)
        check_cards(shown, one, other)
        assert [name for name, card in shown.items() if card["apart"]] == differing(one, other)
        marked |= set(differing(one, other))
    assert 0 < len(marked) < len(TASKS), "some differ and some do not, or this shows nothing"
    assert re.search(r"student\s[\d.]+\sms, teacher\s[\d.]+\sms", page.shown_text)

    page.click("#models span")
    page.wait("document.querySelectorAll('.by').length === 0")
    settle(page, "best")
    check_cards(cards(page), row_of(student, "the film was far too long", SECOND))


def test_a_task_that_the_teacher_does_not_have_is_shown_without_bars_columns_or_a_time_of_its(
    page: Browser, partly: str, student: Predictor, tmp_path: Path
) -> None:
    enter(page, partly)
    page.type("#first", TEXT)
    page.type("#second", SECOND)
    settle(page, "best")
    shown = cards(page)
    output = row_of(student, TEXT, SECOND)
    check_cards({"topic": shown["topic"]}, {"topic": output["topic"]})
    check_cards({name: shown[name] for name in PAIR}, {name: output[name] for name in PAIR})
    assert len(shown["mood"]["words"]) == len(shown["stars"]["marks"]) == 2
    assert all(len(widths) == 1 for _, _, widths in shown["topic"]["bars"])
    assert len(shown["alike"]["marks"]) == 1
    for name, lacks in (("topic", True), ("alike", True), ("mood", False)):
        words = page.run(f"document.querySelector('[data-task={name}] .said').textContent")
        assert ("teacher does not have this task" in words) == lacks
    times = page.run("[...document.querySelectorAll('.time')].map((time) => time.textContent).join('|')").split("|")
    assert ["teacher" in time for time in times] == [True, False]

    file = tmp_path / "tickets.csv"
    file.write_text("id,message\n1,good\n", encoding="utf-8")
    put_in(page, file)
    answer_all(page)
    heads = page.run("[...document.querySelectorAll('#rows thead th')].map((cell) => cell.textContent).join('|')")
    assert heads == "row|message|mood|mood, teacher|topic|stars|stars, teacher|queue"
    assert re.search(r"topic\t.*\tdoes not have this task", page.shown_text)
    header = page.download("#download", tmp_path).read_text(encoding="utf-8").splitlines()[0].split(",")
    assert {"mood_teacher_label", "mood_differ", "topic_label"} <= set(header)
    assert not {"topic_teacher_label", "topic_differ"} & set(header)


# A file --------------------------------------------------------------------------------------------------------------

#: Cells that are easily spoilt: quotes, separators, line breaks, formulas, spaces, and what is no ASCII.
ROWS = [
    ["1", 'She said "no", twice', "=1+1"],
    ["2", "two lines\nin a cell", "+49 30 1234"],
    ["3", "two lines\r\nof another kind; and a semicolon", "-x"],
    ["4", "", "@home"],
    ["5", "  spaces around  ", "'quoted'"],
    ["6", "tab\there", ""],
    ["7", "größer 日本語 🙂 العربية", "=HYPERLINK(1)"],
    ["8", "   ", "blank"],
    ["9", "not bad at all", '"'],
]
HEADER = ["id", "message", "mood_label"]


def written(rows: Sequence[Sequence[str]], separator: str = ",", newline: str = "\n") -> str:
    # Python's writer does not by itself quote a line break of another kind than it ends its rows with.
    quoting = (
        csv.QUOTE_ALL if re.search(r"[\r\n]", "".join(cell for row in rows for cell in row)) else csv.QUOTE_MINIMAL
    )
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, lineterminator=newline, quoting=quoting).writerows(rows)
    return text.getvalue()


def expected(rows: Sequence[Sequence[str]], one: Predictor, other: Predictor | None = None) -> list[dict[str, str]]:
    """What a download adds to rows of one text, by column; the column mood_label is taken already."""
    result = []
    for _, text, *_ in rows:
        cells: dict[str, str] = {}
        output = row_of(one, text)
        beside = row_of(other, text) if other else {}
        for name in SINGLE:
            taken = "_2" if name == "mood" else ""
            for prefix, answer in ((name, output.get(name)), (f"{name}_teacher", beside.get(name))):
                if prefix != name and not other:
                    continue
                if name == "stars":
                    cells[f"{prefix}_score"] = f"{answer.score:.4f}" if answer else ""
                else:
                    suffix = taken if prefix == name else ""
                    cells[f"{prefix}_label{suffix}"] = str(answer.label) if answer else ""
                    most = max(answer.probabilities.values()) if answer and answer.probabilities else 0
                    cells[f"{prefix}_probability"] = f"{most:.4f}" if answer else ""
            if other:
                cells[f"{name}_differ"] = ("yes" if name in differing(output, beside) else "no") if output else ""
        result.append(cells)
    return result


def check_download(file: Path, separator: str, rows: Sequence[Sequence[str]], want: list[dict[str, str]]) -> None:
    """Compare a downloaded table cell by cell: the user's are unchanged, ours are what the models say."""
    text = io.StringIO(file.read_bytes().decode("utf-8-sig"), newline="")
    header, *result = csv.reader(text, delimiter=separator)
    assert header == [*HEADER, *want[0]]
    assert len(result) == len(rows)
    for cells, row, added in zip(result, rows, want, strict=True):
        assert cells[: len(row)] == list(row)
        for name, value, mine in zip(added, added.values(), cells[len(row) :], strict=True):
            if value and name.endswith(("_probability", "_score")):
                assert float(mine) == pytest.approx(float(value), abs=2e-4), name
            else:
                assert mine == value, name


def put_in(page: Browser, file: Path) -> None:
    page.give("#choose", file)
    page.wait(f"document.querySelector('#sheet-name').textContent.startsWith({json.dumps(file.name)})")


def answer_all(page: Browser) -> None:
    page.click("#start")
    page.wait("document.querySelector('#download').checkVisibility()")


@pytest.mark.parametrize(
    ("separator", "newline", "encoding"), [(",", "\n", "utf-8"), (";", "\r\n", "utf-8-sig"), ("\t", "\r\n", "utf-16")]
)
def test_a_file_comes_back_with_the_models_answers_cell_by_cell(
    page: Browser, alone: str, student: Predictor, tmp_path: Path, separator: str, newline: str, encoding: str
) -> None:
    # Long enough that a request has room for fewer rows than it may hold.
    longer = [f"{' and so on' * 12} {number}" for number in range(5)]
    rows = [[row[0], row[1] + end if row[1].strip() else row[1], row[2]] for end in longer for row in ROWS]
    file = tmp_path / "tickets.csv"
    file.write_bytes(written([HEADER, *rows], separator, newline).encode(encoding))
    enter(page, alone)
    put_in(page, file)
    assert page.run("document.querySelector('#file').checkVisibility()"), "the view comes by itself"
    assert page.run("document.querySelector('#column').selectedOptions[0].text") == "message"
    assert "tickets.csv: 45 rows, 3 columns" in page.shown_text
    assert "follows, alike, best: no answers without a column for the second text." in page.shown_text
    answer_all(page)
    assert re.search(r"45 rows in [\d.]+\sm?s\.", page.shown_text)
    assert "Rows 4, 8, 13, 17, 22 and 5 more: a text is missing" in page.shown_text
    numbered = "[...document.querySelectorAll('#rows tr')].map((row) => row.cells[0].textContent).join()"
    assert page.run(numbered) == ",".join(["row", *(str(number) for number in range(1, 46))])
    result = page.download("#download", tmp_path)
    assert result.name == f"tickets-predictions.{'tsv' if separator == chr(9) else 'csv'}"
    start = {"utf-8": b"id", "utf-8-sig": b"\xef\xbb\xbfid", "utf-16": b"\xef\xbb\xbfid"}[encoding]
    data = result.read_bytes()
    assert data.startswith(start) and data.endswith(newline.encode())
    check_download(result, separator, rows, expected(rows, student))


def test_pairs_take_two_columns(page: Browser, alone: str, student: Predictor, tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("premise,hypothesis\ngood,bad\nnot bad,\n", encoding="utf-8")
    enter(page, alone)
    put_in(page, file)
    chosen = "['column', 'column2'].map((id) => document.getElementById(id).selectedOptions[0].text).join()"
    assert page.run(chosen) == "premise,hypothesis"
    answer_all(page)
    first, second = csv.DictReader(io.StringIO(page.download("#download", tmp_path).read_text(encoding="utf-8")))
    output = row_of(student, "good", "bad")
    assert first["follows_label"] == output["follows"].label
    assert float(first["best_score"]) == pytest.approx(output["best"].score, abs=2e-4)
    assert second["mood_label"] == row_of(student, "not bad")["mood"].label
    assert second["follows_label"] == second["best_score"] == ""


def test_rows_that_do_not_fit_get_no_answer_and_keep_their_place(
    page: Browser, alone: str, student: Predictor, tmp_path: Path
) -> None:
    file = tmp_path / "ragged.csv"
    long = "🙂" * 201
    file.write_text(f"id,message\n1,good\n2,bad,more\n3\n\n5,{long}\n6,{'🙂' * 200}\n7,bad\n", encoding="utf-8")
    enter(page, alone)
    put_in(page, file)
    assert "Rows 2, 3: more or fewer cells than in the first row, so no answers." in page.shown_text
    assert "Row 5: a text is longer than the server takes" in page.shown_text
    answer_all(page)
    header, *rows = csv.reader(io.StringIO(page.download("#download", tmp_path).read_text(encoding="utf-8")))
    assert header[:4] == ["id", "message", "column 3", "mood_label"]
    assert [row[:3] for row in rows] == [
        ["1", "good", ""], ["2", "bad", "more"], ["3", "", ""], ["", "", ""], ["5", long, ""], ["6", "🙂" * 200, ""],
        ["7", "bad", ""],
    ]  # fmt: skip
    want = [str(row_of(student, text)["mood"].label) if text else "" for text in ("good", "", "", "", "", "🙂", "bad")]
    assert [row[3] for row in rows] == [*want[:5], str(row_of(student, "🙂" * 200)["mood"].label), want[6]]


def test_only_the_rows_where_they_differ_can_be_shown_and_downloaded(
    page: Browser, beside: str, student: Predictor, teacher: Predictor, tmp_path: Path
) -> None:
    words = ["good", "bad", "parcel", "film", "guitar", "account", "password", "locked", "never", "twice", "long"]
    rows = [[str(n), f"{words[n % 11]} {words[(5 * n + n // 11) % 11]}", str(n)] for n in range(66)]
    file = tmp_path / "tickets.tsv"
    file.write_text(written([HEADER, *rows], "\t"), encoding="utf-8")
    enter(page, beside)
    for number in range(len(PAIR)):
        page.click(f"#tasks label:nth-of-type({len(SINGLE) + number + 1}) span")
    page.click(f"#tasks label:nth-of-type({1 + SINGLE.index('queue')}) span")  # which would differ everywhere
    page.click("#tasks label:nth-of-type(2) span")
    put_in(page, file)
    answer_all(page)
    shown = "[...document.querySelectorAll('#rows tbody tr')].map((row) => row.cells[1].textContent).join('|')"
    assert page.run(shown).split("|") == [row[1] for row in rows[:50]]
    page.click("#next")
    assert page.run(shown).split("|") == [row[1] for row in rows[50:]]
    names = ["mood", "stars"]
    apart = [row for row in rows if set(names) & set(differing(row_of(student, row[1]), row_of(teacher, row[1])))]
    assert 0 < len(apart) < len(rows)
    page.click("#differing")
    assert page.run(shown).split("|") == [row[1] for row in apart][:50]
    assert page.run("document.querySelectorAll('#rows mark').length") > 0
    assert f"1 to {min(50, len(apart))} of {len(apart)} rows where they differ" in page.shown_text
    for name in names:
        count = sum(name in differing(row_of(student, row[1]), row_of(teacher, row[1])) for row in rows)
        assert re.search(rf"{name}\s.*\s{count} of 66 rows", page.shown_text)
    result = page.download("#download", tmp_path)
    want = [
        {name: cell for name, cell in cells.items() if name.startswith(tuple(names))}
        for cells in expected(apart, student, teacher)
    ]
    check_download(result, "\t", apart, want)


def test_a_busy_server_is_asked_again_and_a_stopped_file_goes_on(
    page: Browser, alone: str, student: Predictor, tmp_path: Path
) -> None:
    rows = [[str(number), f"good {number}", ""] for number in range(40)]
    file = tmp_path / "tickets.csv"
    file.write_text(written([HEADER, *rows]), encoding="utf-8")
    enter(page, alone)
    page.run(
        """{
          const real = window.fetch;
          window.number = 0;
          window.fetch = async (...asked) => {
            window.number += 1;
            const headers = { "Retry-After": "0.1" };
            if (window.number < 4) return new Response('{"error": "full"}', { status: 503, headers });
            if (window.number === 6) throw new TypeError("gone");
            return real(...asked);
          };
        }"""
    )
    put_in(page, file)
    page.click("#start")
    page.wait("document.querySelector('#done').textContent.startsWith('Stopped')")
    stopped = re.search(r"Stopped after (\d+) of 40 rows\.", page.shown_text)
    assert stopped and 0 < int(stopped[1]) < 40
    assert "The server cannot be reached." in page.shown_text
    assert page.run("document.querySelector('#start').textContent") == "Go on"
    label = "document.querySelector('#download').textContent"
    assert page.run(label) == f"Download 40 rows, {stopped[1]} answered"
    before = sum(len(asked["texts"]) for asked in asked_by(page))
    answer_all(page)
    assert page.run(label) == "Download 40 rows"
    assert "The server cannot be reached." not in page.shown_text
    assert page.run("document.querySelector('#done').textContent").startswith("40 rows in ")
    after = sum(len(asked["texts"]) for asked in asked_by(page))
    assert after - before == 40 - int(stopped[1]), "what was answered is not asked again"
    check_download(page.download("#download", tmp_path), ",", rows, expected(rows, student))


def test_a_file_can_be_cancelled(page: Browser, alone: str, tmp_path: Path) -> None:
    file = tmp_path / "tickets.csv"
    file.write_text(written([HEADER, *([str(number), "good", ""] for number in range(40))]), encoding="utf-8")
    enter(page, alone)
    page.run("window.fetch = (address, { signal }) => new Promise((_, no) => signal.onabort = () => no(signal.reason))")
    put_in(page, file)
    page.click("#start")
    page.wait("document.activeElement.id === 'cancel'")
    assert page.run("document.querySelector('#progress').max") == 40
    assert page.run("document.querySelector('#columns').disabled")
    page.press("Enter")
    page.wait("document.querySelector('#done').textContent === 'Stopped after 0 of 40 rows.'")
    assert page.run("document.activeElement.id") == "start"
    assert not page.run("document.querySelector('#trouble').checkVisibility()")


@pytest.mark.parametrize("status", [413, 422, 500])
def test_rows_that_the_server_refuses_are_found_and_the_others_are_answered(
    page: Browser, alone: str, student: Predictor, tmp_path: Path, status: int
) -> None:
    bad = (3, 7)
    rows = [[str(number), "the one" if number in bad else f"good {number}", ""] for number in range(12)]
    file = tmp_path / "tickets.csv"
    file.write_text(written([HEADER, *rows]), encoding="utf-8")
    enter(page, alone)
    refuse(page, "the one", status, "not this one")
    put_in(page, file)
    answer_all(page)
    assert "Rows 4, 8: refused. The server said: not this one" in page.shown_text
    want = expected(rows, student)
    for number in bad:
        want[number] = dict.fromkeys(want[number], "")
    check_download(page.download("#download", tmp_path), ",", rows, want)


def test_a_table_can_be_pasted_or_dropped(page: Browser, alone: str, student: Predictor, tmp_path: Path) -> None:
    enter(page, alone)
    page.click("#view-file + span")
    page.type("#paste", "I was charged twice, again.\ngood\nfar too long, all of it, and not good")
    page.wait("document.querySelector('#sheet').checkVisibility()")
    assert page.run("document.querySelector('#separator').value") == ""
    assert "pasted: 3 rows, 1 column" in page.shown_text
    answer_all(page)
    rows = list(csv.DictReader(io.StringIO(page.download("#download", tmp_path).read_text(encoding="utf-8"))))
    assert [row["text"] for row in rows] == [
        "I was charged twice, again.",
        "good",
        "far too long, all of it, and not good",
    ]
    assert [row["mood_label"] for row in rows] == [row_of(student, row["text"])["mood"].label for row in rows]

    file = tmp_path / "dropped.csv"
    file.write_text("id,message\n1,good\n", encoding="utf-8")
    page.click("#view-text + span")
    data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        page.call("Input.dispatchDragEvent", type=kind, x=200, y=200, data=data)
    page.wait("document.querySelector('#sheet-name').textContent.startsWith('dropped.csv')")
    assert page.run("document.querySelector('#sheet').checkVisibility()")
    assert "dropped.csv: 1 row, 2 columns" in page.shown_text
    assert page.run("document.querySelector('#paste').value") == ""
    page.run("document.querySelector('#paste').focus()")
    page.press("Escape")
    assert "dropped.csv: 1 row, 2 columns" in page.shown_text, "there was nothing to clear"
    page.type("#paste", "good\nbad")
    page.wait("document.querySelector('#sheet').checkVisibility()")
    page.press("Escape")
    page.wait("!document.querySelector('#sheet').checkVisibility()")
    assert page.run("document.querySelector('#paste').value") == ""


def test_other_tasks_ask_for_another_run_and_keep_what_is_there(page: Browser, alone: str, tmp_path: Path) -> None:
    file = tmp_path / "tickets.csv"
    file.write_text("id,message\n1,good\n2,bad\n", encoding="utf-8")
    enter(page, alone)
    put_in(page, file)
    answer_all(page)
    assert not page.run("document.querySelector('#start').checkVisibility()")
    page.click("#tasks label:nth-of-type(1) span")
    assert page.run("document.querySelector('#start').textContent") == "Answer again"
    assert page.run("document.querySelector('#rows thead').textContent").startswith("rowmessagemood")
    page.click("#start")
    page.wait("document.querySelector('#download').checkVisibility()")
    assert page.run("document.querySelector('#rows thead').textContent").startswith("rowmessagetopic")
    for number in range(1, len(TASKS)):
        page.click(f"#tasks label:nth-of-type({number + 1}) span")
    assert "What is chosen now cannot be answered." in page.shown_text
    assert page.run("document.querySelector('#start').disabled")


def choose(page: Browser, field: str, value: str) -> None:
    """Choose from a list, as a hand would, the same again too."""
    result = f"document.querySelector({json.dumps(field)})"
    page.run(f"{result}.value = {json.dumps(value)}; {result}.dispatchEvent(new Event('change', {{ bubbles: true }}))")


def test_other_columns_and_other_ways_to_read_a_table_keep_the_answers_until_others_are_asked_for(
    page: Browser, alone: str, student: Predictor, tmp_path: Path
) -> None:
    rows = [["1", "good", "bad"], ["2", "not bad", "far too long"]]
    file = tmp_path / "tickets.csv"
    file.write_text(written([HEADER, *rows]), encoding="utf-8")
    enter(page, alone)
    put_in(page, file)
    choose(page, "#column", "2")  # by hand, so that a new guess would be seen
    answer_all(page)
    again = "((it) => it.checkVisibility() && it.textContent === 'Answer again')(document.querySelector('#start'))"
    reported = "The answers below are to what was chosen before. “Answer again” replaces them."
    shown = page.run("document.querySelector('#rows').textContent")

    choose(page, "#column", "2")
    choose(page, "#column2", "-1")
    assert not page.run(again) and reported not in page.shown_text
    for field, other, back in (("#column", "1", "2"), ("#column2", "1", "-1"), ("#separator", ";", ",")):
        choose(page, field, other)
        assert page.run(again) and reported in page.shown_text
        assert page.run("document.querySelector('#told').textContent") == reported
        assert page.run("document.querySelector('#rows').textContent") == shown
        choose(page, field, back)
        assert not page.run(again) and reported not in page.shown_text
        assert page.run("document.querySelector('#told').textContent") == ""
    page.click("#header")
    assert page.run(again) and page.run("document.querySelector('#rows').textContent") == shown
    want = [[row[0], row[2], row[1]] for row in rows]
    result = csv.DictReader(io.StringIO(page.download("#download", tmp_path).read_text(encoding="utf-8")))
    assert [row["mood_label_2"] for row in result] == [row["mood_label_2"] for row in expected(want, student)]
    page.click("#header")
    assert not page.run(again)

    choose(page, "#column", "1")
    page.click("#start")
    page.wait("document.querySelector('#download').checkVisibility()")
    for path in tmp_path.glob("*-predictions*"):
        path.unlink()
    check_download(page.download("#download", tmp_path), ",", rows, expected(rows, student))


def test_numbers_are_written_in_one_way_and_times_in_the_unit_that_people_would_use(
    page: Browser, alone: str, tmp_path: Path
) -> None:
    file = tmp_path / "tickets.csv"
    file.write_text("id,message,message\n" + "".join(f"{n},good,bad\n" for n in range(3000)), encoding="utf-8")
    enter(page, alone)
    put_in(page, file)
    assert "tickets.csv: 3,000 rows, 3 columns" in page.shown_text
    assert page.run("document.querySelector('#start').textContent") == "Answer 3,000 rows"
    assert "1 to 50 of 3,000 rows" in page.shown_text
    names = "[...document.querySelector('#column').options].map((option) => option.text).join('|')"
    assert page.run(names) == "id|message (column 2)|message (column 3)"
    written_as = "import('/page/numbers.js').then(({ duration }) => [TIMES].map(duration).join('|'))"
    times = page.run(written_as.replace("TIMES", ", ".join(str(1000 * seconds) for seconds, _ in DURATIONS)))
    assert times.replace("\xa0", " ").split("|") == [text for _, text in DURATIONS]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("id,message\n1,größer\n".encode("latin-1"), "This is no text in UTF-8."),
        (b"PK\x03\x04\x00\x00spreadsheet", "This is no text in UTF-8."),
        (b'id,message\n1,good\n2,"never closed\n3,bad\n', "Line 3: a cell begins with a quote that is never closed."),
        (b'id,message\n1,"so" he said\n', "Line 2: a cell goes on after its closing quote."),
        (b"id,message\n", "There are no rows in this table."),
        (b"", "broken.csv is empty."),
        (b"\xef\xbb\xbf \r\n\r\n", "broken.csv is empty."),
    ],
)
def test_a_file_that_cannot_be_read_is_told_of_in_a_sentence(
    page: Browser, alone: str, tmp_path: Path, data: bytes, sentence: str
) -> None:
    file = tmp_path / "broken.csv"
    file.write_bytes(data)
    enter(page, alone)
    page.give("#choose", file)
    page.wait("document.querySelector('#wrong').checkVisibility()")
    assert sentence in page.run("document.querySelector('#wrong').textContent")
    start = "((button) => button.checkVisibility() && !button.disabled)(document.querySelector('#start'))"
    assert not page.run(start)


# Tables as text -------------------------------------------------------------------------------------------------------

CELLS = st.text(
    st.sampled_from(',;\t"\r\n =+') | st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"),
    max_size=8,
)
TABLES = st.integers(2, 4).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=5)
)


def with_tables(page: Browser, script: str, **values: Any) -> Any:
    """Return what an expression comes to, with the module of tables and values at hand."""
    given = f"const {{{', '.join(values)}}} = {json.dumps(values)};"
    return json.loads(
        page.run(f"import('/page/csv.js').then((tables) => {{ {given} return JSON.stringify({script}); }})")
    )


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=TABLES, separator=st.sampled_from(",;\t"), newline=st.sampled_from(["\n", "\r\n", "\r"]), bom=st.booleans())
@example([["a", "b"], ['"', ""]], ",", "\n", False)
def test_tables_are_read_and_written_as_pythons_csv_does(
    page: Browser, alone: str, rows: list[list[str]], separator: str, newline: str, bom: bool
) -> None:
    if not page.run("location.href").startswith(alone):
        enter(page, alone)
    text = "\ufeff" * bom + written(rows, separator, newline)
    assert with_tables(page, "tables.parse(text, separator)", text=text, separator=separator)["rows"] == rows
    again = with_tables(page, "tables.write(rows, separator, newline)", rows=rows, separator=separator, newline=newline)
    assert list(csv.reader(io.StringIO(again, newline=""), delimiter=separator)) == rows


@pytest.mark.parametrize(
    ("text", "separator", "named"),
    [
        ("id,text\n1,a\n2,b\n", ",", True),
        ("id;text\n1;a, and b\n2;b, or c\n", ";", True),
        ('sentence\tlabel\nit \'s good , "\t1\n" quoted but once\t0\n', "\t", True),
        ("1,good\n2,bad\n3,fine\n", ",", False),
        ('text\n"a, b"\nc\n', ",", True),
        ("One, two.\nThree.\nFour, five, six.\n", "", False),
        ("text\nOne, two.\nThree.\n", "", True),
        ("only this, one line", "", False),
        ("id,text\n1,a\n2,b,c\n3,d\n", ",", True),
        ("id,text,text\n1,a,b\n2,b,c\n", ",", True),
        ("good,good\nbad,good\n", ",", False),
        ("\n\nid,text\n1,a\n2,b\n", ",", True),
    ],
)
def test_separators_and_names_are_guessed(page: Browser, alone: str, text: str, separator: str, named: bool) -> None:
    enter(page, alone)
    assert with_tables(page, "tables.guessSeparator(text)", text=text) == separator
    assert with_tables(page, "tables.guessNames(text, separator)", text=text, separator=separator) == named


@pytest.mark.parametrize(
    ("names", "row", "must", "columns"),
    [
        (["id", "message", "label"], ["1", "Hello there", "x"], False, [1, -1]),
        (["idx", "sentence1", "sentence2", "label"], ["1", "a", "longer", "x"], False, [1, 2]),
        (["premise", "hypothesis"], ["a", "b"], False, [0, 1]),
        (["column 1", "column 2", "column 3"], ["1", "short", "by far the longest"], False, [2, -1]),
        (["column 1", "column 2", "column 3"], ["1", "short", "by far the longest"], True, [2, 1]),
        (["text"], ["a"], True, [0, -1]),
    ],
)
def test_columns_of_texts_are_guessed(
    page: Browser, alone: str, names: list[str], row: list[str], must: bool, columns: list[int]
) -> None:
    enter(page, alone)
    assert with_tables(page, "tables.guessColumns(names, [row], must)", names=names, row=row, must=must) == columns


# Keys, and a server that is not ready, or gone ------------------------------------------------------------------------


def test_a_browser_asks_whether_its_copy_of_the_page_is_still_good(page: Browser, alone: str) -> None:
    enter(page, alone)
    asked = "Promise.all(['/', '/page/page.js', '/page/page.css'].map((each) => fetch(each)))"
    kept = page.run(f"{asked}.then((all) => all.map((each) => each.headers.get('cache-control')).join())")
    assert kept == "no-cache,no-cache,no-cache"


def test_a_page_that_is_opened_while_the_model_is_loaded_goes_on_by_itself(page: Browser, alone: str) -> None:
    script = """{
      const real = window.fetch;
      let number = 0;
      const refusal = () => new Response('{"error": "loading"}', { status: 503, headers: { "Retry-After": "0.5" } });
      window.fetch = async (...asked) => (number++ ? real(...asked) : refusal());
    }"""
    added = page.call("Page.addScriptToEvaluateOnNewDocument", source=script)
    page.open(alone + "/")
    page.call("Page.removeScriptToEvaluateOnNewDocument", **added)
    page.wait("document.querySelector('#trouble').checkVisibility()")
    assert "The server is not ready yet." in page.shown_text
    page.wait("document.querySelector('#ready').checkVisibility()")
    assert not page.run("document.querySelector('#trouble').checkVisibility()")
    assert page.run("document.activeElement.id") == "first"


def test_a_file_that_waits_for_a_key_goes_on_with_it(
    page: Browser, alone: str, student: Predictor, tmp_path: Path
) -> None:
    rows = [[str(number), f"good {number}", ""] for number in range(30)]
    file = tmp_path / "tickets.csv"
    file.write_text(written([HEADER, *rows]), encoding="utf-8")
    enter(page, alone)
    page.run(
        """{
          const real = window.fetch;
          window.fetch = async (address, asked) =>
            asked.headers.Authorization === "Bearer sesame" ? real(address, asked)
              : new Response('{"error": "a key is needed"}', { status: 401 });
        }"""
    )
    put_in(page, file)
    page.click("#start")
    page.wait("document.querySelector('#lock').checkVisibility()")
    page.type("#key", "no key: ä")
    page.press("Enter")
    page.wait("document.querySelector('#lock-why').textContent.startsWith('A key has letters')")
    page.type("#key", "sesame")
    page.press("Enter")
    page.wait("document.querySelector('#done').textContent.startsWith('30 rows in')")
    assert not page.run("document.querySelector('#lock').checkVisibility()")
    check_download(page.download("#download", tmp_path), ",", rows, expected(rows, student))


def test_a_key_is_asked_for_and_a_server_that_is_gone_is_told_of(
    page: Browser, models: dict[str, Path], tmp_path: Path
) -> None:
    with serving(models["student"], tmp_path, UNDERSTILL_KEYS="sesame other") as server:
        page.open(server.url + "/")
        page.wait("document.querySelector('#lock').checkVisibility()")
        assert page.run("document.activeElement.id") == "key"
        assert "The server asks for a key." in page.shown_text
        page.type("#key", "mustard")
        page.press("Enter")
        page.wait("document.querySelector('#lock-why').textContent === 'The server does not know this key.'")
        page.type("#key", "sesame")
        page.press("Enter")
        page.wait("document.querySelector('#ready').checkVisibility()")
        assert not page.run("document.querySelector('#lock').checkVisibility()")
        page.type("#first", TEXT)
        settle(page, "mood")

        server.end(SIGKILL)
        page.type("#first", "good")
        page.wait("document.querySelector('#trouble').checkVisibility()")
        assert "The server cannot be reached." in page.run("document.querySelector('#trouble').textContent")
        assert cards(page) == {}, "no old answer stands beside a new text"
    assert not [address for address in page.requests if "sesame" in address]
    forget_refusals(page)


# Looks and hands ------------------------------------------------------------------------------------------------------

#: Texts whose colour stands out too little from what is behind them, as the guidelines count it (AA).
FAINT = """(() => {
  const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 });
  const context = canvas.getContext('2d', { willReadFrequently: true });
  const channels = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => channels(colour).slice(0, 3).map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (channels(colour)[3] === 255) return colour;
    }
    return getComputedStyle(document.body).backgroundColor;
  };
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const texts = [...document.body.querySelectorAll('*')].filter(
    (element) => element.checkVisibility() && !element.closest('.unseen, :disabled') && hasText(element));
  const faint = texts.filter((element) => {
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))].sort((a, b) => b - a);
    return (a + 0.05) / (b + 0.05) < 4.5;
  });
  return [texts.length, ...faint.map((element) => element.outerHTML.slice(0, 100))].join('|');
})()"""


def fill_everything(page: Browser, address: str, tmp_path: Path) -> None:
    """Bring all of the page to light: answers, marks, notes, a table and a sentence of trouble."""
    enter(page, address)
    page.type("#first", TEXT)
    page.type("#second", SECOND)
    settle(page, "best")
    file = tmp_path / "tickets.csv"
    file.write_text("id,message\n1,good\n2,bad\n3,\n" + "".join(f"{n},film {n}\n" for n in range(60)), encoding="utf-8")
    put_in(page, file)
    answer_all(page)
    page.run("for (const part of document.querySelectorAll('#text, #lock, #trouble')) part.hidden = false")
    page.run("document.querySelector('#trouble').textContent = 'Trouble.'")


def test_texts_stand_out_in_light_and_dark_and_a_phone_is_wide_enough(
    page: Browser, beside: str, tmp_path: Path
) -> None:
    fill_everything(page, beside, tmp_path)
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        number, *faint = page.run(FAINT).split("|")
        assert int(number) > 100 and faint == [], scheme
    page.call("Emulation.setDeviceMetricsOverride", width=340, height=740, deviceScaleFactor=1, mobile=True)
    assert page.run("document.documentElement.scrollWidth") <= 340
    assert page.run("((tally) => tally.scrollWidth <= tally.clientWidth)(document.querySelector('#tally'))")
    assert page.run(BROKEN.replace("WHERE", "#tally")) == ""


#: Words in tables that go on in another line.
BROKEN = """[...document.querySelectorAll('WHERE td, WHERE th')].flatMap((cell) => {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  const broken = [];
  while (walker.nextNode()) {
    for (const word of walker.currentNode.data.matchAll(/[\\p{L}\\d]+/gu)) {
      const range = document.createRange();
      range.setStart(walker.currentNode, word.index);
      range.setEnd(walker.currentNode, word.index + word[0].length);
      if (range.getClientRects().length > 1) broken.push(word[0]);
    }
  }
  return broken;
}).join()"""


def test_the_manual_breaks_no_words(page: Browser, alone: str) -> None:
    page.open(alone + "/docs")
    for width in (1000, 340):
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=740, deviceScaleFactor=1, mobile=True)
        assert page.run(BROKEN.replace("WHERE", "main")) == ""
        assert page.run("document.documentElement.scrollWidth") <= width
    forget_refusals(page)


def test_everything_that_can_be_used_has_a_name(page: Browser, beside: str, tmp_path: Path) -> None:
    fill_everything(page, beside, tmp_path)
    usable = {"button", "checkbox", "combobox", "link", "progressbar", "radio", "region", "textbox", "searchbox"}
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    result = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    named = [(role, name) for role, name in result if role in usable]
    assert len(named) > 20
    assert [each for each in named if not each[1].strip()] == []
    assert {("textbox", "First text"), ("textbox", "Second text"), ("checkbox", "✓ mood")} <= set(named)


def test_the_keyboard_reaches_everything_in_reading_order(page: Browser, beside: str) -> None:
    enter(page, beside)
    page.run("document.querySelector('#view-text').focus()")
    seen = []
    ring = """(() => {
      const at = document.activeElement;
      const isSeen = (each) => each?.checkVisibility({ opacityProperty: true });
      const ringed = [at, at.nextElementSibling].some(
        (each) => isSeen(each) && getComputedStyle(each).outlineStyle === 'solid');
      return [at.id || at.parentElement.textContent.trim(), ringed].join('|');
    })()"""
    for _ in range(len(TASKS) + 3):
        page.press("Tab")
        name, visible = page.run(ring).split("|")
        assert visible == "true", f"{name} has no ring"
        seen.append(name)
    assert [name.split()[0] for name in seen[: len(TASKS)]] == [task.name for task in TASKS]
    assert seen[len(TASKS) :] == ["teacher", "first", "second"]
    page.run("document.querySelector('#view-text').focus()")
    page.press("ArrowRight")
    assert page.run("document.querySelector('#file').checkVisibility()")
