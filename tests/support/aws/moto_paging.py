"""EC2's limits on filters and pages, which moto lacks."""

from __future__ import annotations

import re
from typing import Any

from moto.ec2.exceptions import EC2ClientError

from tests.support.aws.ec2_rules import RULES

FILTER_VALUES = 200
PAGE_SIZES = range(5, 1001)


def filters_of(self: Any) -> dict[str, Any]:
    filters: dict[str, Any] = self._filters_from_querystring()
    if any(len(values) > FILTER_VALUES for values in filters.values()):
        raise EC2ClientError("FilterLimitExceeded", f"The maximum number of filter values is {FILTER_VALUES}")
    return filters


def page_of(self: Any, instances: list[Any]) -> tuple[list[Any], str | None]:
    """A page of instances; its token contains the serial number of the last instance and the number of the page."""
    size = int(self._get_param("MaxResults") or 1000)
    if size not in PAGE_SIZES:
        raise EC2ClientError("InvalidParameterValue", f"MaxResults must be between 5 and 1000, not {size}")
    last, number = _page_token(self._get_param("NextToken"))
    rest = [instance for instance in instances if RULES.serial(instance) > last]
    if len(rest) <= size:
        return rest, None
    return rest[:size], f"{RULES.serial(rest[size - 1])}.{number}"


def _page_token(token: str | None) -> tuple[int, int]:
    """Return where the page of this token begins, and the number of the next page."""
    if not token:
        return 0, 2
    match = re.fullmatch(r"(\d+)\.(\d+)", token)
    if match is None:
        raise EC2ClientError("InvalidParameterValue", "Unable to parse pagination token")
    return int(match[1]), int(match[2]) + 1
