"""`mdmt serve`: answer over HTTP, and learn if it is allowed."""

from __future__ import annotations

import gc
import sys
from typing import Annotated

import typer

from mdmt.system.packages import missing


def serve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder of the model.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address; another than this machine's own needs $MDMT_TOKEN.")
    ] = "127.0.0.1",
    learn: Annotated[
        bool, typer.Option("--learn", help="Also learn, roll back and forget; needs $MDMT_TOKEN.")
    ] = False,
    backbone: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Your own network, if the model has one: module:name."),
    ] = None,
) -> None:
    """Serve a model over HTTP. POST /predict; GET /info, /versions, /metrics, /docs, and a page."""
    try:
        from mdmt.living import serving, web_app
    except ImportError as error:
        raise missing("mdmt serve", str(error.name), "serve") from None
    from mdmt.cli.model_folder import open_model
    from mdmt.cli.progress import tell

    more = [] if backbone is None else ["--backbone", backbone]
    state = serving.Serving(open_model(model, backbone), learn=learn, more=more)
    token = serving.token_from_environment()
    server = web_app.make_server(state, host=host, port=port, token=token)
    tell(f"serving {model} at http://{host}:{port} (Ctrl-C ends it)")
    _prepare_process()
    server.run()


def _prepare_process() -> None:
    """Settings of Python without which answers wait: for the collector, and for each other."""
    gc.freeze()  # a collection that visits all of torch takes 80 ms
    sys.setswitchinterval(1e-4)  # the network's thread needs Python after each of its operations
