"""Wrap data keys under the keys of subjects: the key service of an encryption with ``key_of``."""

from __future__ import annotations

import os
import re
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import ConfigError, InvalidWrappedKeyError, KeyServiceError, RegistryError
from headerware.keyring.services.data_keys import DataKeys
from headerware.keyring.services.service import Wrapped
from headerware.keyring.subjects.rows import name_in, unwrap_data_key, wrap_data_key
from headerware.keyring.subjects.topic import SubjectKeys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.keyring.services.service import KeyService
    from headerware.keyring.subjects.topic import SubjectTopic

_OF_SUBJECT: Final = re.compile(rb"(?s)(.+)\0([0-9a-f]{32})\Z")
"""The context of a data key that encrypts for a subject; no topic's name has a zero character."""


class SubjectKeyService:
    """Wrap data keys under the keys of their subjects, and others under the key-encryption key itself.

    The topic of subjects' keys is opened when it is first needed, and again in a forked child. Records that
    were written before, under the key-encryption key itself, are still read.

    Args:
        options: the topic.
        service: the key service that wraps the topic's secrets; it is closed with this object.
        key_id: the key-encryption key of new secrets; None makes none.
        key_ids: the key-encryption keys under which secrets may be wrapped.
        servers: the client's brokers, or None.
        timeout_ms: how long to wait for the key service, and for the topic, in milliseconds.
        limits: further arguments of :class:`DataKeys` for the secrets, such as their age in the cache.
    """

    def __init__(
        self,
        options: SubjectTopic,
        service: KeyService,
        *,
        key_id: str | None,
        key_ids: frozenset[str],
        servers: str | None,
        timeout_ms: int,
        **limits: Any,
    ) -> None:
        self._options: Final = options
        self._service: Final = service
        self._key_id: Final = key_id
        self._key_ids: Final = key_ids
        self._servers: Final = servers
        self._timeout_ms: Final = timeout_ms
        self._limits: Final = limits
        self._is_local: Final = bool(getattr(service, "is_local", False))
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._opening = Lock()
        self._keys: SubjectKeys | None = None
        self._closed = False

    @property
    def keys(self) -> SubjectKeys:
        """The keys of subjects, opened.

        Raises:
            KeyServiceError: no brokers are known, or the topic's file or the properties cannot be used.
        """
        if os.getpid() != self._pid:
            self._begin()  # the parent's threads and connections are not here
        keys = self._keys
        if keys is not None:
            return keys
        with self._opening:
            if self._closed:
                raise KeyServiceError("the keys of subjects are closed")
            if self._keys is None:
                try:
                    table = self._options.acquire(self._servers)
                except (ConfigError, RegistryError) as error:
                    raise KeyServiceError(f"the keys of subjects cannot be opened: {error}") from error
                secrets = DataKeys(
                    _Borrowed(self._service),
                    key_ids=self._key_ids,
                    timeout_ms=self._timeout_ms,
                    cache_entries=64,
                    **self._limits,
                )
                self._keys = SubjectKeys(
                    table, secrets, key_id=self._key_id, timeout_s=self._timeout_ms / 1000
                )
            return self._keys

    def scope(self, scope: str, subject: str) -> str:
        """Return the scope of a data key that encrypts for a subject.

        Raises:
            KeyServiceError: the topic or the key service cannot be used now.
        """
        return f"{scope}\0{self.keys.pseudonym(subject).hex()}"

    def prepare(self, scopes: Iterable[str]) -> None:
        """Give keys to the subjects of scopes that have none, with one wait for all.

        Raises:
            KeyServiceError: the topic or the key service cannot be used now.
        """
        self.keys.prepare([bytes.fromhex(scope.rpartition("\0")[2]) for scope in scopes])

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        """Wrap under the key of the subject that the context names; see :class:`KeyService`."""
        found = _OF_SUBJECT.fullmatch(context)
        if found is None:
            return self._service.wrap(key_id, data_key, context)
        name, key = self.keys.to_send(bytes.fromhex(found[2].decode()))
        return Wrapped(wrap_data_key(key, data_key, name, found[1]))

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        """Unwrap under the subject's key that the wrapped key names; see :class:`KeyService`."""
        name = name_in(wrapped)
        if name is None:
            return self._service.unwrap(key_id, wrapped, context)
        return unwrap_data_key(self.keys.to_read(name), wrapped, context)

    @property
    def epoch(self) -> int:
        """A number that changes when a key becomes invalid; -1 if that is not known now."""
        keys = self._keys
        return -1 if keys is None or os.getpid() != self._pid else keys.epoch

    def is_valid(self, wrapped: bytes) -> bool:
        """Return whether a data key that is remembered may still be used."""
        try:
            name = name_in(wrapped)
            return name is None or self.keys.has(name)
        except KeyServiceError:  # whoever then asks for the key gets the error
            return False

    def is_at_hand(self, scope: str, wrapped: bytes | None) -> bool:
        """Return whether a call would be answered at once, without waiting for a network."""
        try:
            if wrapped is not None:
                name = name_in(wrapped)
                return self._is_local if name is None else self.keys.is_at_hand(*name)
            found = _OF_SUBJECT.fullmatch(scope.encode())
            if found is None:
                return self._is_local
            return self.keys.is_at_hand(bytes.fromhex(found[2].decode()), None)
        except InvalidWrappedKeyError:
            return True
        except KeyServiceError:
            return False

    def close(self) -> None:
        """Release the topic, and close the key service; a second call does nothing."""
        if os.getpid() != self._pid:
            self._begin()
        with self._opening:
            keys, self._keys, closed, self._closed = self._keys, None, self._closed, True
        if keys is not None:
            keys.close()
        if not closed:
            self._service.close()


class _Borrowed:
    """A key service that another object closes."""

    def __init__(self, service: KeyService) -> None:
        self.wrap: Final = service.wrap
        self.unwrap: Final = service.unwrap
        self.is_local: Final = bool(getattr(service, "is_local", False))

    def close(self) -> None:
        """Do nothing."""
