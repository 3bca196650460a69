"""Object stores, which keep large values beside Kafka (spec/claim-check.md).

Stores are named by configuration: ``folder``, ``s3``, and those of other packages.
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
