"""Collectives on symmetric tensors, a file each. ``model`` estimates times, by which ``algorithm="auto"`` chooses."""
