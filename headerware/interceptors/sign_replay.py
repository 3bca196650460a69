"""A window over what each producer has sent, in which a second copy of a record is a replay."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from headerware.core.errors import SignatureError, position

if TYPE_CHECKING:
    from headerware.core.record import Verified

PRODUCERS_MAX: Final = 1024

Place = tuple[str, int | None, int | None]


class ReplayWindow:
    """Remember where each sequence of a producer stood.

    The same sequence in the same place is a record read again, as after a seek or a restart; anywhere
    else it is a copy. Records are looked up when they come, and remembered when no step has refused them.
    What has left the window is not known any more, so that an old copy can pass: the window is bounded by
    ``size`` sequences a producer and 1,024 producers, and those not heard of for
    longest go first. Not safe for use by several threads at once.

    Args:
        size: sequences to remember for each producer.
    """

    __slots__ = ("_producers", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._producers: OrderedDict[tuple[str, bytes], OrderedDict[int, Place]] = OrderedDict()

    def look(self, verified: Verified, place: Place) -> None:
        """Refuse a verified record whose sequence was seen elsewhere; remember nothing.

        Args:
            verified: whose record it is; one signer cannot use up another's sequences.
            place: where it stands: topic, partition and offset.

        Raises:
            SignatureError: the sequence was seen in another place, or in a place that is not known.
        """
        places = self._producers.get(verified.signer)
        before = None if places is None else places.get(verified.sequence)
        if before is not None and (before != place or place[2] is None):
            raise SignatureError(
                f"replayed: sequence {verified.sequence} of producer {verified.producer.hex()} was seen at "
                f"{position(*before)}"
            )

    def remember(self, verified: Verified, place: Place) -> None:
        """Remember a record that no step has refused.

        Raises:
            SignatureError: the sequence was seen elsewhere meanwhile.
        """
        self.look(verified, place)
        places = self._places(verified.signer)
        places[verified.sequence] = place
        if len(places) > self._size:
            places.popitem(last=False)

    def _places(self, producer: tuple[str, bytes]) -> OrderedDict[int, Place]:
        places = self._producers.get(producer)
        if places is None:
            places = self._producers[producer] = OrderedDict()
            if len(self._producers) > PRODUCERS_MAX:
                self._producers.popitem(last=False)
        else:
            self._producers.move_to_end(producer)
        return places
