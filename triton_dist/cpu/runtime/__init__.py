"""The CPU world below Python: symmetric heap, atomics, control block. Addresses are plain integers.

The library is C++ (``runtime/``) with a C interface. It is called through ctypes, so one fits all versions of Python.
"""
