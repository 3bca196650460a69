"""The options that ``encrypt`` and ``encrypt_fields`` share, and which of them are printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec

from headerware.core.errors import ConfigError
from headerware.core.hooks import Interceptor, Role
from headerware.core.options import from_option, kinds
from headerware.core.origins import Origins
from headerware.core.printable import HIDDEN, names_only_variables
from headerware.core.requirement import Require, requirement
from headerware.interceptors.encrypt.subject import SubjectOf
from headerware.keyring import key_id_problem
from headerware.keyring.services import KeyServiceOptions, key_service_type
from headerware.keyring.services.data_keys import CACHE_ENTRIES
from headerware.keyring.subjects.topic import SubjectTopic, subject_keys_type


class EncryptionOptions(Interceptor, frozen=True, kw_only=True):
    """The options of all interceptors that encrypt."""

    written_as: ClassVar[Mapping[str, str]] = {
        "keyring": 'write key_service = { type = "file", keyring = "keys.json" }'
    }
    """Hints for options that other interceptors have."""
    role: ClassVar[Role] = Role.PROTECT
    hides: ClassVar[bool] = True
    blocks: ClassVar[bool] = True
    names_cluster: ClassVar[bool] = True

    key_service: Annotated[Any, kinds(key_service_type)]
    key_id: str | None = None
    key_ids: tuple[str, ...] = ()
    require: Require = "enforce"
    cluster: Annotated[str, msgspec.Meta(min_length=1, max_length=255)] | None = None
    accept_origins: tuple[str, ...] = ()
    data_key_max_age_ms: Annotated[int, msgspec.Meta(ge=1)] = 3_600_000
    data_key_max_uses: Annotated[int, msgspec.Meta(ge=1)] = 1 << 30
    data_key_max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 1 << 40
    data_key_cache_ms: Annotated[int, msgspec.Meta(ge=1)] = 7_200_000
    data_key_cache_entries: Annotated[int, msgspec.Meta(ge=2)] = CACHE_ENTRIES
    key_service_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 5_000
    key_of: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    subject_keys: Annotated[Any, kinds(subject_keys_type)] = None

    def __post_init__(self) -> None:
        """Normalize the options, and refuse options that are not valid."""
        msgspec.structs.force_setattr(self, "require", requirement(self.require))
        # Code may also give the name of a service, or a table, which may hold secrets: replace it by options,
        # which show none.
        if isinstance(self.key_service, str | Mapping):
            service = from_option(self.key_service, key_service_type, path="key_service")
            msgspec.structs.force_setattr(self, "key_service", service)
        if isinstance(self.subject_keys, str | Mapping):
            store = from_option(self.subject_keys, subject_keys_type, path="subject_keys")
            msgspec.structs.force_setattr(self, "subject_keys", store)
        if self.subject_keys is not None and not isinstance(self.subject_keys, SubjectTopic):
            raise ConfigError(
                f"expected the topic of subjects' keys, found {type(self.subject_keys).__name__}",
                path="subject_keys",
            )
        if self.key_of is not None:
            if self.subject_keys is None:
                raise ConfigError(
                    'expected where the keys of subjects are kept, such as subject_keys = { type = "topic", '
                    'topic = "customer-keys" }; found none',
                    path="subject_keys",
                )
            SubjectOf(self.key_of)
        for path, key_id in (("key_id", self.key_id), *(("key_ids", each) for each in self.key_ids)):
            if key_id is not None and (problem := key_id_problem(key_id)):
                raise ConfigError(problem, path=path)
        if not self.accepted_ids:
            raise ConfigError(
                "expected the key_id to encrypt with, or the key_ids that records may name; found neither",
                path="key_id",
            )
        Origins(self.accept_origins)

    @property
    def caution(self) -> str | None:
        """That all records have one subject, if they have."""
        return _ONE_SUBJECT if self.key_of is not None and SubjectOf(self.key_of).is_constant else None

    def shown(self, option: str, written: Any) -> Any:
        """Return an option as it may be printed; of nested options only the ``printable`` ones are shown."""
        if option not in {"key_service", "subject_keys"} or not isinstance(written, Mapping):
            return written
        nested = getattr(self, option)
        printable = ("type", *(nested.printable if isinstance(nested, _WithPrintable) else ()))
        return {
            name: value if name in printable or _names_a_variable(value) else HIDDEN
            for name, value in written.items()
        }

    @property
    def accepted_ids(self) -> frozenset[str]:
        """The key-encryption keys that records may name."""
        return frozenset((*self.key_ids, *(() if self.key_id is None else (self.key_id,))))


_ONE_SUBJECT: Final = (
    "key_of reads nothing of a record, so all records have one subject, and its erasure erases them all; for "
    "a header write header:NAME"
)
_WithPrintable: Final = (KeyServiceOptions, SubjectTopic)


def _names_a_variable(value: object) -> bool:
    return isinstance(value, str) and names_only_variables(value)
