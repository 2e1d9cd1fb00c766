# shellcheck shell=bash
# Sourced by ./weir and ./test: finds or installs what building needs. Never asks a question; says what it installs, and stops
# with the exact command where it cannot.

RUST_NEEDED=1.85 # Debian 13's: Cargo.toml, rust-version

ARGUMENTS=("$@") # of the command that this is sourced by

say() { echo "$NAME: $*" >&2; }
stop() { say "$*"; exit 1; }

# at_least HAVE WANTED: versions as 1.85.0 or 1.85.0+dfsg3-1
at_least() { [ "$(printf '%s\n%s\n' "$2" "${1%%[+~-]*}" | sort -V | head -n 1)" = "$2" ]; }

# A service or a container may have no HOME, or somebody else's; cargo keeps its downloads in one.
find_home() {
  local dir
  for dir in "${HOME:-}" "$(getent passwd "$(id -u)" | cut -d: -f6)" "$ROOT/.cache/home"; do
    [ "$dir" != "$ROOT/.cache/home" ] || mkdir -p "$dir" 2>/dev/null || true
    if [ -n "$dir" ] && [ -d "$dir" ] && [ -w "$dir" ]; then
      export HOME=$dir
      return
    fi
  done
  stop "user $(whoami 2>/dev/null || id -u) cannot write to a HOME, nor to $ROOT; run this:  $(elsewhere)"
}

# The same command with its folders where this user may write.
elsewhere() {
  local dir again
  dir=/var/tmp/weir-$(id -u)
  again=$(printf '%q ' "$0" "${ARGUMENTS[@]}")
  if [ -n "${HOME:-}" ] && [ -w "$HOME" ]; then
    echo "CARGO_TARGET_DIR=$(printf %q "$HOME/.cache/weir-target") ${again% }"
  else
    echo "mkdir -m 700 $dir; HOME=$dir CARGO_TARGET_DIR=$dir/target ${again% }"
  fi
}

# writable_target FOLDER: where the build goes.
writable_target() {
  if ! mkdir -p "$1" 2>/dev/null || [ ! -w "$1" ]; then
    stop "user $(whoami 2>/dev/null || id -u) cannot write to $1, where the build goes; run this:  $(elsewhere)"
  fi
}

# as_root COMMAND: how this user runs it as root.
as_root() { if command -v sudo >/dev/null; then echo "sudo sh -c '$1'"; else echo "su -c '$1'"; fi; }

# install_packages WHY PACKAGE...: by apt, as root or with a sudo that asks for no password.
install_packages() {
  local why=$1 as="" command
  shift
  command="apt-get install -y --no-install-recommends $*"
  command -v apt-get >/dev/null || stop "$why: install the equivalents of these Debian packages: $*"
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
      stop "$why, and this is not root; run this once:  $(as_root "apt-get update && $command")"
    fi
    as="sudo -n"
  fi
  say "$why: installing $*"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086
  if ! { $as apt-get -qq update && $as env DEBIAN_FRONTEND=noninteractive $command; } </dev/null >&2; then
    command="apt-get update && $command"
    [ -z "$as" ] || command=$(as_root "$command")
    stop "$why, and apt failed; run this and look at what it says:  $command"
  fi
}

# The newest cargo among PATH, this user's own toolchain, and that of the user behind sudo.
find_cargo() {
  local homes=("$HOME") home dir have
  if [ -n "${SUDO_USER:-}" ]; then
    home=$(getent passwd "$SUDO_USER" | cut -d: -f6) && [ -n "$home" ] && homes+=("$home")
  fi
  for dir in "" "${homes[@]/%//.cargo/bin}"; do
    have=$(PATH=${dir:+$dir:}$PATH rustup_of "$dir" rustc --version 2>/dev/null | cut -d' ' -f2) || continue
    if [ -z "$have" ] || ! at_least "$have" "$RUST_NEEDED"; then continue; fi
    PATH=${dir:+$dir:}$PATH rustup_of "$dir" cargo --version >/dev/null 2>&1 || continue
    if [ -n "$dir" ]; then
      PATH=$dir:$PATH
      rustup_home "$dir"
      export PATH
    fi
    return 0
  done
  return 1
}

# Another user's toolchain lies in that user's home.
rustup_home() {
  if [ -z "${RUSTUP_HOME:-}" ] && [ -d "${1%/.cargo/bin}/.rustup" ]; then
    export RUSTUP_HOME=${1%/.cargo/bin}/.rustup
  fi
}
rustup_of() {
  local dir=$1
  shift
  (if [ -n "$dir" ]; then rustup_home "$dir"; fi; exec "$@")
}

candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p' | sed 's/^[0-9]*://;s/^(none)$//'; }

# Debian 13 has rustc; Debian 12 a second, newer one that its browsers are built with.
install_cargo() {
  local suffix version
  if command -v apt-get >/dev/null; then
    [ -n "$(candidate rustc)" ] || { [ "$(id -u)" = 0 ] && apt-get -qq update </dev/null >&2; } || true
    for suffix in "" -web; do
      version=$(candidate "rustc$suffix")
      if [ -n "$version" ] && at_least "$version" "$RUST_NEEDED"; then
        install_packages "Rust $RUST_NEEDED or later is missing" "rustc$suffix" "cargo$suffix"
        find_cargo && return
      fi
    done
  fi
  stop "Rust $RUST_NEEDED or later is missing, and this system's packages have $(candidate rustc | sed 's/^$/none/'); install a toolchain as the Rust project describes (rustup toolchain install stable), then start this again"
}

# Everything that ./weir needs to build.
prepare() {
  local missing=()
  find_home
  writable_target "${CARGO_TARGET_DIR:-$ROOT/target}"
  command -v git >/dev/null || missing+=(git)
  command -v cc >/dev/null || missing+=(gcc libc6-dev)
  [ -s /etc/ssl/certs/ca-certificates.crt ] || [ -n "${SSL_CERT_FILE:-}" ] || [ -n "${CARGO_HTTP_CAINFO:-}" ] || missing+=(ca-certificates)
  [ "${#missing[@]}" = 0 ] || install_packages "tools for building are missing" "${missing[@]}"
  find_cargo || install_cargo
}
