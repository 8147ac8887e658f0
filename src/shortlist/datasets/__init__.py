"""Data: artificial and from files; images, and the features that a network makes of them."""

from shortlist.datasets._artificial import digits, gaussian
from shortlist.datasets._cifar import read_cifar10, read_cifar100
from shortlist.datasets._extract import extract_features
from shortlist.datasets._files import DataFile, load, save
from shortlist.datasets._folder import read_image_folder
from shortlist.datasets._images import ImageFiles, Images
from shortlist.datasets._samples import FeatureFile, Samples
from shortlist.datasets._scored import CandidateFile, ScoreFile
from shortlist.datasets._svhn import read_svhn

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
