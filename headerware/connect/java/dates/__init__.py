"""Java's SimpleDateFormat: patterns of dates, written and read."""
