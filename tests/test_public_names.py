"""What ``from bertpre import ...`` offers."""

import subprocess
import sys

import bertpre


def test_public_names_are_sorted_and_resolve():
    assert bertpre.__all__ == sorted(bertpre.__all__)
    for name in bertpre.__all__:
        assert getattr(bertpre, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(bertpre, "pretain")


def test_importing_the_package_imports_nothing_large():
    code = "import sys, bertpre; print({'torch', 'numpy', 'pydantic'} & set(sys.modules))"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert result.stdout == "set()\n"
