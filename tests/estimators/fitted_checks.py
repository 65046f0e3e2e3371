"""Those of scikit-learn's checks that look at what was fitted."""

import re
from functools import partial

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

#: The others look at parameters, tags, refused input and forms of it, which an estimator deals with
#: before it asks for its formulation, solver or tolerance: the estimator as it comes passes them
#: and speaks for all. (tests/test_architecture.py: only the formulations know their names.)
FITTED = {
    "check_class_weight_classifiers",
    "check_classifiers_classes",
    "check_classifiers_one_label",
    "check_classifiers_one_label_sample_weights",
    "check_classifiers_train",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}


def parametrize_with_fitted_checks(estimators, expected_failed_checks=lambda estimator: {}):
    """As scikit-learn's parametrize_with_checks, with fewer checks."""
    found = []
    for estimator in estimators:
        expected = expected_failed_checks(estimator)
        for item in estimator_checks_generator(
            estimator, expected_failed_checks=expected, mark="xfail"
        ):
            _, check = getattr(item, "values", item)  # those that are to fail are marked
            if check.func.__name__ in FITTED:
                found.append(item)
    return pytest.mark.parametrize(("estimator", "check"), found, ids=_name)


def _name(value):
    if isinstance(value, partial):
        options = ",".join(f"{key}={option}" for key, option in value.keywords.items())
        return value.func.__name__ + f"({options})" * bool(options)
    return re.sub(r"\s", "", str(value))
