#!/bin/bash
# fio verifies what it wrote: buffered, direct, mapped, with fsyncs between; at
# once, and again when a new mount must read it from the block daemons.
. "$(dirname "$0")/lib.sh"
need_root
need fio
cluster_up
cd "$T" # fio leaves its state where it runs
verify() { # FILES JOB...
	local files=$1
	shift
	fio --name="v$files" --directory="$MNT" --size=32m --numjobs=2 \
		--verify=crc32c --verify_fatal=1 --random_generator=lfsr \
		--group_reporting --output="$T/fio" "$@" ||
		{ tail -n 30 "$T/fio"; fail "fio $*"; }
}
jobs=("--ioengine=psync --rw=randwrite --bs=4k"
	"--ioengine=psync --rw=randwrite --bs=4k --direct=1"
	"--ioengine=libaio --iodepth=16 --direct=1 --rw=randwrite --bs=8k"
	"--ioengine=psync --rw=write --bs=1m"
	"--ioengine=mmap --rw=randwrite --bs=4k"
	"--ioengine=psync --rw=randwrite --bssplit=512/20:3k/30:64k/50 --bs_unaligned=1 --fsync=16")
for i in "${!jobs[@]}"; do
	# shellcheck disable=SC2086
	verify "$i" ${jobs[i]} --do_verify=1
done
cluster_down
cluster_up
drop_caches
for i in "${!jobs[@]}"; do
	# shellcheck disable=SC2086
	verify "$i" ${jobs[i]} --verify_only=1
done
fsck_clean
