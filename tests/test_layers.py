"""Imports only point down, from the command line to the errors."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "bertpre"
FILES = sorted(PACKAGE.rglob("*.py"))

# From the top down: each part may import those below it, and all but errors may use the bottom.
LAYERS = (
    *("__main__", "cli", "chaining", "inspection", "interop", "inference", "finetuning"),
    *("training", "data", "tokenizer", "corpus"),
)
BOTTOM = {"config", "artefacts", "errors"}
MAY_IMPORT = {
    part: set(LAYERS[place + 1 :]) | BOTTOM | {"", "model"} for place, part in enumerate(LAYERS)
}
MAY_IMPORT |= {
    **{part: MAY_IMPORT[part] - {"model"} for part in ("tokenizer", "corpus")},
    "model": BOTTOM,
    "config": {"artefacts", "errors"},
    "artefacts": {"errors", ""},
    "errors": set(),
}
# Where a library may be imported: by path prefixes.
MAY_USE = {
    "torch": (
        *("model/", "training/", "finetuning/", "inference/", "interop/", "inspection/"),
        *("data/loader.py", "cli/"),
    ),
    "torch.distributed": ("training/distributed.py",),
    "tokenizers": ("tokenizer/",),
    "typer": ("cli/",),
    "rich": ("cli/render.py", "cli/render_sections.py", "cli/render_training.py"),
    "transformers": (),
}


def imports(path: Path, *, only_at_import_time: bool = False) -> Iterator[str]:
    """Yield the dotted modules that a file imports, those inside functions included."""
    nodes: list[ast.AST] = [ast.parse(path.read_bytes())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{name.name}" for name in node.names)
        is_later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not (only_at_import_time and (is_later or is_for_types)):
            nodes += ast.iter_child_nodes(node)


def part_of(module: str) -> str:
    """Return the part of bertpre that a module is in; "" for the top, such as __version__."""
    name = module.partition(".")[2].partition(".")[0]
    is_part = (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()
    return name if name and is_part else ""


def is_inside(module: str, library: str) -> bool:
    return module == library or module.startswith(library + ".")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_of_a_file_point_down(path):
    name = path.relative_to(PACKAGE).as_posix()
    part = name.partition("/")[0].removesuffix(".py")

    wanted = {part_of(module) for module in imports(path) if is_inside(module, "bertpre")}

    if part != "__init__":  # the public names may come from anywhere
        assert wanted - {part} <= MAY_IMPORT[part]


@pytest.mark.parametrize("library", MAY_USE)
def test_a_library_is_imported_only_where_it_belongs(library):
    users = [
        path.relative_to(PACKAGE).as_posix()
        for path in FILES
        if any(is_inside(module, library) for module in imports(path))
    ]

    assert [name for name in users if not name.startswith(MAY_USE[library])] == []


def test_of_the_data_stage_only_the_loader_knows_the_model():
    users = [
        path.name
        for path in PACKAGE.glob("data/*.py")
        if any(is_inside(module, "bertpre.model") for module in imports(path))
    ]

    assert set(users) <= {"loader.py"}


def test_the_command_line_imports_nothing_heavy_before_a_command_runs():
    allowed = ("bertpre.config", "bertpre.errors", "bertpre.cli", "bertpre.__version__", "typer")
    heavy = {
        f"{path.name}: {module}"
        for path in PACKAGE.glob("cli/*.py")
        for module in imports(path, only_at_import_time=True)
        if module.startswith(("bertpre", "torch", "numpy", "rich", "sklearn", "matplotlib"))
        and not module.startswith(allowed)
        and not path.name.startswith("render")
    }

    assert heavy == set()


def test_the_renderer_is_imported_only_by_the_command_line_and_inside_functions():
    at_import_time = [
        path.name
        for path in PACKAGE.glob("cli/*.py")
        if not path.name.startswith("render_")
        and any(
            is_inside(module, "bertpre.cli.render")
            for module in imports(path, only_at_import_time=True)
        )
    ]

    assert at_import_time == []
