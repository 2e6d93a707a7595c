#!/bin/bash
# Everything at once, for long: daemons are killed, stopped for seconds and
# restarted at random under writers that note what was acknowledged, fio with
# verification and a SQLite database, with a small buffer in the mount. Nobody
# sees an error, nothing acknowledged is lost. SECONDS_EACH, SEED.
. "$(dirname "$0")/lib.sh"
need_root
need fio sqlite3
SECONDS_EACH=${SECONDS_EACH:-300}
RANDOM=${SEED:-$(date +%s)}
echo "# SEED=${SEED:-now} first draw $RANDOM"
stopped=
test_cleanup() {
	[ -z "$stopped" ] || kill -CONT "$stopped" 2>/dev/null
	touch "$T/stop"
}

fio_rounds() {
	while [ ! -e "$T/stop" ]; do
		fio --name=v --directory="$MNT/fio" --size=24m --bs=4k-64k \
			--rw=randrw --verify=crc32c --verify_backlog=64 \
			--verify_fatal=1 --verify_state_save=0 --ioengine=psync --fsync=32 \
			--numjobs=2 --randseed=$RANDOM --output="$T/fio.log" ||
			return 1
		rm -f "$MNT"/fio/*
	done
}

# Each transaction is its own process: recovery of the WAL's index, too.
sql_rounds() {
	local n=0
	sqlite3 "$MNT/s.db" 'PRAGMA journal_mode=wal; CREATE TABLE t(a)' \
		>/dev/null
	while [ ! -e "$T/stop" ]; do
		sqlite3 "$MNT/s.db" 'PRAGMA synchronous=full;
			INSERT INTO t VALUES (hex(randomblob(100)))' || return 1
		n=$((n + 1))
		echo $n >"$T/inserted"
	done
}

one_fault() {
	local name=blockd$((1 + RANDOM % 3))
	[ $((RANDOM % 3)) != 0 ] || name=metad1
	case $((RANDOM % 3)) in
	0)	crash $name
		sleep 0.$((RANDOM % 10))
		cluster_up -o "$opts" ;;
	1)	stopped=$(pid_of $name)
		halt "$stopped"
		sleep $((1 + RANDOM % 4))
		kill -CONT "$stopped"
		stopped= ;;
	2)	kill -TERM "$(pid_of $name)"
		sleep 1
		cluster_up -o "$opts" ;;
	esac
}

for opts in writeback,wb_size=2m nowriteback; do
	rm -f "$T/stop"
	cluster_up -o "$opts"
	mkdir "$MNT/w" "$MNT/fio"
	"$TST/integ/acked" write "$MNT/w" "$T/acks" "$SECONDS_EACH" 4 &
	writer=$!
	fio_rounds &
	fio=$!
	sql_rounds &
	sql=$!
	faults=0
	while kill -0 $writer 2>/dev/null; do
		sleep $((1 + RANDOM % 3))
		one_fault
		faults=$((faults + 1))
	done
	touch "$T/stop"
	wait $writer || fail "$opts: a writer saw an error (status $?)"
	wait $fio || { tail "$T/fio.log"; fail "$opts: fio"; }
	wait $sql || fail "$opts: SQLite"
	drop_caches
	"$TST/integ/acked" verify "$MNT/w" "$T/acks" || fail "$opts: lost"
	[ "$(sqlite3 "$MNT/s.db" 'PRAGMA integrity_check')" = ok ] ||
		fail "$opts: integrity of the database"
	rows=$(sqlite3 "$MNT/s.db" 'SELECT count(*) FROM t')
	[ "$rows" = "$(cat "$T/inserted")" ] ||
		fail "$opts: $rows rows of $(cat "$T/inserted")"
	fsck_clean
	echo "# $opts: $faults faults, $rows transactions"
	cluster_down
	rm -rf "$C" "$T/acks"
done
