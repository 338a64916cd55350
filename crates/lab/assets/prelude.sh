# Put before every guest script. Fails at the first command that fails, unset names included.
set -euo pipefail

# lab_mount VERSION DIRECTORY [MORE-OPTIONS]: mounts the export of the server under test.
lab_mount() {
	local options="vers=$1,proto=tcp,port=$PORT" 
	[ "$1" != 3 ] || options="$options,mountproto=tcp,mountport=$PORT,nolock"
	mkdir -p "$2"
	mount -t nfs -o "$options${3:+,$3}" "$SERVER:$EXPORT" "$2"
}

# lab_wait NAME [SECONDS]: waits for the host's go-ahead of that name (Guest::signal).
lab_wait() {
	# Without SECONDS as long as any guest may take: the host, which may wait for another one, ends it.
	local tenths=$((${2:-600} * 10))
	until [ -e "$OUT/.signal/$1" ]; do
		tenths=$((tenths - 1))
		[ $tenths -gt 0 ] || { echo "lab_wait: no $1 from the host" >&2; return 1; }
		sleep 0.1
	done
}
