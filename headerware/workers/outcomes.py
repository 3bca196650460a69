"""The outcomes of units, and one transaction for many outcomes.

    sent           records are written for it
    dead_letter    its dead letters are written, with the reason
    dropped        nothing is written, and it is done
    pending        nothing is written, and the next process decides about it again

If a topic refuses a record for its size, key, time or partition, the worker decides again about the unit of
that record and retries the transaction, so other records are not blocked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from headerware.core.dead_letter import dead_letters
from headerware.core.errors import HeaderwareError, InterceptorError, position
from headerware.core.headers import EMPTY
from headerware.core.record import Record
from headerware.kafka.messages import is_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confluent_kafka import KafkaError, Message, TopicPartition

    from headerware.workers.transactions import TransactionalSender
    from headerware.workers.units import Unit

Disposition = Literal["sent", "dead_letter", "dropped", "pending"]


class Outcome:
    """The outcome of a unit.

    Args:
        unit: the unit.
        disposition: one of the four in the module's docstring.
        records: the records that are written for it.
        why: the reason, in a word, for counters; empty if there is none.
        about: any value that the policy needs when the outcome is committed.
    """

    __slots__ = ("_smaller", "about", "disposition", "records", "unit", "why")

    def __init__(
        self,
        unit: Unit,
        disposition: Disposition,
        records: Sequence[Record] = (),
        *,
        why: str = "",
        about: Any = None,
    ) -> None:
        self.about: Final = about
        self.unit: Final = unit
        self.disposition: Final = disposition
        self.records: list[Record] = [*records]
        self.why: Final = why
        self._smaller: Sequence[Iterator[Record]] = ()

    def __repr__(self) -> str:
        where = position(*self.unit.topic_partition, self.unit.offsets[-1])
        return f"Outcome({where}, {self.disposition!r}, why={self.why!r}, records={len(self.records)})"

    @classmethod
    def dead_lettered(
        cls,
        unit: Unit,
        error: InterceptorError,
        topic: str,
        *,
        group_id: str,
        cluster: str | None,
        now_ms: int,
        why: str = "",
    ) -> Outcome:
        """Return the outcome of a unit whose records go to a dead-letter topic.

        Args:
            unit: the unit.
            error: the error that is the reason.
            topic: the dead-letter topic.
            group_id: the group of the worker.
            cluster: the id of the cluster.
            now_ms: the time, in milliseconds since the epoch.
            why: the reason in a word; by default the step that refused it, and the class of the error.
        """
        outcome = cls(unit, "dead_letter", why=why or _reason_of(error))

        def dead_letters_of(original: Record) -> Iterator[Record]:
            """Yield the dead letter of a record, and smaller ones if the topic refuses it."""
            readable = is_readable(original)
            for dead_letter, is_stub in dead_letters(
                original if readable else original.replace(headers=EMPTY),
                error,
                stubs=True,
                topic=topic,
                names="headerware",
                stage="ON_CONSUME",
                group_id=group_id,
                cluster=cluster,
                now_ms=now_ms,
            ):
                # Without headers, a reader would mistake the dead letter for the original record.
                if readable or is_stub:
                    yield dead_letter

        outcome._smaller = [dead_letters_of(record) for record in unit.records]
        outcome.records = [next(smaller) for smaller in outcome._smaller]
        return outcome

    def shrink_refused(self, errors: Mapping[int, KafkaError]) -> Outcome | None:
        """Replace, in place, each dead letter that a topic has refused by a smaller one; return this outcome.

        Return None if this is not a dead letter; the caller then asks the policy.

        Raises:
            HeaderwareError: the topic refuses even a stub.
        """
        if not self._smaller:
            return None
        for index, error in errors.items():
            smaller = next(self._smaller[index], None)
            if smaller is None:
                original = self.unit.records[index]
                where = position(original.topic, original.partition, original.offset)
                topic = self.records[index].topic
                raise HeaderwareError(
                    f"{topic} refuses even a stub of the dead letter of {where}: {error.str()}; raise "
                    f"max.message.bytes of {topic}, or correct the topic, and the partition continues"
                )
            self.records[index] = smaller
        return self


def _reason_of(error: HeaderwareError) -> str:
    """Return the step that refused a record, and the class of the error, for counters."""
    step = getattr(error, "step", None)
    return f"{step}: {type(error).__name__}" if step else type(error).__name__


def transact(
    sender: TransactionalSender,
    outcomes: Sequence[Outcome],
    offsets_of: Callable[[Sequence[Outcome]], Sequence[TopicPartition]],
    group_metadata: Any,
    *,
    decide_again: Callable[[Outcome, Mapping[int, KafkaError]], Outcome],
    account_of: Callable[[Sequence[Outcome], Sequence[TopicPartition]], Record | None] = lambda *_: None,
    reports_by_outcome: dict[Outcome, list[Message]] | None = None,
) -> list[Outcome]:
    """Write the records of outcomes in one transaction with the offsets, and return the final outcomes.

    Args:
        sender: sends.
        outcomes: the outcomes.
        offsets_of: returns the offsets to commit for these outcomes.
        group_metadata: the group metadata of the consumer that has read.
        decide_again: returns another outcome for an outcome with refused records, from the errors by the
            indexes of the records. It must return fewer or other records, and sooner or later records that
            are accepted, or none: it is called until no record is refused. Not called for dead letters,
            which are replaced by smaller ones.
        account_of: returns a record that describes outcomes and offsets, and is written with them, or None.
        reports_by_outcome: filled with the delivery reports of the records of each final outcome.

    Raises:
        HeaderwareError: a topic refuses the account, or even a stub of a dead letter.
        TakenOverError: another process has taken over.
        StaleGroupError: the group has given the partitions to another member.
        confluent_kafka.KafkaException: the cluster refuses a request, or does not answer.
    """
    current = [*outcomes]
    while True:
        indexes = [
            (outcome_index, index)
            for outcome_index, outcome in enumerate(current)
            for index in range(len(outcome.records))
        ]
        records = [current[outcome_index].records[index] for outcome_index, index in indexes]
        offsets = offsets_of(current)
        if (account := account_of(current, offsets)) is not None:
            records.append(account)
        delivered: dict[int, Message] = {}
        refused_by_index = sender.send(records, offsets, group_metadata, delivered=delivered)
        if not refused_by_index:
            if reports_by_outcome is not None:
                reports_by_outcome.update((outcome, []) for outcome in current)
                for number, (outcome_index, _) in enumerate(indexes):
                    if number in delivered:
                        reports_by_outcome[current[outcome_index]].append(delivered[number])
            return current
        refused: dict[int, dict[int, KafkaError]] = {}
        for number, error in refused_by_index.items():
            if number == len(indexes) and account is not None:
                raise HeaderwareError(
                    f"{account.topic} takes no accounts: {error.str()}; nothing was written"
                )
            outcome_index, index = indexes[number]
            refused.setdefault(outcome_index, {})[index] = error
        for outcome_index, errors in refused.items():
            outcome = current[outcome_index]
            current[outcome_index] = outcome.shrink_refused(errors) or decide_again(outcome, errors)
