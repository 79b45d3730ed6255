"""What kernels of several PEs share: barriers, messages that carry their own arrival flag, workspaces, side streams."""
