# Sourced after lib.sh by tests of logs over verbs. A mount that finds no way to
# a peer within a second, as may be where this machine is busy, writes to it over
# TCP for as long as the log lives: where a test relies on verbs, it says so with
# UP_OPTS=transport=verbs.
K=(-c "$C/cluster.conf")
# ask EXPR: of the mount's logs (l) and all their peers (p), in Python.
ask() {
	"$CTL" "${K[@]}" --json status >"$T/st" 2>/dev/null || true
	python3 -c '
import json, sys
s = json.load(open(sys.argv[1]))["sessions"]
l = [x["status"]["logs"] for x in s if "logs" in x.get("status", {})]
l = l[0] if l else {"files": [], "posts": 0}
p = [p for f in l["files"] for p in f["peers"]]
w = [x["transport"] for x in p]
print(eval(sys.argv[2]))' "$T/st" "$1"
}
# How they are written: a word each.
ways() { ask '" ".join(sorted(w))'; }
all_verbs() { [ "$(ask 'bool(p) and all(x["transport"] == "verbs" and
	x["state"] == "up" for x in p)')" = True ]; }
all_tcp() { [ "$(ask 'bool(p) and all(x["transport"] == "tcp" for x in p)')" = \
	True ]; }
some_verbs() { [ "$(ask '"verbs" in w')" = True ]; }
# counter NAME: of all log daemons.
counter() {
	"$CTL" "${K[@]}" --json stats >"$T/stats" || fail "stats"
	python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
v = [d[k][sys.argv[2]] for k in d if k.startswith("logd")]
assert v
print(int(sum(v)))' "$T/stats" "$1"
}
# Until they can lend: a log that finds too few begins as an ordinary file.
logds_serve() {
	"$CTL" "${K[@]}" --json status 2>/dev/null | python3 -c '
import json, sys
d = [x for x in json.load(sys.stdin)["daemons"] if x["program"] == "hail-logd"]
sys.exit(len(d) != 4 or any(x.get("state") != "ok" for x in d))'
}
# A cluster with four log daemons, each at a device of its own.
logs_up() {
	local n
	cluster_up --logds 4 --no-mount
	crash logd1 logd2 logd3 logd4
	for n in 1 2 3 4; do
		sed -i "s/^logd *$n .*/& rdma=10.9.0.$n/" "$C/cluster.conf"
	done
	cluster_up
	within 30 logds_serve || fail "no log daemons"
}
# After a daemon was ended.
logs_again() {
	cluster_up
	within 30 logds_serve || fail "no log daemons"
}
# acked_more N: until its writer was answered so often since.
acked_more() {
	local want=$(($(cat "$T/acks" 2>/dev/null | wc -l) + $1))
	within 60 acked_so_far $want || fail "it does not write"
}
acked_so_far() { [ "$(cat "$T/acks" 2>/dev/null | wc -l)" -ge "$1" ]; }
