"""Trained dictionaries: small records compress well with what they have in common (spec/dictionaries.md)."""

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
