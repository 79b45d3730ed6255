"""Attention over keys and values that several PEs share."""
