"""The program settles how threads wait before anything that has threads is loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from understill.__main__ import WAITING, wait_quietly


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, WAITING),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}),
        ({"GOMP_SPINCOUNT": "9"}, {"GOMP_SPINCOUNT": "9"}),
        ({"KMP_BLOCKTIME": "200"}, {"KMP_BLOCKTIME": "200"}),
    ],
)
def test_threads_soon_sleep_unless_the_user_says_how(
    given: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(given))
    wait_quietly()
    assert os.environ == expected


def test_the_setting_is_there_before_torch_is_loaded() -> None:
    program = (
        "import os, sys; from understill.__main__ import main\n"
        "assert 'torch' not in sys.modules and 'GOMP_SPINCOUNT' not in os.environ\n"
        "sys.argv = ['understill', '--help']\n"
        "try: main()\n"
        "except SystemExit: print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in (*WAITING, "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "1000 False"
