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
  --enable-configurable-msrs --enable-cet --disable-docbook --with-nogui --enable-instrumentation=instrument/skidproof)
readonly parts=(logio.o main.o config.o pc_system.o osdep.o plugin.o crc.o bxthread.o iodev/libiodev.a
  iodev/display/libdisplay.a iodev/hdimage/libhdimage.a cpu/libcpu.a cpu/avx/libavx.a cpu/cpudb/libcpudb.a
  memory/libmemory.a gui/libgui.a cpu/fpu/libfpu.a cpu/softfloat3e/libsoftfloat.a)

hash_of() { cat "$@" | sha256sum | cut -c1-16; }

# own_apt STATE TYPE SUITE: sets `apt_options`, with which apt knows that suite and nothing else, in a state of its own,
# so that the system's lists stay as they are.
apt_options=()
apt_by() {
  apt_options=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$1/parts"
    -o "Dir::State::Lists=$1/lists" -o "Dir::Cache=$1/cache")
}
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
  apt_by "$state"
  slowly "lab: fetching Debian's package lists of $of" "$cache/fetch.log" apt-get "${apt_options[@]}" update ||
    { rm -rf "$state"; cannot "Debian's package lists of $of could not be fetched"; }
}

# Debian 12's Bochs is 2.7, and its source is missing from the archive: Debian 13's.
fetch_source() {
  local archive=$cache/bochs-$source_hash.tar.xz state
  [ -f "$archive" ] && return 0
  say "lab: fetching Bochs' source, 4 MB"
  state=$(mktemp -d "$cache/apt.XXXXXX")
  own_apt "$state" deb-src trixie
  # The package's description may be gone from the archive; the source itself is what counts.
  (cd "$state" && patiently "lab: waiting for it" "$cache/fetch.log" apt-get "${apt_options[@]}" source --download-only bochs) || true
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
# unite FOLDER BEFORE PARTS APART SUFFIX VARIABLE…: the objects that these variables of a folder's Makefile name are compiled as
# so many larger ones, but for those that match APART. All of their sources begin with the same headers, and most of a
# compiler's time went into these. BEFORE: what begins the Makefile's line in front of which the variables get their new values.
unite() {
  local folder=$tree/$1 before=$2 into=$3 apart=$4 suffix=$5 objects=() alone=() made=() part object
  shift 5
  # shellcheck disable=SC2016  # make's variables
  printf 'objects:\n\t@echo%s\n' "$(printf ' $(%s)' "$@")" >"$folder/objects.mk"
  for object in $(make -s -C "$folder" -f Makefile -f objects.mk objects); do
    if [[ $object =~ $apart ]]; then alone+=("$object"); else objects+=("$object"); fi
  done
  for ((part = 0; part < into; part++)); do
    printf '#include "%s"\n' "${objects[@]:part * ${#objects[@]} / into:(part + 1) * ${#objects[@]} / into - part * ${#objects[@]} / into}" |
      sed "s/\\.o\"/$suffix\"/" >"$folder/united_$part$suffix"
    made+=("united_$part.o")
  done
  { printf '%s = %s\n' "$1" "${made[*]} ${alone[*]}"; shift; [ $# -eq 0 ] || printf '%s =\n' "$@"; } >"$folder/united.mk"
  awk -v "before=$before" -v "with=$folder/united.mk" 'index($0, before) == 1 && !done { while ((getline line <with) > 0) print line; done = 1 } { print }' \
    "$folder/Makefile" >"$folder/Makefile.new"
  mv "$folder/Makefile.new" "$folder/Makefile"
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
    place_glue
    (cd "$tree" && slowly "lab: configuring Bochs, some ten seconds" "$cache/configure.log" ./configure "${configuration[@]}" CC="ccache gcc" CXX="ccache g++" CFLAGS=-O2 CXXFLAGS=-O2) ||
      cannot "Bochs' configure failed; see $cache/configure.log"
    unite cpu all: 6 '^(decoder/.*|sha|sha512|sm4)\.o$' .cc OBJS OBJS64
    unite cpu/avx all: 2 '^$' .cc AVX_OBJS
    unite cpu/cpudb all: 1 '^$' .cc CPUDB_OBJS
    unite cpu/softfloat3e 'OBJS_ALL =' 2 '^$' .c OBJS_OTHERS
    # Everything but the program itself, so that a mistake of ours is not taken for one of Bochs.
    objects=$(make -C "$tree" -n "${parts[@]}" 2>/dev/null | grep -c ' -c ') || true
    slowly "lab: compiling Bochs, $objects files, a minute or two" "$cache/bochs.log" make -C "$tree" -j"$(nproc)" "${parts[@]}" ||
      cannot "Bochs does not build; see $cache/bochs.log"
    objects=
    touch "$tree/compiled"
  fi
  linked=$(hash_of "$glue"/* pebs/engines/{lab_processor,overhead}.h "${archives[@]}")
  bochs=$tree/bochs
  [ -f "$tree/linked-$linked" ] && [ -x "$bochs" ] && return 0
  place_glue
  rm -f "$tree"/linked-* "$bochs"
  slowly "lab: linking the model into Bochs, some ten seconds" "$cache/link.log" make -C "$tree" -j"$(nproc)" bochs SKIDPROOF="$root" LIBS="${archives[*]} -lZydis -lfmt" ||
    die "the glue between Bochs and the model does not build; see $cache/link.log"
  touch "$tree/linked-$linked"
}

# fetch_packages FOLDER PACKAGE…: unpacks Debian packages there without installing them.
fetch_packages() {
  local into=$1 bytes
  shift
  (
    mkdir -p "$into.part/debs" && cd "$into.part/debs"
    bytes=$(apt-get "${apt_options[@]}" download --print-uris "$@" 2>/dev/null | awk '{ sum += $3 } END { print sum + 0 }') || true
    slowly "lab: fetching $*, $((bytes / 1000000)) MB" "$cache/fetch.log" apt-get "${apt_options[@]}" download "$@" || exit 1
    slowly "lab: unpacking $*" "$cache/unpack.log" sh -c 'for package in *.deb; do dpkg -x "$package" .. || exit 1; done'
  ) || return 1
  rm -rf "$into.part/debs" "$into"
  mv "$into.part" "$into"
}

depends_of() { apt-cache "${apt_options[@]}" depends "$1" 2>/dev/null | sed -n 's/^ *Depends: //p'; }
# apt knows the packages of the guest's kernel from here on, until no_lists.
lists=
get_lists() {
  if [ -z "$suite" ]; then
    slowly "lab: fetching Debian's package lists" "$cache/fetch.log" "${as_root[@]}" apt-get update || cannot "Debian's package lists could not be fetched"
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

# A kernel of our own from Debian's source, and what modules are built with.
build_checked() {
  local options=ci/lab.d/checked.config work refused tree
  release=checked-$(hash_of "$options" <(gcc --version))
  kernel=$cache/kernel-$release/vmlinuz
  tree=$cache/headers-$release/usr/src/linux-headers-$release
  [ ! -f "$kernel" ] || return 0
  (need_packages flex bison bc libelf-dev libssl-dev >&2) || cannot "what a kernel is built with cannot be installed"
  say "lab: building a kernel with KASAN and lockdep, some five minutes and more where the CPUs are few"
  rm -rf "$cache"/{kernel,headers,module,build}-checked-*
  work=$cache/build-$release
  unpack_source "$work/source" || cannot "Linux' source could not be fetched; see $cache/fetch.log"
  quietly "$cache/checked.log" make -C "$work/source" O="$work/build" KCONFIG_ALLCONFIG="$root/$options" allnoconfig ||
    die "Linux cannot be configured; see $cache/checked.log"
  refused=$(grep '^CONFIG_' "$options" | grep -vxFf "$work/build/.config" || true)
  [ -z "$refused" ] || die "Kconfig does not take all of $options:" "$refused"
  # shellcheck disable=SC2016  # make's variable
  { slowly "lab: compiling Linux" "$cache/checked.log" make -C "$work/build" -j"$(nproc)" bzImage modules &&
    quietly "$cache/checked.log" make -C "$work/build" run-command \
      KBUILD_RUN_COMMAND='$(srctree)/scripts/package/install-extmod-build '"$tree"; } ||
    die "the kernel with KASAN and lockdep does not build; see $cache/checked.log"
  cp "$work/build/.config" "$tree/"
  mkdir -p "$cache/kernel-$release"
  mv "$work/build/arch/x86/boot/bzImage" "$kernel"
  rm -rf "$work"
}

# Of Debian's suites the one that carries the newest kernel becomes `suite`, and apt knows it.
find_newest() {
  local each state version newest=
  for each in trixie-backports testing unstable; do
    state=$(mktemp -d "$cache/apt.XXXXXX")
    # One that cannot be fetched has no kernel to offer.
    (own_apt "$state" deb "$each") 2>/dev/null || true
    apt_by "$state"
    version=$(apt-cache "${apt_options[@]}" policy linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Candidate: //p') || true
    if [[ $version =~ ^[0-9] ]] && { [ -z "$newest" ] || dpkg --compare-versions "$version" gt "$newest"; }; then
      rm -rf "$lists"
      newest=$version suite=$each lists=$state
    else
      rm -rf "$state"
    fi
  done
  [ -n "$newest" ] || cannot "none of Debian's backports, testing and unstable could be fetched; see $cache/fetch.log"
  apt_by "$lists"
}

fetch_kernel() {
  [ "$linux" != checked ] || { build_checked; return 0; }
  local version=$cache/kernel-version-$linux image binary from=
  release=
  if [ -f "$version" ]; then
    read -r release from <"$version"
    suite=${from:-$suite}
  fi
  if [ -z "$release" ] || [ ! -d "$cache/kernel-$release" ]; then
    if [ "$linux" = newest ]; then find_newest; else get_lists; fi
    # What a package of no content depends on: the version is Debian's to choose.
    image=$(depends_of linux-image-cloud-amd64 | sed -n '/^linux-image-/{p;q}')
    [ -n "$image" ] || cannot "apt knows no linux-image-cloud-amd64"
    release=${image#linux-image-}
    # Newer ones keep the kernel in a package apart.
    binary=$(depends_of "$image" | sed -n '/^linux-binary-/{p;q}')
    fetch_packages "$cache/kernel-$release" "$image" ${binary:+"$binary"} ||
      cannot "$image could not be fetched; see $cache/fetch.log"
    printf '%s %s\n' "$release" "$suite" >"$version"
  fi
  kernel=$(find "$cache/kernel-$release" -name 'vmlinuz*' | head -n 1)
  [ -r "$kernel" ] || cannot "the package of $release holds no kernel"
}

# fit_programs FOLDER: the kernel's own programs in there that want a newer C library than this machine's get the one of
# their suite, unpacked beside the headers.
fit_programs() {
  local libraries=$cache/libraries-$release of=${suite%-backports} program place
  find "$1" -type f -perm -1 -exec sh -c 'ldd "$1" 2>&1 | grep -q "GLIBC_.*not found"' - {} \; -print >"$cache/unfit"
  [ -s "$cache/unfit" ] || return 0
  if [ ! -d "$libraries" ]; then
    local state
    state=$(mktemp -d "$cache/apt.XXXXXX")
    (own_apt "$state" deb "$of" && fetch_packages "$libraries" libc6 libelf1t64 zlib1g libzstd1) ||
      { rm -rf "$state"; cannot "the C library of $of could not be fetched; see $cache/fetch.log"; }
    rm -rf "$state"
  fi
  place=$(dirname "$(find "$libraries" -name libc.so.6 | head -n 1)")
  while read -r program; do
    mv "$program" "$program.elf"
    printf '#!/bin/sh\nexec "%s/ld-linux-x86-64.so.2" --library-path "%s" "$0.elf" "$@"\n' "$place" "$place" >"$program"
    chmod +x "$program"
  done <"$cache/unfit"
}

# The headers of the guest's kernel: `headers`, the folder to build modules in.
fetch_headers() {
  local folder=$cache/headers-$release common kbuild part
  headers=$folder/usr/src/linux-headers-$release
  [ ! -d "$folder" ] || return 0
  get_lists
  common=linux-headers-${release%-cloud-amd64}-common
  kbuild=$(depends_of "linux-headers-$release" | grep '^linux-kbuild-' | head -n 1)
  fetch_packages "$folder.new" "linux-headers-$release" "$common" ${kbuild:+"$kbuild"} ||
    cannot "the headers of $release could not be fetched; see $cache/fetch.log"
  # Debian's headers name one another by where they would be installed.
  grep -rlE '/usr/(src|lib)/linux-' "$folder.new/usr/src/linux-headers-$release/Makefile" |
    xargs -r sed -i -E "s#/usr/(src|lib)/linux-#$folder/usr/\1/linux-#g"
  for part in scripts tools; do
    ln -sfn "$folder/usr/lib/linux-${kbuild#linux-}/$part" "$folder.new/usr/src/$common/$part"
    ln -sfn "$folder/usr/lib/linux-${kbuild#linux-}/$part" "$folder.new/usr/src/linux-headers-$release/$part"
  done
  fit_programs "$folder.new/usr/lib"
  mv "$folder.new" "$folder"
}

# unpack_source FOLDER [PATH…]: of the source of Debian's 6.12 what is asked for, or all of it.
unpack_source() {
  local into=$1 state package=linux-source-6.12
  shift
  state=$(mktemp -d "$cache/apt.XXXXXX")
  (
    own_apt "$state" deb bookworm-backports
    cd "$state"
    slowly "lab: fetching Linux' source, 140 MB" "$cache/fetch.log" apt-get "${apt_options[@]}" download "$package"
    mkdir -p "$into"
    say "lab: unpacking it, up to a minute"
    dpkg --fsys-tarfile "$package"_*.deb | tar -xO "./usr/src/$package.tar.xz" |
      tar -xJ -C "$into" --strip-components=1 "${@/#/$package/}"
  ) || { rm -rf "$state" "$into"; return 1; }
  rm -rf "$state"
}
fetch_checkpatch() {
  [ ! -d "$cache/checkpatch" ] || return 0
  say "lab: fetching checkpatch"
  unpack_source "$cache/checkpatch.part" scripts/checkpatch.pl scripts/spelling.txt scripts/const_structs.checkpatch &&
    mv "$cache/checkpatch.part" "$cache/checkpatch"
}

# make_module TREE [ARGUMENT…]: builds the driver in that folder. With this machine's compiler, which may be older than
# the kernel's, and without type information, which would want a program more.
make_module() {
  local tree=$1
  shift
  make -C "$headers" M="$tree" CC=gcc CONFIG_DEBUG_INFO_BTF_MODULES= CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT= "$@" modules
}

# The project's own module, where there is one.
build_module() {
  local driver=$root/pebs/direct/driver key tree
  [ -z "$module" ] && [ "$no_module" = 0 ] && [ -d "$driver" ] || return 0
  fetch_headers
  key=$(find "$driver" -type f -not -path "$driver/test/*" -print0 | sort -z | xargs -0 cat | sha256sum | cut -c1-16)
  tree=$cache/module-$release-$key
  if [ ! -f "$tree/built" ]; then
    rm -rf "$cache"/module-"$release"-*
    mkdir -p "$tree"
    cp -r "$driver" "$tree/driver"
    slowly "lab: building the kernel module" "$cache/module.log" make_module "$tree/driver" || die "the module does not build; see $cache/module.log"
    touch "$tree/built"
  fi
  module=$(find "$tree/driver" -name '*.ko' | head -n 1)
  [ -n "$module" ] || die "the build of pebs/direct/driver made no module"
}

# build_test NAME FOLDER: one of the driver's tests, for a guest.
build_test() {
  local source=pebs/direct/driver/test/$1.c
  quietly "$cache/gcc.log" gcc -D_GNU_SOURCE -O2 -Wall -static -pthread -o "$2/$1" "$source" || die "$source does not build"
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
  flock -n 7 || { say "lab: waiting for another ci/lab, which is building"; flock 7; }
  command -v apt-get >/dev/null || cannot "there is no apt-get, and the lab gets Bochs and the guest's kernel by it"
  (need_packages "${build_packages[@]}" "${lab_packages[@]}" >&2) || cannot "its packages cannot be installed"
  patiently "lab: building the release preset, ten minutes and more where nothing is cached" "$cache/build.log" \
    build_preset release skidproof skidproof_engines cross_engine ||
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
