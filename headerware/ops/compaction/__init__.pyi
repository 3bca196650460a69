from headerware.ops.compaction.rules import LOST as LOST
from headerware.ops.compaction.rules import UNRESOLVED as UNRESOLVED
from headerware.ops.compaction.rules import Rule as Rule
from headerware.ops.compaction.worker import Compaction as Compaction
from headerware.ops.compaction.worker import CompactionResult as CompactionResult
from headerware.ops.compaction.worker import Translated as Translated
