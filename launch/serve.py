"""The HTTP API of `dkge serve` as a Ray Serve application: replicas on every node, more of them when more is asked.

    export DKGE_TOKEN="$(openssl rand -hex 32)"     # on every node; whoever asks sends it: `Authorization: Bearer ...`
    serve run launch.serve:app store=/shared/dkge/store
    serve run launch.serve:app store=s3://bucket/store version=production max_replicas=8

STORE is in a bucket, or on a file system that all nodes share. A replica maps the tables: those of one node share their
pages. Every replica follows the store by itself, and swaps to a new version between two requests: nothing has to be
deployed again. rayservice.yaml is the same for Kubernetes. Without a token only loopback is answered.
"""

from collections.abc import Callable

from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig

from dkge_dist.surfaces.http.guards import App
from dkge_dist.surfaces.http.options import ServeOptions
from dkge_dist.types import UsageError

NUMBERS = {"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 4, "threads": 4, "num_cpus": 1}
"""What may be said beside store and version, with its default. A replica answers `threads` questions at once."""


def app(args: dict[str, str]) -> Application:
    """The application: `store`, and if wanted `version` (a version or alias to follow) and what NUMBERS has."""
    unknown = set(args) - {"store", "version", *NUMBERS}
    if unknown or "store" not in args:
        raise UsageError(f"give store=STORE, and if wanted version=V, {', '.join(f'{name}=N' for name in NUMBERS)}")
    try:
        number = {name: float(args.get(name, value)) for name, value in NUMBERS.items()}
    except ValueError:
        raise UsageError(f"{', '.join(NUMBERS)}: give numbers") from None
    # Nothing is known of where the proxies listen; without a token, guards answer to loopback names alone.
    options = ServeOptions(args["store"], version=args.get("version"), threads=int(number["threads"]), workers=1)
    deployment = serve.deployment(
        name="dkge",
        num_replicas=None,
        autoscaling_config=AutoscalingConfig(
            min_replicas=int(number["min_replicas"]),
            max_replicas=int(number["max_replicas"]),
            target_ongoing_requests=number["target_ongoing_requests"],
        ),
        # More wait in a replica than it answers at once; the others go to other replicas, or wait for them.
        max_ongoing_requests=4 * int(number["threads"]),
        ray_actor_options={"num_cpus": number["num_cpus"]},
        health_check_period_s=10,
        health_check_timeout_s=30,
        graceful_shutdown_timeout_s=30,
    )
    return deployment(serve.ingress(_builder(options))()).bind()


def _builder(options: ServeOptions) -> Callable[[], App]:
    """A function that a replica calls when it starts: its token is that of its own node."""

    def build() -> App:
        from dkge_dist.surfaces.http.server import app_of

        return app_of(options.checked())

    return build
