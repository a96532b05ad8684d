"""What a new wheel has to do at least: place a small problem."""

import placewright as pw

placement = pw.place(pw.load("zoo:chain?ops=4", cluster="p100x2"), placer="heft", budget=5)
assert placement.is_valid
print(placement.value)
