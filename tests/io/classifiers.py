"""Small scikit-learn classifiers of every trusted type, and models that contain them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, RadiusNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from zoo import FIT

import shortlist as sl

X, Y = FIT.x.astype(np.float64), FIT.y
COLUMNS = ColumnTransformer(
    [("scaled", StandardScaler(), [0, 1]), ("coded", OneHotEncoder(handle_unknown="ignore"), [2]),
     ("kept", "passthrough", slice(3, 5))]
)  # fmt: skip
RARE = OneHotEncoder(
    handle_unknown="infrequent_if_exist", max_categories=3, drop="first", sparse_output=False
)
ESTIMATORS = {
    "logistic": LogisticRegression(),
    "pipeline": make_pipeline(COLUMNS, SimpleImputer(), LogisticRegression()),
    "forest": RandomForestClassifier(4, max_depth=3, random_state=np.random.RandomState(0)),
    "extra trees": ExtraTreesClassifier(4, max_depth=3, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=3, random_state=0),
    "boosting from zero": GradientBoostingClassifier(n_estimators=2, init="zero", random_state=0),
    "histograms": HistGradientBoostingClassifier(max_iter=3, random_state=0),
    "ada": AdaBoostClassifier(n_estimators=3, random_state=0),
    "bagging": BaggingClassifier(DecisionTreeClassifier(max_depth=2), 3, max_features=3),
    "svc": SVC(probability=True, random_state=0),
    "svc without probabilities": SVC(),
    "neighbors": KNeighborsClassifier(),
    "neighbors by ball": KNeighborsClassifier(algorithm="ball_tree", metric="manhattan"),
    "neighbors by force": KNeighborsClassifier(algorithm="brute"),
    "neighbors by cosine": KNeighborsClassifier(metric="cosine", weights="distance"),
    "radius": RadiusNeighborsClassifier(radius=100.0),
    "radius by force": RadiusNeighborsClassifier(
        2.0, algorithm="brute", outlier_label="most_frequent"
    ),
    "bayes": GaussianNB(),
    "linear discriminant": LinearDiscriminantAnalysis(),
    "quadratic discriminant": QuadraticDiscriminantAnalysis(),
    "network": MLPClassifier((4,), max_iter=5, random_state=0),
    "descent": SGDClassifier(loss="log_loss", random_state=0),
    "sigmoid": CalibratedClassifierCV(LogisticRegression(), cv=2),
    "isotonic": CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=2),
    "frozen": FrozenEstimator(LogisticRegression().fit(X, Y)),
    "search": GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=2, scoring="neg_log_loss"),
    "split": GridSearchCV(GaussianNB(), {"var_smoothing": [0.1, 1]}, cv=StratifiedKFold(2)),
    "voting": VotingClassifier(
        [("a", GaussianNB()), ("b", DecisionTreeClassifier())], voting="soft"
    ),
    "stacking": StackingClassifier([("a", GaussianNB())], cv=2),
    "one against all": OneVsRestClassifier(LogisticRegression()),
    "one against one": OneVsOneClassifier(LogisticRegression()),
    "process": GaussianProcessClassifier(1.0 * RBF() + WhiteKernel(), optimizer=None),
    "selected": make_pipeline(FunctionTransformer(np.arcsinh), SelectKBest(k=2), GaussianNB()),
    "polynomial": make_pipeline(PolynomialFeatures(2), PCA(3), LogisticRegression()),
    "coded": make_pipeline(FunctionTransformer(np.rint), RARE, LogisticRegression()),
    "binned": make_pipeline(
        KBinsDiscretizer(4, quantile_method="averaged_inverted_cdf"), LogisticRegression()
    ),
    "union": make_pipeline(
        make_union(StandardScaler(), QuantileTransformer(n_quantiles=20)),
        KNNImputer(),
        LogisticRegression(),
    ),
    "target encoder": make_pipeline(
        FunctionTransformer(np.rint), TargetEncoder(cv=2), GaussianNB()
    ),
    "kernel map": make_pipeline(Nystroem(n_components=8, random_state=0), LogisticRegression()),
    "prior": DummyClassifier(),
}


def model_with(fitted: object, rows: object = X) -> sl.ShortlistClassifier:
    """Return a model that contains a fitted classifier."""
    scores_of = getattr(fitted, "predict_proba", None) or fitted.decision_function  # type: ignore[attr-defined]
    method = sl.SplitConformal("lac", temperature=None).fit(scores_of(rows), Y)
    return sl.ShortlistClassifier.from_fitted(fitted, method)


def save(estimator: object, path: Path) -> tuple[sl.ShortlistClassifier, Path]:
    """Save a model that contains an estimator, after fitting it."""
    fitted = estimator if isinstance(estimator, FrozenEstimator) else clone(estimator).fit(X, Y)
    model = model_with(fitted)
    return model, model.save(path)
