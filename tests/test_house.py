"""The house rules that a machine can check: which door each room may use, what importing costs, the public names, and that the
examples in README and docs run."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import asterism

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "asterism"

LEAVES = {"checks", "sphere", "files", "console"}  # know nothing of the house
CORE = {"torch", "numpy", "scipy", "safetensors"}
TRAIN = {"lightning_fabric", "datasets", "PIL", "sklearn", "tyro", "rich", "tensorboard", "matplotlib", "pyarrow"}
# A room, the rooms it may know, the packages it may import beside the standard library.
DOORS = {
    **dict.fromkeys(LEAVES, (LEAVES, CORE)),
    "prototypes": (LEAVES, CORE),
    "assignment": (LEAVES, CORE),
    "losses": (LEAVES, CORE),
    "head": ({"prototypes", "assignment", *LEAVES}, CORE),
    "methods": ({"head", "prototypes", "assignment", "losses", *LEAVES}, CORE),
    "data": (LEAVES, CORE | TRAIN),
    "backbones": (LEAVES, CORE),
    "runs": ({"methods", "data", "backbones", *LEAVES}, CORE),
    "training": ({"runs", "data", *LEAVES}, CORE | TRAIN),
    "serving": ({"runs", "data", *LEAVES}, CORE | TRAIN),
    "report": ({"runs", "prototypes", *LEAVES}, CORE | TRAIN),
    "tables": (LEAVES, CORE | TRAIN),
    "demo": ({"runs", "data", "training", "report", *LEAVES}, CORE | TRAIN),
}


def imports_of(path):
    """Modules imported anywhere in a file, inside functions too, as dotted names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ([f"asterism.{a.name}" for a in node.names] if node.module == "asterism" else [node.module])


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_doors_go_one_way(path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room in ("__init__", "__main__", "cli"):
        return
    rooms, packages = DOORS[room]
    for name in imports_of(path):
        top, _, rest = name.partition(".")
        if top == "asterism":
            inner = rest.split(".")[0]
            inner = {"PrototypeHead": "head"}.get(inner, inner)
            assert inner == room or inner in rooms, f"{room} may not know {name}"
        else:
            assert top in packages or top in sys.stdlib_module_names, f"{room} may not import {name}"


def test_core_modules_import_only_the_core_at_the_top():
    code = (
        "import sys, torch, numpy; before = set(sys.modules); import asterism\n"
        "print(' '.join({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"asterism", *CORE}


def test_nothing_happens_at_import():
    """No logging set-up, environment, generator, process group or thread count changes."""
    code = (
        "import os, logging, torch\n"
        "root = logging.getLogger()\n"
        "look = lambda: (dict(os.environ), root.handlers, root.level, torch.get_rng_state().tolist(),\n"
        "                torch.get_num_threads(), torch.distributed.is_initialized(), torch.get_default_dtype())\n"
        "before = look(); import asterism, asterism.head, asterism.methods; print(look() == before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_public_names():
    assert asterism.__all__ == sorted(asterism.__all__)
    assert set(asterism.__all__) == {
        "Assignment",
        "ClassMeans",
        "Predictor",
        "PrototypeHead",
        "Prototypes",
        "TrainConfig",
        "ipm_loss",
        "make_prototypes",
        "reassign",
        "solve_assignment",
        "train",
    }
    for name in asterism.__all__:
        thing = getattr(asterism, name)
        assert thing.__doc__, name
        assert name in dir(asterism)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = asterism.nothing


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_examples_in_the_documents_run(page, tmp_path, monkeypatch):
    """All python blocks of a page, in order, in one namespace and an empty folder."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S)
    names = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    assert names or not blocks


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


def test_no_user_meets_an_assert_and_no_pickle_is_loaded():
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        assert not [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Assert)], path
        assert "pickle" not in {name.split(".")[0] for name in imports_of(path)}, path
        assert "torch.load" not in path.read_text(), path
