"""Object stores, which keep large values outside of Kafka (spec/claim-check.md).

Configuration names a store: ``folder``, ``s3``, or a store of another package.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.core.errors import NoSuchObjectError, ObjectStoreError
from headerware.object_store.folder import FolderObjects
from headerware.object_store.s3 import S3Objects
from headerware.object_store.store import (
    Found,
    ObjectStore,
    ObjectStoreOptions,
    StoredObject,
    object_store_type,
    open_object_store,
)

__all__ = [
    "FolderObjects",
    "Found",
    "NoSuchObjectError",
    "ObjectStore",
    "ObjectStoreError",
    "ObjectStoreOptions",
    "S3Objects",
    "StoredObject",
    "object_store_type",
    "open_object_store",
]
