"""Admission: a policy file decides for each record whether its signer may write it."""

from headerware.interceptors.admission.interceptor import Admission
from headerware.interceptors.admission.policy import Policy, PolicyFile, Quota, read_policy

__all__ = ["Admission", "Policy", "PolicyFile", "Quota", "read_policy"]
