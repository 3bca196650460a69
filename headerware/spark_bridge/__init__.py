"""The chains over Spark DataFrames live here; nothing is written yet."""
