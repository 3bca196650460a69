"""Batches for tests: what steps make of them, record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headerware import Record
from headerware.core.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def answered(batch: Batch, answers: Sequence[Any]) -> Batch:
    """Return the batch of a step that answers with records and errors, and leaves the rest."""
    failures = {at: answer for at, answer in enumerate(answers) if isinstance(answer, Exception)}
    records = [
        answer if isinstance(answer, Record) else before
        for answer, before in zip(answers, batch, strict=True)
    ]
    others = [
        at for at, answer in enumerate(answers) if at not in failures and not isinstance(answer, Record)
    ]
    return Batch.of(records).replace(failures=failures, not_taken=others)


def sent_together(step: Any, records: Sequence[Record]) -> list[Any]:
    """Return what a step alone makes of records that are sent together: a record or an error for each."""
    return _together(step.on_send_batch, step.on_send, records)


def accepted_together(step: Any, records: Sequence[Record]) -> list[Any]:
    """Return what a step alone makes of records when all others have accepted them."""
    return _together(step.on_accepted_batch, step.on_accepted, records)


def _together(
    batch_hook: Callable[[Batch], Batch], hook: Callable[[Record], Any], records: Sequence[Record]
) -> list[Any]:
    out = batch_hook(Batch.of(list(records)))
    made: list[Any] = []
    for at, record in enumerate(records):
        if at in out.failures:
            made.append(out.failures[at])
            continue
        try:
            made.append(hook(record) if at in out.not_taken else out[at])
        except Exception as error:  # noqa: BLE001 - as a session does
            made.append(error)
    return made
