"""Admission: who may write what, decided for each record by a policy file."""

from headerware.interceptors.admission.interceptor import Admission
from headerware.interceptors.admission.policy import Policy, PolicyFile, Quota, read_policy

__all__ = ["Admission", "Policy", "PolicyFile", "Quota", "read_policy"]
