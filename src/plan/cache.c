/* SPDX-License-Identifier: MIT */
/*
 * The cache is a directory of files, one for each plan:
 *
 *   BUILDID-KEY.plan     KEY: 16 hex digits of a hash of the whole key (plan_file.h)
 *   content-KEY.plan     of a file without a build-id
 *   .new-PID-N           one that is being written; renamed when it is whole
 *
 * Finding a plan costs opening the file's headers, to get its build-id and to see which debug files there are now, and
 * mapping what was stored: no symbol, frame or instruction is read. Without a build-id the file is read once. All that
 * a plan depends on is in the key, so nothing is ever invalidated: what nobody asks for any more is the least recently
 * used, and goes when room is needed. When a file was last used is known by its modification time.
 *
 * Whose it is: a directory is used only if it belongs to the user that we run as (effectively), is no symbolic link and
 * nobody else may write to it; the same for each file. The usual directory is made only below one that belongs to that
 * user, so that root with somebody else's HOME leaves nothing there. Whatever fails is no cache, and no message.
 */
#include "plan/cache.h"

#include "base/clock.h"
#include "plan/plan_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#define SUFFIX          ".plan"
#define NEW_PREFIX      ".new-"
#define NEW_SECONDS_MAX 3600 /* a file that is being written for longer was left behind */
#define NAME_BYTES      192

struct pending {
  const struct ct_plan *plan;
  struct ct_plan_key key;
  char *path; /* of the file, without links: it may have been given as one of /proc */
};

struct ct_cache {
  char *path;
  int fd;
  struct ct_cache_stats stats;
  struct pending *pending;
  size_t pending_count;
  unsigned next_new;
};

/* ---- the directory ---- */

static bool
is_ours(const struct stat *file)
{
  return file->st_uid == geteuid() && (file->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* The usual place. *base is how much of it must be there already and belong to us, 0: anything. */
static bool
usual_path(char *path, size_t size, size_t *base)
{
  const char *own = getenv("CONTRAIL_CACHE"), *caches = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int length;
  *base = 0;
  if (own != NULL) {
    length = snprintf(path, size, "%s", own);
  } else if (caches != NULL && caches[0] == '/') {
    length = snprintf(path, size, "%s/contrail", caches);
    *base = strlen(caches);
  } else if (home != NULL && home[0] == '/') {
    length = snprintf(path, size, "%s/.cache/contrail", home);
    *base = strlen(home);
  } else {
    return false;
  }
  return length > 0 && (size_t)length < size && path[0] == '/';
}

/* Makes the directories of path that are missing, from the one at base on. */
static void
make_directories(char *path, size_t base)
{
  struct stat file;
  if (base != 0) {
    char saved = path[base];
    path[base] = '\0';
    bool good = stat(path, &file) == 0 && S_ISDIR(file.st_mode) && file.st_uid == geteuid();
    path[base] = saved;
    if (!good) {
      return;
    }
  }
  for (char *at = path + base + 1; base != 0 && (at = strchr(at, '/')) != NULL; at++) {
    *at = '\0';
    mkdir(path, 0700);
    *at = '/';
  }
  mkdir(path, 0700);
}

struct ct_cache *
ct_cache_open(const char *directory, struct ct_diag *diag)
{
  char path[PATH_MAX];
  size_t base = 0;
  struct stat file;
  if (directory != NULL ? (size_t)snprintf(path, sizeof(path), "%s", directory) >= sizeof(path)
                        : !usual_path(path, sizeof(path), &base)) {
    ct_fail(diag, CT_ENOENT,
            "there is no directory for it: neither CONTRAIL_CACHE nor XDG_CACHE_HOME nor HOME names one");
    return NULL;
  }
  make_directories(path, base);
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    ct_fail(diag, ct_err_from_errno(errno), "%s: %s", path, strerror(errno));
    return NULL;
  }
  struct ct_cache *cache = calloc(1, sizeof(*cache));
  char *copy = strdup(path);
  if (fstat(fd, &file) != 0 || !is_ours(&file) || cache == NULL || copy == NULL) {
    ct_fail(diag, CT_EACCES, "%s belongs to another user, or others may write to it", path);
    close(fd);
    free(cache);
    free(copy);
    return NULL;
  }
  cache->fd = fd;
  cache->path = copy;
  return cache;
}

void
ct_cache_close(struct ct_cache *cache)
{
  if (cache != NULL) {
    for (size_t i = 0; i < cache->pending_count; i++) {
      free(cache->pending[i].path);
    }
    free(cache->pending);
    close(cache->fd);
    free(cache->path);
    free(cache);
  }
}

const char *
ct_cache_path(const struct ct_cache *cache)
{
  return cache != NULL ? cache->path : NULL;
}

struct ct_cache_stats
ct_cache_stats(const struct ct_cache *cache)
{
  return cache != NULL ? cache->stats : (struct ct_cache_stats){0};
}

/* ---- files ---- */

static void
file_name(const struct ct_plan_key *key, char name[NAME_BYTES])
{
  uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
  for (size_t i = 0; i < sizeof(*key); i++) {
    hash = (hash ^ ((const uint8_t *)key)[i]) * 0x100000001b3ull;
  }
  snprintf(name, NAME_BYTES, "%s-%016" PRIx64 SUFFIX, key->build_id[0] != 0 ? key->build_id : "content", hash);
}

static bool
is_plan_name(const char *name)
{
  size_t length = strlen(name), suffix = strlen(SUFFIX);
  return name[0] != '.' && length > suffix && length < NAME_BYTES && strcmp(name + length - suffix, SUFFIX) == 0;
}

/* Maps a file of the cache, privately and writable. NULL when there is none that is ours. */
static void *
map_file(const struct ct_cache *cache, const char *name, size_t *size, int *fd)
{
  struct stat file;
  void *bytes = MAP_FAILED;
  *fd = openat(cache->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (*fd < 0) {
    return NULL;
  }
  if (fstat(*fd, &file) == 0 && S_ISREG(file.st_mode) && is_ours(&file) && file.st_size > 0 &&
      (uint64_t)file.st_size <= CT_CACHE_BYTES_MAX) {
    *size = (size_t)file.st_size;
    bytes = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE, *fd, 0);
    madvise(bytes, *size, MADV_POPULATE_READ); /* saves thousands of faults; an old kernel has none */
  }
  if (bytes == MAP_FAILED) {
    close(*fd);
    return NULL;
  }
  return bytes;
}

/* Fills plan, whose elf is open. */
static bool
load(struct ct_cache *cache, const struct ct_plan_key *key, struct ct_plan *plan)
{
  char name[NAME_BYTES];
  size_t size;
  int fd;
  file_name(key, name);
  void *bytes = map_file(cache, name, &size, &fd);
  if (bytes == NULL) {
    return false;
  }
  bool good = ct_plan_decode(bytes, size, key, plan) == 0;
  if (good) {
    plan->mapping = bytes;
    plan->mapping_bytes = size;
    futimens(fd, NULL); /* the last use */
  } else {
    cache->stats.damaged++;
    munmap(bytes, size);
    unlinkat(cache->fd, name, 0);
  }
  close(fd);
  return good;
}

/* The key of the file and, if the cache has it, its plan. CT_ENOENT: it has not. */
static int
find(struct ct_cache *cache, int fd, const char *path, struct ct_plan_key *key, struct ct_plan **out)
{
  static const struct ct_elf_options layout = {.layout_only = true};
  struct ct_plan *plan = calloc(1, sizeof(*plan));
  int code = plan == NULL ? CT_ENOMEM : ct_elf_open_fd(fd, path, &layout, &plan->elf, NULL);
  if (code == 0 && ct_plan_key_make(fd, plan->elf, key) != 0) {
    cache->stats.uncacheable++;
    code = CT_EUNSUPPORTED;
  }
  if (code == 0) {
    plan->path = strdup(path);
    code = plan->path != NULL && load(cache, key, plan) ? 0 : CT_ENOENT;
  }
  if (code != 0) {
    ct_plan_free(plan);
    return code;
  }
  *out = plan;
  return 0;
}

/* Remembers a new plan for ct_cache_store; not if the file was written to while it was planned. */
static void
remember(struct ct_cache *cache, int fd, const struct ct_plan *plan, const struct ct_plan_key *key)
{
  struct ct_plan_key now;
  if (ct_plan_key_make(fd, plan->elf, &now) != 0 || memcmp(&now, key, sizeof(now)) != 0) {
    return;
  }
  struct pending *grown = realloc(cache->pending, (cache->pending_count + 1) * sizeof(*grown));
  if (grown != NULL) {
    cache->pending = grown;
    cache->pending[cache->pending_count++] = (struct pending){plan, *key, realpath(plan->path, NULL)};
  }
}

int
ct_cache_plan_fd(struct ct_cache *cache, int fd, const char *path, struct ct_plan **out, struct ct_diag *diag)
{
  uint64_t begin = ct_now_ns();
  struct ct_plan_key key;
  if (cache == NULL) {
    return ct_plan_create_fd(fd, path, out, diag);
  }
  int found = find(cache, fd, path, &key, out);
  int code = 0;
  if (found == 0) {
    cache->stats.hits++;
    (*out)->plan_ns = ct_now_ns() - begin;
  } else {
    code = ct_plan_create_fd(fd, path, out, diag);
    cache->stats.misses += code == 0;
  }
  if (code == 0 && found == CT_ENOENT) {
    remember(cache, fd, *out, &key);
  }
  return code;
}

int
ct_cache_plan(struct ct_cache *cache, const char *path, struct ct_plan **out, struct ct_diag *diag)
{
  int fd = ct_elf_open_file(path, diag);
  if (fd < 0) {
    return fd;
  }
  int code = ct_cache_plan_fd(cache, fd, path, out, diag);
  close(fd);
  return code;
}

/* ---- writing ---- */

struct entry {
  char name[NAME_BYTES];
  uint64_t bytes;
  int64_t used_ns;
};

struct entries {
  struct entry *items;
  size_t count, capacity;
};

static int64_t
changed_ns(const struct stat *file)
{
  return (int64_t)file->st_mtim.tv_sec * 1000000000 + file->st_mtim.tv_nsec;
}

/* The plans of the directory; what was left half written is removed by the way. */
static int
read_directory(const struct ct_cache *cache, struct entries *entries)
{
  int fd = openat(cache->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
  if (directory == NULL) {
    int code = ct_err_from_errno(errno);
    if (fd >= 0) {
      close(fd);
    }
    return code;
  }
  const struct dirent *item;
  int code = 0;
  while (code == 0 && (item = readdir(directory)) != NULL) {
    struct stat file;
    bool left_behind = strncmp(item->d_name, NEW_PREFIX, strlen(NEW_PREFIX)) == 0;
    if ((!left_behind && !is_plan_name(item->d_name)) ||
        fstatat(cache->fd, item->d_name, &file, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(file.st_mode)) {
      continue;
    }
    if (left_behind) {
      if (time(NULL) - file.st_mtim.tv_sec > NEW_SECONDS_MAX) {
        unlinkat(cache->fd, item->d_name, 0);
      }
      continue;
    }
    if (entries->count == entries->capacity) {
      size_t grown = entries->capacity * 2 + 64;
      struct entry *items = realloc(entries->items, grown * sizeof(*items));
      if (items == NULL) {
        code = CT_ENOMEM;
        break;
      }
      entries->items = items;
      entries->capacity = grown;
    }
    struct entry *entry = &entries->items[entries->count++];
    snprintf(entry->name, sizeof(entry->name), "%s", item->d_name);
    entry->bytes = (uint64_t)file.st_size;
    entry->used_ns = changed_ns(&file);
  }
  closedir(directory);
  return code;
}

static int
compare_use(const void *a, const void *b)
{
  const struct entry *x = a, *y = b;
  return x->used_ns < y->used_ns ? -1 : x->used_ns > y->used_ns;
}

/* Removes the least recently used files until there is room for bytes more. */
static void
make_room(struct ct_cache *cache, uint64_t bytes)
{
  struct entries entries = {0};
  uint64_t total = bytes;
  if (read_directory(cache, &entries) == 0) {
    for (size_t i = 0; i < entries.count; i++) {
      total += entries.items[i].bytes;
    }
    if (entries.count != 0) {
      qsort(entries.items, entries.count, sizeof(*entries.items), compare_use);
    }
    for (size_t i = 0; i < entries.count && total > CT_CACHE_BYTES_MAX; i++) {
      if (unlinkat(cache->fd, entries.items[i].name, 0) == 0) {
        cache->stats.evicted++;
      }
      total -= entries.items[i].bytes;
    }
  }
  free(entries.items);
}

static bool
write_all(int fd, const uint8_t *bytes, size_t size)
{
  while (size > 0) {
    ssize_t put = write(fd, bytes, size);
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      return false;
    }
    bytes += put;
    size -= (size_t)put;
  }
  return true;
}

/* Whole or not at all: written beside, then renamed. */
static bool
write_file(struct ct_cache *cache, const char *name, const uint8_t *bytes, size_t size)
{
  char fresh[64];
  snprintf(fresh, sizeof(fresh), NEW_PREFIX "%d-%u", (int)getpid(), cache->next_new++);
  int fd = openat(cache->fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) {
    return false;
  }
  bool good = write_all(fd, bytes, size);
  good = close(fd) == 0 && good && renameat(cache->fd, fresh, cache->fd, name) == 0;
  if (!good) {
    unlinkat(cache->fd, fresh, 0);
  }
  return good;
}

bool
ct_cache_store(struct ct_cache *cache)
{
  if (cache == NULL || cache->pending_count == 0) {
    return false;
  }
  struct pending next = cache->pending[--cache->pending_count];
  size_t size;
  uint8_t *bytes = ct_plan_encode(next.plan, &next.key, next.path != NULL ? next.path : next.plan->path, &size);
  if (bytes != NULL && size <= CT_CACHE_BYTES_MAX) {
    char name[NAME_BYTES];
    file_name(&next.key, name);
    make_room(cache, size);
    cache->stats.stored += write_file(cache, name, bytes, size);
  }
  free(bytes);
  free(next.path);
  return true;
}

/* ---- looking ---- */

int
ct_cache_list(struct ct_cache *cache, ct_cache_visit *visit, void *context)
{
  struct entries entries = {0};
  int code = read_directory(cache, &entries);
  if (code == 0) {
    qsort(entries.items, entries.count, sizeof(*entries.items), compare_use);
  }
  for (size_t i = entries.count; i-- > 0 && code == 0;) {
    const struct entry *entry = &entries.items[i];
    struct ct_plan_file_info info;
    size_t size;
    int fd;
    void *bytes = map_file(cache, entry->name, &size, &fd);
    bool good = bytes != NULL && ct_plan_file_info(bytes, size, &info) == 0;
    struct ct_cache_entry listed = {.file = entry->name,
                                    .bytes = entry->bytes,
                                    .used_wall_ns = entry->used_ns,
                                    .damaged = !good,
                                    .path = "",
                                    .build_id = ""};
    if (good) {
      listed.current = info.current;
      listed.path = info.path;
      listed.build_id = info.build_id;
      listed.functions = info.functions;
    }
    visit(context, &listed);
    if (bytes != NULL) {
      munmap(bytes, size);
      close(fd);
    }
  }
  free(entries.items);
  return code;
}

int64_t
ct_cache_clear(struct ct_cache *cache)
{
  struct entries entries = {0};
  int64_t count = read_directory(cache, &entries);
  for (size_t i = 0; i < entries.count && count >= 0; i++) {
    if (unlinkat(cache->fd, entries.items[i].name, 0) == 0) {
      count++;
    } else if (errno != ENOENT) {
      count = ct_err_from_errno(errno);
    }
  }
  free(entries.items);
  return count;
}
