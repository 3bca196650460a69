"""The source framework: native objects in, Kafka records out, resumable (see docs/sources.md).

Each name is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import BadRecordError as BadRecordError
from headerware.core.errors import NotAStreamError as NotAStreamError
from headerware.core.errors import ObjectError as ObjectError
from headerware.core.errors import SourceError as SourceError
from headerware.core.errors import SourceUnavailableError as SourceUnavailableError
from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.sources.config import SourceConfig as SourceConfig
    from headerware.sources.conformance import ExtractorConformance as ExtractorConformance
    from headerware.sources.conformance import SourceConformance as SourceConformance
    from headerware.sources.engine.batches import Batch as Batch
    from headerware.sources.engine.task import SourceTask as SourceTask
    from headerware.sources.evolving import EvolvingRecord as EvolvingRecord
    from headerware.sources.extractor import Extracted as Extracted
    from headerware.sources.extractor import Extractor as Extractor
    from headerware.sources.extractor import Input as Input
    from headerware.sources.extractor import Split as Split
    from headerware.sources.keys import IntegerKeys as IntegerKeys
    from headerware.sources.keys import KeySerde as KeySerde
    from headerware.sources.keys import TextKeys as TextKeys
    from headerware.sources.offsets import MemoryOffsets as MemoryOffsets
    from headerware.sources.offsets import OffsetEntry as OffsetEntry
    from headerware.sources.offsets import OffsetKey as OffsetKey
    from headerware.sources.offsets import Offsets as Offsets
    from headerware.sources.source import UNKNOWN_LENGTH as UNKNOWN_LENGTH
    from headerware.sources.source import ItemContext as ItemContext
    from headerware.sources.source import NativeItem as NativeItem
    from headerware.sources.source import OpenSource as OpenSource
    from headerware.sources.source import Source as Source
    from headerware.sources.source import SourceContext as SourceContext
    from headerware.sources.source import open_source as open_source
    from headerware.sources.transformers import Transformer as Transformer
    from headerware.sources.transformers import Transformers as Transformers

_HOMES: Final = {
    "Batch": "engine.batches",
    "EvolvingRecord": "evolving",
    "Extracted": "extractor",
    "Extractor": "extractor",
    "ExtractorConformance": "conformance",
    "Input": "extractor",
    "IntegerKeys": "keys",
    "ItemContext": "source",
    "KeySerde": "keys",
    "MemoryOffsets": "offsets",
    "NativeItem": "source",
    "OffsetEntry": "offsets",
    "OffsetKey": "offsets",
    "Offsets": "offsets",
    "OpenSource": "source",
    "Source": "source",
    "SourceConfig": "config",
    "SourceConformance": "conformance",
    "SourceContext": "source",
    "SourceTask": "engine.task",
    "Split": "extractor",
    "TextKeys": "keys",
    "Transformer": "transformers",
    "Transformers": "transformers",
    "UNKNOWN_LENGTH": "source",
    "open_source": "source",
}
_ERRORS: Final = (BadRecordError, NotAStreamError, ObjectError, SourceError, SourceUnavailableError)
__all__ = sorted([*_HOMES, *(error.__name__ for error in _ERRORS)])  # noqa: PLE0605 - made of the table

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return [*__all__]
