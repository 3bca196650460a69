"""ChangeCase: rename fields from one convention of writing to another.

transforms=case
transforms.case.type=ChangeCase$Value
transforms.case.from=LOWER_CAMEL
transforms.case.to=LOWER_UNDERSCORE
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from headerware.connect.config import ConfigDef, ConfigKey, StrictConfig, one_of
from headerware.connect.transforms.renaming import NESTED, Rename

if TYPE_CHECKING:
    from collections.abc import Callable


class _Case(NamedTuple):
    """A convention: the boundaries of words, the text between them, and the case of the words."""

    part: re.Pattern[str]
    between: str
    first: Callable[[str], str]
    others: Callable[[str], str]


def _capitalized(word: str) -> str:
    return word[:1].upper() + word[1:].lower()


_CAPITAL: Final = re.compile(r"(?<!\A)(?=[A-Z])")
_HYPHEN: Final = re.compile(r"-")
_UNDERSCORE: Final = re.compile(r"_")
_CASES: Final = {
    "LOWER_CAMEL": _Case(_CAPITAL, "", str.lower, _capitalized),
    "LOWER_HYPHEN": _Case(_HYPHEN, "-", str.lower, str.lower),
    "LOWER_UNDERSCORE": _Case(_UNDERSCORE, "_", str.lower, str.lower),
    "UPPER_CAMEL": _Case(_CAPITAL, "", _capitalized, _capitalized),
    "UPPER_UNDERSCORE": _Case(_UNDERSCORE, "_", str.upper, str.upper),
}
"""The conventions, by the names of Guava's CaseFormat."""


class ChangeCase(Rename):
    """Rename fields from one convention to another: ``userId`` to ``user_id`` and the like.

    In the camel conventions each capital letter begins a word, so ``userID`` is ``user_i_d``. Two fields that
    would have one name are refused.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(
        ConfigKey(
            name="from",
            type="STRING",
            importance="HIGH",
            check=one_of(*_CASES),
            doc="The convention of the fields' names.",
        ),
        ConfigKey(
            name="to",
            type="STRING",
            importance="HIGH",
            check=one_of(*_CASES),
            doc="The convention of the new names.",
        ),
        NESTED,
    )

    def renaming(self) -> Callable[[str], str]:
        """Return the function that writes a name in the other convention."""
        source, target = _CASES[self.options["from"]], _CASES[self.options["to"]]
        if source is target:
            return lambda name: name

        def rename(name: str) -> str:
            first, *others = source.part.split(name)
            return target.between.join((target.first(first), *map(target.others, others)))

        return rename
