"""`plan clusters`: list the catalogue of clusters, device types and links, show a cluster, or write one."""

import shlex
from collections.abc import Iterator

import click

from stagecut.models import build_cluster, cluster_names, describe_cluster
from stagecut.models.clusters.commented import commented_text
from stagecut.models.clusters.description import described
from stagecut.models.clusters.device_types import KNOWN_TYPES, KnownType
from stagecut.models.clusters.links import LINKS
from stagecut.planner.cli.options.new_cluster import NewCluster
from stagecut.planner.cli.parameters.catalogue import is_file_name, load_cluster
from stagecut.planner.cli.parameters.files import NameOrFile
from stagecut.planner.cli.parameters.groups import example, general_options, option_group
from stagecut.planner.cli.process.writing import print_json, print_text
from stagecut.planner.core.catalogue import NamedLink
from stagecut.planner.core.cluster import Cluster, Link
from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.units import format_seconds
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.files.cluster import to_tree
from stagecut.planner.report.labels import bandwidth_label, table_label
from stagecut.planner.report.summary import SCHEMA
from stagecut.planner.report.tables import cluster_table, device_type_table, link_table
from stagecut.planner.report.text_table import print_table


@click.group("clusters", invoke_without_command=True, epilog=example("plan clusters", "plan clusters show hetpipe-16"))
@general_options
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """List the clusters of the catalogue, show one, or write a new one.

    `types` and `links` list the names that cluster files and descriptions may use.
    """
    if context.invoked_subcommand is not None:
        return
    clusters = [build_cluster(name) for name in cluster_names()]
    if as_json:
        print_json({"schema": SCHEMA, "clusters": [_summary(cluster) for cluster in clusters]})
    else:
        print_table(cluster_table(clusters))


@command.command(
    "show", epilog=example("plan clusters show hetpipe-16", "plan clusters show hetpipe-16 --json > my-cluster.json")
)
@click.argument("name", metavar="NAME|FILE|TEXT", type=NameOrFile())
@general_options
def show(name: str, *, as_json: bool) -> None:
    """Show the figures of one cluster, each with its source.

    --json prints a cluster file, ready to edit.
    """
    cluster = load_cluster(name)
    if as_json:
        print_text(format_json(to_tree(cluster)))
        return
    if not is_file_name(name):
        click.echo(f"{describe_cluster(name)}\n")
    print_table(cluster_table([cluster]))
    click.echo()
    print_table(device_type_table(cluster.device_types))
    click.echo()
    for what, link in _links(cluster):
        click.echo(f"{what}: {_figures(link)}{f' ({visible(link.source)})' if link.source else ''}")
    for server in cluster.servers:
        for island in server.islands:
            for table in island.all_reduce:
                among = f"{table.num_devices} x {island.device_type}"
                click.echo(f"{server.name}, all-reduce among {among}: {table_label(table.table)}")


@command.command(
    "new",
    epilog=example('plan clusters new "2x4 rtx-4090 pcie4x16 eth25 + 8 a100-80 nvlink3 ib-hdr200" -o lab.yaml'),
)
@click.argument("words", nargs=-1, required=True, metavar="TEXT")
@option_group(NewCluster, argument="outputs")
@general_options
def new(words: tuple[str, ...], outputs: NewCluster, *, as_json: bool) -> None:
    """Write a cluster file from a description.

    TEXT joins classes of identical hosts by +, each [HOSTSx]DEVICES TYPE [FABRIC] [INTERFACE]; further
    types in a host follow after commas. What is left out is usual for the type.
    --json, or a file whose name ends in .json, states all figures instead of names.
    """
    outputs.check()
    text = " ".join(words)
    cluster = described(text, name=outputs.name)
    if as_json or outputs.is_json:
        content = format_json(to_tree(cluster))
    else:
        content = commented_text(cluster, origin=f"plan clusters new {shlex.quote(text)}")
    if outputs.output is None:
        print_text(content)
    else:
        outputs.write(outputs.output, content)


@command.command("types", epilog=example("plan clusters types"))
@general_options
def types(*, as_json: bool) -> None:
    """List the device types of the catalogue, with their sources."""
    if as_json:
        print_json({"schema": SCHEMA, "device_types": [_type_answer(known) for known in KNOWN_TYPES]})
    else:
        print_table(device_type_table(known.kind for known in KNOWN_TYPES))


@command.command("links", epilog=example("plan clusters links"))
@general_options
def links(*, as_json: bool) -> None:
    """List the links of the catalogue, with their sources."""
    if as_json:
        print_json({"schema": SCHEMA, "links": [_link_answer(named) for named in LINKS]})
    else:
        print_table(link_table(LINKS))


def _type_answer(known: KnownType) -> dict[str, object]:
    return {**tree_of(known.kind), "usual_fabric": known.fabric, "usual_interface": known.interface}


def _link_answer(named: NamedLink) -> dict[str, object]:
    figures = tree_of(named.link, without=("table",))
    return {"name": named.name, "use": str(named.use), "shared": named.shared, **figures}


def _summary(cluster: Cluster) -> dict[str, object]:
    return {
        "name": cluster.name,
        "summary": describe_cluster(cluster.name),
        "servers": sum(server.count for server in cluster.servers),
        "devices": cluster.num_devices,
        "device_types": [kind.name for kind in cluster.device_types],
    }


def _figures(link: Link) -> str:
    bandwidth = bandwidth_label(link.large_message_bytes_per_s)
    if link.table:
        return f"{table_label(link.table)}, {bandwidth} beyond"
    return f"{bandwidth}, latency {format_seconds(link.latency_s)}"


def _links(cluster: Cluster) -> Iterator[tuple[str, Link]]:
    for server in cluster.servers:
        for island in server.islands:
            shared = ", shared by all" if island.shared else ""
            yield f"{server.name}, fabric of {island.device_type}{shared}", island.fabric
        if server.bridge is not None:
            yield f"{server.name}, between islands", server.bridge
        yield f"{server.name}, interface", server.nic
    yield "network", cluster.network
    for override in cluster.overrides:
        yield f"network between {' and '.join(override.servers)}", override.link
