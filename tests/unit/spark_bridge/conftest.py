"""The bridge's tests need pyspark, which is not there where only the extra ``test`` is installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pyspark") else ["*"]
