"""Matrix products whose communication goes on while they are computed.

``schedule`` says who computes what in which order, ``hopper/`` is the kernel for H100 and H200 that follows such a
schedule, ``portable`` does the same in plain Triton for everything else, the CPU world too. An operation (a file each)
puts them together.
"""
