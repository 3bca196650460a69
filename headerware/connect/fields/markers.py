"""Names of fields to create, with marks: ``id!`` is required, ``id?`` optional (KIP-66)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headerware.connect.errors import ConnectConfigError
from headerware.connect.fields.lists import split_escaped, unescaped
from headerware.connect.fields.schemas import altered
from headerware.connect.modes import STRICT

if TYPE_CHECKING:
    from headerware.connect.data.schema import Schema
    from headerware.connect.modes import Mode

_MARKS: Final = {"?": True, "!": False}


class NewField(NamedTuple):
    """Name a field that is created.

    Args:
        name: its name.
        optional: whether it may be null; None where no mark says so.
    """

    name: str
    optional: bool | None

    def marked(self, schema: Schema) -> Schema:
        """Return a schema that is as optional as the mark says."""
        if self.optional is None or self.optional == schema.optional:
            return schema
        return altered(schema, optional=self.optional)


def new_field(text: str, mode: Mode, path: str) -> NewField:
    r"""Read the name of a field to create.

    Args:
        text: the name, and perhaps a mark behind it. In the strict mode ``\!``, ``\?`` and ``\.`` are
            characters of the name; a dot alone is refused, for where a field is looked for it leads into a
            struct.
        mode: strict knows escapes and refuses an empty name.
        path: the configuration's key, for errors.

    Raises:
        ConnectConfigError: there is no name, or it has a dot or a backslash that is not escaped.
    """
    if mode != STRICT:
        return NewField(text[:-1], _MARKS[text[-1]]) if text.endswith(("?", "!")) else NewField(text, None)
    name, optional = split_mark(text, path)
    if len(split_escaped(name, ".")) > 1:
        raise ConnectConfigError(
            f"{name!r} is to be one field's name: write \\. for a dot in it; fields cannot be created in "
            "nested structs",
            path=path,
        )
    name = unescaped(name, path)
    if not name:
        raise ConnectConfigError("expected the name of a field, found none", path=path)
    return NewField(name, optional)


def split_mark(text: str, path: str) -> tuple[str, bool | None]:
    """Return a name or path, still with escapes, and whether its mark makes it optional; None without one.

    Raises:
        ConnectConfigError: the mark stands before the name, as in the draft of KIP-66.
    """
    if len(text) > 1 and text.startswith(("!", "?")):
        mark, rest = text[0], text[1:]
        raise ConnectConfigError(
            f"{text!r} begins with a mark, as in the draft of KIP-66; it stands behind the name: "
            f"'{rest}{mark}'. A name that begins with it is written '\\{text}'",
            path=path,
        )
    name = text[:-1]
    escaped = (len(name) - len(name.rstrip("\\"))) % 2 == 1
    return (name, _MARKS[text[-1]]) if text.endswith(("?", "!")) and not escaped else (text, None)
