"""Configure the logging of Java programs.

``python -m headerware.testing.java`` prints the Java that is found, or says that none is new enough.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headerware.core.errors import MissingPartError
from headerware.core.java import find_java, java_version

if TYPE_CHECKING:
    from pathlib import Path

_LOGGING = """\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.target={target}
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c{{1}} %m%n
rootLogger.level={level}
rootLogger.appenderRef.out.ref=out
"""


def write_logging_file(folder: Path, *, target: str, level: str) -> str:
    """Write a log4j configuration, and return the Java option that names it.

    ``target`` is ``SYSTEM_OUT`` or ``SYSTEM_ERR``.
    """
    file = folder / "log4j2.properties"
    file.write_text(_LOGGING.format(target=target, level=level), encoding="utf-8")
    return f"-Dlog4j2.configurationFile={file}"


def main() -> int:
    """Print the Java that is found, or what is missing."""
    try:
        java = find_java()
    except MissingPartError as error:
        print(error, file=sys.stderr)  # noqa: T201 - this is a command
        return 1
    print(f"Java {java_version(java)}: {java}")  # noqa: T201 - this is a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
