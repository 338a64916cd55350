"""A source tree lives on the mount: unpacked, compared, walked, under git, and built in.

It is unpacked once and the checks share it, in this order: a whole kernel source takes minutes to unpack.
"""
import os
import pickle

from checks import check, drop_caches, equal, run, scaled
from manifest import differences, manifest
import source_tree

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
# In a soak run: a real source tree as a tar file, and the manifest of the same unpacked on the host.
TARBALL = os.environ.get("TREE_TARBALL")
MANIFEST = os.environ.get("TREE_MANIFEST")
# Without the collection that git starts by itself in the background, which the one asked for would find running.
SETTINGS = ("user.name=a", "user.email=a@b", "safe.directory=*", "advice.detachedHead=false", "gc.auto=0")
GIT = ("git", *(word for setting in SETTINGS for word in ("-c", setting)))

_unpacked = None


def archive():
    """The tar file, made on the first call where none is given."""
    if TARBALL:
        return TARBALL
    path = "/run/tree.tar"
    if not os.path.exists(path):
        source_tree.write(path)
    return path


def local_manifest():
    """What the tree is when it is unpacked without NFS."""
    if MANIFEST:
        with open(MANIFEST, "rb") as file:
            return pickle.load(file)
    os.mkdir("/run/local")
    run("tar", "-xpf", archive(), "-C", "/run/local")
    return manifest("/run/local")


def tree(work):
    """The folder on the mount that holds the tree."""
    global _unpacked
    if _unpacked is None:
        run("tar", "-xpf", archive(), "-C", work)
        _unpacked = work
    return _unpacked


def top(work):
    """The tree's own top folder."""
    (name,) = os.listdir(tree(work))
    return os.path.join(tree(work), name)


@check()
def an_unpacked_tree_is_the_same_as_one_unpacked_locally(work):
    folder = tree(work)
    drop_caches()
    seen, wanted = manifest(folder), local_manifest()
    assert len(wanted) >= scaled(400, 20_000), f"a tree of {len(wanted)} entries is too small"
    found = differences(seen, wanted)
    assert not found, "over NFS / local:\n" + "\n".join(found)


@check()
def a_walk_finds_what_the_archive_holds(work):
    listed = {os.path.normpath(line) for line in run("tar", "-tf", archive()).splitlines()}
    found = set(run("find", ".", "-mindepth", "1", "!", "-type", "d", "-printf", "%P\n", cwd=tree(work)).splitlines())
    assert found, "the walk found nothing"
    equal(sorted(found - listed)[:5], [], "found, but not in the archive")
    folders = {name for name in listed if os.path.isdir(os.path.join(tree(work), name))}
    equal(sorted(listed - found - folders)[:5], [], "in the archive, but not found")


@check()
def git_keeps_a_repository_in_it(work):
    folder = top(work)
    git = (*GIT, "-C", folder)
    run(*git, "init", "-q")
    # By force: Debian's kernel source carries a .gitignore that ignores everything.
    run(*git, "add", "--force", ".")
    run(*git, "commit", "-q", "-m", "first")
    some = sorted(name for name in os.listdir(folder) if os.path.isdir(f"{folder}/{name}") and name != ".git")[-1]
    run(*git, "mv", some, "moved")
    run(*git, "commit", "-q", "-a", "-m", "second")
    run(*git, "revert", "--no-edit", "HEAD")
    run(*git, "fsck", "--full", "--strict")
    run(*git, "gc", "-q", "--prune=now")
    run(*git, "fsck", "--full")
    drop_caches()
    equal(run(*git, "status", "--porcelain"), "", "git status")
    equal(run(*git, "rev-list", "--count", "HEAD").strip(), "3", "commits")


@check()
def a_program_builds_in_it_with_make_j(work):
    if TARBALL:
        return build_kernel_parts(top(work))
    run("cp", "-r", os.path.join(SCRIPTS, "project"), work)
    project = os.path.join(work, "project")
    run("make", "-s", "-j", "4", cwd=project)
    equal(run("./sums", "10", cwd=project).strip(), "55 385 3025", "what the built program prints")
    # Make must see no work left: modification times are in order.
    equal(run("make", "-q", cwd=project), "", "make -q")


def build_kernel_parts(source):
    run("make", "-s", "tinyconfig", cwd=source)
    run("make", "-s", "-j", "2", "prepare", "lib/", "mm/", cwd=source)
    assert os.path.getsize(os.path.join(source, "lib", "lib.a")) > 0, "an empty library"


@check()
def git_works_for_an_ordinary_user_too(work):
    """Git makes its objects read-only before it has written them all: the owner may (RFC 1813 section 4.4)."""
    os.chown(work, 1000, 1000)
    script = (
        "set -e; export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b;"
        "git init -q; seq 5000 >numbers; git add .; git commit -q -m one; git gc -q; git fsck --full"
    )
    run("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-c", script, cwd=work)
