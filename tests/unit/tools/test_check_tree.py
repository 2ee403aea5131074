"""Each rule of `tools/check_tree.py` notices a tree that breaks it. `make check` looks at this tree."""

from __future__ import annotations

import ast

from tools import check_tree


def parsed(**modules: str) -> dict[str, ast.Module]:
    return {name.replace("__", "/") + ".py": ast.parse(text) for name, text in modules.items()}


def test_a_folder_with_too_many_modules() -> None:
    many = {f"lcm/model/m{number}.py": ast.parse("") for number in range(check_tree.MAX_MODULES)}
    assert check_tree.large_folders({**many, "lcm/model/__init__.py": ast.parse("")}) == []
    (problem,) = check_tree.large_folders({**many, "lcm/model/more.py": ast.parse("")})
    assert problem.startswith("src/lcm/model has 13 modules")


def test_an_exception_without_error_in_its_name() -> None:
    names = "Refused(Exception)", "StoreError(Exception)", "Conflict(StoreError)", "Plain"
    source = "\n".join(f"class {name}: ..." for name in names)
    problems = check_tree.misnamed_exceptions(parsed(lcm__x=source))
    assert [problem.split()[1] for problem in problems] == ["Conflict", "Refused"]


def test_a_package_that_nobody_describes() -> None:
    assert (
        check_tree.undocumented_packages(parsed(lcm__core__clock="")) != []
    )  # the others are described, and not there
    names = [str(path.relative_to(check_tree.SOURCE)) for path in check_tree.SOURCE.rglob("*.py")]
    problems = check_tree.undocumented_packages(dict.fromkeys([*names, "lcm/new/thing.py"], ast.parse("")))
    assert problems == ["docs/architecture.md does not describe the package lcm.new"]
