"""Hand the interceptors, their headers and the registry to the core, which imports none of them itself.

The package imports this module first, so that the core is complete wherever it is used.
"""

from __future__ import annotations

from headerware.core.boundary import use_own_headers
from headerware.core.config import use_connector_lines
from headerware.core.header_ids import use_names
from headerware.core.plugins import interceptor_type
from headerware.interceptors import built_in, connector_lines


def _registered_name(header_id: int) -> str | None:
    from headerware.registry.names import default_name_of  # noqa: PLC0415 - few chains use ids, and the import takes long

    return default_name_of(header_id)


interceptor_type.add(built_in.INTERCEPTORS)
interceptor_type.group = built_in.GROUP
interceptor_type.renamed = built_in.RENAMED
use_own_headers(built_in.HEADERS)
use_connector_lines(connector_lines.is_connector_line, connector_lines.connector_source)
use_names(_registered_name)
