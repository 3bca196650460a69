"""Key services, which wrap data keys, and the data keys of a session.

Configuration names a service: ``file``, ``aws_kms``, ``vault``, or a service of another package.
"""

from headerware.core.errors import (
    InvalidWrappedKeyError,
    KeyDeletedError,
    KeyDeniedError,
    KeyServiceError,
    KeyServiceUnavailableError,
    NoSuchKeyError,
    UnboundKeyError,
)
from headerware.keyring.services.aws_kms import AwsKms
from headerware.keyring.services.data_keys import DataKey, DataKeys
from headerware.keyring.services.file import FileKeys
from headerware.keyring.services.service import (
    KeyService,
    KeyServiceOptions,
    Wrapped,
    key_service_type,
    open_key_service,
)
from headerware.keyring.services.vault import Vault

__all__ = [
    "AwsKms",
    "DataKey",
    "DataKeys",
    "FileKeys",
    "InvalidWrappedKeyError",
    "KeyDeletedError",
    "KeyDeniedError",
    "KeyService",
    "KeyServiceError",
    "KeyServiceOptions",
    "KeyServiceUnavailableError",
    "NoSuchKeyError",
    "UnboundKeyError",
    "Vault",
    "Wrapped",
    "key_service_type",
    "open_key_service",
]
