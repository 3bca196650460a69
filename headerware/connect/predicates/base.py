"""What a predicate is (KIP-585): it says whether a transform applies to a record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from headerware.connect.config import Configured


class Predicate(Configured, ABC):
    """Say yes or no to a record.

    A predicate of your own extends this, describes its keys in ``CONFIG``, and is named in configuration by
    an entry point of the group ``headerware.predicates``. It must be safe for use by several threads at once.

    Args:
        config: the values of its keys, without the prefix of an alias.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: a key is missing, not known, or has a value that it cannot have.
    """

    @abstractmethod
    def test(self, record: Any) -> bool:
        """Say whether it holds for a record.

        Args:
            record: a :class:`~headerware.connect.records.ConnectRecord`.
        """
