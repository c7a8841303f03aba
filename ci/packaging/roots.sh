# Clean roots: Debian 12 by debootstrap, with the package archives that this machine has. For `ci/package --check` and
# ci/nightly/rehearse, which source this behind ci/lib.sh.
#   reads  work, keep: a folder, and 1 where the roots stay in it
#   sets   clean: the root that clean_root made

[ "$(id -u)" = 0 ] || die "clean roots take root: chroot and mount" "run it by sudo"

# A file, since each check runs in a shell of its own.
roots=$work/roots.$$
: >"$roots"
leave_roots() {
  local one
  while read -r one; do
    free_root "$one"
    [ "$keep" = 1 ] || rm -rf --one-file-system "$one"
  done <"$roots"
  rm -f "$roots"
}
free_root() {
  local mounted
  for mounted in proc sys dev; do ! mountpoint -q "$1/$mounted" || umount -R "$1/$mounted"; done
}
trap leave_roots EXIT

base=$work/base
make_base() {
  local mirror
  [ ! -f "$base/complete" ] || return 0
  step "making a clean Debian, once, a minute or two"
  rm -rf --one-file-system "$base"
  mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/*$' | sort -u | head -n 1)
  [ -n "$mirror" ] || die "apt has no archive of Debian's" "set one in /etc/apt/sources.list.d"
  quietly "$work/debootstrap.log" debootstrap --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
    bookworm "$base" "$mirror" || die "debootstrap failed"
  rm -f "$base/etc/apt/sources.list"
  # Debian's alone: what else this machine installs from is nothing that a clean one knows.
  if [ -f /etc/apt/sources.list.d/debian.sources ]; then
    cp /etc/apt/sources.list.d/debian.sources "$base/etc/apt/sources.list.d/"
  else
    printf 'deb %s bookworm main\n' "$mirror" >"$base/etc/apt/sources.list"
  fi
  printf 'Acquire::Check-Valid-Until "false";\n' >"$base/etc/apt/apt.conf.d/90archive"
  printf 'Acquire::Check-Date "false";\n' >>"$base/etc/apt/apt.conf.d/90archive"
  # Nothing is started in there.
  printf '#!/bin/sh\nexit 101\n' >"$base/usr/sbin/policy-rc.d"
  chmod +x "$base/usr/sbin/policy-rc.d"
  cp /etc/resolv.conf /etc/hosts "$base/etc/" 2>/dev/null || true
  # apt-get ends with 0 where lists are missing, unless it is told.
  quietly "$work/base.log" chroot "$base" apt-get -o APT::Update::Error-Mode=any update ||
    die "the clean Debian cannot fetch its package lists" "see that the archive can be reached, and begin again"
  quietly "$work/base.log" chroot "$base" env DEBIAN_FRONTEND=noninteractive apt-get -y dist-upgrade ||
    die "the clean Debian cannot be brought up to date" "see that the archive can be reached, and begin again"
  touch "$base/complete"
}

# clean_root NAME: sets `clean`, a fresh copy of the base.
clean_root() {
  clean=$work/root-$1
  free_root "$clean"
  rm -rf --one-file-system "$clean"
  cp -a --reflink=auto "$base" "$clean"
  printf '%s\n' "$clean" >>"$roots"
  mount -t proc proc "$clean/proc"
  mount -t sysfs -o ro sysfs "$clean/sys"
  mount --bind /dev "$clean/dev"
}
within() { chroot "$clean" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
# set_option TABLE OPTION VALUE: in that root's nightly.toml, which says every option.
set_option() {
  sed -i "/^\[$1\]/,/^\[/s|^$2 = [^#]*|$2 = $3  |" "$clean/etc/skidproof/nightly.toml"
  grep -qF "$2 = $3 " "$clean/etc/skidproof/nightly.toml" || die "ci/nightly/nightly.toml has no $1.$2"
}
