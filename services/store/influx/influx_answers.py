"""Step 6 of the way of a reading: what InfluxDB says of points that it does not take.

It takes what it can of a batch, also where it answers 400 or 422: one point that is older than its retention, or has a
field of another type, costs no other.
"""

from __future__ import annotations

import json
import re

__all__ = ["refused_lines", "said_words"]

_DROPPED = re.compile(r"partial write:.*dropped=(\d+)", re.DOTALL)  # 1.8 and 2.x
_UNREAD = "unable to parse"  # by 1.8, of each line that it left out before it counted
_PARTIAL, _LINE = "partial write of line protocol occurred", '"original_line"'  # 3
MOST_SAID = 200


def refused_lines(error: Exception, lines: int) -> int:
    """How many of a batch of so many ``lines`` were refused; all of them where the answer does not say.

    >>> refused_lines(ValueError("partial write: points beyond retention policy dropped=3"), 5000)
    3
    >>> refused_lines(ValueError("unable to parse 'a b': missing field"), 5000)
    5000
    """
    answer, refused = _body(error), lines
    if found := _DROPPED.search(answer):
        refused = int(found[1]) + answer.count(_UNREAD)
    elif _PARTIAL in answer:
        refused = answer.count(_LINE)
    return refused if 0 < refused < lines else lines


def said_words(error: Exception) -> str:
    """One line for people: an answer's number and what the server says, else the error with its kind.

    The client's own words begin with all headers, and end with what is wrong.
    """
    status, body = getattr(error, "status", None), _body(error)
    if status is None:
        return f"{type(error).__name__}: {str(error)[:MOST_SAID]}"
    try:
        said = json.loads(body)
        body = str(said.get("message") or said.get("error") or body)  # 2.x, and 1.8 or 3
    except (ValueError, AttributeError):
        pass  # of a proxy before it
    return f"{status} {getattr(error, 'reason', None) or ''}: {' '.join(body.split())[:MOST_SAID]}".replace(" :", ":")


def _body(error: Exception) -> str:
    body = getattr(error, "body", None)
    return body.decode(errors="replace") if isinstance(body, bytes) else body if isinstance(body, str) else str(error)
