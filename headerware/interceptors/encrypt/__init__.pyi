from headerware.interceptors.encrypt.fields import EncryptFields as EncryptFields
from headerware.interceptors.encrypt.interceptor import Encrypt as Encrypt
from headerware.interceptors.encrypt.record_keys import new_key_secret as new_key_secret
from headerware.interceptors.encrypt.record_keys import rewrapped_key_secret as rewrapped_key_secret
