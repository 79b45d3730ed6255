"""Right programs that are hard to see through: whatever orders the accesses of PEs without looking like it.

They are in ``right/``; one world runs them all.
"""

from __future__ import annotations

from harness import main
from right import buffers, collectives, fences, locks_and_barriers, waits  # noqa: F401  # these name their cases

main()
