"""Visits of class groups: of pairs of groups, and of groups whose classes are independent."""
