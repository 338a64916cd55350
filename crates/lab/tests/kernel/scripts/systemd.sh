# A systemd that has nothing but the unit of $DIST, as the first process of a namespace: sourced with rights to mount, where nothing
# of the host's is lost by it.

units=/run/lab-units
log=/run/holdfast.log

# systemd looks nowhere else, lest it start what the host's system has.
mkdir -p $units/holdfast.service.d
for target in lab sysinit basic shutdown; do
	printf '[Unit]\nDefaultDependencies=no\n' >$units/$target.target
done
cp "$DIST/holdfast.service" $units
printf '[Service]\nStandardOutput=append:%s\nStandardError=append:%s\n' $log $log >$units/holdfast.service.d/lab.conf

mount -t tmpfs srv /srv
mkdir /srv/share
printf '[[export]]\nsource = "/srv/share"\nsquash = "none"\n' >/etc/holdfast.toml
: >/usr/local/bin/holdfast
mount --bind "$BINARY" /usr/local/bin/holdfast
mount -t cgroup2 cgroup /sys/fs/cgroup

SYSTEMD_UNIT_PATH=$units container=lab unshare --pid --fork --kill-child=KILL --mount-proc --uts \
	/lib/systemd/systemd --system --unit=lab.target --log-target=console &
unshare=$!
until [ -S /run/systemd/private ]; do sleep 0.1; done
first=$(pgrep -P $unshare)
# Whom it hears must be among the processes that it sees.
systemctl() { SYSTEMD_IGNORE_CHROOT=1 nsenter --pid -t "$first" /usr/bin/systemctl "$@"; }

failed() {
	echo "$*"
	cat $log
	exit 1
} >&2
