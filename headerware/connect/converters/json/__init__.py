"""JSON in Connect's form: a payload, in an envelope with its schema if schemas are enabled."""
