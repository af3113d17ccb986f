"""Which topics a broker lets a client read, where it may not let it read all that are wanted."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["TopicChoice"]

_UNANSWERED = 2  # connections that end instead of an answer: once may be chance


class TopicChoice:
    """Of several lists of topics the first that the broker neither refuses nor hangs up at.

    Tell it of each question (:meth:`asked`), and either of the answer or that the connection ended.

    >>> choice = TopicChoice([["hothouse/#"], ["hothouse/v1/#"]])
    >>> choice.asked()
    ['hothouse/#']
    >>> choice.refused(), choice.asked()
    (True, ['hothouse/v1/#'])
    >>> choice.refused()
    False
    """

    def __init__(self, lists: Sequence[Sequence[str]]) -> None:
        self._lists = [list(topics) for topics in lists]
        self._waits = False  # for the answer
        self._unanswered = 0  # connections in a row that ended instead

    @property
    def topics(self) -> list[str]:
        """Those that are asked for now."""
        return self._lists[0]

    @property
    def others(self) -> list[str]:
        """Those that may be asked for later, or were in an earlier session, and are not now."""
        return list(dict.fromkeys(topic for topics in self._lists[1:] for topic in topics if topic not in self.topics))

    def asked(self) -> list[str]:
        """The broker is being asked for the topics that this returns."""
        self._waits = True
        return self.topics

    def granted(self) -> None:
        """The broker gives all of them."""
        self._waits, self._unanswered = False, 0

    def refused(self) -> bool:
        """The broker refuses one of them at least; whether there are others to ask for."""
        self.granted()
        return self._next()

    def connection_ended(self) -> bool:
        """The connection ended; whether that was an answer, so that others are asked for from now on."""
        self._unanswered += self._waits
        self._waits = False
        return self._unanswered >= _UNANSWERED and self._next()

    def _next(self) -> bool:
        if len(self._lists) == 1:
            return False
        self._lists.pop(0)
        self._unanswered = 0
        return True
