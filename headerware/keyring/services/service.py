"""The interface of key services: they wrap data keys under key-encryption keys that only they hold.

A service's options are a :class:`KeyServiceOptions`. Configuration names a service by its type, as in the
table ``{type = "vault", url = ...}``. Other packages add services by entry points of the group
``headerware.key_services``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from headerware.core.errors import KeyDeletedError, PluginError
from headerware.core.options import from_option
from headerware.core.plugins import Catalogue, has_methods, require_arguments
from headerware.core.typed_options import SecretOptions

if TYPE_CHECKING:
    from collections.abc import Collection

    from headerware.core.context import Context


class Wrapped(NamedTuple):
    """A data key as a key service wrapped it."""

    wrapped: bytes
    """The bytes for :meth:`KeyService.unwrap`; unwrapping needs no other state of the service."""
    version: str = ""
    """The version of the key-encryption key, if the service states it; for people and counters."""


class KeyService(Protocol):
    """Wrap data keys under key-encryption keys that it holds.

    Safe for use by several threads at once, and in a forked child, too. Calls may wait for a network; the
    service limits this time. No error quotes key material. A service whose calls are fast and free may set
    the attribute ``is_local = True``: it is then called in the caller's thread, and failed calls are not
    limited.
    """

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        """Wrap a data key.

        Args:
            key_id: the key-encryption key, as configuration names it.
            data_key: the data key, 16 to 64 bytes.
            context: 1 to 1,024 bytes that are authenticated; :meth:`unwrap` needs the same bytes.

        Raises:
            KeyServiceUnavailableError: the service did not answer in time, or failed.
            KeyDeniedError: a policy forbids it.
            NoSuchKeyError: there is no such key-encryption key.
            KeyDeletedError: it is deleted or disabled.
        """
        ...

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        """Return a data key that was wrapped under a key-encryption key for a context.

        Raises:
            InvalidWrappedKeyError: the key was wrapped under another key, for another context, or was
                changed.
            KeyServiceUnavailableError: the service did not answer in time, or failed.
            KeyDeniedError: a policy forbids it.
            NoSuchKeyError: there is no such key-encryption key, or it does not have this version yet.
            KeyDeletedError: it is deleted or disabled.
        """
        ...

    def close(self) -> None:
        """Release the service's resources; a second call does nothing."""
        ...


class KeyServiceOptions(SecretOptions, frozen=True, kw_only=True):
    """Hold the options of a key service, and open the service; a subclass adds its options as fields."""

    printable: ClassVar[tuple[str, ...]] = ()
    """The options that ``headerware explain`` may print; all other options may be secrets, and are hidden."""

    def open(self, context: Context) -> KeyService:  # noqa: ARG002 - for subclasses
        """Return the opened service; each subclass implements this.

        Args:
            context: the surroundings of the session, such as its clock.

        Raises:
            PluginError: the subclass does not implement it.
        """
        raise PluginError(f"{type(self).__name__} is a key service without open()")


class _KeyServiceCatalogue(Catalogue[KeyServiceOptions]):
    """Know that the path of a keyring is no word for a service."""

    def unknown(self, word: str, *, path: str = "") -> PluginError:
        found = super().unknown(word, path=path)
        if not word.endswith(".json") and os.sep not in word:
            return found
        return PluginError(
            f'{found.message}; for a keyring, write {{ type = "file", keyring = "{word}" }}', path=path
        )


key_service_type: Final[Catalogue[KeyServiceOptions]] = _KeyServiceCatalogue(
    "key service type",
    KeyServiceOptions,
    {
        "aws_kms": "headerware.keyring.services.aws_kms:AwsKms",
        "file": "headerware.keyring.services.file:FileKeys",
        "vault": "headerware.keyring.services.vault:Vault",
    },
    "headerware.key_services",
)
"""The key services by type; other packages add theirs by entry points of ``headerware.key_services``."""


def require_undeleted(key_id: str, deleted: Collection[str]) -> None:
    """Raise KeyDeletedError for a key that ``deleted_keys`` lists; the service no longer knows the key."""
    if key_id in deleted:
        raise KeyDeletedError(f"key {key_id!r} is deleted: the option deleted_keys lists it")


_CALLED: Final = {
    "wrap": ("key_id", "data_key", "context"),
    "unwrap": ("key_id", "wrapped", "context"),
    "close": (),
}


def open_key_service(options: Any, context: Context, *, path: str = "service") -> KeyService:
    """Open the key service that an option names.

    Args:
        options: a :class:`KeyServiceOptions`; or, from configuration, the type of a service or a table of
            ``type`` and its options; or an object with the methods of :class:`KeyService`, which is returned
            unchanged.
        context: the surroundings of the session.
        path: the option's path, for errors.

    Raises:
        ConfigError: an option has an invalid value, or there is no such service.
        KeyringError: the service cannot be used.
    """
    found = from_option(options, key_service_type, path=path)
    service = found.open(context) if isinstance(found, KeyServiceOptions) else found
    if not has_methods(service, _CALLED):
        shown = service.__name__ if isinstance(service, type) else type(service).__name__
        raise PluginError(
            f"expected a key service, an object with wrap, unwrap and close, found {shown}", path=path
        )
    require_arguments(service, _CALLED, path=path)
    return service
