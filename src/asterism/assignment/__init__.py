"""Which label sits where: (means, stars) -> Assignment. means.py gathers the class means, dense.py solves the matching."""

from asterism.assignment.dense import Assignment, solve_assignment
from asterism.assignment.means import ClassMeans

__all__ = ["Assignment", "ClassMeans", "solve_assignment"]
