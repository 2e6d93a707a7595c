#!/bin/bash
# Every daemon and the mount serve counters as OpenMetrics text on the port they
# are given, and they count; a port that is taken is said.
. "$(dirname "$0")/lib.sh"
need_root
need python3
cluster_up --no-mount
"$CTL" local down "$C" >"$T/out" 2>&1
read -r meta blk log mnt < <(python3 -c 'import socket
s = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*[x.getsockname()[1] for x in s])')
sed -i -e "/^metad /s/\$/ metrics-port=$meta/" \
	-e "/^blockd 1 /s/\$/ metrics-port=$blk/" \
	-e "/^logd  *1 /s/\$/ metrics-port=$log/" "$C/cluster.conf"
cluster_up -o "metrics_port=$mnt"
for i in $(seq 20); do echo text >"$MNT/f$i"; done
sync "$MNT"/f*
mkdir "$MNT/l"
"$CTL" log enable "$MNT/l" >/dev/null || fail "log enable"
for i in $(seq 5); do echo text >>"$MNT/l/log"; done
drop_caches
cat "$MNT"/f* >"$T/out"

# page PORT PYTHON: "m" has its samples, "t" the types of its families.
cat >"$T/page.py" <<'PY'
import re, sys, urllib.request
r = urllib.request.urlopen("http://127.0.0.1:%s/metrics" % sys.argv[1],
                           timeout=10)
assert r.headers["Content-Type"].startswith("application/openmetrics-text")
text = r.read().decode()
assert text.endswith("\n# EOF\n"), text[-80:]
t, m, family = {}, {}, None
for line in text.split("\n")[:-2]:
    if line.startswith("# TYPE "):
        family, kind = line.split(" ")[2:]
        assert family not in t, line
        t[family] = kind
    elif line.startswith("# HELP "):
        assert line.split(" ")[2] == family, line
    else:
        s = re.fullmatch(r'([a-z_][a-z0-9_]*)(\{.*\})? (\S+)', line)
        assert s and s[1].startswith(family), line
        assert s[1] + (s[2] or "") not in m, line
        m[s[1] + (s[2] or "")] = float(s[3])
assert eval(sys.argv[2].replace("\n", " ")), text
PY
page() { python3 "$T/page.py" "$@" || fail "the page at port $1"; }
page "$meta" 't["hail_metad_mutations"] == "counter" and
	m["hail_metad_mutations_total"] >= 20 and
	t["hail_metad_raft_append_seconds"] == "histogram" and
	0 < m["hail_metad_raft_append_seconds_sum"] < 60 and
	m["hail_metad_raft_append_seconds_count"] ==
	m["hail_metad_raft_append_seconds_bucket{le=\"+Inf\"}"] > 0'
page "$blk" 'm["hail_blockd_request_seconds_count{op=\"write_sync\"}"] > 0'
page "$log" 't["hail_logd_writes"] == "counter" and
	t["hail_logd_request_seconds"] == "histogram" and
	"hail_logd_request_seconds_count{op=\"write\"}" in m and
	m["hail_logd_frames_in_total"] > 0 and
	m["hail_logd_writes_total"] > 0 and
	m["hail_logd_lent_bytes"] >= 0'
page "$mnt" 'm["hailfs_names_creates"] >= 20 and m["hailfs_fenced"] == 0 and
	m["hailfs_wb_bytes_max"] == 64 << 20 and
	sum(m["hailfs_blockds_up{id=\"%d\"}" % i] for i in (1, 2, 3)) == 3 and
	t["hailfs_sync_seconds"] == "histogram" and
	m["hailfs_sync_seconds_count"] >= 20 and
	0 < m["hailfs_sync_seconds_sum"] < 60 and
	m["hailfs_read_seconds_count"] >= 1 and
	m["hailfs_write_seconds_count"] >= 20 and
	m["hailfs_names_seconds_count"] >= 20 and
	[k for k in m if k.startswith("hailfs_mount_info{") and
	 "mountpoint=\"'"$MNT"'\"" in k]'
umount "$MNT"
"$CTL" local up "$C" -o "metrics_port=$meta" >"$T/out" 2>&1 &&
	fail "two on one port"
grep -q "hailfs: metrics_port=$meta: Address already in use" "$T/out" ||
	{ cat "$T/out"; fail "a port that is taken is not said"; }
