/* The load through libnfs: libnfs-load HOST PORT CONNECTIONS DEPTH for|calls AMOUNT OP SMALL-FILES
 * DATA-BYTES FIRST
 *
 * One thread keeps DEPTH calls in flight on each connection, through libnfs's raw NFSv3 interface, with handles that
 * it is given on standard input (hexadecimal, one a line: the folder of small files, the folder of changing names,
 * the folder to be listed, the file to read, the file to write, then the small files). When connected it says
 * "ready" and waits for a line; at the end it says "done UNITS ELAPSED-NS CPU-NS" and, as BUCKET:COUNT, how many calls
 * took how long, in buckets as src/histogram.rs has them. Names, and blocks in order, are numbered from FIRST.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <nfsc/libnfs-zdr.h>
#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-nfs.h>

enum { SMALL, CHANGING, LISTED, READ_FILE, WRITE_FILE, FIXED_HANDLES };
#define SUBBUCKET_BITS 5
#define BUCKETS ((40 - SUBBUCKET_BITS) << SUBBUCKET_BITS)

struct lane {
	struct rpc_context *rpc;
	uint64_t started;
	cookie3 cookie;
	cookieverf3 verifier;
};

static nfs_fh3 *handles;
static int small_files;
static uint64_t data_bytes;
static const char *op;
static int is_timed;
static uint64_t amount, deadline, issued, units, in_flight, next_name, dice = 0x9e3779b97f4a7c15u;
static uint64_t latencies[BUCKETS];
static char *data;
static int connected;

static void die(const char *what, const char *why) {
	fprintf(stderr, "libnfs-load: %s: %s\n", what, why ? why : "");
	exit(1);
}

static uint64_t clock_ns(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

static uint64_t roll(uint64_t bound) {
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return dice % bound;
}

static unsigned bucket_of(uint64_t ns) {
	unsigned exponent = 63 - __builtin_clzll(ns | 1);
	if (exponent < SUBBUCKET_BITS)
		return (unsigned)ns;
	/* The leading bit of what is left counts one doubling. */
	unsigned shift = exponent - SUBBUCKET_BITS;
	unsigned bucket = (shift << SUBBUCKET_BITS) + (unsigned)(ns >> shift);
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static int is(const char *name) {
	return strcmp(op, name) == 0;
}

static int issue(struct lane *lane);

static void on_reply(struct rpc_context *rpc, int status, void *result, void *private_data) {
	struct lane *lane = private_data;
	uint64_t took = clock_ns(CLOCK_MONOTONIC) - lane->started;
	if (status != RPC_STATUS_SUCCESS)
		die("call", rpc_get_error(rpc));
	/* Every result begins with its status. */
	if (*(nfsstat3 *)result != NFS3_OK)
		die(op, nfsstat3_to_str(*(nfsstat3 *)result));
	latencies[bucket_of(took)]++;
	in_flight--;
	if (is("readdir")) {
		READDIRPLUS3resok *ok = &((READDIRPLUS3res *)result)->READDIRPLUS3res_u.resok;
		memcpy(lane->verifier, ok->cookieverf, sizeof lane->verifier);
		for (entryplus3 *entry = ok->reply.entries; entry; entry = entry->nextentry) {
			lane->cookie = entry->cookie;
			units++;
		}
		if (ok->reply.eof) {
			lane->cookie = 0;
			memset(lane->verifier, 0, sizeof lane->verifier);
		}
	} else {
		if (is("read4k") || is("read1m"))
			if (((READ3res *)result)->READ3res_u.resok.count != (is("read4k") ? 4096 : 1 << 20))
				die(op, "a READ came back short");
		units++;
	}
	/* A listing that has begun is brought to its end. */
	if (is_timed ? lane->cookie || clock_ns(CLOCK_MONOTONIC) < deadline : issued < amount)
		if (issue(lane))
			die(op, rpc_get_error(rpc));
}

static int issue_data(struct lane *lane) {
	uint32_t size = is("read4k") || is("write4k") ? 4096 : 1 << 20;
	uint64_t blocks = data_bytes / size, in_order = next_name++ % blocks;
	uint64_t offset = (size == 4096 ? roll(blocks) : in_order) * size;
	if (op[0] == 'r') {
		READ3args args = {handles[READ_FILE], offset, size};
		return rpc_nfs3_read_async(lane->rpc, on_reply, &args, lane);
	}
	WRITE3args args = {handles[WRITE_FILE], offset, size, UNSTABLE, {size, data}};
	return rpc_nfs3_write_async(lane->rpc, on_reply, &args, lane);
}

static int issue_names(struct lane *lane) {
	char first[32], second[32];
	uint64_t number = next_name++;
	snprintf(first, sizeof first, "%c%llu", is("mkdir") ? 'd' : 'c', (unsigned long long)number);
	snprintf(second, sizeof second, "r%llu", (unsigned long long)number);
	if (is("create")) {
		CREATE3args args = {.where = {handles[CHANGING], first}, .how = {.mode = UNCHECKED}};
		args.how.createhow3_u.obj_attributes.mode.set_it = 1;
		args.how.createhow3_u.obj_attributes.mode.set_mode3_u.mode = 0644;
		return rpc_nfs3_create_async(lane->rpc, on_reply, &args, lane);
	}
	if (is("rename")) {
		RENAME3args args = {{handles[CHANGING], first}, {handles[CHANGING], second}};
		return rpc_nfs3_rename_async(lane->rpc, on_reply, &args, lane);
	}
	if (is("unlink")) {
		REMOVE3args args = {{handles[CHANGING], second}};
		return rpc_nfs3_remove_async(lane->rpc, on_reply, &args, lane);
	}
	MKDIR3args args = {.where = {handles[CHANGING], first}};
	args.attributes.mode.set_it = 1;
	args.attributes.mode.set_mode3_u.mode = 0755;
	return rpc_nfs3_mkdir_async(lane->rpc, on_reply, &args, lane);
}

static int issue(struct lane *lane) {
	nfs_fh3 small = handles[FIXED_HANDLES + roll(small_files)];
	lane->started = clock_ns(CLOCK_MONOTONIC);
	issued++;
	in_flight++;
	if (is("getattr")) {
		GETATTR3args args = {small};
		return rpc_nfs3_getattr_async(lane->rpc, on_reply, &args, lane);
	}
	if (is("lookup")) {
		char name[32];
		snprintf(name, sizeof name, "file-%03d", (int)roll(small_files));
		LOOKUP3args args = {{handles[SMALL], name}};
		return rpc_nfs3_lookup_async(lane->rpc, on_reply, &args, lane);
	}
	if (is("access")) {
		ACCESS3args args = {small, ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY | ACCESS3_EXTEND};
		return rpc_nfs3_access_async(lane->rpc, on_reply, &args, lane);
	}
	if (is("readdir")) {
		READDIRPLUS3args args = {handles[LISTED], lane->cookie, {0}, 64 << 10, 64 << 10};
		memcpy(args.cookieverf, lane->verifier, sizeof args.cookieverf);
		return rpc_nfs3_readdirplus_async(lane->rpc, on_reply, &args, lane);
	}
	if (strstr(op, "read") || strstr(op, "write"))
		return issue_data(lane);
	return issue_names(lane);
}

static void on_connect(struct rpc_context *rpc, int status, void *result, void *private_data) {
	(void)result, (void)private_data;
	if (status != RPC_STATUS_SUCCESS)
		die("connecting", rpc_get_error(rpc));
	connected++;
}

static void serve(struct rpc_context **rpcs, int count) {
	struct pollfd fds[count];
	for (int i = 0; i < count; i++) {
		fds[i].fd = rpc_get_fd(rpcs[i]);
		fds[i].events = rpc_which_events(rpcs[i]);
		fds[i].revents = 0;
	}
	if (poll(fds, count, 30000) <= 0)
		die("waiting", "no reply for 30 s");
	for (int i = 0; i < count; i++)
		if (fds[i].revents && rpc_service(rpcs[i], fds[i].revents) < 0)
			die("connection", rpc_get_error(rpcs[i]));
}

static void read_handles(void) {
	char line[512];
	int count = FIXED_HANDLES + small_files;
	handles = calloc(count, sizeof *handles);
	for (int i = 0; i < count; i++) {
		if (!fgets(line, sizeof line, stdin))
			die("handles", "too few");
		size_t bytes = strcspn(line, "\n") / 2;
		handles[i].data.data_len = bytes;
		handles[i].data.data_val = malloc(bytes + 1);
		for (size_t n = 0; n < bytes; n++) {
			unsigned byte;
			if (sscanf(line + 2 * n, "%2x", &byte) != 1)
				die("handles", "not hexadecimal");
			handles[i].data.data_val[n] = (char)byte;
		}
	}
}

int main(int argc, char **argv) {
	if (argc != 11)
		die("usage", "see the source's head");
	const char *host = argv[1];
	int port = atoi(argv[2]), connections = atoi(argv[3]), depth = atoi(argv[4]);
	is_timed = strcmp(argv[5], "for") == 0;
	amount = strtoull(argv[6], NULL, 10);
	op = argv[7];
	small_files = atoi(argv[8]);
	data_bytes = strtoull(argv[9], NULL, 10);
	next_name = strtoull(argv[10], NULL, 10);
	/* Other numbers at random than others have. */
	dice *= 2 * next_name + 1;
	data = malloc(1 << 20);
	memset(data, 0x5a, 1 << 20);
	read_handles();

	struct rpc_context *rpcs[connections];
	struct lane *lanes = calloc((size_t)connections * depth, sizeof *lanes);
	for (int i = 0; i < connections; i++) {
		rpcs[i] = rpc_init_context();
		rpc_set_uid(rpcs[i], 0);
		rpc_set_gid(rpcs[i], 0);
		if (rpc_connect_async(rpcs[i], host, port, on_connect, NULL))
			die("connecting", rpc_get_error(rpcs[i]));
		for (int j = 0; j < depth; j++)
			lanes[i * depth + j].rpc = rpcs[i];
	}
	while (connected < connections)
		serve(rpcs, connections);
	printf("ready\n");
	fflush(stdout);
	char line[8];
	if (!fgets(line, sizeof line, stdin))
		return 1;

	uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), began = clock_ns(CLOCK_MONOTONIC);
	deadline = began + amount;
	for (int i = 0; i < connections * depth; i++)
		if ((is_timed || issued < amount) && issue(&lanes[i]))
			die(op, rpc_get_error(lanes[i].rpc));
	while (in_flight > 0)
		serve(rpcs, connections);
	uint64_t elapsed = clock_ns(CLOCK_MONOTONIC) - began;
	cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	printf("done %llu %llu %llu", (unsigned long long)units, (unsigned long long)elapsed, (unsigned long long)cpu);
	for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
		if (latencies[bucket])
			printf(" %u:%llu", bucket, (unsigned long long)latencies[bucket]);
	printf("\n");
	return 0;
}
