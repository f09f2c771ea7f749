#!/usr/bin/env bash
# Makes the small broken and odd images that the tests read (`corpus()` in ../src/corpus.rs), beside itself:
#
#     workshop/oracle/broken/make.sh [FOLDER]
#
# Every image is made new by mke2fs and debugfs of e2fsprogs 1.47.0 and damaged here; none is a copy of one of
# another project. Identifiers, seeds and times are fixed, so the same tools give the same bytes again.
# INDEX.tsv has a line for each: the name, what is broken, and what `e2fsck -fn` ends with.
set -euo pipefail
umask 022
now=1700000000
export LC_ALL=C TZ=UTC E2FSPROGS_FAKE_TIME=$now E2FSCK_TIME=$now

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(cd "${1:-$here}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
image=disk.img
# The size of a block of all images but one.
unit=1024

printf '[defaults]\n\tbase_features = none\n[fs_types]\n\text3 = {\n\t}\n\town = {\n\t}\n' > mke2fs.conf
export MKE2FS_CONFIG=$work/mke2fs.conf

cat > bytes.py <<'PYTHON'
"""Reads and changes bytes of an image: bytes.py IMAGE COMMAND ARGUMENT..."""
import struct
import sys

TABLE = []
for number in range(256):
    for _ in range(8):
        number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
    TABLE.append(number)


def crc32c(crc, data):
    """The checksum of ext4, without the inversions at both ends."""
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc


def number(text):
    return int(text, 0)


def entries(at):
    """Where the entries of a directory's block of 1 KiB are, and their names."""
    end = at + 1024
    while at < end:
        length, name = struct.unpack_from("<HB", image, at + 4)
        yield at, bytes(image[at + 8 : at + 8 + name]).decode()
        at += length


def seed_of(inode):
    """What the checksums of an inode's own blocks begin with (all generations are 0 here)."""
    return crc32c(crc32c(0xFFFFFFFF, image[1024 + 0x68 : 1024 + 0x78]), struct.pack("<II", inode, 0))


def seal_directory(at, inode):
    """The checksum at the end of a directory's block."""
    struct.pack_into("<I", image, at + 1020, crc32c(seed_of(inode), image[at : at + 1012]))


def seal_extents(at, inode):
    """The checksum behind the last place for an extent of a block."""
    (places,) = struct.unpack_from("<H", image, at + 4)
    end = at + 12 + 12 * places
    struct.pack_into("<I", image, end, crc32c(seed_of(inode), image[at:end]))


def commits(at):
    """Where the commit blocks of the log at an offset are, which has no gaps."""
    (blocks,) = struct.unpack_from(">I", image, at + 0x10)
    for block in range(at + 1024, at + 1024 * blocks, 1024):
        if struct.unpack_from(">II", image, block) == (0xC03B3998, 2):
            yield block


def settle_commits(at):
    """Sets the times of a log's commit blocks, and their checksums where the log has them."""
    (features,) = struct.unpack_from(">I", image, at + 0x28)
    seed = crc32c(0xFFFFFFFF, image[at + 0x30 : at + 0x40])
    for block in commits(at):
        struct.pack_into(">QI", image, block + 0x30, 1700000000, 0)
        if features & 0x18:
            struct.pack_into(">I", image, block + 0x10, 0)
            struct.pack_into(">I", image, block + 0x10, crc32c(seed, image[block : block + 1024]))


def allow_fast_commits(at):
    """Gives the log at an offset the feature; mke2fs leaves that to the first mount."""
    image[at + 0x2B] |= 0x20
    if image[at + 0x2B] & 0x18:
        struct.pack_into(">I", image, at + 0xFC, 0)
        struct.pack_into(">I", image, at + 0xFC, crc32c(0xFFFFFFFF, image[at : at + 1024]))


def fast_commit(at, tid, inode_at, inode, name):
    """Makes a fast commit in a block: a file gets another name, in the root."""

    def tag(kind, content):
        return struct.pack("<HH", kind, len(content)) + content

    changed = image[inode_at : inode_at + 256]
    changed[0x1A] += 1
    # The head, the name, the inode, the end.
    log = tag(9, struct.pack("<II", 0, tid)) + tag(4, struct.pack("<II", 2, inode) + name.encode())
    log += tag(6, struct.pack("<I", inode) + changed)
    log += struct.pack("<HHI", 8, 1024 - len(log) - 4, tid)
    log += struct.pack("<I", crc32c(0, log))
    image[at : at + len(log)] = log


path, command, *arguments = sys.argv[1:]
image = bytearray(open(path, "rb").read())
if command == "put":
    content = bytes.fromhex("".join(arguments[1:]))
    image[number(arguments[0]) : number(arguments[0]) + len(content)] = content
elif command == "flip":
    image[number(arguments[0])] ^= number(arguments[1])
elif command == "entry":
    print(next(at for at, name in entries(number(arguments[0])) if name == arguments[1]))
    sys.exit()
elif command == "commit":
    print(next(commits(number(arguments[0]))))
    sys.exit()
elif command == "fast_commit":
    fast_commit(*map(number, arguments[:4]), arguments[4])
else:
    globals()[command](*map(number, arguments))
open(path, "wb").write(image)
PYTHON

# dbg REQUEST...: runs debugfs on the image, and fails if it complains.
dbg() {
    { echo "set_current_time @$now"; printf '%s\n' "$@"; } > requests
    debugfs -w -f requests "$image" > said 2> complaints
    if grep -v -e '^debugfs 1' complaints >&2; then
        cat requests >&2
        return 1
    fi
}

# ask REQUEST: what debugfs says.
ask() { debugfs -R "$1" "$image" 2> /dev/null; }

# bytes COMMAND ARGUMENT...: a command of bytes.py on the image.
bytes() { python3 bytes.py "$image" "$@"; }

# put AT HEX...: bytes at an offset.
put() { bytes put "$@"; }

# inode_at FILE: where in the image the file's inode is.
inode_at() {
    local block offset
    read -r block offset < <(ask "imap $1" | sed -n 's/.*at block \([0-9]*\), offset \(.*\)/\1 \2/p')
    echo $((block * unit + offset))
}

# number_of FILE: its inode's number.
number_of() { ask "stat $1" | sed -n 's/^Inode: \([0-9]*\).*/\1/p'; }

# block_of FILE N: the number of its block N.
block_of() { ask "bmap $1 $2" | grep -x '[0-9]*'; }

# block_at FILE N: where in the image that block is.
block_at() { echo $(($(block_of "$1" "$2") * unit)); }

# indirect_at FILE KIND: where in the image its block of pointers is: IND, DIND.
indirect_at() { echo $(($(ask "stat $1" | sed -n "s/.*($2):\([0-9]*\).*/\1/p" | head -1) * unit)); }

# extents_at FILE: where in the image its first block of extents is.
extents_at() { echo $(($(ask "stat $1" | sed -n 's/.*(ETB0):\([0-9]*\).*/\1/p' | head -1) * unit)); }

# entry_at DIRECTORY NAME: where in the image the entry is, which is in the first block.
entry_at() { bytes entry "$(block_at "$1" 0)" "$2"; }

# attributes_at FILE: where in the image its block of attributes is.
attributes_at() { echo $(($(ask "stat $1" | sed -n 's/^File ACL: \([0-9]*\).*/\1/p') * unit)); }

# group_field GROUP PATTERN: a number out of what dumpe2fs says of a group.
group_field() { dumpe2fs "$image" 2> /dev/null | grep -A9 "^Group $1:" | grep -o "$2 [0-9]*" | tr -dc 0-9; }

# new FEATURES SIZE OPTION...: an empty volume, with all times set. More for -E is in "$extended".
extended=
new() {
    local features=$1 size=$2 nr stat
    shift 2
    rm -f "$image"
    truncate -s "$size" "$image"
    mke2fs -q -F -T own -b "$unit" -m 0 -O "none,$features" -U 6f776e00-6865-4374-8172-650000000001 \
        -E "hash_seed=6f776e00-6865-4374-8172-650000000002,lazy_itable_init=0,lazy_journal_init=0$extended" \
        "$@" "$image" > said 2>&1 || { cat said >&2; return 1; }
    local requests=("ssv mkfs_time @$now" "ssv lastcheck @$now")
    for nr in {1..12}; do
        stat=$(ask "stat <$nr>")
        grep -q 'ctime: 0x0*[1-9a-f]' <<< "$stat" || continue
        for time in $(grep -o '^ *[a-z]*time' <<< "$stat"); do
            requests+=("sif <$nr> $time @$now")
        done
    done
    dbg "${requests[@]}"
}

# Kinds of volumes; those without checksums are damaged inside, so that it is not the checksum that is wrong.
ext2() { new filetype,sparse_super,ext_attr,dir_index 256K -N 64 -I 128; fill; }
ext3() {
    new has_journal,filetype,sparse_super,ext_attr,dir_index,large_file 2500K -N 64 -I 128 -J size=1
    fill
}
plain() { new "extent,$common" 512K -N 128 -I 256; fill; }
sums() { new "extent,64bit,metadata_csum,$common" 512K -N 128 -I 256; fill; }
# With a journal; "$1" is put in front of the features.
logged() {
    new "${1:-}has_journal,extent,64bit,metadata_csum,$common" 2500K -N 64 -I 256 -J size=1
    fill
}
common=filetype,sparse_super,ext_attr,dir_index,flex_bg,huge_file,large_file,dir_nlink,extra_isize

# fill: some of everything.
fill() {
    printf 'content\n' > small
    # Packs well, and no two blocks are the same.
    printf '%1023d\n' {1..24} > numbers
    head -c 9000 numbers > middle
    head -c 24000 numbers > large
    dbg "mkdir a" "mkdir a/b" "mkdir a/b/c" "write small small" "write middle a/middle" \
        "write large a/b/large" "symlink short small" \
        "symlink long /$(printf 'long%.0s/' {1..16})" "mknod pipe p" "mknod disk b 8 1" \
        "ln small a/hard" "sif small links_count 2" "ea_set small user.note here"
}

# many FOLDER NUMBER: files with long names in a folder.
many() {
    local requests=("mkdir $1" "expand_dir $1" "expand_dir $1" "expand_dir $1" "expand_dir $1") nr
    for ((nr = 1; nr <= $2; nr++)); do
        requests+=("ln small $1/$(printf 'name_%03d_' "$nr")$(printf 'x%.0s' {1..40})")
    done
    dbg "${requests[@]}" "sif small links_count $(($2 + 2))"
}

# settled: e2fsck brings counts, quotas and indexes up to date; the volume is sound then.
settled() { e2fsck -fyD "$image" > said 2>&1 || [ $? = 1 ] || { cat said >&2; return 1; }; }

# keep NAME WHAT: packs the image and notes the verdict.
keep() {
    local status=0
    timeout -s KILL 60 e2fsck -fn "$image" > said 2>&1 || status=$?
    gzip -9n < "$image" > "$out/own_$1.img.gz"
    printf 'own_%s\t%s\t%s\n' "$1" "$2" "$status" >> index
}

printf 'name\twhat_is_broken\te2fsck_fn_1.47.0_exit\n' > index
rm -f "$out"/own_*.img.gz

# Sound ones.

ext2
many indexed 40
settled
keep sound_ext2 "nothing: ext2, with an indexed directory"

ext3
settled
keep sound_ext3 "nothing: ext3"

logged
many indexed 60
dbg "ea_set a user.large $(printf 'v%.0s' {1..300})"
settled
keep sound_ext4 "nothing: ext4 with a journal, checksums and an indexed directory"

unit=4096
new "extent,64bit,metadata_csum,$common" 512K -N 64 -I 256
fill
keep sound_no_journal "nothing: ext4 without a journal, blocks of 4 KiB"
unit=1024

new "bigalloc,extent,64bit,metadata_csum,$common" 512K -N 64 -I 256 -C 8192
fill
settled
keep sound_bigalloc "nothing: clusters of 8 KiB"

new "inline_data,extent,64bit,metadata_csum,$common" 256K -N 64 -I 256
fill
dbg "mkdir inline" "write small inline/small"
keep sound_inline "nothing: content of files and directories in inodes"

new "quota,project,extent,64bit,metadata_csum,$common" 512K -N 64 -I 256
fill
settled
keep sound_quota "nothing: quotas of users, groups and projects"

logged fast_commit,orphan_file,
keep sound_fast_commit "nothing: an empty area of fast commits, an orphan file"

new meta_bg,filetype,sparse_super,ext_attr 640K -N 64 -I 128 -g 256
fill
keep sound_meta_bg "nothing: descriptors in the groups, groups of 256 blocks"

new "ea_inode,extent,64bit,metadata_csum,$common" 256K -N 64 -I 256
fill
head -c 3000 numbers > value
dbg "ea_set -f value small user.large"
settled
keep sound_ea_inode "nothing: the value of an attribute in an inode of its own"

# The superblock.

# Two groups, the second of which has a backup where e2fsck looks for it.
two_groups() { new filetype,sparse_super,ext_attr 8300K -N 32 -I 128; fill; }

two_groups
put 1080 0000
keep super_magic "the superblock's magic number; the backup is whole"

new filetype,sparse_super,ext_attr 512K -N 32 -I 128 -g 256
fill
put 1080 0000
keep super_lost "the superblock's magic number; the backup is where nobody looks"

sums
bytes flip 1144 1
keep super_checksum "the superblock's checksum"

sums
dbg "ssv free_blocks_count 400000" "ssv r_blocks_count 900000"
keep super_free_blocks "the superblock's number of free and of reserved blocks: more than there are"

# Descriptors of groups, and bitmaps.

sums
bytes flip $((2048 + 0x1e)) 0x55
keep group_checksum "a descriptor's checksum"

plain
put $((2048 + 8)) 00ffff00
keep group_inode_table "a group's inode table: out of range"

sums
dbg "set_bg 0 used_dirs_count 40" "set_bg 0 free_inodes_count 3" "set_bg 0 checksum calc"
keep group_counts "a group's numbers of directories and of free inodes"

plain
dbg "freeb $(block_of a/b/large 3) 4" "setb 450 3"
keep block_bitmap "blocks in use are free, and free ones in use"

plain
dbg "freei small" "seti <100>"
keep inode_bitmap "an inode in use is free, and a free one in use"

sums
bytes flip $(($(group_field 0 'Block bitmap at') * unit + 40)) 0x10
bytes flip $(($(group_field 0 'Inode bitmap at') * unit + 10)) 0x10
keep bitmap_checksums "a bit of each bitmap, and so their checksums"

# Inodes.

sums
bytes flip $(($(inode_at a/middle) + 0x7c)) 1
keep inode_checksum "an inode's checksum"

sums
dbg "sif a links_count 9" "sif small links_count 1" "sif pipe links_count 3" "sif a/middle blocks 400"
keep inode_counts "link counts, and a number of blocks"

plain
dbg "sif a/middle size 90" "sif a size 5000" "sif a/b/large size 0x7fffffffffff"
keep inode_size "sizes"

ext2
dbg "sif small dtime 1699999999" "sif a/hard links_count 0"
keep inode_deleted "a time of deletion and no links, of a file that has names"

sums
dbg "sif pipe mode 0170644" "sif disk block[0] 77" "sif small flags 0x50000000"
keep inode_mode "an unknown type, and flags that nobody knows"

ext2
dbg "sif <2> mode 0100644"
keep root_file "the root is a file"

plain
dbg "clri <11>"
keep lost_found_cleared "lost+found has no inode"

plain
dbg "sif <1> block[0] 300" "sif <1> size 1024" "sif <1> mode 0" "sif <1> blocks 2"
keep bad_blocks "the inode of bad blocks has one that is free"

sums
put $(($(inode_at small) + 0x80)) ff7f
keep inode_extra_size "an inode's extra size: beyond its end"

# Directories.

plain
put $(($(entry_at a/b c) + 4)) 0000
keep dir_length_zero "an entry of no length"

plain
put $(($(block_at a 0))) 63000000
put $(($(entry_at a/b ..))) 63000000
keep dir_dots "the entries . and .. of two directories"

sums
dbg "ln small a/once" "ln small a/only" "sif small links_count 4"
put $(($(entry_at a only) + 8)) 6f6e6365
bytes seal_directory "$(block_at a 0)" "$(number_of a)"
keep dir_duplicate "two entries of one name"

sums
dbg "ln small a/gone" "clri small" "freei small"
keep dir_free_inode "entries to an inode that is free"

sums
at=$(entry_at / short)
put "$at" ffff0000
bytes seal_directory "$(block_at / 0)" 2
keep dir_out_of_range "an entry to an inode out of range; the checksum is right"

plain
put $(($(entry_at / short) + 7)) 02
put $(($(entry_at a hard) + 8)) 2f
keep dir_type_and_name "an entry's file type, and a slash in a name"

sums
dbg "unlink a/b"
keep dir_unconnected "a directory with content has no name"

sums
nr=$(number_of a)
at=$(block_at a 0)
below=$(number_of a/b/c)
dbg "ln a a/b/c/up" "unlink a"
put "$(bytes entry "$at" ..)" "$(printf '%02x000000' "$below")"
bytes seal_directory "$at" "$nr"
keep dir_loop "three directories below each other, none below the root"

sums
dbg "ln a/b again" "sif a/b links_count 4"
keep dir_two_names "a directory with two names"

sums
bytes flip $(($(block_at a 0) + 1021)) 4
keep dir_checksum "the checksum of a directory's block"

plain
dbg "sif a flags 0" "sif a block[0] 0" "sif a block[1] 0" "sif a block[4] 0" "sif a block[5] 0"
keep dir_hole "a directory without a block"

plain
many indexed 40
settled
put $(($(block_at indexed 0) + 28)) 09ff
keep htree_root "the root of a directory's index: version of the hash, and length"

plain
many indexed 40
settled
put $(($(block_at indexed 0) + 32)) ff00ff00
keep htree_limits "the limit and the count of a directory's index"

plain
many indexed 40
settled
put $(($(block_at indexed 0) + 40 + 4)) 7f
put $(($(block_at indexed 0) + 40)) ffffffff
keep htree_entries "a place and a hash in a directory's index"

# Extents.

# comb: a file whose extents need a block; it is a/comb.
comb() {
    local requests=("write middle a/comb" "punch a/comb 0 8") nr
    for nr in 1 3 5 7 9 11 13; do requests+=("fallocate a/comb $nr $nr"); done
    dbg "${requests[@]}" "sif a/comb size 14336"
}

plain
put $(($(inode_at a/middle) + 0x28)) 0bf3
keep extent_magic "the magic number of a file's extents"

sums
dbg "sif a/middle block[5] 0x00ff0000"
keep extent_range "an extent beyond the volume's end"

sums
comb
at=$(extents_at a/comb)
bytes flip $((at + 1018)) 32
keep extent_checksum "the checksum of a block of extents"

sums
comb
at=$(extents_at a/comb)
put $((at + 12 + 4)) 0580
bytes seal_extents "$at" "$(number_of a/comb)"
keep extent_overlap "extents that overlap in the file; the checksum is right"

plain
comb
put $(($(inode_at a/comb) + 0x28 + 6)) 0300
keep extent_depth "extents that are deeper than their blocks say"

# Indirect blocks.

ext2
at=$(indirect_at a/b/large IND)
put $((at + 8)) ffffff00 fffffff0
keep indirect_range "an indirect block has blocks out of range"

ext2
dbg "sif a/b/large block[DIND] 5"
keep indirect_metadata "a double indirect block in the volume's metadata"

sums
dbg "sif a/middle block[5] $(block_of a/b/large 10)"
keep block_shared "two files have the same blocks; their old ones are lost"

# Extended attributes.

sums
dbg "ea_set a user.large $(printf 'v%.0s' {1..300})"
put "$(attributes_at a)" 00000000
keep xattr_header "the magic number of an attribute block"

sums
dbg "ea_set a user.large $(printf 'v%.0s' {1..300})"
bytes flip $(($(attributes_at a) + 16)) 1
keep xattr_checksum "the checksum of an attribute block"

ext2
dbg "ea_set a user.large $(printf 'v%.0s' {1..300})"
put $(($(attributes_at a) + 32 + 12)) 78563412
keep xattr_hash "the hash of an attribute in a block"

ext2
dbg "ea_set a user.large $(printf 'v%.0s' {1..300})"
put $(($(attributes_at a) + 4)) 05000000
put $(($(attributes_at a) + 32 + 8)) ff030000
keep xattr_size "an attribute block has too many users, and a value beyond its end"

plain
put $(($(inode_at small) + 0xa0 + 4 + 2)) f00f
keep xattr_in_inode "an attribute in an inode, with its value beyond the inode's end"

# Symbolic links.

sums
dbg "sif short size 0"
keep symlink_empty "a symbolic link of no length"

ext2
dbg "sif short size 50" "sif long size 3000"
keep symlink_length "symbolic links longer than what they hold"

# The journal.

# change REQUEST...: what these requests change becomes a transaction in the journal; nothing else changes.
change() {
    local blocks at
    dbg "feature needs_recovery"
    cp "$image" before.img
    dbg "$@"
    mv "$image" after.img
    mv before.img "$image"
    blocks=$({ cmp -l "$image" after.img || true; } | awk '{print int(($1 - 1) / 1024)}' | uniq)
    for at in $blocks; do dd if=after.img bs="$unit" skip="$at" count=1 status=none; done > changed
    dbg journal_open "journal_write -b $(paste -sd, <<< "$blocks") changed" journal_close
    bytes settle_commits "$(block_at '<8>' 0)"
}

# sealed_log: the journal gets checksums.
sealed_log() { dbg "journal_open -c -v 3" journal_close; }

ext3
change "mkdir new" "write small new/file"
keep journal_dirty "nothing: a transaction to be replayed"

logged
sealed_log
change "mkdir new" "write small new/file"
keep journal_dirty_sums "nothing: a transaction to be replayed, with checksums"

logged
sealed_log
change "mkdir new" "write small new/file"
bytes flip $(($(bytes commit "$(block_at '<8>' 0)") + 0x10)) 1
keep journal_commit "the checksum of a commit block"

logged
put "$(block_at '<8>' 0)" 00000000
keep journal_magic "the magic number of the journal"

logged
put $(($(block_at '<8>' 0) + 0x10)) 7fffffff
keep journal_length "the journal's own length: beyond its end"

logged
dbg "sif <8> block[5] 1" "sif <8> links_count 0"
keep journal_inode "the journal's inode: its first block, and no link"

# fast: a fast commit after the log's transaction, which is the first. The area of fast commits begins at the
# second of the last 16 blocks.
fast() {
    bytes allow_fast_commits "$(block_at '<8>' 0)"
    bytes fast_commit "$(block_at '<8>' 1025)" 2 "$(inode_at small)" "$(number_of small)" another
}

# The superblock is not in the transactions: e2fsck 1.47.0 fails over that before a fast commit.
logged fast_commit,
change "sif pipe mode 010600"
fast
keep journal_fast "nothing: a transaction to be replayed, and a fast commit after it"

logged fast_commit,
sealed_log
change "sif pipe mode 010600"
fast
bytes flip $(($(block_at '<8>' 2) + 700)) 2
keep journal_fast_damaged "a block of a transaction, which has a checksum and a fast commit after it"

# Orphans.

ext2
one=$(number_of small)
two=$(number_of pipe)
dbg "unlink small" "unlink a/hard" "unlink pipe" "sif <$one> links_count 0" "sif <$two> links_count 0" \
    "sif <$one> dtime $two" "sif <$two> dtime 0" "ssv last_orphan $one" "ssv state 0"
keep orphans "nothing but what a crash leaves: two deleted files in the list of orphans"

ext2
one=$(number_of small)
two=$(number_of pipe)
dbg "unlink small" "unlink a/hard" "unlink pipe" "sif <$one> links_count 0" "sif <$two> links_count 0" \
    "sif <$one> dtime $two" "sif <$two> dtime $one" "ssv last_orphan $one"
keep orphan_loop "the list of orphans has no end"

logged orphan_file,
bytes flip $(($(block_at "<12>" 1) + 1016)) 1
keep orphan_file "the magic number of a block of the orphan file"

# Multiple mount protection, quotas, clusters, room to grow, inline data.

new mmp,extent,filetype,sparse_super,ext_attr 256K -N 64 -I 256
put $(($(ask stats | sed -n 's/^MMP Block Number: *//Ip') * unit)) 00000000 00000000 0000000000000000
keep mmp_magic "the magic number of the block against mounting twice"

new "quota,extent,64bit,metadata_csum,$common" 512K -N 64 -I 256
fill
keep quota_usage "what users and groups use is not what the quota says"

new "quota,extent,64bit,metadata_csum,$common" 512K -N 64 -I 256
fill
settled
put "$(block_at '<3>' 0)" 00000000
put $(($(block_at '<4>' 1) + 4)) ffff
keep quota_files "the magic number of a quota file, and the tree of another"

new "bigalloc,extent,64bit,metadata_csum,$common" 512K -N 64 -I 256 -C 8192
fill
settled
dbg "sif a/middle block[5] $(($(block_of a/b/large 0) + 2))"
keep bigalloc_shared "two files share clusters"

extended=,resize=70000
new "resize_inode,$common,extent" 512K -N 64 -I 256
fill
dbg "sif <7> block[DIND] 0" "sif <7> blocks 2"
keep resize_inode "the inode of the room to grow has lost its blocks"

new "resize_inode,$common,extent" 512K -N 64 -I 256
fill
put "$(indirect_at '<7>' DIND)" 09000000 09000000
keep resize_blocks "the room to grow is elsewhere"
extended=

new "inline_data,extent,$common" 256K -N 64 -I 256
fill
put $(($(inode_at a) + 0x28 + 4 + 4)) 0200
keep inline_data "a directory in an inode, with a bad length of an entry"

new "inline_data,extent,64bit,metadata_csum,$common" 256K -N 64 -I 256
fill
dbg "sif small size 3000"
keep inline_size "a file in an inode, with a size that has no room there"

new "inline_data,extent,64bit,metadata_csum,$common" 256K -N 64 -I 256
fill
dbg "ea_rm small system.data" "sif a/b/c block[0] 99" "sif a/b/c size 7"
keep inline_attribute "inline data without its attribute, and a directory of odd length"

mv index "$out/INDEX.tsv"
