#!/bin/bash
# Runs a command as root in a guest that has RDMA devices (soft-RoCE).
#
# usage: tests/vm/run.sh [-t SECONDS] COMMAND [ARG...]
#	-t	after so long it is ended (300)
#
# What it prints comes here as it is printed, on stdout; its exit status is
# this script's. The guest sees the host's files under the same paths, what it
# writes is forgotten, except that /vm ($VM_DISK) is a disk of its own, which
# takes O_DIRECT and is forgotten, too. See guest.sh for the devices.
# Environment: VM_PEERS (4) devices, VM_MEM (3072) MiB, VM_CPUS (4); these and
# FLAVOUR are passed on; VM_GRACE (120): the seconds beyond -t after which the
# guest itself is ended; VM_BOOT (120): those in which its kernel must come up.
# Exit status: the command's; 77 where there is no QEMU, 124 when it did not
# end, 125 when the guest did not come up or crashed.
set -u
limit=300
while getopts t: o; do
	case $o in
	t) limit=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n '3,5s/^# //p' "$0" >&2; exit 2; }
export VM_PEERS=${VM_PEERS:-4} VM_MEM=${VM_MEM:-3072} VM_CPUS=${VM_CPUS:-4}

top=$(cd "$(dirname "$0")/../.." && pwd)
vm=${DEPS_PREFIX:-$top/.deps}/vm
skip() { echo "# skipped: $*"; exit 77; }
command -v qemu-system-x86_64 >/dev/null && [ "$(uname -m)" = x86_64 ] ||
	skip "no QEMU (make deps installs it)"
[ -f "$vm/initrd" ] || skip "no kernel for a guest (make deps gets it)"

tmp=$(mktemp -d "${TEST_DIR:-/var/tmp}/hailfs-vm.XXXXXX") || exit 1
qemu='' watch=''
clean_up() {
	trap - EXIT
	exec 2>/dev/null 4<&-
	[ -z "$watch" ] || kill "$watch"
	[ -z "$qemu" ] || kill -9 "$qemu"
	wait
	rm -rf "$tmp"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

late=$((limit + ${VM_GRACE:-120})) boot_limit=${VM_BOOT:-120}

# ---- what the guest is given ----
{
	echo '#!/bin/bash'
	for v in VM_PEERS VM_MEM VM_CPUS FLAVOUR; do
		[ -z "${!v:-}" ] || printf 'export %s=%q\n' $v "${!v}"
	done
	printf 'exec'
	printf ' %q' "$top/tests/vm/guest.sh" "$limit" "$PWD" "$@"
	echo
} >"$tmp/start"
chmod 755 "$tmp/start"
truncate -s 16G "$tmp/disk"
mkfs.ext4 -q -F "$tmp/disk" || exit 125
mkfifo "$tmp/out"
: >"$tmp/status" >"$tmp/console"

# ---- the guest ----
append="console=ttyS0 loglevel=5 panic=-1 hail.start=$tmp/start"
# What is for safety costs a sixth of the latency over RDMA.
append+=" mitigations=off init_on_alloc=0 lsm=capability audit=0"
# The other clock, hpet, takes 20 times as long to read. Where this machine is
# busy the guest gets the counter's rate wrong, and its time flies, or finds
# that its timer does not work.
append+=" tsc=reliable no_timer_check"
khz=$("$top/build/${FLAVOUR:-release}/tests/vm/tsc_khz" 2>/dev/null) &&
	append+=" tsc_early_khz=$khz lpj=$((khz * 4))"
# More processors than the host may have: those that poll must not hold up the
# kernel's threads that they poll for (ib_write_lat's mean with two: 10 to 40
# times as long as with four).
options=(
	# Never KVM: where this was written a guest hangs under it.
	-accel tcg,thread=multi -cpu max -smp "$VM_CPUS" -m "$VM_MEM"
	-nodefaults -no-user-config -display none -no-reboot -nic none
	-kernel "$vm/vmlinuz" -initrd "$vm/initrd" -append "$append"
	-serial "file:$tmp/console"
	-fsdev "local,id=host,path=/,security_model=none,readonly=on,$(
		)multidevs=remap"
	-device virtio-9p-pci,fsdev=host,mount_tag=host
	-drive "file=$tmp/disk,format=raw,if=none,id=disk,cache=unsafe"
	-device virtio-blk-pci,drive=disk
	-device virtio-serial-pci
	-chardev "file,id=out,path=$tmp/out"
	-device virtserialport,chardev=out,name=out
	-chardev "file,id=status,path=$tmp/status"
	-device virtserialport,chardev=status,name=status
)
# Held open here, so that the reader's end does not depend on QEMU's start.
exec 4<>"$tmp/out"
cat <"$tmp/out" 4<&- &
reader=$!
is_up() { grep -qx up "$tmp/status"; }
# What does not end is ended within the guest, which says what it was doing:
# this is for a guest that runs nothing any more.
watch_guest() {
	for _ in $(seq "$boot_limit"); do
		sleep 1 &
		wait $!
		! is_up || break
	done
	if is_up; then
		sleep $late &
		wait $!
	fi
	echo late >"$tmp/late"
	kill -9 $qemu
}
guest() {
	# It ends with this script, whatever ends that.
	setpriv --pdeathsig KILL qemu-system-x86_64 "${options[@]}" \
		>"$tmp/qemu" 2>&1 </dev/null 4<&- &
	qemu=$!
	(
		trap 'kill $!; exit' TERM
		watch_guest
	) 4<&- &
	watch=$!
	wait $qemu 2>/dev/null # bash would tell of its end
	qemu=
	kill $watch 2>/dev/null
	wait $watch
	watch=
}
guest
if [ -e "$tmp/late" ] && ! is_up; then
	# One in some fifty kernels hangs in the emulated processors before
	# anything of ours runs in it.
	echo "# the guest's kernel did not come up in $boot_limit s, once more"
	rm "$tmp/late"
	guest
fi
exec 4<&-
wait $reader

# ---- how it ended ----
console() { # LINES: the end of it
	cat "$tmp/qemu"
	tail -n "$1" "$tmp/console" | tr -d '\r' | sed 's/^/# console: /'
}
if [ -e "$tmp/late" ] && is_up; then
	echo "# the guest hung and was ended after $late s"
	console 60
	exit 124
fi
code=$(grep -vx up "$tmp/status")
if [ -z "$code" ]; then
	echo "# the guest crashed or did not come up"
	console 60
	exit 125
fi
if grep -qE 'WARNING: |BUG: |INFO: (task|rcu)' "$tmp/console"; then
	echo "# the guest's kernel complained"
	console 100
fi
exit "$code"
