"""`kafka-tools completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

import click

from gkafka.cli.commands import command
from gkafka.cli.output import write

__all__ = ["completion"]


@command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that lets SHELL complete commands and options.

    \b
    bash:  echo 'eval "$(kafka-tools completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(kafka-tools completion zsh)"' >> ~/.zshrc
    fish:  kafka-tools completion fish > ~/.config/fish/completions/kafka-tools.fish
    """
    from click.shell_completion import get_completion_class

    from gkafka.cli.app import COMPLETE, PROG, tools

    made = get_completion_class(shell)
    assert made is not None  # the choices above are click's
    write(made(tools, {}, PROG, COMPLETE).source().rstrip())
