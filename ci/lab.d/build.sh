# What the virtual lab is made of, fetched and built, each part once for what it depends on. Sourced by ci/lab.
#   reads  cache, linux, suite, module, no_module, perf
#   sets   bochs, release, kernel, module, guest, perf_archive, loader: a program, a version and files
# Ends the shell with 77 where the lab cannot be built here.

# What ends the lab without a verdict.
cannot() {
  printf 'the virtual lab cannot be built: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 77
}

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
lab_packages=(make gcc bochsbios vgabios busybox-static cpio grub-pc-bin grub-common xorriso xz-utils)
readonly source_hash=78f6c73d4a6472d5130a87ab9dc306d02c7c71ed8e25b3a8ef642e2a7acd282b
readonly configuration=(--enable-x86-64 --enable-cpu-level=6 --enable-avx --enable-evex --enable-pci --enable-smp
  --enable-configurable-msrs --disable-docbook --with-nogui --enable-instrumentation=instrument/skidproof)
readonly parts=(logio.o main.o config.o pc_system.o osdep.o plugin.o crc.o bxthread.o iodev/libiodev.a
  iodev/display/libdisplay.a iodev/hdimage/libhdimage.a cpu/libcpu.a cpu/avx/libavx.a cpu/cpudb/libcpudb.a
  memory/libmemory.a gui/libgui.a cpu/fpu/libfpu.a cpu/softfloat3e/libsoftfloat.a)

hash_of() { cat "$@" | sha256sum | cut -c1-16; }
# quietly LOG COMMAND…: the command's output goes to a file, which is shown when it fails.
quietly() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 && return 0
  tail -n 20 "$log" >&2
  return 1
}

# own_apt STATE TYPE SUITE: sets `apt_options`, with which apt knows that suite and nothing else, in a state of its own,
# so that the system's lists stay as they are.
apt_options=()
own_apt() {
  local state=$1 type=$2 of=$3 mirror  # the archive that this machine's own packages come from
  mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | sort -u | head -n 1)
  [ -n "$mirror" ] || cannot "apt has no package archive" "set one in /etc/apt/sources.list.d"
  mkdir -p "$state/parts" "$state/lists/partial" "$state/cache/archives/partial"
  cat >"$state/parts/$of.sources" <<EOF
Types: $type
URIs: $mirror
Suites: $of
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
EOF
  apt_options=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$state/parts"
    -o "Dir::State::Lists=$state/lists" -o "Dir::Cache=$state/cache")
  quietly "$cache/fetch.log" apt-get "${apt_options[@]}" update ||
    { rm -rf "$state"; cannot "Debian's package lists of $of could not be fetched"; }
}

# Debian 12's Bochs is 2.7, and its source is missing from the archive: Debian 13's.
fetch_source() {
  local archive=$cache/bochs-$source_hash.tar.xz state
  [ -f "$archive" ] && return 0
  say "lab: fetching Bochs' source"
  state=$(mktemp -d "$cache/apt.XXXXXX")
  own_apt "$state" deb-src trixie
  # The package's description may be gone from the archive; the source itself is what counts.
  (cd "$state" && apt-get "${apt_options[@]}" source --download-only bochs >"$cache/fetch.log" 2>&1) || true
  apt_options=()
  local fetched
  fetched=$(find "$state" -maxdepth 1 -name 'bochs_*.orig.tar.xz' | head -n 1)
  [ -n "$fetched" ] || { rm -rf "$state"; cannot "Bochs' source could not be fetched; see $cache/fetch.log"; }
  if ! printf '%s  %s\n' "$source_hash" "$fetched" | sha256sum --check --status; then
    rm -rf "$state"
    die "what came as Bochs' source is not what it was: its SHA-256 differs from $source_hash"
  fi
  mv "$fetched" "$archive"
  rm -rf "$state"
}

place_glue() {
  rm -rf "$tree/instrument/skidproof"
  cp -r "$glue" "$tree/instrument/skidproof"
  cp "$glue/Makefile.in" "$tree/instrument/skidproof/Makefile"
  # Else Make would take all of Bochs for out of date.
  touch -r "$tree/unpacked" "$tree/instrument/skidproof/instrument.h"
}
# Bochs' own files depend on instrument.h alone; glue and model are linked anew when they changed.
build_bochs() {
  local glue=pebs/engines/bochs key tree archives linked
  key=$(cat <(printf '%s ' "$source_hash" "${configuration[@]}") "$glue/instrument.h" | sha256sum | cut -c1-16)
  tree=$cache/bochs-$key
  if [ ! -f "$tree/unpacked" ]; then
    fetch_source
    rm -rf "$tree"
    mkdir -p "$tree"
    tar -C "$tree" --strip-components=1 -xf "$cache/bochs-$source_hash.tar.xz"
    touch "$tree/unpacked"
  fi
  archives=("$root"/build/release/pebs/libskidproof_{engines,model,arch}.a)
  if [ ! -f "$tree/compiled" ]; then
    say "lab: building Bochs, a minute or two"
    place_glue
    (cd "$tree" && quietly "$cache/configure.log" ./configure "${configuration[@]}" CFLAGS=-O2 CXXFLAGS=-O2) ||
      cannot "Bochs' configure failed; see $cache/configure.log"
    # Everything but the program itself, so that a mistake of ours is not taken for one of Bochs.
    quietly "$cache/bochs.log" make -C "$tree" -j"$(nproc)" "${parts[@]}" || cannot "Bochs does not build; see $cache/bochs.log"
    touch "$tree/compiled"
  fi
  linked=$(hash_of "$glue"/* pebs/engines/{lab_processor,overhead}.h "${archives[@]}")
  bochs=$tree/bochs
  [ -f "$tree/linked-$linked" ] && [ -x "$bochs" ] && return 0
  say "lab: linking the model into Bochs"
  place_glue
  rm -f "$tree"/linked-* "$bochs"
  quietly "$cache/link.log" make -C "$tree" -j"$(nproc)" bochs SKIDPROOF="$root" LIBS="${archives[*]} -lZydis -lfmt" ||
    die "the glue between Bochs and the model does not build; see $cache/link.log"
  touch "$tree/linked-$linked"
}

# fetch_packages FOLDER PACKAGE…: unpacks Debian packages there without installing them.
fetch_packages() {
  local into=$1 package
  shift
  (
    mkdir -p "$into.part/debs" && cd "$into.part/debs"
    quietly "$cache/fetch.log" apt-get "${apt_options[@]}" download "$@" || exit 1
    for package in *.deb; do dpkg -x "$package" ..; done
  ) || return 1
  rm -rf "$into.part/debs" "$into"
  mv "$into.part" "$into"
}

depends_of() { apt-cache "${apt_options[@]}" depends "$1" 2>/dev/null | sed -n 's/^ *Depends: //p'; }
# apt knows the packages of the guest's kernel from here on, until no_lists.
lists=
get_lists() {
  if [ -z "$suite" ]; then
    quietly "$cache/fetch.log" "${as_root[@]}" apt-get update || cannot "Debian's package lists could not be fetched"
    return 0
  fi
  [ -n "$lists" ] && return 0
  lists=$(mktemp -d "$cache/apt.XXXXXX")
  own_apt "$lists" deb "$suite"
}
no_lists() {
  [ -z "$lists" ] || rm -rf "$lists"
  lists= apt_options=()
}

fetch_kernel() {
  local version=$cache/kernel-version-$linux image
  if [ ! -f "$version" ] || [ ! -d "$cache/kernel-$(cat "$version")" ]; then
    get_lists
    # What a package of no content depends on: the version is Debian's to choose.
    image=$(depends_of linux-image-cloud-amd64 | head -n 1)
    [ -n "$image" ] || cannot "apt knows no linux-image-cloud-amd64"
    say "lab: fetching $image"
    fetch_packages "$cache/kernel-${image#linux-image-}" "$image" || cannot "$image could not be fetched; see $cache/fetch.log"
    printf '%s\n' "${image#linux-image-}" >"$version"
  fi
  release=$(cat "$version")
  kernel=$cache/kernel-$release/boot/vmlinuz-$release
  [ -r "$kernel" ] || cannot "the package of $release holds no kernel"
}

# The project's own module, where there is one.
build_module() {
  local driver=$root/pebs/direct/driver headers=$cache/headers-$release
  [ -z "$module" ] && [ "$no_module" = 0 ] && [ -d "$driver" ] || return 0
  if [ ! -d "$headers" ]; then
    say "lab: fetching the headers of $release"
    get_lists
    local common kbuild
    common=linux-headers-${release%-cloud-amd64}-common
    kbuild=$(depends_of "linux-headers-$release" | grep '^linux-kbuild-' | head -n 1)
    fetch_packages "$headers" "linux-headers-$release" "$common" ${kbuild:+"$kbuild"} ||
      cannot "the headers of $release could not be fetched; see $cache/fetch.log"
    # Debian's headers name one another by where they would be installed.
    grep -rlE '/usr/(src|lib)/linux-' "$headers/usr/src/linux-headers-$release/Makefile" |
      xargs -r sed -i -E "s#/usr/(src|lib)/linux-#$headers/usr/\1/linux-#g"
    ln -sfn "$headers/usr/lib/linux-${kbuild#linux-}/scripts" "$headers/usr/src/$common/scripts"
    ln -sfn "$headers/usr/lib/linux-${kbuild#linux-}/tools" "$headers/usr/src/$common/tools"
    for part in scripts tools; do
      ln -sfn "$headers/usr/lib/linux-${kbuild#linux-}/$part" "$headers/usr/src/linux-headers-$release/$part"
    done
  fi
  local key tree
  key=$(find "$driver" -type f -print0 | sort -z | xargs -0 cat | sha256sum | cut -c1-16)
  tree=$cache/module-$release-$key
  if [ ! -f "$tree/built" ]; then
    say "lab: building the module"
    rm -rf "$cache"/module-"$release"-*
    mkdir -p "$tree"
    cp -r "$driver" "$tree/driver"
    # With this machine's compiler, and without type information, which would want a program more.
    quietly "$cache/module.log" make -C "$headers/usr/src/linux-headers-$release" M="$tree/driver" CC=gcc \
      CONFIG_DEBUG_INFO_BTF_MODULES= modules ||
      die "the module does not build; see $cache/module.log"
    touch "$tree/built"
  fi
  module=$(find "$tree/driver" -name '*.ko' | head -n 1)
  [ -n "$module" ] || die "the build of pebs/direct/driver made no module"
}

# copy_program ROOT PROGRAM [PLACE]: a program and the libraries that it loads.
copy_program() {
  local into=$1 program=$2 place=${3:-$2} library
  install -D "$program" "$into$place"
  ldd "$program" 2>/dev/null | grep -oE '/[^ )]+' | sort -u | while read -r library; do
    [ -e "$into$library" ] || install -D "$library" "$into$library"
  done
}
# Everything in a folder as an archive that the kernel unpacks.
archive_of() { (cd "$1" && find . -print0 | sort -z | cpio --null --create --format=newc --owner=0:0 --reproducible --quiet); }

# The guest's file system, but for what a run adds.
build_guest() {
  local key folder
  key=$(hash_of build/release/skidproof ci/lab.d/init ci/lab.d/port.c /bin/busybox)
  guest=$cache/guest-$key.cpio
  [ -f "$guest" ] && return 0
  say "lab: making the guest's file system"
  folder=$(mktemp -d "$cache/guest.XXXXXX")
  install -D /bin/busybox "$folder/bin/busybox"
  ln -s busybox "$folder/bin/sh"
  install ci/lab.d/init "$folder/init"
  quietly "$cache/guest.log" gcc -O2 -Wall -static -o "$folder/bin/port" ci/lab.d/port.c || die "ci/lab.d/port.c does not build"
  copy_program "$folder" build/release/skidproof /bin/skidproof
  rm -f "$cache"/guest-*.cpio
  archive_of "$folder" >"$guest.part"
  mv "$guest.part" "$guest"
  rm -rf "$folder"
}

# Debian's perf with its libraries, unpacked beside the system.
build_perf() {
  [ "$perf" = 1 ] || return 0
  perf_archive=$cache/perf-$release.cpio
  [ -f "$perf_archive" ] && return 0
  say "lab: fetching perf"
  (need_packages linux-perf >&2) || cannot "linux-perf cannot be installed"
  local folder
  folder=$(mktemp -d "$cache/perf.XXXXXX")
  copy_program "$folder" /usr/bin/perf /bin/perf
  archive_of "$folder" >"$perf_archive.part"
  mv "$perf_archive.part" "$perf_archive"
  rm -rf "$folder"
}

build_loader() {
  loader=$cache/grub.img
  [ -f "$loader" ] && return 0
  quietly "$cache/grub.log" grub-mkimage -O i386-pc-eltorito -p /boot/grub -o "$loader.part" biosdisk iso9660 normal linux ||
    cannot "GRUB's image could not be made; see $cache/grub.log"
  mv "$loader.part" "$loader"
}

# Everything, by one process at a time.
build_lab() {
  exec 7>"$cache/lock"
  flock 7
  command -v apt-get >/dev/null || cannot "there is no apt-get, and the lab gets Bochs and the guest's kernel by it"
  (need_packages "${build_packages[@]}" "${lab_packages[@]}" >&2) || cannot "its packages cannot be installed"
  build_preset release skidproof skidproof_engines cross_engine >"$cache/build.log" 2>&1 ||
    { tail -n 20 "$cache/build.log" >&2; die "the project does not build"; }
  build_bochs
  fetch_kernel
  build_module
  no_lists
  build_guest
  build_perf
  build_loader
  flock -u 7
}
