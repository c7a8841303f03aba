# Shared by the scripts in this folder: where the project is, what it needs, how it says what it does.
# Source it; do not run it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# What building, running and reporting need. Names are Debian 12's.
build_packages=(g++ cmake ninja-build ccache git libasmjit-dev libzydis-dev libfmt-dev nlohmann-json3-dev
  libexpected-dev libcli11-dev libgtest-dev libgmock-dev libbenchmark-dev libzstd-dev libxxhash-dev python3
  python3-dev pybind11-dev python3-matplotlib)
# What the whole test run needs besides.
test_packages=(pyflakes3 python3-jsonschema python3-prometheus-client python3-pandas python3-scipy python3-sqlalchemy python3-alembic
  python3-psycopg2 python3-ujson python3-fastapi python3-uvicorn python3-httpx python3-junitparser python3-tap python3-yaml
  python3-more-itertools python3-sphinx python3-myst-parser furo zsh fish groff-base postgresql prometheus prometheus-node-exporter
  systemd chromium clang-14 clang-tidy-14 clang-format-14
  libclang-rt-14-dev valgrind)
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

# The microarchs that have a model, oldest first, one a line.
model_microarchs() {
  build/release/skidproof list microarchs --json - | python3 -c 'import json, sys
for entry in json.load(sys.stdin): print(entry["id"])'
}
