# The two that a newcomer needs: `make run` serves ./demo; `make test` runs every test. Both install what is missing.
.PHONY: run test build install uninstall check soak bench kernel pynfs

# Where rustup puts cargo, for the run that has just installed it.
export PATH := $(HOME)/.cargo/bin:$(PATH)

run:
	@scripts/install-build
	cargo build --release --bin holdfast
	@scripts/serve-demo

test:
	@scripts/test all

# `make build`, then as root `make install`: the program, its manual pages, the helpers of mount(8), systemd's unit. PREFIX, DESTDIR
# and more are told in scripts/install.
build:
	@scripts/install-build
	cargo build --release --bin holdfast

install uninstall:
	@scripts/install $@

# The fast part: formatting, lints, layers, tests of the crates.
check:
	@scripts/test quick

# Long: make soak PART=server, state or mount (SOAK_MINUTES=N for longer fuzzing; PYNFS_DIR, CTHON_DIR, NFS_CONFORMANCE_DIR,
# NFSTEST_DIR, XFSTESTS_DIR name checkouts of suites).
PART ?= server
soak:
	@scripts/soak $(PART)

# The comparison's shapes besides 4x8: all of 1, 4, 16 connections x 1, 8, 32 in flight.
ALSO_SHAPES ?= 1x1,1x8,1x32,4x1,4x32,16x1,16x8,16x32

# The server against NFS-Ganesha, in turn, in one run (BENCH="OPTIONS" are its own), then what else is measured: some hours.
bench:
	@scripts/install-build
	@scripts/install-bench
	cargo build --release --bin holdfast
	cargo run --release -p holdfast-bench -- --entries 100000 --also-shapes $(ALSO_SHAPES) $(BENCH)
	cargo run --release -p holdfast-bench -- state
	cargo run --release -p holdfast-bench -- growth
	cargo run --release -p holdfast-bench -- limits
	cargo run --release -p holdfast-bench -- knfsd
	cargo run --release -p holdfast-bench -- mount
	cargo run --release -p holdfast-bench -- same-host
	cargo run --release -p holdfast-bench -- page

# The newest guest kernel, into target/kernels.
kernel:
	@scripts/build-kernel

pynfs:
	@scripts/run-pynfs
