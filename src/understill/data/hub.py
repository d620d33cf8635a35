"""Datasets of the Hugging Face hub, or of a local folder in its layout; needs the extra `hub`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from understill.data.files import BadFile, Row
from understill.data.read import BATCH, batch_rows
from understill.data.source import Part, Source
from understill.errors import UserError, nearest
from understill.names import nfc
from understill.recipe.schema import HubSpec
from understill.tasks import Task


def _load(where: HubSpec, split: str) -> Any:
    """Fetch one split, or say in one sentence why that cannot be done."""
    try:
        import datasets
    except ImportError:
        fix = 'pip install "understill[hub]"'
        raise UserError(f"{where.dataset}: datasets of the Hugging Face hub need an extra package → {fix}") from None
    verbosity, quiet = datasets.utils.logging.get_verbosity(), datasets.are_progress_bars_disabled()
    try:
        # No code that comes with a dataset is ever run: `datasets` refuses it, and it is not asked to trust any.
        datasets.utils.logging.set_verbosity_error()
        datasets.disable_progress_bars()  # only the command line owns the terminal
        data = datasets.load_dataset(where.dataset, where.config, split=split, revision=where.revision)
        odd = {name: nfc(name) for name in data.column_names if name != nfc(name)}
        return data.rename_columns(odd) if odd else data
    except Exception as error:  # whatever it raises is about the name, the files or the network
        raise _explained(where, error, split) from None
    finally:
        datasets.utils.logging.set_verbosity(verbosity)
        if not quiet:
            datasets.enable_progress_bars()


def _explained(where: HubSpec, error: Exception, split: str) -> BadFile:
    text = " ".join(str(error).split())
    kinds = {each.__name__ for each in type(error).__mro__}
    place = f"hub dataset {where.dataset}"
    if "Unknown split" in text:
        return BadFile(place, f'there is no split "{split}"; {text[text.find("Should be") :]}')
    if "Config name is missing" in text or "BuilderConfig" in text:
        return BadFile(place, f"the configuration is not clear: {text[:300]}", "set hub: {dataset: …, config: …}")
    if "Dataset scripts are no longer supported" in text:
        return BadFile(place, "is a loading script, and no remote code is run", "use a version as Parquet files")
    if "EmptyDatasetError" in kinds or "DataFilesNotFoundError" in kinds:
        return BadFile(place, "no data files there", "check the name and the folder")
    if kinds & {"ConnectionError", "OfflineModeIsEnabled", "LocalEntryNotFoundError"}:
        return BadFile(place, "cannot be reached, and is not in the local cache", "check name and network")
    if kinds & {"DatasetNotFoundError", "FileNotFoundError", "HfHubHTTPError"}:
        return BadFile(place, "there is no such dataset, or you may not read it", "check the name and your login")
    return BadFile(place, f"cannot be loaded: {text[:300] or type(error).__name__}")


def from_hub(where: HubSpec, splits: Sequence[str], task: Task, gold_optional: bool) -> Source:
    """Take the rows of one split, or of several one after the other."""
    loaded = [(split, _load(where, split)) for split in splits]
    columns = [*task.columns, task.label or "label"]
    for split, data in loaded:
        for name in columns[:-1] if gold_optional else columns:
            if name not in data.column_names:
                there = ", ".join(data.column_names)
                what = f'there is no column "{name}" in {split}; the columns are: {there}'
                raise BadFile(f"hub dataset {where.dataset}", what, nearest(name, data.column_names))

    def identity() -> Any:
        return {"hub": [_digest(data, columns) for _, data in loaded]}

    def parts() -> Iterator[Part]:
        for split, data in loaded:
            yield _place(where.dataset, split), _rows(data, columns)

    return Source(identity, parts)


def _place(name: str, split: str) -> Any:
    return lambda number: f"{name} {split}:row {number}"


def _batches(data: Any, columns: Sequence[str]) -> Iterator[Any]:
    """Yield Arrow tables of the columns that are there."""
    chosen = data.select_columns([name for name in columns if name in data.column_names])
    yield from chosen.with_format("arrow").iter(batch_size=BATCH)


def _digest(data: Any, columns: Sequence[str]) -> str:
    """Return the digest of the columns' content; the library's own names of datasets say less."""
    digest = blake2b(repr([(name, str(data.features.get(name))) for name in columns]).encode(), digest_size=16)
    for table in _batches(data, columns):
        for batch in table.combine_chunks().to_batches():
            digest.update(batch.serialize())
    return digest.hexdigest()


def _rows(data: Any, columns: Sequence[str]) -> Iterator[Row]:
    """Yield rows with labels by name; the hub's label ids are numbers, and -1 stands for none."""
    names = getattr(data.features.get(columns[-1]), "names", None)
    before = 0
    for table in _batches(data, columns):
        for row in batch_rows(table.combine_chunks(), columns, before):
            label = row.values[-1]
            if names is not None and label is not None:
                label = names[label] if 0 <= label < len(names) else None
            yield Row(row.number, (*row.values[:-1], label))
        before += table.num_rows
