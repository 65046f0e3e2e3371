"""Text with many classes: a pipeline from sentences to labels, and a report of the run.

    python examples/text_pipeline.py [REPORT.html]

The sentences are made up here, so that nothing is downloaded: each of 200 topics has words of its
own and shares others with everybody. Put your own lists in the place of `texts` and `topics`.
"""

import sys

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from dask_mcsvm import LinearMCSVC
from dask_mcsvm.report import write_report

N_TOPICS, N_TEXTS = 200, 4000
rng = np.random.default_rng(0)
vocabulary = np.array([f"word{i}" for i in range(3000)])
own = rng.integers(3000, size=(N_TOPICS, 12))
labels = rng.integers(N_TOPICS, size=N_TEXTS)
topics = np.array([f"topic {c:03d}" for c in labels])
texts = [
    " ".join(vocabulary[np.concatenate([rng.choice(own[c], 4), rng.integers(3000, size=8)])])
    for c in labels
]

train, test, y_train, y_test = train_test_split(texts, topics, stratify=topics, random_state=0)

# Rows of unit length, which is what TfidfVectorizer makes, are what the solver likes best.
pipeline = make_pipeline(
    TfidfVectorizer(sublinear_tf=True, dtype=np.float32), LinearMCSVC(random_state=0)
)
pipeline.fit(train, y_train)
model = pipeline[-1]

print(f"{len(train)} texts, {model.n_features_in_} words, {model.classes_.size} topics")
print(f"accuracy {pipeline.score(test, y_test):.3f}, relative gap {model.gap_:.1e}")
rows = pipeline[:-1].transform(test)
hits = (model.predict_topk(rows, 5) == y_test[:, None]).any(axis=1)
print(f"the right topic is among the best five in {hits.mean():.0%} of the texts")

if len(sys.argv) == 2:
    write_report(model, sys.argv[1], rows, y_test, overwrite=True)
    print(f"open {sys.argv[1]} in a browser")
