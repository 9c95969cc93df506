"""``engine="auto"``: which engine is the fastest for an env, by measurement.

`figures_of` has one env built in a process of its own, stepped for a fraction of a second, and
closed. From its figures `candidates` predicts how long a batch takes on each engine, and `choose`
takes the fastest. All engines that are considered give the same trajectories.
"""

from agymc.choosing._choose import Choice, choose, figures_of
from agymc.choosing._figures import Figures
from agymc.choosing._predict import Candidate, candidates

__all__ = ["Candidate", "Choice", "Figures", "candidates", "choose", "figures_of"]
