"""What a network costs in power on a core's cells: activity of the RTL, cells of a liberty file."""
