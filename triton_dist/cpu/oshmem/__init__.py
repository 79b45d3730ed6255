"""A CPU world over Open MPI's OpenSHMEM library: ``TRITON_DIST_CPU_TRANSPORT=oshmem``.

The symmetric heap is a piece of the library's; puts, gets, atomics, order and the collectives of hosts are its own.
Imported only when asked for: nothing else needs the library.
"""
