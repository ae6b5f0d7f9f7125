#!/usr/bin/env bash
# Traces a static program inside a root that has nothing but that program and the two commands: no C library, no shell, no
# /etc. Usage: packaging/check.sh ROOT BIN, where ROOT/BIN has `agent` and `collector`.
set -euo pipefail
if [ "${SPOOR_APART-}" != 1 ]; then
    # Mounts and processes of its own: nothing is left of them at the end, however that comes.
    as_root=(); [ "$(id -u)" = 0 ] || as_root=(--user --map-root-user)
    exec env SPOOR_APART=1 unshare "${as_root[@]}" --mount --pid --fork --kill-child "$0" "$@"
fi
root=$(realpath "$1") bin=$2

fail() {
    printf 'check.sh: %s\n' "$1" >&2
    cat "$root"/log.* >&2
    exit 1
}
# Runs a command in the root, with no environment, and keeps what it says.
inside() {
    env -i "$(command -v chroot)" "$root" "$@" >"$root/log.out" 2>"$root/log.err"
}
# The same, and checks how it ends.
expect() {
    local wanted=$1 code=0
    shift
    inside "$@" || code=$?
    [ $code = "$wanted" ] || fail "expected $wanted and got $code: $*"
}
said() {
    grep -q -- "$1" "$root/log.out" "$root/log.err" || fail "expected: $1"
}

cat >"$root/program.c" <<'C'
#include <pthread.h>
#include <stdio.h>
static int __attribute__((noinline)) fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
static void *run(void *argument) { return fibonacci(10) == 55 ? argument : NULL; }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    pthread_join(thread, NULL);
    printf("%d\n", fibonacci(12));
    return 7;
}
C
cc -O1 -static -o "$root/program" "$root/program.c"
mkdir -p "$root/proc"

# Without /proc, it says what to do.
expect 125 "$bin/agent" run -- /program
said 'mount -t proc'
expect 1 "$bin/agent" doctor
said 'FAILED  proc '

mount -t proc proc "$root/proc"
# glibc that is linked statically reads random numbers from there.
if grep -qa 'GNU C Library' "$root/$bin/collector"; then
    mkdir -p "$root/dev"
    for file in /dev/random /dev/urandom; do
        touch "$root$file"
        mount --bind "$file" "$root$file"
    done
fi
expect 0 "$bin/agent" doctor
said 'ok      native '
! grep -q FAILED "$root/log.out" || fail 'something is wrong'

: >"$root/log.collector"
env -i "$(command -v chroot)" "$root" "$bin/collector" --listen 127.0.0.1:0 --once --sink disk:/traces 2>"$root/log.collector" &
for _ in $(seq 100); do
    port=$(sed -n 's/^listening tcp 127.0.0.1:\([0-9]*\)$/\1/p' "$root/log.collector")
    [ -z "$port" ] || break
    sleep 0.1
done
expect 7 "$bin/agent" run --engine native --transport tcp --to "127.0.0.1:$port" -- /program
said '^144$'
said 'nothing lost$'
wait $! || fail 'the collector failed'
expect 0 "$bin/collector" verify /traces
said 'intact: 2 threads'
expect 0 "$bin/collector" top /traces
said fibonacci

expect 7 "$bin/agent" record -o /recorded -- /program
said 'nothing lost$'
expect 0 "$bin/collector" verify /recorded
said 'intact: 2 threads'
