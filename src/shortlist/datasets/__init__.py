"""Data: files of rows and of features, images, and synthetic data."""

from shortlist.datasets.feature_files import load, save
from shortlist.datasets.images.cifar import read_cifar10, read_cifar100
from shortlist.datasets.images.containers import ImageFiles, Images
from shortlist.datasets.images.extraction import extract_features
from shortlist.datasets.images.folder import read_image_folder
from shortlist.datasets.images.svhn import read_svhn
from shortlist.datasets.row_files import read_rows, stream_rows
from shortlist.datasets.rows import Rows
from shortlist.datasets.samples import FeatureFile, GaussianSamples, Samples
from shortlist.datasets.synthetic import digits, gaussian

__all__ = [
    "gaussian",
    "digits",
    "Rows",
    "read_rows",
    "stream_rows",
    "Samples",
    "GaussianSamples",
    "FeatureFile",
    "load",
    "save",
    "read_cifar10",
    "read_cifar100",
    "read_svhn",
    "read_image_folder",
    "Images",
    "ImageFiles",
    "extract_features",
]
