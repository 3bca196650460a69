"""What runs in Spark's Python workers: chains opened once a process, rows through them, slices glued."""
