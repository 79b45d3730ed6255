"""RMSNorm and LayerNorm of rows that several PEs share, fused with the collective before or after them."""
