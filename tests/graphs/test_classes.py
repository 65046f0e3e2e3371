"""One-vs-rest by groups: no group waits for another."""

from graphs.runs import Run, Toy

from dask_mcsvm.graphs.independent_groups import Classes


def test_groups_know_nothing_of_each_other():
    solver = Toy().solver(Classes)
    graph = solver.epoch(solver.start().state, 5).graph
    for key, task in graph.items():
        if key[0].startswith(("ovr-visit-e5", "ovr-weights-e5", "ovr-duals-e5")):
            others = {k[2] for k in task.dependencies if str(k[0]).startswith("ovr-")}
            assert others == {key[2]}


def test_a_group_goes_through_all_chunks_in_an_order_of_its_own():
    toy = Toy(chunks=(10,) * 6)
    solver = toy.solver(Classes)
    graph = solver.epoch(solver.start().state, 5).graph
    orders = []
    for g in range(3):
        visits = [graph[f"ovr-visit-e5-r{t}", "t", g] for t in range(6)]
        orders.append([task.kwargs["visit"].step for task in visits])
        for t in range(1, 6):
            assert (f"ovr-weights-e5-r{t - 1}", "t", g) in visits[t].dependencies
    assert [sorted(order) for order in orders] == [list(range(6))] * 3
    assert orders[0] != orders[1]


def test_resting_saves_work_and_a_recall_visits_everything():
    toy = Toy()
    run = Run(toy, Classes, recall=31)
    work = [run.epoch(epoch).work for epoch in range(31)]
    assert work[29] < toy.n * toy.k == work[30]
