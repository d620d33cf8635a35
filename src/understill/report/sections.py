"""Sections: a report's parts, in the order in which they are read."""

from __future__ import annotations

from understill.report import evidence, overview, row_by_row
from understill.report.blocks import ReportSection
from understill.report.facts import Facts


def sections(facts: Facts) -> list[ReportSection]:
    """Return all parts of a report that have something to tell."""
    found = [
        ReportSection("run", "What was run", tuple(overview.overview(facts))),
        ReportSection("scores", "Scores", tuple(evidence.scores(facts))),
        ReportSection("cost", "Score against time and size", tuple(evidence.cost(facts.timing))),
        ReportSection("training", "Training", tuple(evidence.training(facts))),
        ReportSection("study", evidence.study_title(facts), tuple(evidence.study(facts))),
        ReportSection("answers", "Answers by class", tuple(row_by_row.answers(facts))),
        ReportSection("calibration", "How sure, and how right", tuple(row_by_row.calibration(facts))),
        ReportSection("agreement", "Student and teachers", tuple(row_by_row.agreement(facts))),
        ReportSection("slices", "Parts of the rows", tuple(row_by_row.slices(facts))),
        ReportSection("examples", row_by_row.examples_title(facts), tuple(row_by_row.examples(facts))),
        ReportSection("recipe", "Recipe, and how to reproduce", tuple(overview.reproduction(facts))),
    ]
    return [section for section in found if section.blocks]
