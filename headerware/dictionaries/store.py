"""The interface of stores of dictionaries, and their options, which configuration names by a word."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from headerware.core.errors import PluginError
from headerware.core.plugins import Catalogue, has_methods
from headerware.core.shared import Shared
from headerware.core.typed_options import SecretOptions
from headerware.dictionaries.dictionary import Dictionary, Use, essence


class DictionaryStore(Protocol):
    """Keep dictionaries by id, and the uses: which dictionary each topic is written with.

    Safe for use by several threads at once.
    """

    @property
    def generation(self) -> Hashable:
        """A value that changes when anything in the store changes; it needs no request."""
        ...

    def read(self) -> None:
        """Read the present content of the store, within its timeout.

        Raises:
            DictionaryError: the store cannot be reached or read.
        """
        ...

    def start(self) -> None:
        """Read the store for the first time, and follow it from then on.

        Raises:
            DictionaryError: the store cannot be reached or read; it is tried again in the background.
        """
        ...

    def use(self, topic: str, content_type: str | None) -> Use | None:
        """Return the use of exactly this topic and content type as far as it is known here."""
        ...

    def known(self, dictionary_id: str) -> bytes | None:
        """Return a dictionary if it is known here; send no request."""
        ...

    def get(self, dictionary_id: str) -> bytes | None:
        """Return a dictionary, or None if the store answered and does not have it.

        Raises:
            DictionaryError: the store cannot be reached or read.
        """
        ...

    def uses(self) -> list[Use]:
        """Return all uses that are known here."""
        ...

    def ids(self) -> list[str]:
        """Return the ids of all dictionaries that are known here."""
        ...

    def put(self, dictionary: Dictionary) -> None:
        """Keep a dictionary, and return once readers can find it; an existing one is no error.

        Raises:
            DictionaryError: the store cannot be reached or written.
        """
        ...

    def assign(self, use: Use) -> None:
        """Replace a use, and return once writers can find the new one.

        Raises:
            DictionaryError: the store cannot be reached or written.
        """
        ...

    def close(self) -> None:
        """Release the store's resources; a second call does nothing."""
        ...


_METHODS: Final = [
    name for name, member in vars(DictionaryStore).items() if callable(member) and not name.startswith("_")
]


def is_store(found: object) -> bool:
    """Return whether an object has all that a :class:`DictionaryStore` has."""
    return has_methods(found, _METHODS) and hasattr(found, "generation")


class Dictionaries(SecretOptions, frozen=True, kw_only=True):
    """Hold the options of a store of dictionaries, and open it."""

    def open(self) -> Any:
        """Return the opened :class:`DictionaryStore`; each subclass implements this.

        Raises:
            PluginError: the subclass does not implement it.
        """
        raise PluginError(f"{type(self).__name__} is a store of dictionaries without open()")


dictionaries_type: Final[Catalogue[Dictionaries]] = Catalogue(
    "store of dictionaries",
    Dictionaries,
    {
        "folder": "headerware.dictionaries.folder:FolderDictionaries",
        "topic": "headerware.dictionaries.topic:TopicDictionaries",
    },
)
"""The stores of dictionaries, by word."""


def publish(
    store: DictionaryStore, dictionary: Dictionary, topic: str, content_type: str | None = None
) -> Use:
    """Keep a dictionary, and have a topic's values written with it from now on.

    Args:
        store: the store.
        dictionary: the dictionary.
        topic: the topic whose writers use it.
        content_type: the content type of the values; None for all values without a dictionary of their own.

    Returns:
        the use, with its new version.

    Raises:
        DictionaryError: the store cannot be reached or written, or the topic's name is not valid.
    """
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = Use.first(topic, content_type, dictionary.id, since)
    store.put(dictionary)
    before = store.use(topic, made.content_type)
    use = made if before is None else before.next(dictionary.id, since)
    if use != before:
        store.assign(use)
    return use


def use_for(store: DictionaryStore, topic: str, content_type: bytes | None) -> Use | None:
    """Return the use for records of a topic and content type: of the content type, else of the topic."""
    own = None if content_type is None else store.use(topic, essence(content_type))
    return own or store.use(topic, None)


def open_shared(store: Dictionaries | DictionaryStore) -> SharedStore:
    """Open a store, or share it if a store with equal options is open in this process."""
    return SharedStore(store)


class SharedStore:
    """A reference to a store that sessions share; a store that the caller has opened is not closed."""

    def __init__(self, settings: Dictionaries | DictionaryStore) -> None:
        self._owned = isinstance(settings, Dictionaries)
        self.store: Final[DictionaryStore] = (
            _stores.acquire(settings, settings.open) if isinstance(settings, Dictionaries) else settings
        )

    def close(self) -> None:
        """Release the reference; the store is closed with the last one."""
        owned, self._owned = self._owned, False
        if owned and _stores.release(self.store):
            self.store.close()


_stores: Final[Shared[DictionaryStore]] = Shared(lambda ours, theirs: bool(ours == theirs))
