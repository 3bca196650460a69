"""The code that runs in Spark's Python workers: chains, opened once a process, and tasks over rows."""
