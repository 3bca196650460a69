"""The base class of predicates, which say whether a transform applies to a record (KIP-585)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from headerware.connect.config import Configured


class Predicate(Configured, ABC):
    """Decide whether a transform applies to a record.

    A predicate of your own extends this class, describes its keys in ``CONFIG``, and has an entry point in
    the group ``headerware.predicates``. It must be safe for use by several threads at once.

    Args:
        config: the values of its keys, without the prefix of the alias.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: a key is missing or unknown, or its value is not valid.
    """

    @abstractmethod
    def test(self, record: Any) -> bool:
        """Return whether the predicate holds for a record.

        Args:
            record: a :class:`~headerware.connect.records.ConnectRecord`.
        """
