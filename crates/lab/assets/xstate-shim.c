/*
 * Preloaded into User Mode Linux kernels older than 7.
 *
 * They keep 2696 bytes of floating-point state a thread and hand exactly that much to
 * PTRACE_SETREGSET(NT_X86_XSTATE). A processor with more user state (AMX brings it to 11 KB) refuses a buffer
 * shorter than its own with EFAULT, and the guest kernel panics ("ptrace set fp regs failed, errno = 14").
 * So a short buffer is padded with zeros to the processor's size; what lies beyond is AMX, which no guest
 * process uses.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef long (*ptrace_fn)(int, pid_t, void *, void *);

/* Static, because the guest kernel's own stacks are small. */
static char padded[1 << 16] __attribute__((aligned(64)));
static size_t host_size;

static int learn_host_size(ptrace_fn next, pid_t pid)
{
	struct iovec whole = { padded, sizeof padded };

	if (next(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &whole))
		return -1;
	host_size = whole.iov_len;
	memset(padded, 0, sizeof padded);
	return 0;
}

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_fn next;
	va_list args;

	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "ptrace");
	if (request != PTRACE_SETREGSET || (long)addr != NT_X86_XSTATE)
		return next(request, pid, addr, data);
	if (!host_size && learn_host_size(next, pid))
		return -1;

	struct iovec *given = data;
	if (given->iov_len >= host_size)
		return next(request, pid, addr, data);
	memcpy(padded, given->iov_base, given->iov_len);
	struct iovec whole = { padded, host_size };
	return next(request, pid, addr, &whole);
}
