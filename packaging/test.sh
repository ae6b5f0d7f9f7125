#!/usr/bin/env bash
# Makes the package, installs it into an empty root, and traces there; checks the unit, and what the Containerfile copies and
# starts. As root. Arguments go to cargo.
set -euo pipefail
trap 'printf "test.sh: line %s failed: %s\n" "$LINENO" "$BASH_COMMAND" >&2' ERR
cd "$(dirname "$0")/.."

package=$(packaging/deb.sh "$@")
roots=$(mktemp -d)
trap 'rm -rf "$roots"' EXIT

# With the system's dpkg, since the root has none.
root=$roots/installed
mkdir -p "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/info"
touch "$root/var/lib/dpkg/status"
dpkg --root="$root" --force-script-chrootless --log=/dev/null --install "$package"
version=$(dpkg-deb --field "$package" Version)
for command in agent collector; do
    [ "$(chroot "$root" "/usr/bin/$command" --version)" = "$command $version" ]
    # Not through a pipe: who looks for one line closes it before all is written.
    grep -q "^.TH $command" <<<"$(gzip -dc "$root/usr/share/man/man1/$command.1.gz")"
    bash -n "$root/usr/share/bash-completion/completions/$command"
done
packaging/check.sh "$root" /usr/bin
dpkg --root="$root" --force-script-chrootless --log=/dev/null --remove spoor
[ ! -e "$root/usr/bin/agent" ]

# The unit: no unknown setting, and exposed no more than this (0 is not at all, 100 is all).
if command -v systemd-analyze >/dev/null; then
    unit=packaging/spoor-collector.service
    mkdir -p "$roots/unit" && sed 's|^ExecStart=/usr/bin/collector|ExecStart=/bin/true|' "$unit" >"$roots/unit/spoor-collector.service"
    said=$(systemd-analyze verify --man=no "$roots/unit/spoor-collector.service" 2>&1) || { printf '%s\n' "$said"; exit 1; }
    if grep spoor-collector <<<"$said"; then exit 1; fi
    systemd-analyze security --offline=true --threshold=15 "$roots/unit/spoor-collector.service" | tail -1
fi

# What the container has and starts, without an engine for containers.
built=$(packaging/static.sh "$@")
grep -qx 'FROM scratch' packaging/Containerfile
read -r -a copied <<<"$(sed -n 's/^COPY //p' packaging/Containerfile)"
to=${copied[-1]} && unset 'copied[-1]'
root=$roots/container
mkdir -p "$root$to" "$root$(sed -n 's/^VOLUME //p' packaging/Containerfile)"
for file in "${copied[@]}"; do cp "$built/$file" "$root$to"; done
# On a port that is free here.
mapfile -t words < <(sed -n 's/^\(ENTRYPOINT\|CMD\) //p' packaging/Containerfile | tr -d '[]",' | tr ' ' '\n' | sed 's/:7000$/:0/')
: >"$roots/container.log"
chroot "$root" "${words[@]}" 2>"$roots/container.log" &
for _ in $(seq 100); do
    ! grep -q '^writing to disk:/traces$' "$roots/container.log" || break
    sleep 0.1
done
kill -TERM $!
wait $!
grep -q '^listening tcp 0.0.0.0:' "$roots/container.log" || { cat "$roots/container.log"; exit 1; }
printf 'the package works: %s, %s bytes\n' "$package" "$(stat -c %s "$package")"
