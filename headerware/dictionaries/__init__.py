"""Trained dictionaries, with which small records that resemble each other compress well.

The formats are in spec/dictionaries.md.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.dictionaries.dictionary import Dictionary, Use, Version
from headerware.dictionaries.folder import FolderDictionaries
from headerware.dictionaries.store import Dictionaries, DictionaryStore, dictionaries_type
from headerware.dictionaries.topic import TopicDictionaries

__all__ = [
    "Dictionaries",
    "Dictionary",
    "DictionaryStore",
    "FolderDictionaries",
    "TopicDictionaries",
    "Use",
    "Version",
    "dictionaries_type",
]
