"""Train on arrays in memory, look at the proof, keep the model.

python examples/quickstart.py
"""

from tempfile import TemporaryDirectory

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dask_mcsvm import LinearMCSVC

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, stratify=y, random_state=0)

model = LinearMCSVC(C=0.1, tol=1e-3, random_state=0).fit(X_train, y_train)

print(f"accuracy on new rows   {model.score(X_test, y_test):.3f}")
print(f"relative gap           {model.gap_:.1e} after {model.n_iter_} epochs")
print(f"three best classes     {model.predict_topk(X_test[:1], 3)[0].tolist()}")

with TemporaryDirectory() as folder:
    model.save(f"{folder}/digits.zarr")  # Zarr and JSON: loading it runs no code
    again = LinearMCSVC.load(f"{folder}/digits.zarr")

assert (again.predict(X_test) == model.predict(X_test)).all()
assert (again.to_linear_svc().predict(X_test) == model.predict(X_test)).all()
