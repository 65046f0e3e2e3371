"""A model for a service without Python: LinearSVC of scikit-learn, then ONNX.

    pip install skl2onnx onnxruntime
    python examples/to_onnx.py
"""

from importlib.util import find_spec

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dask_mcsvm import LinearMCSVC

if find_spec("skl2onnx") is None or find_spec("onnxruntime") is None:
    raise SystemExit(print("this example needs more; type: pip install skl2onnx onnxruntime"))

import onnxruntime
from skl2onnx import to_onnx

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    (X / 16).astype(np.float32), y, stratify=y, random_state=0
)
model = LinearMCSVC(formulation="ww", C=0.03, random_state=0).fit(X_train, y_train)
exported = to_onnx(model.to_linear_svc(), X_train[:1])  # all four formulations: scores are W x + b

session = onnxruntime.InferenceSession(exported.SerializeToString())
labels, scores = session.run(None, {session.get_inputs()[0].name: X_test})

print(f"{len(exported.SerializeToString()):,} bytes; accuracy {np.mean(labels == y_test):.3f}")
print("the same scores:", np.allclose(scores, model.decision_function(X_test), atol=1e-4))
print("the same labels:", (labels == model.predict(X_test)).all())
