# What systemd.rs has this host do, in namespaces for mounts, network and control groups: restarts holdfast under systemd, $TIMES
# times, under a client that calls all the time.

mount --make-rprivate /
mount -t tmpfs run /run
cp -a /etc /run/etc
mount --bind /run/etc /etc
mount -t tmpfs bin /usr/local/bin
mount -t tmpfs lib /var/lib
ip link set lo up
. $SCRIPTS/systemd.sh

systemctl start holdfast || failed "not started"
$PYTHON $SCRIPTS/null_calls.py 127.0.0.1 2049 /run/enough &
calls=$!
for ((n = 1; n <= TIMES; n++)); do
	sleep 1
	systemctl restart holdfast || failed "not restarted"
done
touch /run/enough
wait $calls || failed "the client noticed"
grep -o 'went on where the process before stopped.*' $log
systemctl stop holdfast
kill -KILL "$first"
