from headerware.ops.compaction.rules import LOST as LOST
from headerware.ops.compaction.rules import UNTOUCHED as UNTOUCHED
from headerware.ops.compaction.rules import Rule as Rule
from headerware.ops.compaction.worker import Compaction as Compaction
from headerware.ops.compaction.worker import Result as Result
from headerware.ops.compaction.worker import Translated as Translated
