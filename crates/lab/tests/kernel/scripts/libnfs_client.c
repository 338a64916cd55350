/*
 * Drives a server through libnfs: makes, fills, reads back, renames, links, lists and removes.
 *
 * Writes stay below 4 KiB: libnfs 4.0.0 cannot encode larger ones over NFSv4.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <nfsc/libnfs.h>

#define PART 2000
#define PARTS 3
#define ENTRIES 300

static struct nfs_context *nfs;

static void fail(const char *what, int line)
{
	fprintf(stderr, "line %d: %s: %s\n", line, what, nfs ? nfs_get_error(nfs) : "no context");
	exit(1);
}

#define MUST(condition) do { if (!(condition)) fail(#condition, __LINE__); } while (0)

static void fill(const char *path, char byte)
{
	struct nfsfh *file;
	char part[PART];

	memset(part, byte, sizeof part);
	/* nfs_creat opens for reading only over NFSv4. */
	MUST(nfs_create(nfs, path, O_RDWR, 0644, &file) == 0);
	for (int i = 0; i < PARTS; i++)
		MUST(nfs_pwrite(nfs, file, (uint64_t)i * PART, PART, part) == PART);
	MUST(nfs_fsync(nfs, file) == 0);
	MUST(nfs_close(nfs, file) == 0);
}

static void expect_content(const char *path, char byte, uint64_t size)
{
	struct nfs_stat_64 info;
	struct nfsfh *file;
	char part[PART];

	MUST(nfs_stat64(nfs, path, &info) == 0);
	MUST(info.nfs_size == size);
	MUST(nfs_open(nfs, path, O_RDONLY, &file) == 0);
	for (uint64_t at = 0; at < size; at += PART) {
		MUST(nfs_pread(nfs, file, at, PART, part) == PART);
		for (int i = 0; i < PART; i++)
			MUST(part[i] == byte);
	}
	MUST(nfs_pread(nfs, file, size, PART, part) == 0);
	MUST(nfs_close(nfs, file) == 0);
}

static void change_attributes(const char *path)
{
	struct nfs_stat_64 info;

	MUST(nfs_chmod(nfs, path, 0600) == 0);
	MUST(nfs_truncate(nfs, path, PART) == 0);
	MUST(nfs_stat64(nfs, path, &info) == 0);
	MUST((info.nfs_mode & 07777) == 0600 && info.nfs_size == PART);
	MUST(nfs_truncate(nfs, path, 0) == 0);
}

static void use_names(void)
{
	struct nfs_stat_64 info;
	char text[100];

	fill("/folder/a", 'a');
	MUST(nfs_rename(nfs, "/folder/a", "/folder/b") == 0);
	MUST(nfs_stat64(nfs, "/folder/a", &info) != 0);
	MUST(nfs_link(nfs, "/folder/b", "/folder/c") == 0);
	MUST(nfs_stat64(nfs, "/folder/c", &info) == 0 && info.nfs_nlink == 2);
	MUST(nfs_symlink(nfs, "b", "/folder/s") == 0);
	MUST(nfs_readlink(nfs, "/folder/s", text, sizeof text) == 0 && !strcmp(text, "b"));
	expect_content("/folder/c", 'a', PART * PARTS);
	MUST(nfs_rmdir(nfs, "/folder") != 0);
	MUST(nfs_unlink(nfs, "/folder/b") == 0);
	MUST(nfs_unlink(nfs, "/folder/c") == 0);
	MUST(nfs_unlink(nfs, "/folder/s") == 0);
}

static int count_entries(const char *path)
{
	struct nfsdirent *entry;
	struct nfsdir *folder;
	int count = 0;

	MUST(nfs_opendir(nfs, path, &folder) == 0);
	while ((entry = nfs_readdir(nfs, folder)))
		if (strcmp(entry->name, ".") && strcmp(entry->name, ".."))
			count++;
	nfs_closedir(nfs, folder);
	return count;
}

static void list_many(void)
{
	char path[64];

	for (int i = 0; i < ENTRIES; i++) {
		snprintf(path, sizeof path, "/folder/%d", i);
		MUST(nfs_mkdir(nfs, path) == 0);
	}
	MUST(count_entries("/folder") == ENTRIES);
	for (int i = 0; i < ENTRIES; i++) {
		snprintf(path, sizeof path, "/folder/%d", i);
		MUST(nfs_rmdir(nfs, path) == 0);
	}
	MUST(count_entries("/folder") == 0);
}

int main(int argc, char **argv)
{
	struct nfs_url *url;

	MUST(argc == 2);
	MUST((nfs = nfs_init_context()));
	MUST((url = nfs_parse_url_dir(nfs, argv[1])));
	MUST(nfs_mount(nfs, url->server, url->path) == 0);
	fill("/kept", 'k');
	expect_content("/kept", 'k', PART * PARTS);
	MUST(nfs_mkdir(nfs, "/folder") == 0);
	use_names();
	fill("/folder/attributes", 'x');
	change_attributes("/folder/attributes");
	MUST(nfs_unlink(nfs, "/folder/attributes") == 0);
	list_many();
	MUST(nfs_rmdir(nfs, "/folder") == 0);
	nfs_destroy_url(url);
	nfs_destroy_context(nfs);
	puts("all is well");
	return 0;
}
