"""What any other placer has to beat: one device, fills in order, random placements, other people's plans."""
