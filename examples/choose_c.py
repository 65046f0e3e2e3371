"""Choose C by a path: one warm-started fit per value, scored on rows held back.

python examples/choose_c.py
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dask_mcsvm import LinearMCSVC

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, stratify=y, random_state=0)

model = LinearMCSVC(tol=1e-2, random_state=0)
found = model.path(X_train, y_train, Cs=np.geomspace(1e-3, 1, 7), validation=0.25)

print("     C  epochs  rel. gap  accuracy on rows held back")
for C, step, score in zip(found.Cs, found.models, found.scores, strict=True):
    mark = " <-" if step is found.best_ else ""
    print(f"{C:6.3f}  {step.n_iter_:6d}  {step.gap_:8.1e}  {score:.4f}{mark}")

# The models of the path never saw the rows held back; the last one may.
final = model.set_params(C=found.best_.C, tol=1e-3).fit(X_train, y_train)
print(f"C={final.C:g} on all training rows: {final.score(X_test, y_test):.4f} on the test rows")
