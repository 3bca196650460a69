"""No exception is kept in an attribute or a container: its traceback would keep the records.

`KeptError` is kept instead. What may keep an exception is listed here, each with its reason.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import headerware

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(headerware.__file__).parent
RAISED_ONCE: Final = "the next call raises it, and forgets it"
ENDS: Final = "it ends the work of its object"
RESULT: Final = "it is a result of this call, for the caller"
ALLOWED: Final = {
    "clients/aio/worker.py: self.error": RESULT,
    "clients/aio/producer.py: self._results": "a queue of reports, each delivered once",
    "clients/dead_letters.py: self._error": "a KafkaError is a code and a text, and is not raised",
    "clients/dead_letters.py: self._failed": "a KafkaError is a code and a text, and is not raised",
    "clients/delivery.py: self.error": "its entry has the record itself, and is delivered once",
    "clients/deliveries.py: self._error": "a KafkaError is a code and a text, and is not raised",
    "clients/deliveries.py: self.deferred": RAISED_ONCE,
    "clients/executor.py: failures": RESULT,
    "clients/executor.py: self._failure": ENDS,
    "clients/interrupts.py: ended": RESULT,
    "clients/interrupts.py: self.deferred_error": RAISED_ONCE,
    "clients/producer.py: errors": RESULT,
    "clients/producer.py: errors[index]": RESULT,
    "clients/producer.py: self._hw_reports.deferred": RAISED_ONCE,
    "clients/progress.py: UnstoredDeadLetter.reason": "its job has the record itself, which waits",
    "clients/refused_records.py: RefusedRecordError.cause": "it is the application's, with its message",
    "core/batch.py: Batch.failures": RESULT,
    "core/batch.py: failures": RESULT,
    "core/batch.py: failures[at]": RESULT,
    "core/record.py: Operation.error": RESULT,
    "core/runner.py: outcomes[index]": RESULT,
    "interceptors/sign.py: failures[at]": RESULT,
    "interceptors/slice/reassembly.py: _Failure.error": "its slices are counted, and it waits for poll()",
    "interceptors/trace.py: self._error": "its span ends with the batch",
    "interceptors/trail.py: failures[at]": RESULT,
    "interceptors/trail_proof.py: failures[at]": RESULT,
    "kafka/first_answer.py: self._latest": "a KafkaError is a code and a text, and is not raised",
    "keyring/services/data_keys.py: failure.__cause__": "its own cause",
    "ops/guard/judge.py: self.why": "its partition has the record itself, which waits",
    "ops/send.py: self._poll_error": ENDS,
    "sources/engine/batches.py: self._failure": ENDS,
    "sources/extractors/parquet.py: self.error": "its stream is that of one object",
    "sources/runtime/group.py: self.failures": RESULT,
    "sources/runtime/runner.py: self._failures": ENDS,
    "sources/runtime/sender.py: self._failure": "a KafkaError is a code and a text, and is not raised",
}
_EXCEPTION: Final = re.compile(r"\b\w*(Error|Exception)\b")
_NO_EXCEPTION: Final = re.compile(
    r"KeptError\[\w+\]|type\[[^\]]*\]|ClassVar\[\w+\]|Callable\[.*\]|\bOn\w*Error\b"
)
_ADDING: Final = {"add", "append", "appendleft", "insert", "put", "put_nowait", "setdefault"}


def test_only_what_is_listed_keeps_an_exception() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {place}"
        for path in ROOT.rglob("*.py")
        for place in kept_in(ast.parse(path.read_text()))
    }
    assert found == set(ALLOWED)


def kept_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name:
            yield from _kept_by_handler(node, node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            if _may_be_an_exception(node):
                yield ast.unparse(node.target)
        elif isinstance(node, ast.ClassDef):
            fields = (each for each in node.body if isinstance(each, ast.AnnAssign))
            held = filter(_may_be_an_exception, fields)
            yield from (f"{node.name}.{ast.unparse(each.target)}" for each in held)


def _may_be_an_exception(stated: ast.AnnAssign) -> bool:
    return _EXCEPTION.search(_NO_EXCEPTION.sub("", ast.unparse(stated.annotation))) is not None


def _kept_by_handler(handler: ast.ExceptHandler, name: str) -> Iterator[str]:
    for node in ast.walk(handler):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and name in _values(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(each, ast.Attribute | ast.Subscript):
                        yield ast.unparse(each)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = {value for argument in node.args for value in _values(argument)}
            if node.func.attr in _ADDING and name in given:
                yield ast.unparse(node.func.value)


def _values(node: ast.expr) -> set[str]:
    """Return the names whose own values an expression can have."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Tuple | ast.List):
        return {name for each in node.elts for name in _values(each)}
    if isinstance(node, ast.IfExp):
        return _values(node.body) | _values(node.orelse)
    return {name for each in node.values for name in _values(each)} if isinstance(node, ast.BoolOp) else set()
