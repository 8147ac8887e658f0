"""The types that a saved scikit-learn classifier may contain.

skops creates every type that it is told to trust, with any of its loaders that the file names. A
trusted class can therefore be called with arguments from the file. For this reason each loader has
its own list of exact names here, and everything else is refused.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from types import ModuleType

import numpy as np
from scipy import special
from sklearn import metrics
from sklearn.feature_selection import chi2, f_classif, mutual_info_classif
from sklearn.neighbors import BallTree, KDTree
from sklearn.utils import Bunch, all_estimators

ESTIMATORS = frozenset({
    "AdaBoostClassifier", "BaggingClassifier", "BernoulliNB", "BernoulliRBM", "Binarizer",
    "CalibratedClassifierCV", "CategoricalNB", "ColumnTransformer", "ComplementNB",
    "CountVectorizer", "DecisionTreeClassifier", "DecisionTreeRegressor", "DummyClassifier",
    "EmpiricalCovariance", "ExtraTreeClassifier", "ExtraTreesClassifier", "FactorAnalysis",
    "FastICA", "FeatureUnion", "FixedThresholdClassifier", "FrozenEstimator",
    "FunctionTransformer", "GaussianNB", "GaussianProcessClassifier",
    "GaussianRandomProjection", "GenericUnivariateSelect", "GradientBoostingClassifier",
    "GridSearchCV", "HistGradientBoostingClassifier", "IncrementalPCA", "IsotonicRegression",
    "KBinsDiscretizer", "KNNImputer", "KNeighborsClassifier", "KernelCenterer", "KernelPCA",
    "LabelBinarizer", "LabelEncoder", "LedoitWolf", "LinearDiscriminantAnalysis", "LinearSVC",
    "LogisticRegression", "LogisticRegressionCV", "MLPClassifier", "MaxAbsScaler",
    "MinMaxScaler", "MissingIndicator", "MultinomialNB", "NearestCentroid",
    "NeighborhoodComponentsAnalysis", "Normalizer", "NuSVC", "Nystroem", "OAS", "OneHotEncoder",
    "OneVsOneClassifier", "OneVsRestClassifier", "OrdinalEncoder", "PCA",
    "PassiveAggressiveClassifier", "Perceptron", "Pipeline", "PolynomialFeatures",
    "PowerTransformer", "QuadraticDiscriminantAnalysis", "QuantileTransformer", "RBFSampler",
    "RFE", "RFECV", "RadiusNeighborsClassifier", "RandomForestClassifier", "RandomizedSearchCV",
    "RidgeClassifier", "RidgeClassifierCV", "RobustScaler", "SGDClassifier", "SVC", "SelectFdr",
    "SelectFpr", "SelectFromModel", "SelectFwe", "SelectKBest", "SelectPercentile",
    "SelfTrainingClassifier", "SequentialFeatureSelector", "ShrunkCovariance", "SimpleImputer",
    "SkewedChi2Sampler", "StackingClassifier", "StandardScaler", "TargetEncoder",
    "TfidfTransformer", "TfidfVectorizer", "TruncatedSVD", "TunedThresholdClassifierCV",
    "VarianceThreshold", "VotingClassifier",
})  # fmt: skip
"""Estimators of scikit-learn that are trusted. `fitted_estimators` checks those whose compiled code
trusts their fitted arrays. The others compute with NumPy, which checks shapes."""
HELPERS: Mapping[str, tuple[str, ...]] = {
    "sklearn.calibration": ("_CalibratedClassifier", "_SigmoidCalibration", "_TemperatureScaling"),
    "sklearn.multiclass": ("_ConstantPredictor",),
    "sklearn.ensemble._hist_gradient_boosting.binning": ("_BinMapper",),
    "sklearn.ensemble._hist_gradient_boosting.predictor": ("TreePredictor",),
    "sklearn._loss.link": (
        *("HalfLogitLink", "IdentityLink", "Interval", "LogLink", "LogitLink"),
        "MultinomialLogit",
    ),
    "sklearn._loss.loss": (
        *("ExponentialLoss", "HalfBinomialLoss", "HalfMultinomialLoss", "HalfSquaredError"),
    ),
    "sklearn.gaussian_process._gpc": ("_BinaryGaussianProcessClassifierLaplace",),
    "sklearn.gaussian_process.kernels": (
        *("CompoundKernel", "ConstantKernel", "DotProduct", "ExpSineSquared", "Exponentiation"),
        *("Matern", "PairwiseKernel", "Product", "RBF", "RationalQuadratic", "Sum", "WhiteKernel"),
    ),
    "sklearn.metrics._scorer": ("_PassthroughScorer", "_Scorer"),
    "sklearn.neural_network._stochastic_optimizers": ("AdamOptimizer", "SGDOptimizer"),
    "sklearn.model_selection._split": (
        *("GroupKFold", "GroupShuffleSplit", "KFold", "LeaveOneGroupOut", "LeaveOneOut"),
        *("RepeatedKFold", "RepeatedStratifiedKFold", "ShuffleSplit", "StratifiedGroupKFold"),
        *("StratifiedKFold", "StratifiedShuffleSplit", "TimeSeriesSplit"),
    ),
}
"""Other types in the attributes of fitted estimators, by module."""
LOSSES: Mapping[str, tuple[str, ...]] = {
    "sklearn._loss._loss": (
        *("CyExponentialLoss", "CyHalfBinomialLoss", "CyHalfMultinomialLoss"),
        "CyHalfSquaredError",
    ),
    "sklearn.linear_model._sgd_fast": (
        *("EpsilonInsensitive", "Hinge", "ModifiedHuber", "SquaredEpsilonInsensitive"),
        "SquaredHinge",
    ),
}
"""Loss functions in the attributes of fitted estimators, by module."""
FUNCTIONS = (
    *(chi2, f_classif, mutual_info_classif, metrics.accuracy_score, metrics.log_loss),
    *(metrics.average_precision_score, metrics.balanced_accuracy_score, metrics.brier_score_loss),
    *(metrics.f1_score, metrics.jaccard_score, metrics.matthews_corrcoef, metrics.precision_score),
    *(metrics.recall_score, metrics.roc_auc_score, metrics.top_k_accuracy_score),
)
"""Functions that are trusted, in addition to the ufuncs of NumPy and SciPy. They only compute."""
SCALARS = (
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, np.str_, np.bytes_, np.datetime64, np.timedelta64),
)


def name_of(member: object) -> str:
    """Return the full name of a type or function, as skops writes it.

    Parameters
    ----------
    member : type or callable
        Type or function.

    Returns
    -------
    str
    """
    return f"{member.__module__}.{getattr(member, '__name__', '')}"


def _names(members: Iterable[object]) -> frozenset[str]:
    return frozenset(map(name_of, members))


SEARCH_TREES = _names([BallTree, KDTree])
"""Search trees of nearest neighbors. They are built from their points and never loaded."""
GENERATORS = frozenset({name_of(np.random.Generator), "numpy.random.Generator"})
"""Random generators. They are never loaded, because no prediction uses them, and because NumPy
creates one by calling a function that the file names, which can take any time."""
NEVER_LOADED = SEARCH_TREES | GENERATORS


def _names_in(modules: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    return frozenset(f"{module}.{name}" for module, names in modules.items() for name in names)


def _ufuncs(module: ModuleType, *modules: str) -> set[str]:
    """Return the ufuncs of a module by the names that they have in several modules."""
    names = [name for name, value in vars(module).items() if isinstance(value, np.ufunc)]
    return {f"{one}.{name}" for one in modules for name in names}


@cache
def trusted_by_loader() -> Mapping[str, frozenset[str]]:
    """Return the types that each loader of skops may create.

    Returns
    -------
    mapping of str to frozenset of str
        Full names of types and functions, by loader. Other loaders may create nothing.
    """
    estimators = [cls for name, cls in all_estimators() if name in ESTIMATORS]
    public = [cls for cls in estimators if cls.__module__.split(".")[0] == "sklearn"]
    ufuncs = _ufuncs(np, "numpy", "numpy._core._multiarray_umath", "numpy.core._multiarray_umath")
    modules = ("scipy.special", "scipy.special._ufuncs", "scipy.special._special_ufuncs")
    ufuncs |= _ufuncs(special, *modules)
    return {
        "DictNode": _names([dict, collections.OrderedDict, Bunch]),
        "ListNode": _names([list]),
        "SetNode": _names([set]),
        "TupleNode": _names([tuple]),
        "SliceNode": _names([slice]),
        "JsonNode": _names([str]),
        "TypeNode": _names([int, float, str, bool, *SCALARS]),
        "NdArrayNode": _names([np.ndarray, *SCALARS]),
        "MaskedArrayNode": _names([np.ma.MaskedArray]),
        "DTypeNode": frozenset({"numpy.dtype"}),
        "RandomStateNode": frozenset({name_of(np.random.RandomState), "numpy.random.RandomState"}),
        "RandomGeneratorNode": GENERATORS,
        "FunctionNode": _names(FUNCTIONS) | ufuncs,
        "ObjectNode": _names(public) | _names_in(HELPERS) | SEARCH_TREES,
        "LossNode": _names_in(LOSSES),
        "TreeNode": frozenset({"sklearn.tree._tree.Tree"}),
    }


def check_trusted(trusted: Collection[str]) -> frozenset[str]:
    """Return the names of types that a user trusts, after checking that they are names.

    Parameters
    ----------
    trusted : collection of str
        Full names of types or functions.

    Returns
    -------
    frozenset of str
        The same names.

    Raises
    ------
    ValueError
        If `trusted` is not a list of full names.

    Examples
    --------
    >>> sorted(check_trusted(["mine.Model"]))
    ['mine.Model']
    """
    is_collection = isinstance(trusted, Sequence | set | frozenset)
    if not is_collection or isinstance(trusted, str | bytes) or not all(map(_is_name, trusted)):
        raise ValueError(
            f"trusted = {str(trusted)[:80]!r} is not a list of names; give the full name of each "
            'type, as the error of load lists them: trusted=["package.module.Type"]'
        )
    return frozenset(trusted)


def _is_name(text: object) -> bool:
    return isinstance(text, str) and "." in text and text.replace(".", "_").isidentifier()
