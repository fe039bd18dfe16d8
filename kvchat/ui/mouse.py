"""Whether the terminal reports the mouse to the app. Owns that switch; must not know who turns it.

Without reports the terminal selects text as it does everywhere else.
"""

from __future__ import annotations

from typing import Any


def set_mouse(driver: Any, on: bool) -> bool:
    """Turn it on or off while the app runs; False where the driver has no mouse.

    The driver has no public way: it obeys only while it believes that there is a mouse.
    """
    switch = getattr(driver, "_enable_mouse_support" if on else "_disable_mouse_support", None)
    if switch is None:
        return False
    driver._mouse = True
    switch()
    driver._mouse = on
    return True
