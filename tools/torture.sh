#!/bin/sh
# SPDX-License-Identifier: MIT
# What `make torture` needs beyond tools/setup.sh: more Debian packages, and the sources of some, which are
# built or whose test-suites are run. Nothing of the system's own configuration is changed: apt's source lists for this
# are a private file.
#   tools/torture.sh BUILD-DIRECTORY
set -eu

here=$(cd "$(dirname "$0")" && pwd)
into=$1/sources
packages="libpython3.11-testsuite python3-dev python3-venv nginx-light postgresql-15 curl wget cmake gdb strace valgrind openjdk-17-jdk-headless
  golang-go rustc cargo php-cli ruby lua5.4 tcl guile-3.0 busybox vim-tiny gnupg openssh-client m4 bison autoconf groff-base
  openssl clang-14 dpkg-dev sbcl ocaml-nox ghc gnat gdc ldc gfortran fp-compiler fp-units-base fp-units-rtl mono-runtime mono-mcs erlang-base
  chicken-bin libchicken-dev chezscheme gforth swi-prolog-nox luajit pypy3 r-base-core
  python3-greenlet python3-gevent python3-eventlet python3-sqlalchemy crystal libgc-dev libpcre2-dev mariadb-server firefox-esr chromium
  libreoffice-calc-nogui libreoffice-writer-nogui wine wine64 file
  emacs-nox racket ffmpeg memcached haproxy lighttpd apache2 apache2-utils procps
  tcc clisp ecl sbcl chicken-bin gambc swi-prolog-nox erlang-base mono-runtime mono-mcs qemu-user bubblewrap fakeroot faketime proot tmux
  gnupg openssh-client imagemagick sox coccinelle wabt unison pandoc shellcheck minisat maxima octave gnuplot-nox polyml graphviz tcsh ksh
  mosquitto mosquitto-clients dnsmasq unbound socat rsync cppcheck varnish dbus stress-ng"
command -v npm >/dev/null || packages="$packages npm"
"$here/setup.sh" --more $packages

mkdir -p "$into/apt/parts" "$into/apt/lists" "$into/apt/cache"
into=$(cd "$into" && pwd)
# Programs of which hardly any function is known, and Go's without a text address in its table.
test -x "$into/npm/node_modules/bun/bin/bun.exe" || \
  npm install --no-audit --no-fund --silent --prefix "$into/npm" esbuild deno bun >"$into/npm.log" 2>&1 || tail -n 3 "$into/npm.log" >&2
if [ -d "$into/lua5.4-5.4.4" ] && [ -d "$into/perl-5.36.0" ] && [ -x "$into/git-2.39.5/t/helper/test-tool" ]; then
  exit 0
fi
cat >"$into/apt/parts/sources.sources" <<'END'
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
fetch() {
  apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$into/apt/parts" \
    -o Dir::State::lists="$into/apt/lists" -o Dir::Cache="$into/apt/cache" -o APT::Sandbox::User=root "$@"
}
cd "$into"
if fetch update >apt/log 2>&1 && fetch source lua5.4 zlib perl git >>apt/log 2>&1; then
  echo "building git's test helpers"
  nice make -s -C git-2.39.5 -j2 NO_GETTEXT=1 NO_TCLTK=1 NO_CURL=1 NO_EXPAT=1 NO_PERL= all >git.log 2>&1 || tail -n 5 git.log
else
  echo "tools/torture.sh: no sources, what needs them will be skipped" >&2
  tail -n 3 apt/log >&2
fi
