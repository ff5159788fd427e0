"""The shape of the code, kept by tests: a pure core, one place for each concrete thing, no surprises."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from proxy import errors
from proxy.problem import PROBLEMS
from semel import errors as client_errors

PACKAGE = Path(__file__).parent.parent / "proxy"
MODULES = sorted(PACKAGE.rglob("*.py"))
CLIENT = PACKAGE.parent / "semel"  # what agents import
CLIENT_MODULES = sorted(CLIENT.rglob("*.py"))
MAX_LINES = 350


def name_of(path: Path) -> str:
    """Below `proxy`; the client's with its folder."""
    return path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else CLIENT.parent).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, `from a import b` as a.b, type-checking blocks left out."""
    parsed = tree(path)
    typing_only = {
        id(node)
        for block in ast.walk(parsed)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(parsed):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where things are"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def meets(imported: str, forbidden: str) -> bool:
    return imported == forbidden or imported.startswith(forbidden + ".")


IO = ("aiohttp", "asyncio", "time", "os", "threading", "socket", "apsw", "selectors", "subprocess", "pathlib",
      "concurrent", "multiprocessing", "ssl", "uvloop", "prometheus_client", "diskcache", "sqlite3", "random",
      "secrets", "uuid", "logging", "tempfile")  # fmt: skip


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").glob("*.py")), ids=name_of)
def test_the_core_is_pure(path: Path) -> None:
    """No I/O, no clocks, no chance; of semel itself only the core and the error tree."""
    for imported in imports(path):
        assert not any(meets(imported, forbidden) for forbidden in IO), imported
        if meets(imported, "proxy"):
            assert meets(imported, "proxy.core") or meets(imported, "proxy.errors"), imported


@pytest.mark.parametrize("name", ["exchange", "flight", "judge", "ledger", "stream", "recovery", "operator"])
def test_the_driver_is_free_of_sockets_threads_and_clocks(name: str) -> None:
    """So that a simulator can drive the very same code."""
    forbidden = ("aiohttp", "threading", "time", "concurrent", "socket", "proxy.front", "proxy.app", "random")
    for imported in imports(PACKAGE / f"{name}.py"):
        assert not any(meets(imported, each) for each in forbidden), imported


CONCRETE = ("proxy.store.embedded", "proxy.store.memory", "proxy.upstream.client.HttpUpstream")
COMPOSERS = ("app.py", "cli/")


@pytest.mark.parametrize(
    "path", [path for path in MODULES if not name_of(path).startswith(COMPOSERS)], ids=name_of
)
def test_only_the_composition_root_names_concrete_classes(path: Path) -> None:
    """Everything else knows the seams."""
    for imported in imports(path):
        for concrete in CONCRETE:
            if meets(imported, concrete):
                # A store may be made of parts; nobody outside the stores may name one.
                assert name_of(path).startswith("store/"), imported


def test_only_metrics_knows_prometheus() -> None:
    """Everything else tells the observer."""
    users = {name_of(path) for path in MODULES for i in imports(path) if meets(i, "prometheus_client")}
    assert users == {f"metrics/{name}.py" for name in ("counting", "observer", "standing")}


def test_nothing_is_ever_pickled() -> None:
    """Not imported, and not smuggled in by another module that unpickles."""
    for path in MODULES:
        for imported in imports(path):
            for forbidden in ("pickle", "cPickle", "_pickle", "shelve", "marshal", "dill"):
                assert not meets(imported, forbidden), f"{name_of(path)} imports {imported}"


@pytest.mark.parametrize("path", [*MODULES, *CLIENT_MODULES], ids=name_of)
def test_modules_are_small_and_say_what_they_are(path: Path) -> None:
    """A docstring that states the rule, and a length that can be read."""
    text = path.read_text()
    assert ast.get_docstring(tree(path)), "no docstring"
    assert len(text.splitlines()) <= MAX_LINES


def test_the_client_is_on_its_own() -> None:
    """Agents import it, into any environment: the standard library and itself, nothing of the proxy's."""
    assert len(CLIENT_MODULES) > 10
    for path in CLIENT_MODULES:
        for imported in imports(path):
            top = imported.partition(".")[0]
            assert top == "semel" or top in sys.stdlib_module_names, f"{name_of(path)} imports {imported}"
    users = {name_of(path) for path in MODULES for imported in imports(path) if meets(imported, "semel")}
    assert users == set(), "nor does the proxy know the client"


def leaves(kind: type) -> Iterator[type]:
    below: list[type] = kind.__subclasses__()
    if not below:
        yield kind
    for each in below:
        yield from leaves(each)


def test_every_refusal_has_its_problem_and_every_problem_is_a_refusal() -> None:
    """One table, no gaps, no two with the same name."""
    assert set(leaves(errors.Refusal)) == set(PROBLEMS)
    names = [problem.name for problem in PROBLEMS.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("module", [errors, client_errors], ids=["proxy", "client"])
def test_every_error_of_semel_is_in_one_tree(module: ModuleType) -> None:
    """And drawn at the top of its file."""
    drawn = module.__doc__ or ""
    for name, kind in vars(module).items():
        if isinstance(kind, type) and kind.__module__ == module.__name__:
            assert issubclass(kind, module.SemelError)
            assert name in drawn, f"{name} is not drawn"


def test_the_imports_of_this_test_are_seen() -> None:
    """The reader of imports reads: this very file has some that it must find."""
    found = set(imports(Path(__file__)))
    assert {"ast", "pathlib.Path", "proxy.problem.PROBLEMS"} <= found
    assert meets("os.path", "os")
    assert not meets("oscar", "os")
