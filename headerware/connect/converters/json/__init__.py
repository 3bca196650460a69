"""JSON in Connect's form: a payload, in an envelope with its schema where schemas are enabled."""
