/* SPDX-License-Identifier: MIT */
/*
 * How much the server's directory holds, and may hold (--max-disk): traces, output, answers in files, recorded
 * instructions. Before something begins that will grow, it is checked how large it may become: what --max-size allows,
 * or what is left. Answers in files end there; recordings end, or drop what is oldest.
 */
#include "mcp/held.h"

#include <contrail/text.h>

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 32, BLOCK_BYTES = 512, BUFFER_BYTES = 64 << 10 };
#define LEAST_BYTES (UINT64_C(1) << 20) /* with less nothing is begun */

static _Thread_local uint64_t sum;

static int
add_file(const char *path, const struct stat *info, int kind, struct FTW *place)
{
  (void)path;
  (void)place;
  sum += kind == FTW_F ? (uint64_t)info->st_blocks * BLOCK_BYTES : 0;
  return 0;
}

uint64_t
mcp_disk_used(const char *directory)
{
  sum = 0;
  nftw(directory, add_file, FILES_MAX, FTW_PHYS);
  return sum;
}

static int
mark_file(const char *path, const struct stat *info, int kind, struct FTW *place)
{
  static const char index[] = ".cti";
  size_t length = strlen(path);
  if (kind != FTW_F || (length >= sizeof(index) && strcmp(path + length - (sizeof(index) - 1), index) == 0)) {
    return 0;
  }
  (void)place;
  uint64_t hash = info->st_ino;
  const uint64_t parts[] = {(uint64_t)info->st_size, (uint64_t)info->st_mtim.tv_sec, (uint64_t)info->st_mtim.tv_nsec};
  for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
    hash = (hash ^ parts[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  sum += hash;
  return 0;
}

uint64_t
mcp_disk_mark(const char *directory)
{
  sum = 0;
  nftw(directory, mark_file, FILES_MAX, FTW_PHYS);
  return sum != 0 ? sum : 1;
}

bool
mcp_disk_room(struct mcp_call *call, uint64_t *room)
{
  const struct mcp_options *options = call->server->options;
  char used_text[CT_COUNT_CHARS], most_text[CT_COUNT_CHARS];
  uint64_t used = mcp_disk_used(call->server->directory), most = options->max_disk;
  if (used + LEAST_BYTES > most) {
    return mcp_fail(call,
                    "the server's directory holds %s bytes, of the %s that it may (--max-disk): session action=forget "
                    "remove=true session=ID removes one that has ended with its files",
                    ct_format_count(used_text, used), ct_format_count(most_text, most));
  }
  *room = most - used < options->max_bytes ? most - used : options->max_bytes;
  return true;
}

/* ---- a file that has an end ---- */

struct bounded_file {
  int fd;
  uint64_t left;
};

static ssize_t
write_file(void *context, const char *bytes, size_t count)
{
  struct bounded_file *file = context;
  if (count > file->left) {
    errno = EFBIG;
    return 0; /* an error, as fopencookie has it */
  }
  ssize_t written = write(file->fd, bytes, count);
  file->left -= written > 0 ? (uint64_t)written : 0;
  return written < 0 ? 0 : written;
}

static int
close_file(void *context)
{
  struct bounded_file *file = context;
  int code = close(file->fd);
  free(file);
  return code;
}

FILE *
mcp_answer_file(struct mcp_call *call, const char *ending, char path[PATH_MAX])
{
  static const cookie_io_functions_t functions = {.write = write_file, .close = close_file};
  uint64_t room;
  if (!mcp_disk_room(call, &room)) {
    return NULL;
  }
  struct bounded_file *file = calloc(1, sizeof(*file));
  snprintf(path, PATH_MAX, "%.4000s/answer-XXXXXX%s", call->server->directory, ending);
  int fd = file != NULL ? mkstemps(path, (int)strlen(ending)) : -1;
  FILE *out = NULL;
  if (fd >= 0) {
    *file = (struct bounded_file){.fd = fd, .left = room};
    out = fopencookie(file, "w", functions);
  }
  if (out == NULL) {
    mcp_fail(call, "no file can be made in %.300s: %s", call->server->directory, strerror(errno));
    if (fd >= 0) {
      close(fd);
      unlink(path);
    }
    free(file);
    return NULL;
  }
  setvbuf(out, NULL, _IOFBF, BUFFER_BYTES);
  return out;
}

/* ---- removing ---- */

/* Its place in the server's directory; NULL: it is not in it. */
static const char *
name_in_ours(const struct mcp_call *call, const struct mcp_held *held)
{
  const char *ours = call->server->directory;
  size_t length = strlen(ours);
  bool is_in_it = strncmp(held->directory, ours, length) == 0 && held->directory[length] == '/';
  return is_in_it ? held->directory + length + 1 : NULL;
}

bool
mcp_disk_dump_fits(struct mcp_call *call, const struct mcp_held *held)
{
  char bytes[CT_COUNT_CHARS], left[CT_COUNT_CHARS];
  uint64_t room, most = held->session->options.last_bytes;
  if (name_in_ours(call, held) == NULL) {
    return true;
  }
  return mcp_disk_room(call, &room) &&
         (most <= room ||
          mcp_fail(call,
                   "a dump may have %s bytes, and there is room for %s (--max-disk): session action=forget remove=true "
                   "of a session that has ended, or of a dump (session: its directory), makes room",
                   ct_format_count(bytes, most), ct_format_count(left, room)));
}

bool
mcp_disk_can_remove(struct mcp_call *call, const struct mcp_held *held)
{
  const char *name = name_in_ours(call, held);
  bool is_dump = name != NULL && strchr(name, '/') == NULL && strstr(name, ".dump-") != NULL;
  return (name != NULL && (held->session != NULL || is_dump)) ||
         mcp_fail(call, "%s is not in the server's own directory: its files are not the server's to remove",
                  held->name);
}

void
mcp_disk_remove(const struct mcp_held *held)
{
  mcp_remove_tree(held->directory);
  for (int i = 0; held->session != NULL && i < 2; i++) {
    unlink(held->session->streams[i].path);
  }
}
