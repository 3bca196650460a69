from headerware.spark_bridge.chargeback.audited import audit_counts as audit_counts
from headerware.spark_bridge.chargeback.counting import usage as usage
from headerware.spark_bridge.chargeback.counting import usage_rows as usage_rows
from headerware.spark_bridge.chargeback.stored import snapshot as snapshot
from headerware.spark_bridge.chargeback.stored import stored_offsets as stored_offsets
from headerware.spark_bridge.chargeback.stored import stored_usage as stored_usage
from headerware.spark_bridge.chargeback.stored import usage_sink as usage_sink
