"""Floor 1: the protocol as tables, and the codec that walks them."""
