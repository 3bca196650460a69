r"""PatternRename: rename fields by a regular expression.

transforms=rename
transforms.rename.type=PatternRename$Value
transforms.rename.field.pattern=^old_(\w+)$
transforms.rename.field.replacement=new_$1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headerware.connect.config import NOT_EMPTY_TEXT, ConfigDef, ConfigKey, StrictConfig
from headerware.connect.errors import ArgumentError, ConnectConfigError
from headerware.connect.java.regex import java_pattern, replacement
from headerware.connect.transforms.renaming import NESTED, Rename

if TYPE_CHECKING:
    from collections.abc import Callable

_FLAGS = {"CASE_INSENSITIVE": "i", "COMMENTS": "x", "DOTALL": "s", "MULTILINE": "m"}
_LITERAL = "LITERAL"


class PatternRename(Rename):
    """Rename fields: replace all matches of a regular expression in their names.

    The expression and the replacement are Java's: ``$1`` and ``${name}`` are groups. Letters match in either
    case, unless ``field.pattern.flags`` is empty. Two fields that would have one name are refused.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(
        ConfigKey(
            name="field.pattern",
            type="STRING",
            importance="HIGH",
            check=NOT_EMPTY_TEXT,
            doc="The regular expression.",
        ),
        ConfigKey(
            name="field.replacement", type="STRING", importance="HIGH", doc="The replacement of each match."
        ),
        ConfigKey(
            name="field.pattern.flags",
            type="LIST",
            default=["CASE_INSENSITIVE"],
            importance="LOW",
            doc=f"The expression's flags: any of {', '.join((*_FLAGS, _LITERAL))}.",
        ),
        NESTED,
    )

    def renaming(self) -> Callable[[str], str]:
        """Return the function that replaces the matches in a name.

        Raises:
            ConnectConfigError: the expression, its flags or its replacement cannot be used.
        """
        flags: list[str] = self.options["field.pattern.flags"]
        if unknown := [flag for flag in flags if flag not in {*_FLAGS, _LITERAL}]:
            known = ", ".join((*_FLAGS, _LITERAL))
            raise ConnectConfigError(
                f"there is no flag {unknown[0]!r}; there are: {known}", path="field.pattern.flags"
            )
        text: str = self.options["field.pattern"]
        if _LITERAL in flags:
            text = "\\Q" + text.replace("\\E", "\\E\\\\E\\Q") + "\\E"
        letters = "".join(_FLAGS[flag] for flag in flags if flag != _LITERAL)
        pattern = java_pattern(f"(?{letters}){text}" if letters else text, path="field.pattern")
        try:
            replace = replacement(pattern, self.options["field.replacement"])
        except ArgumentError as error:
            raise ConnectConfigError(str(error), path="field.replacement") from error
        return lambda name: pattern.sub(replace, name)
