"""Options of a type that configuration names by a word: an interceptor, a serde, a store, a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from headerware.core.suggestions import did_you_mean


class _Options(msgspec.StructMeta):
    """Explain how options are given if an option has no name, is unknown, or is missing."""

    if not TYPE_CHECKING:  # a type checker would take this for the signature of every type

        def __call__(cls, *unnamed: Any, **options: Any) -> Any:  # noqa: N805 - of a class
            known = cls.__struct_fields__
            if unnamed:
                common = _kind_of(cls).__struct_fields__
                own = [field for field in known if field not in common] or [*common]
                meant = ", ".join(f"{field}=..." for field in own[: len(unnamed)])
                raise TypeError(f"{cls.__name__} takes its options by name; write {cls.__name__}({meant})")
            for option in options:
                if option in cls.removed:
                    raise TypeError(f"{cls.__name__} no longer has {option!r}: {cls.removed[option]}")
                if option not in known:
                    it_has = f"it has: {', '.join(sorted(known)) or 'none'}"
                    hint = did_you_mean(option, known, then=it_has)
                    raise TypeError(f"{cls.__name__} has no option {option!r}{hint}")
            missing = [option for option in _required(cls) if option not in options]
            if missing:
                meant = ", ".join(f"{option}=..." for option in missing)
                raise TypeError(f"{cls.__name__} needs {', '.join(missing)}; write {cls.__name__}({meant})")
            return super().__call__(**options)


def _kind_of(cls: Any) -> Any:
    """Return the base of all types of one kind, such as all interceptors."""
    return cls.__mro__[cls.__mro__.index(TypedOptions) - 1]


def _required(cls: Any) -> list[str]:
    """Return the options without a default."""
    fields, defaults = cls.__struct_fields__, cls.__struct_defaults__
    first = len(fields) - len(defaults)
    return [*fields[:first]] + [
        field for field, default in zip(fields[first:], defaults, strict=True) if default is msgspec.NODEFAULT
    ]


class TypedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=_Options):
    """Hold the options of one type; a subclass adds its options as fields.

    Configuration has the word for the type, or a table of ``type`` and its options.
    """

    type: ClassVar[str] = ""
    """The word for it in configuration."""
    removed: ClassVar[dict[str, str]] = {}
    """The options of earlier versions, each with the advice that its error gives."""

    def __post_init__(self) -> None:
        """Check nothing; a subclass that checks its options calls this method of its base first."""

    def check_files(self) -> None:
        """Raise the error of a file that an option names and that is wrong; needs no network and no secret.

        A file that another machine may have instead, such as a keyring, may be missing.
        """


class SecretOptions(TypedOptions, frozen=True, kw_only=True):
    """Hold options that are never shown, because addresses and properties may hold passwords."""

    def __repr__(self) -> str:
        """Show no option."""
        return f"{type(self).__name__}(...)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show no option in rich's tracebacks either."""
        return []
