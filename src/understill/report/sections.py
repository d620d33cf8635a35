"""Sections: a report's parts, in the order in which they are read."""

from __future__ import annotations

from understill.report import evidence, overview, row_by_row
from understill.report.blocks import Section
from understill.report.facts import Facts


def sections(facts: Facts) -> list[Section]:
    """Return all parts of a report that have something to tell."""
    found = [
        Section("run", "What was run", tuple(overview.overview(facts))),
        Section("scores", "Scores", tuple(evidence.scores(facts))),
        Section("cost", "Score against time and size", tuple(evidence.cost(facts.timing))),
        Section("training", "Training", tuple(evidence.training(facts))),
        Section("study", evidence.study_title(facts), tuple(evidence.study(facts))),
        Section("answers", "Answers by class", tuple(row_by_row.answers(facts))),
        Section("calibration", "How sure, and how right", tuple(row_by_row.calibration(facts))),
        Section("agreement", "Student and teachers", tuple(row_by_row.agreement(facts))),
        Section("slices", "Parts of the rows", tuple(row_by_row.slices(facts))),
        Section("examples", row_by_row.examples_title(facts), tuple(row_by_row.examples(facts))),
        Section("recipe", "Recipe, and how to reproduce", tuple(overview.reproduction(facts))),
    ]
    return [section for section in found if section.blocks]
