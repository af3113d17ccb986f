"""What is checked before a request's body is read: its query parameters, and the key of who sends it.

A route takes the parameters that it declares, each once, and refuses any other one by its name. A body is read and
checked at the cost of everybody who asks at that time: so only for those who may give the order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from difflib import get_close_matches
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from services.access_keys import Scope
from services.serve.api.auth import Keys
from services.serve.api.problems import ProblemError

__all__ = ["StrictRoute", "keyed_route"]

TWICE = "give it once, several values with commas where it takes them"
LONGEST = 64
"""Characters of a foreign name that an answer repeats."""


class StrictRoute(APIRoute):
    """Answers 422 to an unknown query parameter and to one that is there twice, before anything is done: a misspelled
    one must not pass unseen, nor all but the last of several.
    """

    def check_sender(self, request: Request) -> None:
        """Called before a body is read; raises a problem."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler behind that check."""
        handle, known = super().get_route_handler(), list(dict.fromkeys(_names(self.dependant)))

        async def checked(request: Request) -> Response:
            given = Counter(name for name, _ in request.query_params.multi_items())
            wrong = {name: self._why(name, known) for name in given if name not in known}
            wrong |= {name: f"{TWICE}; it is there {times} times" for name, times in given.items()
                      if times > 1 and name not in wrong}  # fmt: skip
            if wrong:
                errors = [{"where": f"query.{name[:LONGEST]}", "message": why} for name, why in wrong.items()]
                more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
                raise ProblemError(422, f"{errors[0]['where']}: {errors[0]['message']}{more}", errors=errors[:20])
            if self.body_field is not None:
                self.check_sender(request)
            return await handle(request)

        return checked

    def _why(self, name: str, known: list[str]) -> str:
        if not known:
            return f"{self.path} takes no parameters"
        nearest = get_close_matches(name.lower(), known, 1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(known)}"
        return f"there is no such parameter; {hint}"


def keyed_route(keys: Keys, scope: Scope) -> type[StrictRoute]:
    """A route that answers 401 or 403 to a body of who has no key for ``scope``."""
    require = keys.require_operator if scope == "operate" else keys.require_reader

    class KeyedRoute(StrictRoute):
        def check_sender(self, request: Request) -> None:
            require(request.headers.get("authorization"))

    return KeyedRoute


def _names(dependant: Any) -> Iterator[str]:
    """Query parameters of a route and of what it depends on."""
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _names(inner)
