"""The names by which encrypted values, headers and fields are recognised, without any cryptography."""

from __future__ import annotations

from typing import Final

ENCRYPT_HEADER: Final = "hw.encrypt"
BLOCK_HEADER: Final = "hw.secret"
"""The header that holds the secret headers of a record."""
FIELD_PREFIX: Final = "hw-encrypted:"
"""The beginning of the text of an encrypted field."""
