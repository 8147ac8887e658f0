"""Data: artificial and from files; images, and the features that a network makes of them."""

from shortlist.datasets.cifar import read_cifar10, read_cifar100
from shortlist.datasets.extraction import extract_features
from shortlist.datasets.feature_files import DataFile, load, save
from shortlist.datasets.image_folder import read_image_folder
from shortlist.datasets.images import ImageFiles, Images
from shortlist.datasets.samples import FeatureFile, Samples
from shortlist.datasets.score_files import CandidateFile, ScoreFile
from shortlist.datasets.svhn import read_svhn
from shortlist.datasets.synthetic import digits, gaussian

__all__ = [
    "gaussian",
    "digits",
    "load",
    "save",
    "Samples",
    "FeatureFile",
    "CandidateFile",
    "ScoreFile",
    "DataFile",
    "read_cifar10",
    "read_cifar100",
    "read_svhn",
    "read_image_folder",
    "Images",
    "ImageFiles",
    "extract_features",
]
