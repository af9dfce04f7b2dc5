"""Plug-ins that do not come with Brinell, in child processes: this process holds proxies and imports none of their code."""
