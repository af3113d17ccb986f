"""Step 9 of the way of a reading: mails that some addresses did not take for now, while others did.

A server may put off a sender that it does not know, or a mailbox may be full. Such a mail goes out again, to these
addresses alone. It waits on the storage: nothing is lost over a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from edge.timing import Backoff
from services.alert.delivery import damage_told
from services.errors import NotStoredError
from services.messages import ShownAlert
from services.store.storage import Storage, stored_in

__all__ = ["GIVE_UP_S", "MAILS", "WaitingMails"]

_log = logging.getLogger(__name__)

MAILS = "alert-delivery/mails.json"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 900.0
"""Who puts a sender off wants some minutes to pass."""

GIVE_UP_S = 24 * 3600.0
"""What was foreseen has come by then, or has not."""

MOST = 100
"""More mails do not wait; the oldest are given up."""


class _Mail(msgspec.Struct, frozen=True):
    to: list[str]
    alerts: list[ShownAlert]
    since_s: float  # Unix time


_DECODER = msgspec.json.Decoder(list[_Mail])


class WaitingMails:
    """``to`` are the addresses of now: what waits for another one is dropped. ``clock_s`` is monotonic, ``wall_s`` says
    how long a mail has waited. ``lost`` counts changes that were given up, for each address. Methods raise ``OSError``.
    """

    def __init__(
        self, root: Storage | Path, to: Collection[str], clock_s: Callable[[], float], wall_s: Callable[[], float]
    ) -> None:
        self._storage, self._clock_s, self._wall_s = stored_in(root), clock_s, wall_s
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._mails: list[_Mail] = []
        self.lost = 0
        with suppress(NotStoredError), damage_told(self._storage, MAILS):
            kept = _DECODER.decode(self._storage.read(MAILS).content)
            mails = [msgspec.structs.replace(mail, to=[one for one in mail.to if one in to]) for mail in kept]
            self._mails = [mail for mail in mails if mail.to]

    @property
    def addresses(self) -> set[str]:
        """Those that lack a mail."""
        return {one for mail in self._mails for one in mail.to}

    @property
    def changes(self) -> int:
        """How many changes of alerts wait."""
        return sum(len(mail.alerts) for mail in self._mails)

    def add(self, alerts: Sequence[ShownAlert], to: Sequence[str]) -> None:
        """These addresses lack the mail about these changes."""
        if not self._mails:
            self._backoff.failed(self._clock_s())
        mails = [*self._mails, _Mail(list(to), list(alerts), self._wall_s())]
        self._keep(mails[-MOST:])
        for mail in mails[:-MOST]:
            self._give_up(mail, mail.to)

    def send_again(self, send: Callable[[Sequence[ShownAlert], Sequence[str]], Collection[str]]) -> None:
        """Once a pause is over; ``send`` gives the addresses that still do not take a mail. What it raises is raised,
        and what has gone out by then does not go again.
        """
        if not self._mails or not self._backoff.is_over(self._clock_s()):
            return
        late: set[str] = set()  # an address that does not take a mail is not asked to take those behind it
        mails, left = self._mails, list[_Mail]()
        for n, mail in enumerate(mails, 1):
            if asked := [one for one in mail.to if one not in late]:
                late.update(send(mail.alerts, asked))
            to = [one for one in mail.to if one in late]
            if to and self._wall_s() - mail.since_s >= GIVE_UP_S:
                self._give_up(mail, to)
                to = []
            if to:
                left.append(msgspec.structs.replace(mail, to=to))
            if to != mail.to:
                self._keep([*left, *mails[n:]])
        if late:
            self._backoff.failed(self._clock_s())
        else:
            self._backoff.reset()

    def _give_up(self, mail: _Mail, to: Sequence[str]) -> None:
        _log.error("a mail about %d changes of alerts was given up for %s", len(mail.alerts), ", ".join(to))
        self.lost += len(mail.alerts) * len(to)

    def _keep(self, mails: list[_Mail]) -> None:
        self._storage.put(MAILS, msgspec.json.encode(mails))
        self._mails = mails
