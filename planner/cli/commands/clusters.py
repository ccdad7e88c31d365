"""`plan clusters`: list the clusters of the catalogue or show one."""

from collections.abc import Iterator

import click

from stagecut.models import build_cluster, cluster_names, describe_cluster
from stagecut.planner.cli.parameters.catalogue import is_file_name, load_cluster
from stagecut.planner.cli.parameters.files import NameOrFile
from stagecut.planner.cli.parameters.groups import example, general_options
from stagecut.planner.cli.process.writing import print_json, print_text
from stagecut.planner.core.cluster import Cluster, Link
from stagecut.planner.core.units import format_seconds
from stagecut.planner.core.visible import visible
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.files.cluster import to_tree
from stagecut.planner.report.labels import bandwidth_label, table_label
from stagecut.planner.report.summary import SCHEMA
from stagecut.planner.report.tables import cluster_table, device_type_table
from stagecut.planner.report.text_table import print_table


@click.group("clusters", invoke_without_command=True, epilog=example("plan clusters", "plan clusters show hetpipe-16"))
@general_options
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """List the clusters of the catalogue or show one."""
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
@click.argument("name", metavar="NAME|FILE", type=NameOrFile())
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
    print_table(device_type_table(cluster))
    click.echo()
    for what, link in _links(cluster):
        click.echo(f"{what}: {_figures(link)}{f' ({visible(link.source)})' if link.source else ''}")
    for server in cluster.servers:
        for island in server.islands:
            for table in island.all_reduce:
                among = f"{table.num_devices} x {island.device_type}"
                click.echo(f"{server.name}, all-reduce among {among}: {table_label(table.table)}")


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
