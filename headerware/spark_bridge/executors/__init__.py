"""What runs in Spark's Python workers: chains opened once a process, and the tasks that take rows through."""
