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

# lab_clock: sets the guest's clock by the host's to 20 ms. While it boots on a busy host it falls 100 ms and more behind, and
# what a server says of the time of a change is compared with the guest's seconds.
lab_clock() {
	local behind cost=0 try now
	for try in {1..20}; do
		behind=$(lab_clock_behind)
		[ "${behind#-}" -gt 20000 ] || return 0
		# What it takes to set it is learned from how far the try before fell short.
		[ "$try" = 1 ] || cost=$((cost + behind))
		now=$((${EPOCHREALTIME/[.,]/} + behind + cost))
		date -s "@$((now / 1000000)).$(printf %06d $((now % 1000000)))" >/dev/null
	done
	echo "lab_clock: the clock is still $behind microseconds behind the host's" >&2
	return 1
}

# By how many microseconds the host's clock is ahead. New files of $OUT bear the host's time: on Linux 7.3 to the nanosecond, on
# 6.1 in whole seconds, where the moment when that changes is looked for.
lab_clock_behind() {
	local file=0 now host
	mkdir "$OUT/.clock"
	now=${EPOCHREALTIME/[.,]/}
	: >"$OUT/.clock/0"
	host=$(stat -c %.6Y "$OUT/.clock/0")
	if [ "${host#*[.,]}" = 000000 ]; then
		until [ "$OUT/.clock/$file" -nt "$OUT/.clock/0" ]; do
			file=$((file + 1))
			now=${EPOCHREALTIME/[.,]/}
			: >"$OUT/.clock/$file"
		done
		host=$(stat -c %.6Y "$OUT/.clock/$file")
	fi
	rm -r "$OUT/.clock"
	echo $((${host/[.,]/} - now))
}
