from headerware.ops.doctor.examination import examine as examine
from headerware.ops.doctor.finding import ABSENT as ABSENT
from headerware.ops.doctor.finding import Finding as Finding
from headerware.ops.doctor.finding import Side as Side
from headerware.ops.doctor.services import key_services as key_services
from headerware.ops.doctor.services import object_stores as object_stores
