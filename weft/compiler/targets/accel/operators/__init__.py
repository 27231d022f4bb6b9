"""What layers are on the core: the packed operators, their layouts, and their loops on its instructions."""
