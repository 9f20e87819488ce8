"""What ``from bertpre import ...`` offers."""

import inspect
import re
import subprocess
import sys

import pytest

import bertpre


def test_public_names_are_sorted_and_resolve():
    assert bertpre.__all__ == sorted(bertpre.__all__)
    for name in bertpre.__all__:
        assert getattr(bertpre, name).__name__ == name


@pytest.mark.parametrize("name", bertpre.__all__)
def test_a_public_docstring_names_every_argument(name):
    public = getattr(bertpre, name)

    described = inspect.getdoc(public) or ""
    assert described.partition("\n")[0].endswith("."), "the first line is a sentence"
    if inspect.isfunction(public):
        for argument in inspect.signature(public).parameters:
            # Arguments that go together share a line: "tokenizer, data: ...".
            assert re.search(rf"^    ([\w, ]+, )?{argument}(, [\w, ]+)?:", described, re.M), (
                argument
            )
        assert "Raises:" in described


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(bertpre, "pretain")


def test_importing_the_package_imports_nothing_large():
    code = "import sys, bertpre; print({'torch', 'numpy', 'pydantic'} & set(sys.modules))"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert result.stdout == "set()\n"
