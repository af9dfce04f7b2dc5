# Brinell in a container. Two commands, in a checkout:
#
#   docker build --tag brinell .
#   docker run --rm --volume "$PWD/runs:/work/runs" brinell audit --out runs/digits
#
# On a GPU: name an index whose torch is made for its driver, and hand the GPU to the container:
#
#   docker build --tag brinell:cuda --build-arg TORCH_INDEX=ADDRESS .
#   docker run --rm --gpus all --volume "$PWD/runs:/work/runs" brinell:cuda audit --out runs/digits
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS wheel
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:${PYTHON}-slim
# The address of an index that holds torch alone, say for one version of CUDA or for processors;
# without it, torch comes from pip's own index.
ARG TORCH_INDEX=
# What the container can open: onnx, sklearn, vision, hf, ecg, video, http, or all.
ARG EXTRAS=all
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir torch ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} \
    && pip install --no-cache-dir "$(echo /wheels/brinell-*.whl)[$EXTRAS]" \
    && rm -r /wheels

# Files that a run writes belong to the first user of most machines, never to root.
RUN useradd --create-home --uid 1000 brinell && mkdir -p /work/runs && chown -R brinell /work
USER brinell
WORKDIR /work
ENTRYPOINT ["brinell"]
CMD ["--help"]
