"""Records in, tables out: every figure that Brinell prints is computed here, from per-sample rows
and with numpy alone.
"""
