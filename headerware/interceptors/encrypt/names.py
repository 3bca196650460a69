"""The names by which encrypted values and fields are recognised; readers need no cryptography for them."""

from __future__ import annotations

from typing import Final

ENCRYPT_HEADER: Final = "hw.encrypt"
FIELD_PREFIX: Final = "hw-encrypted:"
"""The beginning of the text of an encrypted field."""
