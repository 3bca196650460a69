"""Files, objects, SQL tables and HTTP as frames of Spark: the format ``headerware-objects``."""
