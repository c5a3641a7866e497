"""The shape of the repository: layers, names, sizes and what an import may cost."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

LAYERS = [
    "sharpwave.cli",
    "flows",
    "tasks",
    "serving",
    "eval",
    "consolidation",
    "routers",
    "carriers",
    "sharpwave",
]
"""From the top down: a module imports only from its own layer and those below."""

OWNERS = {
    "prefect": ("flows.", "tasks."),
    "mlflow": ("tasks.tracking",),
    "trl": ("consolidation.write_back",),
}
"""Who may import these at all, even inside a function."""

HEAVY = {
    "accelerate",
    "chromadb",
    "datasets",
    "gguf",
    "matplotlib",
    "mlflow",
    "pandas",
    "peft",
    "prefect",
    "pyarrow",
    "sklearn",
    "torch",
    "transformers",
    "trl",
}
"""What importing our modules must not load; flows and tasks may load Prefect."""

MOST_MODULE_LINES = 500
MOST_BODY_LINES = 40
MOST_FLOW_BODY_LINES = 60


def module_paths(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(name: str) -> str | None:
    return next((layer for layer in LAYERS if name == layer or name.startswith(f"{layer}.")), None)


def imports_of(path: Path) -> Iterator[str]:
    """Yield every module named in an import, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules_loaded_by(names: list[str]) -> set[str]:
    """Import the modules in a new interpreter and return the top-level names it then holds."""
    code = (
        "import importlib, json, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_every_package_is_named_everywhere() -> None:
    tool = PYPROJECT["tool"]
    found = {init.parent.name for init in ROOT.glob("*/__init__.py")}
    assert set(PACKAGES) == found
    assert set(tool["mypy"]["packages"]) == found
    assert set(tool["importlinter"]["root_packages"]) == found
    assert found <= set(tool["ruff"]["lint"]["isort"]["known-first-party"])


def test_shared_modules_are_all_in_the_lowest_layer_contract() -> None:
    layers = next(item for item in PYPROJECT["tool"]["importlinter"]["contracts"] if item["id"] == "layers")
    listed = {name.strip() for name in layers["layers"][-1].split(":")}
    present = {f"sharpwave.{path.stem}" for path in (ROOT / "sharpwave").glob("[!_]*.py")}
    assert listed == present


def test_heavy_list_is_the_linters() -> None:
    assert (
        set(PYPROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-module-level-imports"]) == HEAVY
    )


def test_no_flow_or_task_module_shadows_a_package() -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    modules = {path.stem for path in module_paths("flows", "tasks")}
    assert modules
    assert not folders & modules
    assert not modules & set(sys.stdlib_module_names)


def test_no_root_folder_shadows_a_library() -> None:
    taken = {"evaluate", "datasets", "trl", "peft", "chromadb", "mlflow", "prefect", "torch", "transformers"}
    assert not taken & {path.name for path in ROOT.iterdir() if path.is_dir()}


@pytest.mark.parametrize("folder", ["configs", "docker", "docs", "mlruns"])
def test_folders_without_code(folder: str) -> None:
    assert list((ROOT / folder).rglob("*.py")) == []


def test_test_folders_are_not_packages() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_module_names_say_something() -> None:
    empty_words = {"utils", "helpers", "misc"}
    assert [path for path in module_paths(*PACKAGES) if path.stem in empty_words] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_down(package: str) -> None:
    upward = []
    for path in module_paths(package):
        own_layer = layer_of(module_name(path))
        assert own_layer is not None
        for imported in imports_of(path):
            layer = layer_of(imported)
            if layer is not None and LAYERS.index(layer) < LAYERS.index(own_layer):
                upward.append(f"{module_name(path)} imports {imported}")
    assert upward == []


@pytest.mark.parametrize("library", sorted(OWNERS))
def test_library_has_one_owner(library: str) -> None:
    strangers = [
        module_name(path)
        for path in module_paths(*PACKAGES)
        if not f"{module_name(path)}.".startswith(OWNERS[library])
        and any(name.partition(".")[0] == library for name in imports_of(path))
    ]
    assert strangers == []


@pytest.mark.parametrize(
    ("packages", "allowed"),
    [
        (["sharpwave", "carriers", "routers", "consolidation", "eval", "serving"], set()),
        (["tasks", "flows"], {"prefect"}),
    ],
)
def test_importing_everything_loads_nothing_heavy(packages: list[str], allowed: set[str]) -> None:
    names = [module_name(path) for path in module_paths(*packages) if path.stem != "__main__"]
    assert len(names) >= len(packages)
    assert modules_loaded_by(names) & HEAVY <= allowed


def test_modules_stay_small() -> None:
    long_modules = {
        module_name(path): count
        for path in module_paths(*PACKAGES)
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MOST_MODULE_LINES
    }
    assert long_modules == {}


def test_functions_stay_small() -> None:
    long_bodies = {}
    for path in module_paths(*PACKAGES):
        limit = MOST_FLOW_BODY_LINES if path.is_relative_to(ROOT / "flows") else MOST_BODY_LINES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body and (count := (body[-1].end_lineno or 0) - body[0].lineno + 1) > limit:
                long_bodies[f"{module_name(path)}.{node.name}"] = count
    assert long_bodies == {}


def test_console_scripts_exist() -> None:
    scripts: dict[str, str] = PYPROJECT["project"]["scripts"]
    assert scripts
    for target in scripts.values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_every_library_imported_is_declared() -> None:
    distributions = packages_distributions()
    requirements = PYPROJECT["project"]["dependencies"]
    declared = {requirement.partition(">=")[0].lower() for requirement in requirements}
    imported = {name.partition(".")[0] for path in module_paths(*PACKAGES) for name in imports_of(path)}
    foreign = {name for name in imported - set(sys.stdlib_module_names) if layer_of(name) is None}
    undeclared = {
        name
        for name in foreign
        if not declared & {dist.lower().replace("_", "-") for dist in distributions.get(name, [])}
    }
    assert undeclared == set()


def test_lock_pins_every_dependency_exactly() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = {line.partition("==")[0].lower().replace("_", "-"): line for line in lines}
    assert all("==" in line and "+" not in line and "@" not in line for line in lines)
    project = PYPROJECT["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {requirement.partition(">=")[0].lower() for requirement in needed}
    assert names <= pins.keys()
