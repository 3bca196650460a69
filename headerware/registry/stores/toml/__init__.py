"""The registry in a TOML file that suits a git repository and reviews."""

from headerware.registry.stores.toml.file import TomlStore

__all__ = ["TomlStore"]
