"""Numbers and how they are written, by Python and by the server's page alike."""

from __future__ import annotations

DURATIONS = (
    (-3, "0 s"), (0, "0 s"), (0.00004, "0.04 ms"), (0.0123456, "12.3 ms"), (0.4, "400 ms"), (0.9994, "999 ms"),
    (0.9996, "1.0 s"), (3.14, "3.1 s"), (9.94, "9.9 s"), (9.96, "10 s"), (89.4, "89 s"), (89.6, "1 min 30 s"),
    (90, "1 min 30 s"), (125, "2 min 05 s"), (3600, "60 min 00 s"), (5399, "89 min 59 s"), (5400, "1 h 30 min"),
    (86_460, "24 h 01 min"), (4_000_000, "1,111 h 06 min"),
)  # fmt: skip
PERCENTAGES = (
    (0, "0.0 %"), (0.0004, "0.0 %"), (0.0625, "6.2 %"), (0.5, "50.0 %"), (0.87654, "87.7 %"), (1, "100.0 %"),
)  # fmt: skip
COUNTS = ((0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1234567, "1,234,567 rows"))
