#!/bin/bash
# fio verifies what it wrote: buffered, direct, mapped, with fsyncs between.
. "$(dirname "$0")/lib.sh"
need_root
need fio
cluster_up
cd "$T" # fio leaves its state where it runs
for job in "--ioengine=psync --rw=randwrite --bs=4k" \
	"--ioengine=psync --rw=randwrite --bs=4k --direct=1" \
	"--ioengine=libaio --iodepth=16 --direct=1 --rw=randwrite --bs=8k" \
	"--ioengine=psync --rw=write --bs=1m" \
	"--ioengine=mmap --rw=randwrite --bs=4k" \
	"--ioengine=psync --rw=randwrite --bssplit=512/20:3k/30:64k/50 --bs_unaligned=1 --fsync=16"; do
	# shellcheck disable=SC2086
	fio --name=v --directory="$MNT" --size=48m --numjobs=2 \
		--verify=crc32c --verify_fatal=1 --do_verify=1 \
		--random_generator=lfsr --group_reporting --output="$T/fio" \
		$job || { tail -n 30 "$T/fio"; fail "fio $job"; }
	rm -f "$MNT"/v.*
done
fsck_clean
