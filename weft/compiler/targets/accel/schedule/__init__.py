"""How a kernel is cut and ordered: tilings, schedules, and what is proved of the loops that come of them."""
