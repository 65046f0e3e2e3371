"""Probabilities from margins: one temperature, found on rows that the model has not learned from.

python examples/calibrated_probabilities.py
"""

from sklearn.datasets import make_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dask_mcsvm import LinearMCSVC

X, y = make_classification(
    3000, 20, n_informative=12, n_classes=5, class_sep=1.5, flip_y=0.05, random_state=0
)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

svm = make_pipeline(StandardScaler(), LinearMCSVC(C=0.01, probability=True, random_state=0))
svm.fit(X_train, y_train)
probabilities = svm.predict_proba(X_test)

print(f"accuracy {svm.score(X_test, y_test):.3f}, temperature {svm[-1].temperature_:.2f}")
print(f"log loss {log_loss(y_test, probabilities):.3f}, of a blind guess 1.609")
for low, high in [(0.2, 0.5), (0.5, 0.8), (0.8, 1.0)]:
    best = probabilities.max(axis=1)
    some = (best > low) & (best <= high)
    right = (svm.predict(X_test) == y_test)[some].mean()
    print(f"said {low:.0%} to {high:.0%}: {some.sum():4d} rows, right in {right:.0%}")
