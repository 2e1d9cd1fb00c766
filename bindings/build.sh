# shellcheck shell=bash
# Sourced by ./weir for `lib`, `spdk-preload` and `fio-engine`: builds what other programs link or load, and installs it.

bindings_usage() {
  case $1 in
    lib) cat <<'EOF' ;;
usage: ./weir lib --prefix DIR [--static]
  builds libweir, the host driver and the store's client with a C ABI, and installs DIR/lib/libweir.so*, DIR/include/weir.h,
  DIR/include/weir_store.h and DIR/lib/pkgconfig/weir.pc; with --static DIR/lib/libweir.a as well
  example: ./weir lib --prefix ~/weir && PKG_CONFIG_PATH=~/weir/lib/pkgconfig cc app.c $(pkg-config --cflags --libs weir)
EOF
    spdk-preload) cat <<'EOF' ;;
usage: ./weir spdk-preload --prefix DIR
  builds the library that gives unmodified SPDK programs their queue priorities, and installs DIR/lib/libweir-spdk.so
  example: ./weir spdk-preload --prefix ~/weir && LD_PRELOAD=~/weir/lib/libweir-spdk.so ionice -c2 ./spdk_nvme_perf …
EOF
    fio-engine) cat <<'EOF' ;;
usage: ./weir fio-engine --fio-source DIR --prefix DIR
  builds fio's engine for Weir targets against a configured source tree of the fio that is to load it, and installs
  DIR/lib/libweir-fio.so with libweir beside it
  example: ./weir fio-engine --fio-source ~/fio --prefix ~/weir && fio --ioengine=external:$HOME/weir/lib/libweir-fio.so …
EOF
  esac
}

# build_bindings WHAT ARGUMENTS...
build_bindings() {
  local what=$1 prefix="" source="" static=false
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --prefix) [ $# -gt 1 ] || wrong_usage "$what" "--prefix wants a folder"; prefix=$2; shift ;;
      --prefix=*) prefix=${1#*=} ;;
      --fio-source) [ $# -gt 1 ] || wrong_usage "$what" "--fio-source wants a folder"; source=$2; shift ;;
      --fio-source=*) source=${1#*=} ;;
      --static) static=true ;;
      -h | --help) bindings_usage "$what"; exit 0 ;;
      *) wrong_usage "$what" "unknown argument '$1'" ;;
    esac
    shift
  done
  [ -n "$prefix" ] || wrong_usage "$what" "--prefix is missing"
  [ "$what" = lib ] || ! $static || wrong_usage "$what" "--static is for lib"
  [ "$what" = fio-engine ] || [ -z "$source" ] || wrong_usage "$what" "--fio-source is for fio-engine"
  if [ "$what" = fio-engine ]; then fio_tree "$source"; fi
  mkdir -p "$prefix/lib" || stop "cannot make $prefix/lib"
  prefix=$(cd "$prefix" && pwd)
  case $what in
    lib) install_lib "$prefix" "$static" ;;
    spdk-preload) compile_spdk "$prefix" ;;
    fio-engine) install_lib "$prefix" false && compile_fio "$prefix" ;;
  esac
}

wrong_usage() {
  echo "$NAME: $1: $2" >&2
  bindings_usage "$1" >&2
  exit 2
}

# put FILE PLACE: as one step, so that who has the old one loaded keeps it.
put() { if ! { cp "$1" "$2.new" && mv -f "$2.new" "$2"; }; then stop "cannot write $2"; fi; }

install_lib() {
  local prefix=$1 static=$2 version target private kinds=cdylib
  prepare
  target=${CARGO_TARGET_DIR:-$ROOT/target}/release
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1)
  ! $static || kinds=cdylib,staticlib
  cargo rustc -q --release --locked -p weir-capi --lib --crate-type "$kinds" --manifest-path "$ROOT/Cargo.toml" </dev/null >&2 ||
    stop "the build failed; the messages above say why"
  mkdir -p "$prefix/include" "$prefix/lib/pkgconfig" || stop "cannot make $prefix/include"
  put "$target/libweir.so" "$prefix/lib/libweir.so.$version"
  ln -sf "libweir.so.$version" "$prefix/lib/libweir.so.0"
  ln -sf libweir.so.0 "$prefix/lib/libweir.so"
  ! $static || put "$target/libweir.a" "$prefix/lib/libweir.a"
  put "$ROOT/bindings/c/include/weir.h" "$prefix/include/weir.h"
  put "$ROOT/bindings/c/include/weir_store.h" "$prefix/include/weir_store.h"
  put "$ROOT/bindings/c/include/weir_policy.h" "$prefix/include/weir_policy.h"
  # What the static library needs besides: the standard library's own.
  private="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"
  sed -e "s|@PREFIX@|$prefix|; s|@VERSION@|$version|; s|@PRIVATE@|$private|" "$ROOT/bindings/c/weir.pc.in" >"$prefix/lib/pkgconfig/weir.pc" ||
    stop "cannot write $prefix/lib/pkgconfig/weir.pc"
  say "installed libweir $version in $prefix; PKG_CONFIG_PATH=$prefix/lib/pkgconfig finds it"
}

CFLAGS_OURS=(-std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -shared)

# compiler: cc, installed where it is missing.
compiler() {
  command -v cc >/dev/null || install_packages "a C compiler is missing" gcc libc6-dev
}

compile_spdk() {
  compiler
  cc "${CFLAGS_OURS[@]}" -fvisibility=hidden "$ROOT/bindings/spdk-preload/weir_spdk.c" -o "$1/lib/libweir-spdk.so.new" -ldl -pthread \
    -Wl,-soname,libweir-spdk.so || stop "the build failed; the messages above say why"
  mv -f "$1/lib/libweir-spdk.so.new" "$1/lib/libweir-spdk.so"
  say "installed $1/lib/libweir-spdk.so; LD_PRELOAD names it"
}

# fio_tree DIR: is it a configured source tree of fio?
fio_tree() {
  [ -n "$1" ] || wrong_usage fio-engine "--fio-source is missing: distributions ship no headers of fio; name the source tree of your fio"
  [ -f "$1/ioengines.h" ] || stop "fio-engine: $1 is no source tree of fio: it has no ioengines.h"
  [ -f "$1/config-host.h" ] || stop "fio-engine: $1 is not configured; run this, then start again:  (cd $1 && ./configure)"
}

compile_fio() {
  compiler
  # fio's own headers are not written for our warnings. $ORIGIN is the loader's.
  # shellcheck disable=SC2016
  cc "${CFLAGS_OURS[@]}" -D_GNU_SOURCE -include "$source/config-host.h" -isystem "$source" -I"$1/include" \
    "$ROOT/bindings/fio/engine.c" -o "$1/lib/libweir-fio.so.new" -L"$1/lib" -lweir '-Wl,-rpath,$ORIGIN' ||
    stop "the engine does not compile against $source; the messages above say why"
  mv -f "$1/lib/libweir-fio.so.new" "$1/lib/libweir-fio.so"
  say "installed $1/lib/libweir-fio.so; run  fio --ioengine=external:$1/lib/libweir-fio.so"
}
