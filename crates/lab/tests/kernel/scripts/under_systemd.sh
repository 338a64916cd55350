# What systemd.rs has a guest do: serves a directory under systemd, by the unit of dist/, to mounts of its own.

. $SCRIPTS/systemd.sh

# A connection that has nothing to say, under descriptor 7.
connect() { exec 7<>/dev/tcp/127.0.0.1/2049; }
is_open() {
	local status=0
	read -r -t 1 -n 1 -u 7 || status=$?
	[ $status -gt 128 ]
}

# Whether a local process is kept out of what a mount has locked.
is_locked() { ! flock -n /srv/share/$1 true; }

systemctl start holdfast || failed "not started"
SERVER=127.0.0.1 PORT=2049 EXPORT=/share
lab_mount 4.2 /mnt/new
lab_mount 4.0 /mnt/old
exec 8>/mnt/old/old 9>/mnt/new/new
flock -x 8
flock -x 9
is_locked new && is_locked old || failed "not locked at first"
mkdir /mnt/new/heart
python3 $SCRIPTS/heartbeat.py /mnt/new/heart /run/enough 8>&- 9>&- &
heart=$!

connect
for mount in new old; do python3 $SCRIPTS/steady.py note /mnt/$mount /run/$mount; done
echo before >&8
echo before >&9
systemctl restart holdfast || failed "not restarted"
echo after >&8
echo after >&9
for mount in new old; do python3 $SCRIPTS/steady.py check /mnt/$mount /run/$mount || failed "$mount noticed"; done
is_open || failed "a connection was closed by a restart"
is_locked new && is_locked old || failed "locks were lost by a restart"
grep -o 'went on where the process before stopped.*' $log || failed "it did not go on with what was stored"

touch /run/enough
wait $heart
exec 8>&- 9>&-
for name in new old; do
	umount /mnt/$name
	[ "$(cat /srv/share/$name)" = $'before\nafter' ] || failed "$name has $(cat /srv/share/$name)"
done

# Until the next one serves, who connects waits: the listening sockets are in the store all the time.
killed=$(pgrep -x holdfast)
systemctl kill --signal=KILL holdfast
while [ -e "/proc/$killed" ]; do :; done
connect || failed "refused while a killed server was away"
lab_mount 4.2 /mnt/new
ls /mnt/new >/dev/null
umount /mnt/new
is_open || failed "who waited for a killed server was dropped"

systemctl stop holdfast || failed "not stopped"
! is_open || failed "a stop left a connection open"
! (connect) 2>/dev/null || failed "a stop left a socket listening"
echo all is done
