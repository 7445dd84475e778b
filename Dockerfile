# The command `spinney` in a small image: docker build -t spinney .
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked -p spinney-cli --bin spinney

FROM debian:bookworm-slim
RUN useradd --system --no-create-home --uid 10001 spinney && install -d -o spinney /data
COPY --from=build /src/target/dist/spinney /usr/local/bin/spinney
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/spinney/
USER spinney
VOLUME /data
WORKDIR /data
# JSON-RPC and metrics, where the command is told to serve them.
EXPOSE 8645 9100
ENTRYPOINT ["spinney"]
CMD ["--help"]
