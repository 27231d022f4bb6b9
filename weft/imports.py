"""One lock around the imports that stand inside functions.

A thread that imports a package holds the package and waits for its modules; a thread that imports one of those modules
holds the module and waits for the package. CPython sees the circle and hands one of them what is not complete yet:
``cannot import name ... from partially initialized module``. Whatever weft imports on demand is therefore imported by
one thread at a time:

    with IMPORTS:
        from .compiler.graph import Module

No module of weft may do so while it is imported itself: a thread would wait for the lock and hold a module.
"""

from __future__ import annotations

from threading import RLock

IMPORTS = RLock()
