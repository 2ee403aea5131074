"""Messages of errors that the command line makes itself."""

from __future__ import annotations

import pytest
import yaml

from lcm.cli.errors import yaml_problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: `x`", "line 1, column 7: found character '`' that cannot start any token"),
        ("name: x\nversion: [1", "line 2, column 12: expected ',' or ']', but got '<stream end>'"),
    ],
)
def test_a_file_that_is_no_yaml_is_reported_with_the_place(text: str, message: str) -> None:
    with pytest.raises(yaml.YAMLError) as raised:
        yaml.safe_load(text)
    assert yaml_problem(raised.value) == message
