"""A window over what each producer has sent, in which a second copy of a record is a replay."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from headerware.core.errors import SignatureError, position

if TYPE_CHECKING:
    from headerware.core.record import Record

PRODUCERS_MAX: Final = 1024

_Place = tuple[str, int | None, int | None]


class ReplayWindow:
    """Remember where each sequence of a producer stood.

    The same sequence in the same place is a record read again, as after a seek or a restart; anywhere
    else it is a copy. What has left the window is not known any more, so that an old copy can pass: the
    window is bounded by ``size`` sequences a producer and 1,024 producers, and those not heard of for
    longest go first. Not safe for use by several threads at once.

    Args:
        size: sequences to remember for each producer.
    """

    __slots__ = ("_producers", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._producers: OrderedDict[tuple[str, bytes], OrderedDict[int, _Place]] = OrderedDict()

    def check(self, key_id: str, producer: bytes, sequence: int, record: Record) -> None:
        """Remember a verified record, or refuse it.

        Args:
            key_id: the key that signed; one signer cannot use up another's sequences.
            producer: the session that signed.
            sequence: the record's number in that session.
            record: the record, for its place.

        Raises:
            SignatureError: the sequence was seen in another place, or in a place that is not known.
        """
        places = self._places((key_id, producer))
        place = (record.topic, record.partition, record.offset)
        before = places.get(sequence)
        if before is None:
            places[sequence] = place
            if len(places) > self._size:
                places.popitem(last=False)
        elif before != place or record.offset is None:
            raise SignatureError(
                f"replayed: sequence {sequence} of producer {producer.hex()} was seen at {position(*before)}"
            )

    def _places(self, producer: tuple[str, bytes]) -> OrderedDict[int, _Place]:
        places = self._producers.get(producer)
        if places is None:
            places = self._producers[producer] = OrderedDict()
            if len(self._producers) > PRODUCERS_MAX:
                self._producers.popitem(last=False)
        else:
            self._producers.move_to_end(producer)
        return places
