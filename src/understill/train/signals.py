"""Signals while models are trained: the first one lets training write a checkpoint, the second ends the process."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType
from typing import Any

log = logging.getLogger(__name__)


class Signals:
    """Notes SIGINT and SIGTERM as long as a training listens; several may, in turns, and end in any order."""

    def __init__(self) -> None:
        self.number = 0  # of the signal that came; 0 for none
        self._listeners = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if not self._listeners and threading.current_thread() is threading.main_thread():
            known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            # Whoever starts a program in the background may have it ignore them.
            self._before = {number: handler for number, handler in known.items() if handler is not signal.SIG_IGN}
            for number in self._before:
                signal.signal(number, self._note)
        self._listeners += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._listeners -= 1
        if not self._listeners:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self.number, self._before = 0, {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        for each in self._before:  # the system ends the process, even one that waits for another for ever
            signal.signal(each, signal.SIG_DFL)
        log.warning("%s: stopping after this step; once more stops at once", signal.Signals(number).name)


#: Those of this process: a signal is sent to a process, not to a model.
SIGNALS = Signals()
