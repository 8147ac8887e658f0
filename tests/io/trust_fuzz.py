"""Load models whose estimator was tampered with, and report whether anything was executed.

`python trust_fuzz.py SCRATCH LOADS MODEL...` prints the outcomes as JSON. It is a process of its
own, because an audit hook cannot be removed.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import pkgutil
import random
import sys
import warnings
from pathlib import Path

import numpy as np
import numpy.testing
import scipy.optimize
import scipy.stats
import sklearn
from tamper import (
    ESTIMATOR,
    IDS,
    called,
    constant,
    mapping,
    members_of,
    nodes_of,
    sequence,
    with_schema,
)

import shortlist as sl
from shortlist.io.persistence import ModelFileError

NAMED = [
    "os.system", "os.popen", "os.execv", "os.remove", "os.putenv", "posix.system",
    "subprocess.Popen", "subprocess.run", "subprocess.call", "subprocess.getoutput",
    "builtins.exec", "builtins.eval", "builtins.open", "builtins.compile", "builtins.__import__",
    "builtins.getattr", "builtins.setattr", "builtins.map", "builtins.print", "builtins.object",
    "builtins.type", "builtins.bytes", "builtins.bytearray", "builtins.memoryview",
    "numpy.testing._private.utils.runstring", "numpy.testing.rundocs", "numpy.load", "numpy.save",
    "numpy.fromfile", "numpy.memmap", "numpy.genfromtxt", "numpy.frompyfunc", "numpy.vectorize",
    "numpy.void", "numpy.object_", "numpy.apply_along_axis", "numpy.piecewise", "numpy.matrix",
    "numpy.f2py.compile", "numpy.f2py.run_main", "numpy.f2py.crackfortran.crackfortran",
    "numpy.random.seed", "numpy.random.Generator", "numpy.lib.npyio.NpzFile",
    "sklearn.datasets.load_files", "sklearn.datasets.load_svmlight_file",
    "sklearn.datasets.fetch_openml", "sklearn.datasets.load_iris", "sklearn.base.clone",
    "sklearn.utils.all_estimators", "sklearn.utils.estimator_html_repr", "sklearn.show_versions",
    "sklearn.utils.parallel.delayed",
    "sklearn.utils._testing.assert_run_python_script_without_output",
    "sklearn.externals._arff.load", "sklearn.neighbors.KernelDensity", "sklearn.cluster.Birch",
    "functools.partial", "functools.reduce", "operator.methodcaller", "operator.attrgetter",
    "operator.itemgetter", "operator.call", "pickle.loads", "pickle.load", "marshal.loads",
    "importlib.import_module", "runpy.run_path", "runpy.run_module", "code.interact", "pdb.run",
    "timeit.timeit", "ctypes.CDLL", "ctypes.cdll.LoadLibrary", "shutil.rmtree", "shutil.copy",
    "socket.socket", "webbrowser.open", "tempfile.mkdtemp", "pathlib.Path", "types.FunctionType",
    "types.CodeType", "joblib.load", "joblib.Memory", "joblib.Parallel", "torch.load",
    "torch.hub.load", "scipy.io.loadmat", "scipy.sparse.load_npz", "scipy.LowLevelCallable",
    "scipy.interpolate.BSpline", "skops.io.load", "shortlist.load", "antigravity.fly",
    "threading.Thread", "multiprocessing.Process", "collections.namedtuple", "logging.FileHandler",
]  # fmt: skip
LOADERS = [
    None, "ConstructorFromReduceNode", "FunctionNode", "TypeNode", "ListNode", "SetNode",
    "TupleNode", "DictNode", "ObjectNode", "LossNode", "TreeNode", "NdArrayNode", "PartialNode",
    "MethodNode", "OperatorFuncNode", "DefaultDictNode", "RandomStateNode", "RandomGeneratorNode",
    "DTypeNode", "MaskedArrayNode", "CachedNode", "BytesNode", "SparseMatrixNode", "NoSuchNode",
]  # fmt: skip
events: list[str] = []
watching = False
NETWORK = ("socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request")
FILES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.putenv", "os.link",
         "os.symlink", "shutil.rmtree", "shutil.copyfile", "tempfile.mkdtemp")  # fmt: skip
RUNNING = ("exec", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn",
           "subprocess.Popen", "ctypes.dlopen", "ctypes.dlsym", "marshal.loads",
           "pickle.find_class", "code.__new__", "pty.spawn", "webbrowser.open",
           "cpython.run_command")  # fmt: skip


def hook(event: str, args: tuple[object, ...]) -> None:
    """Record events that loading a model must never cause."""
    if not watching:
        return
    forbidden = event in (*RUNNING, *NETWORK, *FILES)
    if event == "compile":
        forbidden = args[1] != "<unknown>"  # The source of a literal.
    elif event == "open":
        forbidden = isinstance(args[1], str) and bool(set(args[1]) & set("wax+"))
    elif event == "import":
        forbidden = str(args[0]) not in sys.modules
    if forbidden:
        events.append(f"{event} {str(args)[:200]}")


def targets() -> list[str]:
    """Return `NAMED`, and functions, classes and methods of NumPy, scikit-learn and SciPy."""
    modules = [np, numpy.testing, np.lib, np.linalg, scipy.optimize, scipy.stats]
    for module_info in pkgutil.iter_modules(sklearn.__path__, "sklearn."):
        if not module_info.name.rpartition(".")[2].startswith(("_", "conftest", "tests", "exper")):
            modules.append(importlib.import_module(module_info.name))
    names = set()
    for module in modules:
        for own, value in sorted(vars(module).items()):
            if callable(value) and not own.startswith("__"):
                names.add(f"{module.__name__}.{own}")
                if inspect.isclass(value) and not own.startswith("_"):
                    methods = [m for m in vars(value) if m in ("fit", "predict", "__init__")]
                    names |= {f"{value.__module__}.{own}.{m}" for m in methods}
    drawn = random.Random(0).sample(sorted(names), 250)
    return [*NAMED, *sorted(set(drawn) - set(NAMED))]


def replace_node(node: dict, name: str, loader: str | None, mark: str) -> None:
    """Change a node so that a loader would use a target."""
    module, _, own = name.rpartition(".")
    code = constant(f"open({mark!r}, 'w').close()")
    node["__module__"], node["__class__"] = module, own
    node["__id__"] = next(IDS)  # skops uses the first node with an id for all others.
    if loader is None:
        return
    node["__loader__"] = loader
    plain = {**called(name), "__loader__": "FunctionNode"}
    node["attrs"] = node["__reduce__"] = {"args": sequence(code, mapping())}
    node["content"] = {
        "ConstructorFromReduceNode": sequence(code, mapping()),
        "ListNode": [code],
        "SetNode": [code],
        "TupleNode": [code, mapping()],
        "DictNode": {"a": code},
        "ObjectNode": mapping(a=code),
        "LossNode": mapping(a=code),
        "TreeNode": mapping(a=code),
        "PartialNode": {"func": plain, "args": sequence(code), "kwds": mapping(),
                        "namespace": constant(None)},
        "MethodNode": {"func": "fit", "obj": {**node}},
        "DefaultDictNode": {"main": mapping(a=code), "default_factory": plain},
        "RandomGeneratorNode": {"bit_generator": mapping(bit_generator=constant(own)),
                                "seed_seq": mapping(entropy=constant(1))},
    }.get(loader, sequence(code))  # fmt: skip
    if loader == "DictNode":
        node["key_types"] = sequence({**called(name), "__loader__": "TypeNode"}, kind="list")
    if loader == "OperatorFuncNode":
        node["__module__"], node["attrs"] = "operator", sequence(constant("system"), code)


def try_load(folder: Path, trusted: tuple[str, ...] = ()) -> str:
    """Load a model and return the outcome: "refused", "loaded", or the error of a crash."""
    global watching
    watching = True
    try:
        model = sl.load(folder, trusted=trusted)
        model.predict_set(np.zeros((2, 5)))
    except ModelFileError as error:
        return "refused" if len(str(error)) < 6000 and "\n" not in str(error) else str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        watching = False
    return "loaded"


def main() -> None:
    scratch, loads, folders = Path(sys.argv[1]), int(sys.argv[2]), [Path(p) for p in sys.argv[3:]]
    warnings.simplefilter("ignore")
    mark, names = str(scratch / "owned"), targets()
    schemas = {f: json.loads(members_of((f / ESTIMATOR).read_bytes())["schema.json"])
               for f in folders}  # fmt: skip
    for folder in folders:  # So that imports are done before the hook.
        model = sl.load(folder)
        model.predict_set(np.zeros((2, 5)))
        assert repr(model.estimator_)
    places = [(f, i) for f in folders for i in range(len(list(nodes_of(schemas[f]))))]
    rng = random.Random(1)
    if loads:
        work = [(*rng.choice(places), names[i % len(names)], rng.choice(LOADERS))
                for i in range(loads)]  # fmt: skip
    else:
        kinds = {(f, n["__loader__"], n["__module__"], n["__class__"]): (f, i)
                 for f in folders for i, n in enumerate(nodes_of(schemas[f]))}  # fmt: skip
        work = [(*place, name, rng.choice(LOADERS)) for place in kinds.values() for name in names]
        work += [(*place, name, rng.choice(LOADERS)) for place in places
                 for name in rng.sample(names, 10)]  # fmt: skip
    sys.addaudithook(hook)
    runs = "numpy.testing._private.utils.runstring"
    evil = called(runs, constant(f"open({mark + '0'!r}, 'w').close()"), mapping())
    try_load(with_schema(folders[0], scratch / "changed",
                      lambda s: s["content"].update(given=evil)), (runs,))  # fmt: skip
    canary, outcome, crashed, ran = len(events), {"refused": 0, "loaded": 0}, [], []
    events.clear()
    for folder, at, name, loader in work:

        def change(_: dict, folder=folder, at=at, name=name, loader=loader) -> dict:
            schema = copy.deepcopy(schemas[folder])
            replace_node(list(nodes_of(schema))[at], name, loader, mark)
            return schema

        end = try_load(with_schema(folder, scratch / "changed", change))
        where = f"{folder.name} node {at}: {name} by {loader}"
        if end in outcome:
            outcome[end] += 1
        else:
            crashed.append(f"{where}: {end[:200]}")
        if events or Path(mark).exists():
            ran.append(f"{where}: {events[:3]}")
            events.clear()
            Path(mark).unlink(missing_ok=True)
    print(json.dumps({"loads": len(work), "targets": len(names), "places": len(places),
                      "canary": canary, "ran": ran[:50], "crashed": crashed[:50],
                      **outcome}))  # fmt: skip


if __name__ == "__main__":
    main()
