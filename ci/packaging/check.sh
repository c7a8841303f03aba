# The checks of `ci/package --check`, which sources this.
#   reads  out, work, deb, dkms_deb, version, epoch, parts, keep and the functions of ci/package

outcomes=
outcome() { outcomes+="$1"$'\n'; }
asked_for() { [[ ,$parts, == *,$1,* ]]; }
# check NAME COMMAND…
check() {
  local name=$1 code=0
  shift
  step "$name"
  local began=$SECONDS
  # In a shell of its own, which ends at the first command that fails.
  (set -e; "$@") &
  wait $! || code=$?
  printf 'took %d s\n' $((SECONDS - began))
  case $code in
    0) outcome passed ;;
    77) outcome "not run"; printf 'NOT RUN: %s\n' "$name" >&2 ;;
    *) outcome failed; printf 'FAILED: %s\n' "$name" >&2 ;;
  esac
}
wrong() { printf 'wrong: %s\n' "$*" >&2; return 1; }

source ci/packaging/roots.sh

# ---- What is checked.

with_lintian() {
  # The distribution is that of a build of our own, not one of Debian's uploads.
  lintian --no-cfg --allow-root --fail-on error,warning --display-info --suppress-tags bad-distribution-in-changes-file "$out"/skidproof_"$version"_amd64.changes
}

# same_packages FOLDER FOLDER: of each package's file in the first there is one in the second with the same bytes. Where the
# two were built with other versions of what they depend on, only what lists those may differ.
same_packages() {
  local one name versions=same differs
  for one in "$1" "$2"; do sed -n '/^Installed-Build-Depends:/,/^[A-Z]/{/^ /p}' "$one"/skidproof_"$version"_*.buildinfo | tr -d ' ,' | sort >"$work/with-$(basename "$one")"; done
  differs=$(join -t= -j 1 -o 1.1,1.2,2.2 <(sed 's/(=/=/; s/)$//' "$work/with-$(basename "$1")" | sort -t= -k 1,1) \
    <(sed 's/(=/=/; s/)$//' "$work/with-$(basename "$2")" | sort -t= -k 1,1) | awk -F= '$2 != $3')
  [ -z "$differs" ] || { versions=other; printf 'build dependencies of other versions: %s\n' "$(cut -d= -f1 <<<"$differs" | tr '\n' ' ')"; }
  for one in "$1"/skidproof*_"$version"_*.deb; do
    name=$(basename "$one")
    (cd "$1" && sha256sum "$name")
    (cd "$2" && sha256sum "$name")
    ! cmp -s "$one" "$2/$name" || continue
    [ "$versions" = other ] || wrong "$name differs; both are kept, in $1 and $2"
    rm -rf "$work/one" "$work/other"
    dpkg-deb -R "$one" "$work/one"
    dpkg-deb -R "$2/$name" "$work/other"
    differs=$(diff -rq "$work/one" "$work/other" | grep -vE 'DEBIAN/md5sums|skidproof\.spdx\.json' || true)
    [ -z "$differs" ] || wrong "more differs than those explain:" "$differs"
    printf '%s: every file has the same bytes but skidproof.spdx.json, which names those versions\n' "$name"
  done
}

# Another path, locale, time zone, umask, number of jobs, no cache of objects; only the build dependencies that are declared.
rebuilt() {
  clean_root build
  local tree=$clean/srv/elsewhere/tree
  source_tree "$tree" "$version"
  quietly "$work/build-dep.log" within apt-get install -y --no-install-recommends dpkg-dev
  quietly "$work/build-dep.log" within sh -c 'cd /srv/elsewhere/tree && apt-get build-dep -y --no-install-recommends ./'
  local began=$SECONDS
  quietly "$work/rebuild.log" within sh -c "umask 027 && cd /srv/elsewhere/tree &&
    env SOURCE_DATE_EPOCH=$epoch TZ=Asia/Kathmandu LC_ALL=C LANG=C DEB_BUILD_OPTIONS='parallel=$(($(nproc) + 1))' dpkg-buildpackage -b -us -uc"
  printf 'built with the declared build dependencies alone, in %d s\n' $((SECONDS - began))
  rm -rf "$work/second"
  mkdir -p "$work/second"
  cp "$clean"/srv/elsewhere/*.{deb,buildinfo} "$work/second/"
  same_packages "$work/first" "$work/second"
}

no_build_paths() {
  local where=$work/unpacked found
  rm -rf "$where"
  dpkg-deb -x "$deb" "$where"
  dpkg-deb -x "$dkms_deb" "$where"
  found=$(grep -rlaF -e "$root" -e "$work" "$where" || true)
  [ -z "$found" ] || wrong "these name the build's folder: $found"
  printf 'no file names %s\n' "$root"
}

# again VERSION: the package with another version, repacked; its contents are the same.
again() {
  local higher=$1 name=$2 from=$3 folder=$work/again
  rm -rf "$folder"
  dpkg-deb -R "$from" "$folder"
  sed -i "s/^Version: .*/Version: $higher/" "$folder/DEBIAN/control"
  # What an administrator did not touch follows the package.
  if [ "$name" = skidproof-dkms ]; then printf '# a line that the newer version brings\n' >>"$folder/etc/modprobe.d/skidproof.conf"; fi
  dpkg-deb --root-owner-group -b "$folder" "$clean/tmp/$name.higher.deb" >/dev/null
}

# What the packages leave: names in /etc, /usr, /var, /lib, /opt.
files_of() { (cd "$clean" && find etc usr var lib opt -xdev -iname '*skidproof*' ! -path 'var/cache/*' ! -path 'var/log/*' 2>/dev/null | sort); }

configuration() { (cd "$clean/etc" && find . -type f \( -path './skidproof/*' -o -path ./modprobe.d/skidproof.conf \) | sort | xargs -r cat | sha256sum); }

installed() {
  clean_root install
  local before after status log=$work/install.log
  before=$(files_of)
  cp "$deb" "$dkms_deb" "$clean/tmp/"
  # With what it recommends, and without what that recommends: pandas alone would bring a compiler.
  quietly "$log" within sh -c 'apt-get install -y --no-install-recommends /tmp/skidproof_*_amd64.deb \
    $(dpkg-deb -f /tmp/skidproof_*_amd64.deb Recommends | tr -d ,)'
  printf 'installed with what it recommends\n'

  within skidproof --version | tee "$clean/said"
  grep -qxF "skidproof $version" "$clean/said" || wrong "it says another version than $version"
  within getent group skidproof >/dev/null || wrong "there is no group skidproof"
  within sh -c 'cd /tmp && mkdir night && skidproof list tests' >"$clean/said"
  [ "$(wc -l <"$clean/said")" -gt 1000 ] || wrong "list tests names few"
  within sh -c 'cd /tmp/night && skidproof run --machine model:sandy-bridge --filter "PebsReload.*:PebsBuffer.*" --out first' | tail -n 3
  status=0
  within sh -c 'cd /tmp/night && skidproof run --machine model:sandy-bridge --defect reset-next-slot --filter "PebsReload.*" --out broken' >"$clean/said" 2>&1 || status=$?
  [ "$status" = 1 ] || wrong "a broken CPU exits with $status instead of 1"
  within sh -c 'cd /tmp/night && skidproof store add first broken && skidproof store query runs'
  within sh -c 'cd /tmp/night && skidproof report first --out page && test -s page/report.html && skidproof export --format tap first | head -n 1'
  within sh -c 'cd /tmp/night && skidproof doctor' >"$clean/said"
  grep -q '/usr/share/skidproof/results/skidproof' "$clean/said" || wrong "doctor does not find the installed Python package"
  within /usr/bin/python3 -B -c 'import sys; sys.path.insert(0, "/usr/share/skidproof/results")
from skidproof.store import forms
sys.exit(forms.module is None or not forms.module.__file__.startswith("/usr/lib/skidproof/"))' || wrong "the native module is not found"
  status=0
  within skidproof run --machine direct --out /tmp/night/direct >"$clean/said" 2>&1 || status=$?
  [ "$status" = 77 ] || [ -e /dev/skidproof ] || wrong "without the driver direct exits with $status instead of 77"
  status=0
  within skidproof store query nothing >"$clean/said" 2>&1 || status=$?
  [ "$status" = 64 ] || wrong "bad usage exits with $status instead of 64"
  within bash -c 'source /usr/share/bash-completion/completions/skidproof; COMP_LINE="skidproof ru" COMP_POINT=12; _skidproof
    [ "${COMPREPLY[*]}" = run ]' || wrong "completion does not know run"
  if [ -d "$clean/lib/systemd/system" ] && compgen -G "$clean/lib/systemd/system/skidproof*" >/dev/null; then
    [ -f "$clean/etc/skidproof/nightly.toml" ] || wrong "there are units and no /etc/skidproof/nightly.toml"
  fi
  printf 'runs: list, run, a broken CPU, store, report, export, doctor, completion\n'

  step "upgrade, with what the administrator changed"
  quietly "$log" within apt-get install -y --no-install-recommends /tmp/skidproof-dkms_"$version"_all.deb
  printf 'options skidproof limit_ms=20\n' >>"$clean/etc/modprobe.d/skidproof.conf"
  [ ! -f "$clean/etc/skidproof/nightly.toml" ] || printf '\n# the administrator was here\n' >>"$clean/etc/skidproof/nightly.toml"
  local changed
  changed=$(configuration)
  again "$version.1" skidproof "$deb"
  again "$version.1" skidproof-dkms "$dkms_deb"
  quietly "$log" within sh -c 'apt-get install -y --no-install-recommends -o Dpkg::Options::=--force-confold /tmp/*.higher.deb'
  within dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n' skidproof skidproof-dkms
  [ "$(within dpkg-query -W -f '${Version}' skidproof)" = "$version.1" ] || wrong "it was not upgraded"
  [ "$(configuration)" = "$changed" ] ||
    wrong "the administrator's configuration was not kept"
  within skidproof run --machine model:sandy-bridge --filter 'PebsReload.*' --json /dev/null | tail -n 2

  step "remove, then purge"
  quietly "$log" within apt-get remove -y skidproof skidproof-dkms
  [ ! -e "$clean/usr/bin/skidproof" ] || wrong "the program outlives its removal"
  grep -q 'limit_ms=20' "$clean/etc/modprobe.d/skidproof.conf" || wrong "removal took the configuration"
  quietly "$log" within apt-get purge -y skidproof skidproof-dkms
  after=$(files_of)
  [ "$before" = "$after" ] || wrong "left behind:" "$after"
  printf 'nothing is left but the group\n'
}

# The kernel of the lab, or Debian's cloud kernel where the lab is not built.
lab_release() {
  local cache=${SKIDPROOF_CACHE:-$root/build/lab} release=
  [ ! -f "$cache/kernel-version-6.1" ] || read -r release _ <"$cache/kernel-version-6.1"
  [ -n "$release" ] || release=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: linux-image-//p' | head -n 1)
  printf '%s\n' "$release"
}

by_dkms() {
  clean_root dkms
  local release module
  release=$(lab_release)
  [ -n "$release" ] || { printf 'apt knows no kernel\n' >&2; exit 77; }
  cp "$dkms_deb" "$clean/tmp/"
  quietly "$work/dkms.log" within apt-get install -y --no-install-recommends "linux-headers-$release" dkms openssl ||
    { printf 'the headers of %s cannot be installed\n' "$release" >&2; exit 77; }
  quietly "$work/dkms.log" within sh -c 'apt-get install -y --no-install-recommends /tmp/skidproof-dkms_*.deb'
  quietly "$work/dkms.log" within dkms build "skidproof/$version" -k "$release"
  quietly "$work/dkms.log" within dkms install "skidproof/$version" -k "$release" --force
  within dkms status skidproof
  within dkms status skidproof | grep -q "$release.*installed" || wrong "DKMS did not install it"
  module=$(find "$clean/lib/modules/$release" -name 'skidproof.ko*' | head -n 1)
  [ -n "$module" ] || wrong "there is no module in /lib/modules/$release"
  within /sbin/modinfo -F vermagic "${module#"$clean"}"
  within /sbin/modinfo -F signer "${module#"$clean"}" | tee "$work/signer"
  grep -q . "$work/signer" || wrong "DKMS did not sign it"
  cp "$module" "$work/skidproof.ko"
  quietly "$work/dkms.log" within apt-get purge -y skidproof-dkms
  [ -z "$(find "$clean/lib/modules/$release" "$clean/var/lib/dkms" "$clean/usr/src" -iname '*skidproof*')" ] ||
    wrong "purged, it leaves a module or its source"
}

# A clean Debian with the program's package and the module that DKMS built out of the other, as a system of its own in the guest: no
# file of the build tree. By hand, and by the night's unit in its sandbox.
in_the_lab() {
  local where=$work/lab log=$work/lab.log code=0 release
  [ -f "$work/skidproof.ko" ] || { printf 'there is no module: the part dkms makes it\n' >&2; exit 77; }
  release=$(lab_release)
  clean_root lab
  cp "$deb" "$clean/tmp/"
  slowly "installing the program in the guest's system" "$log" within sh -c \
    'apt-get install -y --no-install-recommends systemd kmod /tmp/skidproof_*_amd64.deb'
  install -D -m 644 "$work/skidproof.ko" "$clean/lib/modules/$release/updates/dkms/skidproof.ko"
  quietly "$log" within depmod "$release"
  # A second of the emulated processor's is short: the same cycles as the default at 3 GHz; it is alone, so nobody waits for it.
  printf 'options skidproof limit_ms=600 unbounded=1\n' >"$clean/etc/modprobe.d/lab.conf"
  set_option machine name '"direct"'
  set_option run filter '"PebsReload.*:PebsBuffer.*"'
  for one in characterize errata store trends report; do set_option "$one" enabled false; done
  set_option folders free_mib 16
  install -m 644 ci/packaging/lab/judge.service "$clean/etc/systemd/system/"
  install ci/packaging/lab/judge "$clean/usr/local/sbin/"
  free_root "$clean"
  rm -rf "$where"
  mkdir -p "$where"
  slowly "packing it" "$log" tar -C "$clean" --use-compress-program='gzip -1' -cf "$where/root.tar.gz" --exclude='./usr/share/doc' \
    --exclude='./usr/share/locale' --exclude='./usr/share/man' --exclude='./usr/share/i18n' --exclude='./usr/lib/x86_64-linux-gnu/gconv' \
    --exclude='./usr/lib/x86_64-linux-gnu/perl*' --exclude='./usr/share/perl*' --exclude='./usr/share/zoneinfo' --exclude='./var/lib/apt' \
    --exclude='./var/cache/*' --exclude='./tmp/*' .
  ls -l "$where/root.tar.gz"
  ci/lab run --no-module --memory 2048 --deadline 1800 --file "$where/root.tar.gz" --file ci/packaging/lab/enter --out "$where/out" -- enter || code=$?
  [ ! -f "$where/out/said.txt" ] || sed 's/^/  /' "$where/out/said.txt"
  [ "$code" = 0 ] || exit "$code"
  /usr/bin/python3 - "$where/out" "$version" <<'PY'
import json
import pathlib
import sys
out, version = pathlib.Path(sys.argv[1]), sys.argv[2]
state = json.loads((out / "night" / "state.json").read_text(encoding="utf-8"))
night = state["last"]
if night is None or state["current"] or (night["status"], night["exit"]) != ("ended", 0):
    sys.exit(f"the night did not end well: {night and night['words']}")
for what, path, least in (("by hand", out / "rows.jsonl", 50), ("in the night's sandbox", next((out / "night" / "nights").glob("*/run/results.jsonl")), 20)):
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    tests = [row for row in rows if row["type"] == "test"]
    passed = [row for row in tests if row["status"] == "pass"]
    run = next(row for row in rows if row["type"] == "run")
    if run["version"] != version:
        sys.exit(f"the rows are of version {run['version']}, not of the package's {version}")
    if len(passed) < least or not all(row["machine"].startswith("virtual-lab:") for row in passed):
        sys.exit(f"{what}: {len(passed)} passed, on {sorted({row['machine'] for row in passed})}")
    skipped = sum(row["status"] == "skip" for row in tests)
    print(f"{what}: {len(passed)} tests passed through the driver, {skipped} skipped, program {run['version']}")
PY
}

! asked_for lintian || { check "lintian" with_lintian; check "no path of the build is in the packages" no_build_paths; }
if asked_for rebuild || asked_for install || asked_for dkms || asked_for lab; then make_base; fi
! asked_for install || check "install and run in a clean Debian" installed
! asked_for dkms || check "the module by DKMS" by_dkms
! asked_for lab || check "the virtual lab, from the packages alone" in_the_lab
! asked_for rebuild || check "built again elsewhere: the same bytes" rebuilt

count() { grep -cx "$1" <<<"$outcomes" || true; }
printf '\n%d passed, %d failed, %d not run\n' "$(count passed)" "$(count failed)" "$(count "not run")"
[ "$(count failed)" = 0 ] || exit 1
[ "$(count "not run")" = 0 ] || exit 77
