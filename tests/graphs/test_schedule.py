"""Schedules: every pair once, nobody twice in a round, groups of like work."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_mcsvm.solvers.groups.schedule import (
    balanced_groups,
    circle_rounds,
    default_groups,
    ww_costs,
)

sizes = st.integers(0, 10**12)
costs_of_classes = st.lists(sizes, max_size=40)
numbers_of_groups = st.integers(1, 60)


def loads(costs, groups):
    return [sum(costs[c] for c in group) for group in groups]


@given(costs_of_classes, numbers_of_groups)
def test_every_class_is_in_one_group_and_no_group_is_empty(costs, n_groups):
    groups = balanced_groups(costs, n_groups)
    assert sorted(c for group in groups for c in group) == list(range(len(costs)))
    assert all(groups)
    assert len(groups) == min(n_groups, len(costs))


@given(costs_of_classes.filter(bool), numbers_of_groups)
def test_groups_differ_by_at_most_one_class(costs, n_groups):
    total = loads(costs, balanced_groups(costs, n_groups))
    assert max(total) - min(total) <= max(costs)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 3))
def test_the_dearest_group_is_within_four_thirds_of_the_best_possible(costs, n_groups):
    dealings = product(range(n_groups), repeat=len(costs))
    best = min(
        max(sum(c for c, g in zip(costs, deal, strict=True) if g == h) for h in range(n_groups))
        for deal in dealings
    )
    assert 3 * max(loads(costs, balanced_groups(costs, n_groups))) <= 4 * best


@given(costs_of_classes, numbers_of_groups)
def test_groups_are_in_a_fixed_order(costs, n_groups):
    groups = balanced_groups(costs, n_groups)
    assert groups == tuple(sorted(tuple(sorted(group)) for group in groups))
    assert groups == balanced_groups(tuple(costs), n_groups)


@given(st.integers(1, 60), numbers_of_groups)
def test_classes_without_rows_are_spread_by_number(k, n_groups):
    counts = [len(group) for group in balanced_groups([0] * k, n_groups)]
    assert max(counts) - min(counts) <= 1


def test_work_balances_not_the_number_of_classes():
    rows, nonzeros = [1000, 10, 10, 10, 10], [50_000, 500, 500, 500, 500]
    large, *rest = balanced_groups(ww_costs(rows, nonzeros), 2)
    assert large == (0,)
    assert rest == [(1, 2, 3, 4)]


@given(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=20), st.data())
def test_costs_of_groups_are_the_multiply_adds_of_their_visits(counts, data):
    rows, nonzeros = zip(*counts, strict=True)
    costs = ww_costs(rows, nonzeros)
    groups = balanced_groups(costs, data.draw(numbers_of_groups))
    own = [sum(rows[c] + nonzeros[c] for c in group) for group in groups]
    for a, group in enumerate(groups):
        visits = [
            own[a] * len(other) + (own[b] * len(group) if b != a else own[a] * len(group))
            for b, other in enumerate(groups)
        ]
        assert sum(visits) == sum(costs[c] for c in group)


def test_costs_need_as_many_nonzeros_as_rows():
    with pytest.raises(ValueError, match="shorter"):
        ww_costs([1, 2], [3])


@pytest.mark.parametrize("n_groups", [0, -1])
def test_no_groups_are_refused(n_groups):
    with pytest.raises(ValueError, match=f"n_groups={n_groups}; there must be 1 group or more"):
        balanced_groups([1, 2], n_groups)


@given(st.integers(0, 41))
def test_every_pair_meets_once(n_groups):
    met = [pair for pairs in circle_rounds(n_groups) for pair in pairs]
    assert sorted(met) == list(combinations(range(n_groups), 2))


@given(st.integers(0, 41))
def test_no_group_is_twice_in_a_round(n_groups):
    for pairs in circle_rounds(n_groups):
        busy = [g for a, b in pairs for g in {a, b}]
        assert len(busy) == len(set(busy))


@given(st.integers(2, 41))
def test_rounds_are_as_few_as_can_be(n_groups):
    rounds = circle_rounds(n_groups)
    assert len(rounds) == n_groups - 1 + n_groups % 2
    assert {len(pairs) for pairs in rounds} == {n_groups // 2}


@given(st.integers(1, 41))
def test_an_odd_number_rests_each_group_once(n_groups):
    resting: list[int] = []
    for pairs in circle_rounds(n_groups):
        resting += set(range(n_groups)) - {g for pair in pairs for g in pair}
    expected = list(range(n_groups)) if n_groups % 2 and n_groups > 1 else []
    assert sorted(resting) == expected


@given(k=st.integers(1, 5000), d=st.integers(1, 10**6), memory=st.sampled_from([10**6, 2**30]))
def test_groups_are_as_few_as_fit_and_never_more_than_pairs_of_classes(k, d, memory):
    groups = default_groups(k, d, memory)
    assert 1 <= groups <= max(1, k // 2)
    if groups < k // 2:
        assert 6 * -(-k // groups) * (d + 1) * 8 <= memory
    if groups > 4 and groups < k // 2:
        assert 6 * -(-k // (groups // 2)) * (d + 1) * 8 > memory
