"""Encryption of values and of fields in them, under data keys that a key service wraps."""

from headerware.interceptors.encrypt.fields import EncryptFields
from headerware.interceptors.encrypt.interceptor import Encrypt
from headerware.interceptors.encrypt.record_keys import new_key_secret, rewrapped_key_secret

__all__ = ["Encrypt", "EncryptFields", "new_key_secret", "rewrapped_key_secret"]
