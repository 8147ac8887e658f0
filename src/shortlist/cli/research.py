"""What the paper says, tried and drawn: `theory`, `paper`; and features of images."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from shortlist.cli.app import app, errors_in_one_line


@app.command()
def theory(
    depth: Annotated[int, typer.Option(help="Search so many times as deep.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0)] = 0,
) -> None:
    """Try to break every theorem of the paper; print the verdicts and the counter-examples.

    Takes about a minute at depth 1.
    """
    from shortlist.theory import verify

    begun = time.monotonic()
    typer.echo(str(verify(depth=depth, seed=seed)))
    typer.echo(f"\n{time.monotonic() - begun:.0f} s")


@app.command()
def paper(
    figures: Annotated[
        list[str] | None,
        typer.Argument(help="fig1 … fig6, losses. Default: all.", show_default=False),
    ] = None,
    data: Annotated[
        Path,
        typer.Option(
            help="Folder of feature files: cifar100.npz, imagenet.npz or tinyimagenet.npz, "
            "cifar10.npz, svhn.npz.",
            show_default=False,
        ),
    ] = Path("."),
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for figures, tables and the page.")
    ] = Path("shortlist-paper"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A look in a few minutes: one seed, few rows.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="How many; default 3, or 1 with --quick.", min=1)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes; default: one for each core.", min=1)
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Where to write the page; default: paper.md in the folder.")
    ] = None,
) -> None:
    """Compute the paper's figures from feature files, draw them, and judge its claims.

    LAC and the Shortlister stand beside the paper's curves. A run that was stopped goes on where
    it was. All of it takes half an hour on two cores, --quick a few minutes.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist.paper import run

        report = run(data, output, figures, quick=quick, seeds=seeds, workers=workers, page=page)
    table = Table(title="The paper's claims, on these data", title_justify="left")
    for name in ("claim", "figure", "verdict"):
        table.add_column(name)
    for found in report.findings:
        table.add_row(found.claim, found.where, found.verdict)
    if report.findings:
        Console().print(table)
    typer.echo(f"Figures and tables: {output}   ({time.monotonic() - begun:.0f} s)")
    typer.echo(f"Numbers behind the verdicts: {report.page}")


@app.command()
def features(
    images: Annotated[
        Path,
        typer.Argument(help="CIFAR's .tar.gz, SVHN's .mat, or a folder.", show_default=False),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The feature file, .npz.", show_default=False)
    ],
    model: Annotated[
        str,
        typer.Option(
            help="torchvision:NAME, timm:NAME, package.module:function or file.py:function.",
            show_default=False,
        ),
    ],
    layer: Annotated[
        str | None, typer.Option(help="The layer's dotted name; else the model's output.")
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help="auto, cifar10, cifar100, svhn or folder.")
    ] = "auto",
    weights: Annotated[Path | None, typer.Option(help="A state dict, .safetensors or .pt.")] = None,
    select_share: Annotated[
        float, typer.Option(help="The share of the training images for the selector.")
    ] = 0.4,
    size: Annotated[
        int | None, typer.Option(help="Resize the shorter side, keep the middle square.", min=1)
    ] = None,
    mean: Annotated[
        tuple[float, float, float] | None, typer.Option(help="Subtract, for each channel.")
    ] = None,
    std: Annotated[
        tuple[float, float, float] | None, typer.Option(help="Divide, for each channel.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Images at a time.", min=1)] = 256,
    device: Annotated[str, typer.Option(help="auto is the GPU if there is one.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the random parts.", min=0)] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
) -> None:
    """Run a network over images; write a feature file with parts to fit, to select and to test.

    A folder has one folder for each class, or such folders in train/ and test/ (or val/). Models of
    torchvision and timm have their published weights and preparation, unless --weights is given.
    """
    begun = time.monotonic()
    with errors_in_one_line():
        from shortlist.datasets.recipe import Recipe

        recipe = Recipe(
            images=images,
            output=output,
            model=model,
            layer=layer,
            form=form,
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
        file = recipe.make()
    typer.echo(
        f"{output}: {file.fit.x.shape[1]} features, {len(file.classes)} classes; "
        f"{len(file.fit):,} rows to fit, {len(file.select):,} to select, {len(file.test):,} to test"
        f"   ({time.monotonic() - begun:.0f} s)"
    )
    typer.echo(_NEXT.format(path=str(output)))


_NEXT = """
Next, in Python:
    import shortlist as sl
    file = sl.datasets.load({path!r}, "features")
    classifier = sl.LinearClassifier().fit(file.fit.x, file.fit.y)
    scores = [classifier.decision_function(part.x) for part in (file.select, file.test)]
    found = sl.compare(
        scores[0], file.select.y, features=file.select.x,
        test=(scores[1], file.test.y, file.test.x),
    )
    print(found)"""
