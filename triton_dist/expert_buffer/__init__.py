"""What :mod:`triton_dist.deep_ep` is made of."""
