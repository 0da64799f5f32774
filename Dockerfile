# The package with all that it needs, for one machine or as the image of the pods in launch/:
#
#   docker build --tag registry.example/dkge:VERSION .
#   docker run --rm --volume "$PWD/data:/data" registry.example/dkge:VERSION dkge nightly /data/store /data/tonight.changes
#
# For nodes with GPUs build with `--build-arg TORCH_INDEX=https://pypi.org/simple`: PyPI's torch has CUDA and is ten times
# as large.
FROM python:3.11-slim-bookworm

# libgomp1: the threads of numba's kernels. wget: KubeRay asks the nodes by it whether they are well.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 wget \
    && rm -rf /var/lib/apt/lists/*

# Into the interpreter of the image, no venv: KubeRay starts login shells, which forget a PATH that was set here.
# Dependencies first, so that a change of the code does not install them again.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /opt/dkge
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY dkge_dist/__init__.py dkge_dist/
RUN pip install --no-cache-dir --constraint constraints.txt --extra-index-url "$TORCH_INDEX" '.[ray-serve]'
COPY dkge_dist dkge_dist
COPY configs configs
COPY launch launch
RUN pip install --no-cache-dir --no-deps --force-reinstall .

# The user of the pods in launch/.
RUN useradd --create-home --uid 1000 dkge
USER 1000
WORKDIR /home/dkge

# Compiles the kernels once, into the user's cache. Another kind of processor than this one compiles them at first use.
RUN dkge demo --json > /dev/null

CMD ["dkge", "--help"]
