"""The source framework as a data source of Spark: ``spark.readStream.format("headerware-source")``."""
