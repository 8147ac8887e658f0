"""The commands `features`, `paper` and `theory`, which repeat the paper's work."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from shortlist._utils.extras import require
from shortlist.cli.app import Command, app, errors_in_one_line


@app.command(cls=Command)
def theory(
    depth: Annotated[int, typer.Option(help="Multiple of the default number of cases.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)] = 0,
) -> None:
    """Test every theorem of the paper numerically; print verdicts and counter-examples.

    The paper is Cardinality-Aware Set Prediction and Top-k Classification (Cortes and others,
    NeurIPS 2024), as on arXiv. The report also tests corrected and sharper bounds, and the steps
    of their proofs in docs/theory.md. The tests take about a minute with --depth 1.
    """
    from shortlist.theory import verify

    begun = time.monotonic()
    typer.echo(str(verify(depth=depth, seed=seed)))
    typer.echo(_THEORY_LEGEND)
    typer.echo(f"{time.monotonic() - begun:.0f} s")


_THEORY_LEGEND = """
Statements are those of the paper on arXiv, unless they are called corrected or sharper;
docs/theory.md has their definitions and proofs. R is the surrogate regret, and the ratio is that
of the target regret to its bound, in the worst case: at most 1 where the statement holds, and close
to 1 where it is tight. The ratios "any" (above a million) and "inf" exceed every multiple of the
bound.
"""


@app.command(cls=Command)
def paper(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIGURES]...",
            help="Figures: fig1 to fig6, wide, settings, losses. Default: all.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path,
        typer.Option(
            help="Folder with the feature files cifar100_finetuned.npz or cifar100.npz, "
            "imagenet.npz or tinyimagenet.npz, cifar10.npz, and svhn.npz or fashion.npz. Default: "
            "the current folder.",
            show_default=False,
        ),
    ] = Path("."),
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for figures, tables and the report page.")
    ] = Path("shortlist-paper"),
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Use one seed and few rows, which takes minutes. Gives no verdicts."
        ),
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Use all rows, finer grids of lambda and other settings; needs a GPU."
        ),
    ] = False,
    seeds: Annotated[
        list[int] | None,
        typer.Option(
            "--seed",
            help="A seed. Can be given more than once. Default: 0 and 1; 0 with --quick; 0, 1 and "
            "2 with --full.",
            min=0,
            show_default=False,
        ),
    ] = None,
    stored: Annotated[
        bool,
        typer.Option("--stored", help="Compute nothing: use the outcomes in OUTPUT/kept alone."),
    ] = False,
    device: Annotated[
        str, typer.Option(help="Device to train on; auto for the GPU if there is one.")
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(help="Number of processes; default: one for each core, at most 8.", min=1),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="File for the report page; default: paper.md in the output folder."),
    ] = None,
) -> None:
    """Compute and plot the paper's figures from feature files, and check its claims.

    The paper is Cardinality-Aware Set Prediction and Top-k Classification (Cortes and others,
    NeurIPS 2024). After an interruption, the same command resumes the work. The default takes about
    half an hour on two cores.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist.io.set_files import check_folder
        from shortlist.paper import run

        check_folder(output / "points.csv")
        if page is not None:
            check_folder(page)
        require("matplotlib", "plotting the figures")
        if quick and full:
            raise ValueError("--quick and --full are both given; give at most one of them")
        report = run(
            data,
            output,
            figures,
            scale="quick" if quick else "full" if full else "default",
            seeds=seeds,
            workers=workers,
            device=device,
            stored=stored,
            page=page,
        )
    table = Table(title="The paper's claims, on these data", title_justify="left")
    for name in ("claim", "verdict", "single selector"):
        table.add_column(name)
    for finding in report.findings:
        table.add_row(finding.claim, finding.verdict, finding.single)
    if report.findings:
        Console().print(table)
    typer.echo(f"Figures and tables: {output}   ({time.monotonic() - begun:.0f} s)")
    typer.echo(f"Numbers behind the verdicts: {report.page}")


@app.command(cls=Command)
def features(
    images: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGES",
            help="Archive of CIFAR (.tar.gz) or SVHN (.mat), or a folder of images.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Feature file to write (.npz).", show_default=False),
    ],
    model: Annotated[
        str,
        typer.Option(
            help="Network: torchvision:NAME, timm:NAME, or a function that returns one: "
            "package.module:function or file.py:function.",
            show_default=False,
        ),
    ],
    layer: Annotated[
        str | None,
        typer.Option(
            help="Layer whose output is used, such as layer4.1; default: the output of the network."
        ),
    ] = None,
    image_format: Annotated[
        str,
        typer.Option("--format", help="Format of IMAGES: auto, cifar10, cifar100, svhn or folder."),
    ] = "auto",
    weights: Annotated[
        Path | None, typer.Option(help="State dict of the network (.safetensors or .pt).")
    ] = None,
    select_share: Annotated[
        float,
        typer.Option(
            help="Share of the training images for the split select; the others are for fit."
        ),
    ] = 0.4,
    size: Annotated[
        int | None,
        typer.Option(
            help="Resize the shorter side to SIZE pixels and crop the center square.", min=1
        ),
    ] = None,
    mean: Annotated[
        tuple[float, float, float] | None,
        typer.Option(help="Mean of each channel, to subtract from the image."),
    ] = None,
    std: Annotated[
        tuple[float, float, float] | None,
        typer.Option(help="Standard deviation of each channel, to divide the image by."),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Number of images in a batch.", min=1)] = 256,
    device: Annotated[
        str, typer.Option(help="Device of the network; auto for the GPU if there is one.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the random splits.", min=0)] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
) -> None:
    """Extract features of images with a network, and write them to a feature file.

    A folder of images has one subfolder for each class, optionally inside train/ and test/ (or
    val/). Networks of torchvision and timm use their published weights and preprocessing, unless
    --weights is given. The feature file has the splits `fit`, `select` and `test`.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist.datasets.images.feature_builder import FeatureBuilder

        builder = FeatureBuilder(
            images=images,
            output=output,
            model=model,
            layer=layer,
            image_format=image_format,
            weights=weights,
            select_share=select_share,
            size=size,
            mean=mean,
            std=std,
            batch_size=batch_size,
            device=device,
            seed=seed,
            force=force,
        )
        file = builder.build()
    typer.echo(
        f"{output}: {file.fit.x.shape[1]} features, {len(file.classes)} classes; "
        f"{len(file.fit):,} rows to fit, {len(file.select):,} to select, {len(file.test):,} to test"
        f"   ({time.monotonic() - begun:.0f} s)"
    )
    typer.echo(_NEXT.format(path=str(output)))


_NEXT = """
Next, in Python:
    import shortlist as sl
    file = sl.datasets.load({path!r})
    classifier = sl.LinearClassifier().fit(file.fit.x, file.fit.y)
    scores = [classifier.decision_function(part.x) for part in (file.select, file.test)]
    comparison = sl.compare(
        scores[0], file.select.y, features=file.select.x,
        test=(scores[1], file.test.y, file.test.x),
    )
    print(comparison)"""
