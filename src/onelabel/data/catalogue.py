"""The four benchmarks: their official addresses, what to put where, and the statistics the papers print."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onelabel.system import atomic_write, say

from .archives import extract
from .download import download
from .report import DataError


@dataclass(frozen=True)
class Archive:
    """An official file and its MD5, as the owners or torchvision give it."""

    url: str
    md5: str

    @property
    def file(self) -> str:
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Published:
    """A benchmark's statistics as printed (Cole et al. 2021, Tables A2 and A3; Zhou et al. 2022, Table 4)."""

    classes: int
    train: int
    validation: int
    test: int
    mean: float  # positives per training image
    lowest: int
    highest: int
    intervals: dict[int, tuple[float, float]]  # Table A2: of k from 5, 10 and 25 images


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark comes from and what it must hold."""

    name: str
    archives: tuple[Archive, ...]
    layout: str
    terms: str
    published: Published


_COCO = "http://images.cocodataset.org"
BENCHMARKS: dict[str, Benchmark] = {
    "voc2012": Benchmark(
        "voc2012",
        (
            Archive(
                "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
                "6cd6e144f989b92b3379bac3b3de84fd",
            ),
        ),
        "VOCdevkit/VOC2012/{JPEGImages,ImageSets/Main,Annotations}",
        "Flickr terms, research use: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/",
        Published(20, 4574, 1143, 5823, 1.46, 1, 5, {5: (1.0, 2.0), 10: (1.1, 1.9), 25: (1.2, 1.7)}),
    ),
    "coco2014": Benchmark(
        "coco2014",
        (
            Archive(f"{_COCO}/annotations/annotations_trainval2014.zip", "0a379cfc70b0e71301e0f377548639bd"),
            Archive(f"{_COCO}/zips/train2014.zip", "0da8c0bd3d6becc4dcb32757491aca88"),
            Archive(f"{_COCO}/zips/val2014.zip", "a3d79f5ed8d289b7a7554ce06a5782b3"),
        ),
        "annotations/instances_{train,val}2014.json, train2014/*.jpg, val2014/*.jpg",
        "annotations CC BY 4.0, pictures under Flickr terms: https://cocodataset.org/#termsofuse",
        Published(80, 65665, 16416, 40137, 2.94, 1, 18, {5: (1.8, 4.4), 10: (2.1, 4.0), 25: (2.4, 3.6)}),
    ),
    "nuswide": Benchmark(
        "nuswide",
        (),
        "ConceptsList/Concepts81.txt, ImageList/{Train,Test}Imagelist.txt,\n"
        "    Groundtruth/TrainTestLabels/Labels_*_{Train,Test}.txt, Flickr/FOLDER/NAME.jpg",
        "no public address for the pictures: ask the Lab for Media Search (NUS) at\n"
        "    https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html",
        Published(81, 120000, 30000, 60260, 1.89, 0, 11, {5: (0.8, 3.2), 10: (1.0, 2.8), 25: (1.3, 2.5)}),
    ),
    "cub": Benchmark(
        "cub",
        (
            Archive(
                "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
                "97eceeb196236b17998738112f37df78",
            ),
        ),
        "attributes.txt, CUB_200_2011/{images,images.txt,train_test_split.txt},\n"
        "    CUB_200_2011/attributes/image_attribute_labels.txt",
        "non-commercial research and education: https://www.vision.caltech.edu/datasets/cub_200_2011/",
        Published(312, 4795, 1199, 5794, 31.4, 3, 71, {5: (25.2, 37.8), 10: (27.0, 35.9), 25: (28.6, 34.2)}),
    ),
}


def benchmark(name: str) -> Benchmark:
    """The benchmark of that name."""
    if name not in BENCHMARKS:
        raise DataError(f"name: {name!r}, expected one of {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]


def instructions(name: str, root: str | Path) -> str:
    """What to put where, in words."""
    found = benchmark(name)
    lines = [f"{name}: put these below {Path(root) / name}", f"    {found.layout}", f"    terms: {found.terms}"]
    lines += [f"    from {archive.url} (md5 {archive.md5})" for archive in found.archives]
    return "\n".join(lines)


def download_benchmark(name: str, root: str | Path, *, keep: bool = False) -> Path:
    """Fetch and extract a benchmark below root/name; raises `DataError` with instructions where none can be fetched.

    Args:
        keep: leave the archives beside what they held.
    """
    found = benchmark(name)
    folder = Path(root).expanduser() / name
    if not found.archives:
        raise DataError(f"{name} cannot be downloaded.\n{instructions(name, root)}")
    say(f"{name}: {found.terms}")
    for archive in found.archives:
        mark = folder / f".{archive.file}.extracted"
        if mark.exists():
            say(f"{archive.file}: already extracted")
            continue
        file = download(archive.url, folder / archive.file, md5=archive.md5)
        extract(file, folder)
        atomic_write(mark, archive.md5)
        if not keep:
            file.unlink()
    return folder
