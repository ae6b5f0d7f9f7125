#!/usr/bin/env bash
# Builds `agent` and `collector` as static executables, which need nothing of the machine that they run on, and prints the
# folder that they are in. Arguments go to cargo: `packaging/static.sh --release`.
#
# For musl where rustup has that target and there is `musl-gcc`; else for the usual target with its C library linked in.
# That one finds hosts by their names only where the same version of glibc is installed; addresses work everywhere.
# SPOOR_STATIC_TARGET chooses one of the two targets.
set -euo pipefail
cd "$(dirname "$0")/.."

musl=x86_64-unknown-linux-musl gnu=x86_64-unknown-linux-gnu
has_musl() {
    command -v musl-gcc >/dev/null && [ -d "$(rustc --print sysroot)/lib/rustlib/$musl" ]
}
target=${SPOOR_STATIC_TARGET:-$(if has_musl; then echo $musl; else echo $gnu; fi)}
case $target in
    "$musl") ;;
    # A folder of its own, since other flags would have cargo build everything else again, too.
    "$gnu") export RUSTFLAGS="${RUSTFLAGS-} -C target-feature=+crt-static" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/static" ;;
    *)
        echo "static.sh: SPOOR_STATIC_TARGET is $target; expected $musl or $gnu" >&2
        exit 2
        ;;
esac

# What is released answers questions in SQL. DataFusion takes too long to build for anything else.
for argument in "$@"; do
    if [ "$argument" = --release ]; then
        set -- "$@" --features collector/sql
        break
    fi
done
# cargo itself says where they are: that depends on the profile and on the folder.
cargo build --workspace --target "$target" --bin agent --bin collector --message-format json-render-diagnostics "$@" |
    sed -n 's/.*"executable":"\(.*\)\/agent".*/\1/p'
