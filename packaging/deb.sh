#!/usr/bin/env bash
# Makes a Debian package `spoor` of the static executables, with manual pages, completions and the collector's unit, and
# prints its path. Arguments go to cargo: `packaging/deb.sh --release`.
set -euo pipefail
cd "$(dirname "$0")/.."

built=$(packaging/static.sh "$@")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"

for command in agent collector; do
    install -D -m 755 "$built/$command" "$tree/usr/bin/$command"
    strip "$tree/usr/bin/$command"
    write() { install -D -m 644 /dev/stdin "$tree/usr/share/$1"; }
    "$built/$command" man | gzip -9n | write "man/man1/$command.1.gz"
    "$built/$command" completions bash | write "bash-completion/completions/$command"
    "$built/$command" completions zsh | write "zsh/vendor-completions/_$command"
    "$built/$command" completions fish | write "fish/vendor_completions.d/$command.fish"
done
install -D -m 644 packaging/spoor-collector.service "$tree/usr/lib/systemd/system/spoor-collector.service"
install -D -m 644 LICENSE "$tree/usr/share/doc/spoor/copyright"
gzip -9n <CHANGELOG.md | install -m 644 /dev/stdin "$tree/usr/share/doc/spoor/changelog.gz"
# It is static, and so depends on nothing.
install -D -m 644 /dev/stdin "$tree/DEBIAN/control" <<CONTROL
Package: spoor
Version: $version
Architecture: amd64
Maintainer: The Spoor contributors <spoor@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f1)
Section: devel
Priority: optional
Description: trace every function call of a program
 The agent hooks every function of a program that nobody recompiled, and records
 each call and return. The collector receives the traces, here or on another
 machine, and accounts for every event.
CONTROL
mkdir -p target/package
dpkg-deb --root-owner-group -Zxz -z3 --build "$tree" "target/package/spoor_${version}_amd64.deb" >&2
printf '%s\n' "$PWD/target/package/spoor_${version}_amd64.deb"
