"""Events are plain facts: whoever watches, however light, can take them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import is_dataclass

from understill.events import Event


def test_events_are_imported_without_anything_but_the_standard_library() -> None:
    program = (
        "import sys; before = set(sys.modules); import understill.events\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "['understill']"


def test_every_event_is_a_frozen_fact() -> None:
    for event in Event.__subclasses__():
        assert is_dataclass(event) and event.__dataclass_params__.frozen
