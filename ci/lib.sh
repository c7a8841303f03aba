# Shared by the scripts in this folder: where the project is, what it needs, how it says what it does.
# Source it; do not run it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# What compiling and running need, and reports besides. Names are Debian 12's.
compile_packages=(g++ cmake ninja-build ccache git libasmjit-dev libzydis-dev libfmt-dev nlohmann-json3-dev
  libexpected-dev libcli11-dev libgtest-dev libgmock-dev libbenchmark-dev libzstd-dev libxxhash-dev python3
  python3-dev pybind11-dev)
report_packages=(python3-matplotlib)
build_packages=("${compile_packages[@]}" "${report_packages[@]}")
# What the whole test run needs besides.
test_packages=(pyflakes3 python3-jsonschema python3-prometheus-client python3-pandas python3-scipy python3-sqlalchemy python3-alembic
  python3-psycopg2 python3-ujson python3-fastapi python3-uvicorn python3-httpx python3-junitparser python3-tap python3-yaml
  python3-more-itertools python3-sphinx python3-myst-parser furo zsh fish groff-base postgresql prometheus prometheus-node-exporter
  systemd chromium clang-19 clang-tidy-14 clang-format-14
  libclang-rt-19-dev valgrind)
# What the Debian packages are built and checked with besides.
packaging_packages=(dpkg-dev debhelper dh-dkms dh-python lintian debootstrap python3-numpy python3-pandas
  python3-scipy)
# What mutation testing needs besides.
mutation_packages=(python3-clang-14)

step() { printf "\n== %s (%d:%02d)\n" "$*" $((SECONDS / 60)) $((SECONDS % 60)); }
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 2
}

# quietly LOG COMMAND…: the command's output goes to a file, whose end is shown when it fails.
quietly() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 && return 0
  tail -n 30 "$log" >&2
  printf 'the whole log is %s\n' "$log" >&2
  return 1
}
# How far a build is, by its log: as Ninja counts, or how many objects were compiled, of `objects` where that is set.
objects=
progress_of() {
  local counted compiled
  counted=$(grep -aoE '^\[[0-9]+/[0-9]+\]' "$1" | tail -n 1 | tr -d '[]') || true
  compiled=$(grep -acE "${objects:+ -c |}^ +(CC|AS)(  +\[M\])? " "$1") || true
  if [ -n "$counted" ]; then
    printf ': %s' "${counted/\// of }"
  elif [ "${compiled:-0}" -gt 0 ]; then
    printf ': %d%s compiled' "$compiled" "${objects:+ of $objects}"
  fi
}
# patiently WHAT LOG COMMAND…: the command's output goes to the log. Where that takes more than a moment, it is said on standard error
# what is done, and every quarter of a minute how far it is.
patiently() {
  local what=$1 log=$2 ticker code=0
  shift 2
  : >"$log"
  (
    exec {never}<> <(:)
    # No `sleep`, which would outlive its parent and hold what it inherited; gone with the script, also where a key ends that.
    for ((i = 1; ; ++i)); do
      read -rt 1 -u "$never" || true
      kill -0 $$ 2>/dev/null || exit 0
      if [ "$i" = 2 ]; then printf '%s\n' "$what" >&2; fi
      if ((i % 15 == 0)); then printf '  %d:%02d%s\n' $((i / 60)) $((i % 60)) "$(progress_of "$log")" >&2; fi
    done
  ) &
  ticker=$!
  "$@" >"$log" 2>&1 || code=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  return "$code"
}
# slowly WHAT LOG COMMAND…: the same, and the log's end is shown when it fails.
slowly() {
  patiently "$@" && return 0
  tail -n 30 "$2" >&2
  printf 'the whole log is %s\n' "$2" >&2
  return 1
}

# Uses need_packages' as_root.
install_packages() {
  "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}
repair_packages() {
  local broken
  "${as_root[@]}" dpkg --configure -a || true
  broken=$(dpkg-query -W -f='${db:Status-Eflag} ${Package}\n' | sed -n 's/^reinstreq //p')
  # shellcheck disable=SC2086  # one argument for each package
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -f --reinstall $broken
}

# Installs the packages that are missing; quick when none is.
need_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  step "installing: ${missing[*]}"
  command -v apt-get >/dev/null || die "packages are missing and there is no apt-get" \
    "install the equivalents of: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "packages are missing and installing them needs root" \
      "as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  local log
  log=$(mktemp)
  if ! install_packages "${missing[@]}" >"$log" 2>&1; then
    # What a killed installation left half done refuses every other one.
    repair_packages >>"$log" 2>&1 || true
    if ! install_packages "${missing[@]}" >>"$log" 2>&1; then
      tail -n 20 "$log" >&2
      die "apt-get could not install: ${missing[*]}" "its last lines are above; the whole log is $log"
    fi
  fi
  rm -f "$log"
}

# Configures and builds a preset; further arguments are targets.
build_preset() {
  local preset=$1
  shift
  step "building the $preset preset"
  cmake --preset "$preset" --log-level=WARNING
  cmake --build --preset "$preset" ${1:+--target "$@"}
}

# The version of the packages of the last commit: the project's and, where the commit has no tag of it, how many commits and which one.
package_version() {
  local version
  version=$(sed -n 's/^project(skidproof VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
  [ -n "$version" ] || die "CMakeLists.txt says no version"
  git describe --exact-match --tags --match "v$version" HEAD >/dev/null 2>&1 ||
    version=$version+git$(git rev-list --count HEAD).$(git rev-parse --short=8 HEAD)
  printf '%s\n' "$version"
}

# The microarchs that have a model, oldest first, one a line.
model_microarchs() {
  build/release/skidproof list microarchs --json - | python3 -c 'import json, sys
for entry in json.load(sys.stdin): print(entry["id"])'
}
