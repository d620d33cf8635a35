"""Sections: the parts of a report, in reading order."""

from __future__ import annotations

from understill.report import error_analysis, evidence, language_model, overview
from understill.report.blocks import ReportSection
from understill.report.facts import Facts


def sections(facts: Facts) -> list[ReportSection]:
    """Return all sections of a report that are not empty."""
    parts = [
        ReportSection("run", "What was run", tuple(overview.overview(facts))),
        ReportSection("scores", "Scores", tuple(evidence.scores(facts))),
        ReportSection("cost", "Score against time and size", tuple(evidence.cost(facts.timing))),
        ReportSection("llm", "The language model", tuple(language_model.language_model(facts))),
        ReportSection("training", "Training", tuple(evidence.training(facts))),
        ReportSection("study", evidence.study_title(facts), tuple(evidence.study(facts))),
        ReportSection("confusion", "Confusion matrices", tuple(error_analysis.confusion(facts))),
        ReportSection("calibration", "Calibration", tuple(error_analysis.calibration(facts))),
        ReportSection("agreement", "Agreement with the teachers", tuple(error_analysis.agreement(facts))),
        ReportSection("slices", "Slices of the rows", tuple(error_analysis.slices(facts))),
        ReportSection("examples", error_analysis.examples_title(facts), tuple(error_analysis.examples(facts))),
        ReportSection("recipe", "Recipe, and how to reproduce", tuple(overview.reproduction(facts))),
    ]
    return [section for section in parts if section.blocks]
