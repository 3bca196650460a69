"""The jars of Spark's Kafka connector: from a folder, or by Spark's own resolver before the session starts.

The connector does not come with pyspark. If a session cannot resolve it, its JVM dies. So it is resolved here
first, once, by the spark-submit that would start the session, with all its settings.
"""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headerware.core.atomic_files import locked
from headerware.core.errors import MissingPartError

if TYPE_CHECKING:
    from collections.abc import Mapping


CONNECTOR: Final = "spark-sql-kafka-0-10"
JARS_FOLDER: Final = "HEADERWARE_SPARK_JARS"
_SCALA = "2.13"  # the only one that Spark 4 is built for
# The jars that the connector needs besides those that come with Spark.
_NEEDED = (
    f"{CONNECTOR}_{_SCALA}",
    f"spark-token-provider-kafka-0-10_{_SCALA}",
    "kafka-clients",
    "commons-pool2",
)
# A main class that every Spark has; it prints a line and needs no cluster, and runs once all is resolved.
_PRINTS_AND_ENDS = "org.apache.hadoop.util.VersionInfo"
# A repository's address may have a user and a password.
_CREDENTIALS = re.compile(r"//[^/\s@]+@")
_RESOLVE_SECONDS = 600
# The resolver's settings: where to look, and Java's proxies.
_RESOLVING = ("spark.jars", "spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
_TAIL_LINES = 12
_TESTED = "4.0.0"  # the pyspark of the extra dev
_RELEASE = re.compile(r"\d+(\.\d+)*")
_DEPENDENCY = re.compile(r'<dependency org="([^"]+)" name="([^"]+)" rev="([^"]+)"')
# Ivy names the address of each request that failed, except for an answer that there is no such file.
_TRIED, _FAILED = re.compile(r"^\s*(https?://\S+\.pom)$", re.MULTILINE), re.compile(r"url[= ](\S+)")


def package(version: str) -> str:
    """Return the connector's Maven coordinates for a version of Spark."""
    return f"org.apache.spark:{CONNECTOR}_{_SCALA}:{version}"


def advice(version: str) -> str:
    """Return the advice for a missing connector."""
    return (
        f"Either let Spark reach Maven Central or a mirror of it (spark.jars.ivySettings, "
        f"spark.jars.repositories), or name a folder with the jars of {', '.join(_NEEDED)}: "
        f"configure(builder, jars=folder) or {JARS_FOLDER}; "
        f"with spark-submit, give it --packages {package(version)} or --jars."
    )


def jars_in(folder: Path, version: str) -> list[Path]:
    """Return the jars that the connector needs, from a folder with the names of Maven or Ivy."""
    found = {name: sorted(folder.glob(f"*{name}-[0-9]*.jar")) for name in _NEEDED}
    problems = [
        f"{len(jars)} of {name}" if jars else f"no {name}" for name, jars in found.items() if len(jars) != 1
    ]
    jars = [jar for jars in found.values() for jar in jars]
    if not problems and _series(jars[0].stem.rpartition("-")[2]) != _series(version):
        problems = [jars[0].name]
    if problems:
        message = (
            f"expected one jar each of {', '.join(_NEEDED)} for Spark {version} in {folder}; "
            f"found {', '.join(problems)}. {advice(version)}"
        )
        raise MissingPartError(message)
    return [jar.resolve() for jar in jars]


def comes_with_spark(spark_home: Path) -> bool:
    """Return whether this Spark's own jars include the connector, as in some distributions."""
    return any((spark_home / "jars").glob(f"*{CONNECTOR}_{_SCALA}-[0-9]*.jar"))


def resolve(settings: Mapping[str, str], version: str, spark_home: Path) -> None:
    """Let Spark resolve ``spark.jars.packages``, unless its cache has them.

    One process does so at a time: Ivy's downloads of two into one cache fail.
    """
    wanted = settings["spark.jars.packages"].split(",")
    folder = _ivy_folder(settings)
    if all(_is_cached(coordinates, folder) for coordinates in wanted):
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / ".headerware.lock"))
        except OSError as error:
            raise MissingPartError(
                f"Spark's Ivy cache {folder} cannot be written ({error.strerror}); name another folder "
                f"(spark.jars.ivy). {advice(version)}"
            ) from error
        if all(_is_cached(coordinates, folder) for coordinates in wanted):
            return
        output = _run_resolver(settings, spark_home)
    if not output:
        return
    if package(version) in wanted and (hosts := _hosts_without_it(output, version)):
        message = (
            f"{', '.join(hosts)} answered, but does not have {package(version)}: the connector of pyspark "
            f"{version} is not published there; install {_with_connector(settings, spark_home)}, or name "
            "another repository (spark.jars.repositories)"
        )
        raise MissingPartError(message)
    said = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("\tat ")]
    message = (
        f"Spark cannot resolve {', '.join(wanted)}; tried its Ivy cache ({folder}) "
        f"and its repositories: {said[0]}\n  " + "\n  ".join(said[1:][-_TAIL_LINES:]) + f"\n{advice(version)}"
    )
    raise MissingPartError(message)


def _with_connector(settings: Mapping[str, str], spark_home: Path) -> str:
    """Return the newest pyspark whose connector can be had: the resolver finds it, or the cache has it."""
    _run_resolver({**settings, "spark.jars.packages": package("4.+")}, spark_home)
    files = (_ivy_folder(settings) / "cache" / "org.apache.spark" / _NEEDED[0]).glob("ivy-4.*.xml")
    versions = [file.stem.removeprefix("ivy-") for file in files]
    # Not a preview, which has another name as a package of Python.
    usable = [each for each in versions if _RELEASE.fullmatch(each) and cached_jars(each, settings)]
    if not usable:
        return f"the pyspark of Headerware's tests: pip install 'pyspark=={_TESTED}'"
    return f"a pyspark whose connector is: pip install 'pyspark=={max(usable, key=version_numbers)}'"


def cached_jars(version: str, settings: Mapping[str, str]) -> list[Path]:
    """Return the connector's jars in Ivy's cache, or none if one is missing.

    A session that gets the jars themselves starts sooner than one that resolves the package again, and
    without Ivy's report of 40 lines.
    """
    cache = _ivy_folder(settings) / "cache"
    resolved = cache / "org.apache.spark" / _NEEDED[0] / f"ivy-{version}.xml"
    found = _DEPENDENCY.findall(resolved.read_text(encoding="utf-8")) if resolved.is_file() else []
    parts = [("org.apache.spark", _NEEDED[0], version), *(part for part in found if part[1] in _NEEDED)]
    jars = [cache / group / name / "jars" / f"{name}-{number}.jar" for group, name, number in parts]
    return jars if len(jars) == len(_NEEDED) and all(jar.is_file() for jar in jars) else []


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (4, 1, 0) for ``4.1.0.dev2``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _series(version: str) -> tuple[int, ...]:
    return version_numbers(version)[:2]


def _is_cached(coordinates: str, ivy: Path) -> bool:
    """Return whether Ivy resolved a package before: its jar is in the cache and in the folder of jars."""
    group, _, rest = coordinates.partition(":")
    name, _, version = rest.partition(":")
    handed_out = ivy / "jars" / f"{group}_{name}-{version}.jar"
    cached = ivy / "cache" / group / name / "jars" / f"{name}-{version}.jar"
    return handed_out.is_file() and cached.is_file()


def _ivy_folder(settings: Mapping[str, str]) -> Path:
    return Path(settings.get("spark.jars.ivy") or "~/.ivy2.5.2").expanduser()


def _hosts_without_it(output: str, version: str) -> list[str]:
    """Return the repositories that answered the resolver that they do not have the connector."""
    if f"{_NEEDED[0]};{version}: not found" not in output:
        return []
    failed = set(_FAILED.findall(output))
    tried = [url for url in _TRIED.findall(output) if f"/{_NEEDED[0]}/{version}/" in url]
    return [urlsplit(url).netloc for url in dict.fromkeys(tried) if url not in failed]


def _run_resolver(settings: Mapping[str, str], spark_home: Path) -> str:
    """Run Spark's resolver; return an empty text on success, else the problem and the output."""
    confs = [part for key in settings if key.startswith(_RESOLVING) for part in _conf(key, settings[key])]
    command = [str(spark_home / "bin" / "spark-submit"), *confs, "--master", "local[1]"]
    try:
        done = subprocess.run(  # noqa: S603 - the Spark that will start anyway
            [*command, "--class", _PRINTS_AND_ENDS, "spark-internal"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_RESOLVE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {_RESOLVE_SECONDS} s"
    if done.returncode == 0:
        return ""
    output = _CREDENTIALS.sub("//", done.stderr.decode(errors="replace"))
    return f"exit code {done.returncode}\n{output}"


def _conf(key: str, value: str) -> tuple[str, str]:
    return "--conf", f"{key}={value}"
