#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs the Debian packages that building and testing need, those that are missing only.
# Starts no service: a policy that forbids it stands in while packages are set up.
#   tools/setup.sh            all
#   tools/setup.sh --build    what the build needs, nothing for the tests
#   tools/setup.sh --more PACKAGE...    all, and these
set -eu

build="gcc make meson ninja-build pkg-config binutils libzydis-dev libelf-dev libdw-dev libzstd-dev liblzma-dev zlib1g-dev
  libdeflate-dev libjansson-dev libcmocka-dev libiberty-dev libxxhash-dev libsqlite3-dev libedit-dev libncurses-dev libmicrohttpd-dev libnats-dev"
test="python3 g++ clang valgrind sqlite3 redis-server redis-tools nodejs perl git xz-utils uftrace musl-tools libc6-dbg
  libc6-dev debuginfod libclang-rt-14-dev libunwind-14 libunwind8 tar gzip bzip2 zstd diffutils patch findutils grep sed mawk bc dc bash dash openssl procps bsdextrautils
  util-linux lua5.4 tcl busybox golang-go rustc luajit gnucobol4 gfortran tmux python3-greenlet python3-gevent python3-eventlet ruby nats-server"
wanted=$build
[ "${1:-}" = --build ] || wanted="$build $test"
if [ "${1:-}" = --more ]; then
  shift
  wanted="$wanted $*"
fi

if ! command -v dpkg-query >/dev/null; then
  echo "tools/setup.sh: no Debian package system here; needed are:" $wanted >&2
  exit 1
fi

missing=
for package in $wanted; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
echo "installing:$missing"

as_root=
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || {
    echo "tools/setup.sh: run as root, or install:$missing" >&2
    exit 1
  }
  as_root=sudo
fi

# 101 is "action forbidden": invoke-rc.d then starts nothing.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
  $as_root chmod 755 $policy
  trap '$as_root rm -f $policy' EXIT INT TERM
fi

install() {
  $as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 $missing >"$log" 2>&1
}
log=$(mktemp)
if ! install; then
  $as_root apt-get update -qq >>"$log" 2>&1 || true
  install || {
    tail -n 20 "$log" >&2
    exit 1
  }
fi
rm -f "$log"
