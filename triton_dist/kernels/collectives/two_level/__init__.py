"""Collectives of groups on several hosts: by load and store inside a host, by puts with signals between hosts.

Each byte crosses between two hosts once. A PE sends to, and receives from, those of its number on the other hosts, so
that all of a host's links to the network share the work. Programs work in rounds, a block each: while a block crosses
the network, the block before it is distributed inside the host.
"""
