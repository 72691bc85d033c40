/* SPDX-License-Identifier: MIT */
/* Opening a trace directory and its list of threads; see reader.h. */
#include <contrail/trace.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/json.h"
#include "base/test_point.h"
#include "trace/atf_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ---- */

/* O_NONBLOCK so that a fifo in place of the file does not hold us up. */
static int
open_regular(int dir_fd, const char *name, uint64_t *size)
{
  int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return -1;
  }
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    errno = EBADF;
    return -1;
  }
  *size = (uint64_t)st.st_size;
  return fd;
}

static struct ct_block_file *
held_file(const struct ct_trace *trace, uint32_t index)
{
  for (uint32_t i = 0; i < trace->held_count; i++) {
    if (trace->held[i].index == index) {
      return trace->held[i].file;
    }
  }
  return NULL;
}

struct ct_block_file *
ct_trace_open_thread_file(const struct ct_trace *trace, uint32_t index)
{
  struct ct_block_file *held = held_file(trace, index);
  return held != NULL ? ct_block_file_share(held) : ct_block_file_open(trace->dir_fd, index, CT_TRACE_INDEX);
}

bool
ct_trace_has_no_file(const struct ct_trace *trace, uint32_t thread)
{
  return trace->kept.is_kept &&
         (trace->complete ? trace->threads[thread].events == 0
                          : json_object_get(json_object_get(trace->manifest, "kept"), "memory") != NULL);
}

/* Names of functions are read after that, and a block is written after those of its functions. The header may be read
 * in any case. */
uint64_t
ct_trace_end_offset(const struct ct_trace *trace, uint32_t thread, const struct ct_block_file *file)
{
  uint64_t piece_bytes, bytes = trace->threads[thread].file_bytes;
  if (trace->complete || file == NULL) {
    return UINT64_MAX;
  }
  if (ct_block_file_piece(file, 0, &piece_bytes) != 0) {
    return file == held_file(trace, trace->threads[thread].index) ? ct_block_file_size(file) : UINT64_MAX;
  }
  return bytes > sizeof(struct ct_file_header) ? bytes : sizeof(struct ct_file_header);
}

bool
ct_trace_holds_thread_file(const struct ct_trace *trace, uint32_t index)
{
  return held_file(trace, index) != NULL;
}

/* Nobody else has the trace yet, or while it is refreshed. Without memory, or where there are too many: not. */
static void
hold(struct ct_trace *trace, uint32_t index, struct ct_block_file *file)
{
  uint64_t bytes;
  bool is_piece = ct_block_file_piece(file, 0, &bytes) != 0;
  if (trace->complete || !is_piece || held_file(trace, index) != NULL ||
      trace->held_files + ct_block_file_pieces(file) > trace->open_files_max) {
    return;
  }
  if ((trace->held_count & (trace->held_count - 1)) == 0) {
    size_t capacity = trace->held_count == 0 ? 1 : (size_t)trace->held_count * 2;
    struct ct_held_file *held = reallocarray(trace->held, capacity, sizeof(*held));
    if (held == NULL) {
      return;
    }
    trace->held = held;
  }
  trace->held[trace->held_count++] = (struct ct_held_file){index, ct_block_file_share(file)};
  trace->held_files += ct_block_file_pieces(file);
}

void
ct_trace_held_free(struct ct_trace *trace)
{
  for (uint32_t i = 0; i < trace->held_count; i++) {
    ct_block_file_close(trace->held[i].file);
  }
  free(trace->held);
  trace->held = NULL;
  trace->held_count = trace->held_files = 0;
}

void
ct_trace_hold_anew(struct ct_trace *trace)
{
  if (trace->held_count == 0) {
    return;
  }
  ct_trace_held_free(trace);
  for (uint32_t i = 0; i < trace->thread_count; i++) {
    struct ct_block_file *file = ct_trace_open_thread_file(trace, trace->threads[i].index);
    if (file != NULL) {
      hold(trace, trace->threads[i].index, file);
    }
    ct_block_file_close(file);
  }
}

/* Read and not mapped: a file that is cut short meanwhile must not become a bus error. */
int
ct_trace_read_file(const struct ct_trace *trace, const char *name, char **text, size_t *size)
{
  uint64_t bytes;
  int fd = open_regular(trace->dir_fd, name, &bytes);
  if (fd < 0) {
    return errno == EBADF ? CT_EFORMAT : ct_err_from_errno(errno); /* no file: a directory, a fifo */
  }
  char *buffer = bytes < PTRDIFF_MAX ? malloc((size_t)bytes + 1) : NULL;
  if (buffer == NULL) {
    close(fd);
    return CT_ENOMEM;
  }
  *size = ct_read_at(fd, buffer, (size_t)bytes, 0);
  buffer[*size] = '\0';
  *text = buffer;
  close(fd);
  return CT_OK;
}

/* ---- threads ---- */

static struct ct_trace_thread *
thread_add(struct ct_trace *trace, uint32_t index)
{
  uint32_t n = trace->thread_count;
  if ((n & (n - 1)) == 0) {
    struct ct_trace_thread *threads = realloc(trace->threads, (n == 0 ? 1 : n * 2) * sizeof(*threads));
    if (threads == NULL) {
      return NULL;
    }
    trace->threads = threads;
  }
  struct ct_trace_thread *thread = &trace->threads[trace->thread_count++];
  *thread = (struct ct_trace_thread){.index = index, .name = ""};
  return thread;
}

static int
threads_from_manifest(struct ct_trace *trace)
{
  size_t position;
  json_t *item;
  json_array_foreach(json_object_get(trace->manifest, "threads"), position, item)
  {
    uint64_t index = json_is_integer(json_object_get(item, "index")) ? ct_json_get(item, "index") : position;
    if (index > UINT32_MAX) {
      continue;
    }
    struct ct_trace_thread *thread = thread_add(trace, (uint32_t)index);
    if (thread == NULL) {
      return CT_ENOMEM;
    }
    const char *name = json_string_value(json_object_get(item, "name"));
    thread->tid = (uint32_t)ct_json_get(item, "tid");
    thread->pid = (uint32_t)ct_json_get(item, "pid");
    thread->name = name == NULL ? "" : name;
    thread->events = ct_json_get(item, "events");
    thread->dropped = ct_json_get(item, "dropped");
    thread->missing = ct_json_get(item, "lost");
    thread->end_tsc = ct_json_get(item, "end_tsc");
    thread->exited = json_is_true(json_object_get(item, "exited"));
    thread->not_kept = ct_json_get(item, "not_kept");
    thread->goes_on = json_is_true(json_object_get(item, "goes_on"));
  }
  return CT_OK;
}

static int
by_index(const void *a, const void *b)
{
  uint32_t x = ((const struct ct_trace_thread *)a)->index, y = ((const struct ct_trace_thread *)b)->index;
  return (x > y) - (x < y);
}

static void
sort_threads(struct ct_trace *trace)
{
  if (trace->thread_count == 0) {
    return;
  }
  qsort(trace->threads, trace->thread_count, sizeof(*trace->threads), by_index);
  uint32_t kept = 1;
  for (uint32_t i = 1; i < trace->thread_count; i++) {
    if (trace->threads[i].index != trace->threads[kept - 1].index) {
      trace->threads[kept++] = trace->threads[i];
    }
  }
  trace->thread_count = kept;
}

/* Goes from block header to block header, as far as they are whole, and on from the next piece. */
static void
sum_blocks(const struct ct_block_file *in, bool numbered, struct ct_block_sums *sums)
{
  uint64_t offset = sizeof(struct ct_file_header), bytes = ct_block_file_size(in);
  uint64_t number = 0, first_event = 0, end;
  struct ct_block_header header;
  struct ct_file_header file;
  bool from_any = numbered && ct_block_file_read(in, &file, sizeof(file), 0) == sizeof(file) &&
                  file.version == CT_TRACE_VERSION_KEPT && ct_file_header_ok(&file);
  *sums = (struct ct_block_sums){.missing_block = UINT64_MAX, .whole_bytes = offset};
  for (; offset < bytes; offset = end) {
    uint64_t next = ct_block_file_next_piece(in, offset);
    bool is_block =
        ct_block_file_read(in, &header, sizeof(header), offset) == sizeof(header) && ct_block_header_ok(&header);
    end = is_block ? offset + sizeof(header) + header.payload_bytes : UINT64_MAX;
    if (end > (next < bytes ? next : bytes)) {
      end = next;
      continue;
    }
    if (from_any && sums->whole_bytes == sizeof(file)) {
      sums->not_kept = header.first_event;
      sums->begin_tsc = header.first_event != 0 ? header.first_tsc : 0;
    } else if (numbered && header.number != number) {
      sums->missing_block = sums->missing_block == UINT64_MAX ? number : sums->missing_block;
      sums->missing_events += header.first_event > first_event ? header.first_event - first_event : 0;
    }
    number = (uint64_t)header.number + 1;
    first_event = header.first_event + header.calls + header.returns;
    sums->events += (uint64_t)header.calls + header.returns;
    sums->lost += header.lost;
    sums->whole_bytes = end;
    sums->last_tsc = header.last_tsc;
  }
}

void
ct_trace_sum_blocks(const struct ct_trace *trace, uint32_t index, struct ct_block_sums *sums)
{
  struct ct_block_file *file = ct_trace_open_thread_file(trace, index);
  *sums = (struct ct_block_sums){.missing_block = UINT64_MAX, .whole_bytes = sizeof(struct ct_file_header)};
  if (file != NULL) {
    sum_blocks(file, true, sums);
  }
  ct_block_file_close(file);
}

/* The time of the last event, and how many there are if the manifest does not say so. */
static void
read_blocks(struct ct_trace *trace, const struct ct_block_file *file, struct ct_trace_thread *thread, bool count)
{
  struct ct_block_sums sums;
  sum_blocks(file, true, &sums);
  trace->last_tsc = sums.last_tsc > trace->last_tsc ? sums.last_tsc : trace->last_tsc;
  if (!count) {
    return;
  }
  thread->events = sums.events;
  thread->dropped = thread->dropped < sums.lost ? sums.lost : thread->dropped;
  if (!trace->complete && trace->kept.is_kept) { /* the recording has not said yet what is not there any more */
    thread->not_kept = sums.not_kept;
    trace->kept.not_kept += sums.not_kept;
    trace->kept.begin_tsc = sums.begin_tsc > trace->kept.begin_tsc ? sums.begin_tsc : trace->kept.begin_tsc;
  }
}

/* Whole, but of a version that is not known here. */
static bool
is_newer(const struct ct_file_header *header)
{
  return header->magic == CT_FILE_MAGIC && header->version > CT_TRACE_VERSION_NEWEST &&
         header->header_crc == ct_crc32c(0, header, offsetof(struct ct_file_header, header_crc));
}

/* What the thread's file itself says. */
static void
inspect_file(struct ct_trace *trace, struct ct_trace_thread *thread, bool count)
{
  if (trace->atf != NULL) {
    ct_atf_inspect(trace, thread, count);
    return;
  }
  struct ct_block_file *file = ct_trace_open_thread_file(trace, thread->index);
  if (file == NULL) {
    return;
  }
  thread->file_bytes = ct_block_file_bytes(file);
  trace->bytes += thread->file_bytes;
  struct ct_file_header header;
  bool is_there = ct_block_file_read(file, &header, sizeof(header), 0) == sizeof(header);
  if (is_there && ct_file_header_ok(&header)) {
    thread->tid = header.tid;
    thread->pid = header.pid;
  } else if (is_there && is_newer(&header)) {
    trace->newer_version = header.version;
    trace->newer_index = thread->index;
  }
  if (count || trace->end_tsc == 0) {
    read_blocks(trace, file, thread, count);
  }
  hold(trace, thread->index, file);
  ct_block_file_close(file);
}

/* N of "thread_N", written as the writer does. */
static bool
parse_thread_name(const char *name, uint32_t *index)
{
  size_t prefix = strlen(CT_TRACE_THREAD_DIR);
  if (strncmp(name, CT_TRACE_THREAD_DIR, prefix) != 0) {
    return false;
  }
  const char *digits = name + prefix;
  size_t length = strspn(digits, "0123456789");
  if (length == 0 || length > 10 || digits[length] != '\0' || (digits[0] == '0' && length > 1)) {
    return false;
  }
  unsigned long long value = strtoull(digits, NULL, 10);
  *index = (uint32_t)value;
  return value <= UINT32_MAX;
}

/* Among the first `count`, which are in order if is_sorted. A directory gives each name once. */
static bool
is_listed(const struct ct_trace *trace, uint32_t count, bool is_sorted, uint32_t index)
{
  struct ct_trace_thread key = {.index = index};
  if (is_sorted) {
    return count != 0 && bsearch(&key, trace->threads, count, sizeof(key), by_index) != NULL;
  }
  for (uint32_t i = 0; i < count; i++) {
    if (trace->threads[i].index == index) {
      return true;
    }
  }
  return false;
}

/* NULL: it cannot be read. */
static DIR *
open_folder(const struct ct_trace *trace)
{
  int fd = openat(trace->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = fd < 0 ? NULL : fdopendir(fd);
  if (stream == NULL && fd >= 0) {
    close(fd);
  }
  return stream;
}

int
ct_trace_add_threads(struct ct_trace *trace)
{
  struct stat now;
  for (uint32_t i = 0; i < trace->thread_count; i++) {
    if (trace->threads[i].tid == 0) { /* its folder was there before its file */
      inspect_file(trace, &trace->threads[i], true);
    }
  }
  if (fstat(trace->dir_fd, &now) != 0 || (now.st_nlink == trace->folders && now.st_nlink > 1)) {
    return CT_OK; /* as many folders as there were; a file system that does not count them says 1 */
  }
  DIR *stream = open_folder(trace);
  if (stream == NULL) {
    return CT_EIO;
  }
  int code = CT_OK;
  uint32_t before = trace->thread_count;
  bool was_sorted = trace->threads_sorted, is_early = false;
  for (const struct dirent *entry; code == CT_OK && (entry = readdir(stream)) != NULL;) {
    uint32_t index;
    if (!parse_thread_name(entry->d_name, &index) || is_listed(trace, before, was_sorted, index)) {
      continue;
    }
    struct ct_trace_thread *thread = thread_add(trace, index);
    code = thread != NULL ? CT_OK : CT_ENOMEM;
    if (thread != NULL) {
      inspect_file(trace, thread, true);
    }
    if (thread != NULL && thread->tid == 0) { /* its folder is there before its file: the next time */
      trace->thread_count--;
      is_early = true;
    }
  }
  trace->folders = is_early ? 0 : (uint64_t)now.st_nlink;
  closedir(stream);
  if (trace->thread_count != before) { /* positions are those of the whole trace, then: ids of spans have them */
    qsort(trace->threads + before, trace->thread_count - before, sizeof(*trace->threads), by_index);
  }
  trace->threads_sorted = was_sorted && (before == 0 || trace->thread_count == before ||
                                         trace->threads[before - 1].index < trace->threads[before].index);
  return code;
}

/* The directories say which threads there are, the manifest may know only some of them. */
static int
threads_load(struct ct_trace *trace)
{
  int err = threads_from_manifest(trace);
  if (err != CT_OK) {
    return err;
  }
  sort_threads(trace);
  uint32_t listed = trace->thread_count;
  DIR *stream = open_folder(trace);
  if (stream == NULL) {
    return CT_EIO;
  }
  for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
    struct ct_trace_thread key = {0};
    if (!parse_thread_name(entry->d_name, &key.index)) {
      continue;
    }
    if (listed > 0 && bsearch(&key, trace->threads, listed, sizeof(key), by_index) != NULL) {
      continue;
    }
    struct ct_trace_thread *thread = thread_add(trace, key.index);
    if (thread == NULL) {
      closedir(stream);
      return CT_ENOMEM;
    }
    inspect_file(trace, thread, true);
  }
  closedir(stream);
  trace->threads_sorted = true;
  for (uint32_t i = 0; i < listed; i++) {
    inspect_file(trace, &trace->threads[i], !trace->complete);
  }
  sort_threads(trace);
  trace->end_tsc = trace->end_tsc != 0 ? trace->end_tsc : trace->last_tsc;
  for (uint32_t i = 0; i < trace->thread_count; i++) {
    if (trace->threads[i].end_tsc == 0 || trace->threads[i].end_tsc > trace->end_tsc) {
      trace->threads[i].end_tsc = trace->end_tsc;
    }
  }
  return CT_OK;
}

uint64_t
ct_trace_file_bytes(const struct ct_trace *trace, const char *name)
{
  struct stat file;
  return fstatat(trace->dir_fd, name, &file, 0) == 0 && file.st_size > 0 ? (uint64_t)file.st_size : 0;
}

/* ---- the trace ---- */

/* How many files cursors may keep: a part of those that the program may have. */
static uint32_t
open_files_limit(void)
{
  struct rlimit files;
  rlim_t share = getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur / 4 : 0;
  return share < 16 ? 16 : share > 1024 ? 1024 : (uint32_t)share;
}

int
ct_trace_open(const char *dir, struct ct_trace **out, struct ct_diag *diag)
{
  struct ct_trace *trace = calloc(1, sizeof(*trace));
  if (trace == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory to open %s", dir);
  }
  trace->dir_fd = -1;
  trace->open_files_max = open_files_limit();
  pthread_mutex_init(&trace->lock, NULL);
  int err = CT_ENOMEM;
  trace->path = strdup(dir);
  if (trace->path == NULL) {
    ct_fail(diag, err, "out of memory to open %s", dir);
    goto close_trace;
  }
  trace->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (trace->dir_fd < 0) {
    int saved = errno;
    err = ct_fail(diag, ct_err_from_errno(saved), "cannot open the trace directory %s: %s", dir, strerror(saved));
    goto close_trace;
  }
  err = ct_atf_enter(trace, diag);
  ct_trace_see_manifest(trace);
  if (err == CT_OK) {
    err = ct_manifest_load(trace, diag);
  }
  if (err != CT_OK) {
    goto close_trace;
  }
  ct_test_point("manifest-read");
  ct_stacks_load(trace);
  struct ct_block_file *captures = ct_block_file_open(trace->dir_fd, CT_BLOCK_FILE_NO_THREAD, CT_TRACE_CAPTURES);
  trace->bytes += captures != NULL ? ct_block_file_bytes(captures) : 0;
  ct_block_file_close(captures);
  err = threads_load(trace);
  if (err != CT_OK) {
    ct_fail(diag, err, "cannot read the threads of %s: %s", dir, ct_err_text(err));
    goto close_trace;
  }
  err = ct_functions_load(trace, diag); /* after the ends of the threads' blocks (ct_trace_end_offset) */
  if (err != CT_OK) {
    goto close_trace;
  }
  err = ct_trace_find_modules(trace);
  if (err != CT_OK) {
    ct_fail(diag, err, "out of memory for the modules of %s", dir);
    goto close_trace;
  }
  if (trace->newer_version != 0) {
    err = ct_fail(diag, CT_EUNSUPPORTED,
                  "%s/" CT_TRACE_THREAD_DIR "%" PRIu32 "/" CT_TRACE_INDEX
                  " has format version %u; this program reads versions %u to %u",
                  dir, trace->newer_index, trace->newer_version, CT_TRACE_VERSION_OLD, CT_TRACE_VERSION_NEWEST);
    goto close_trace;
  }
  err = ct_trace_check(trace);
  if (err != CT_OK) {
    ct_fail(diag, err, "out of memory to check %s", dir);
    goto close_trace;
  }
  *out = trace;
  return CT_OK;

close_trace:
  ct_trace_close(trace);
  return err;
}

void
ct_trace_close(struct ct_trace *trace)
{
  if (trace == NULL) {
    return;
  }
  for (struct ct_unpacker *unpacker = trace->unpackers, *next; unpacker != NULL; unpacker = next) {
    next = unpacker->next;
    ZSTD_freeDCtx(unpacker->decompressor);
    free(unpacker->input);
    free(unpacker);
  }
  ct_functions_free(trace);
  ct_trace_refresh_free(trace);
  ct_trace_held_free(trace);
  ct_atf_free(trace->atf);
  ct_trace_sources_free(trace);
  ct_trace_prototypes_free(trace);
  for (uint32_t i = 0; i < trace->damage_count; i++) {
    free(trace->damage[i]);
  }
  free(trace->damage);
  free(trace->goes_on);
  ct_range_free_places(trace);
  ct_range_free_pasts(trace);
  free(trace->modules);
  free(trace->threads);
  json_decref(trace->manifest);
  json_decref(trace->crash);
  json_decref(trace->stacks);
  if (trace->dir_fd >= 0) {
    close(trace->dir_fd);
  }
  pthread_mutex_destroy(&trace->lock);
  free(trace->path);
  free(trace);
}

const char *
ct_trace_path(const struct ct_trace *trace)
{
  return trace->path;
}

uint64_t
ct_trace_bytes(const struct ct_trace *trace)
{
  return trace->bytes;
}

uint32_t
ct_trace_thread_count(const struct ct_trace *trace)
{
  return trace->thread_count;
}

const struct ct_trace_thread *
ct_trace_thread(const struct ct_trace *trace, uint32_t index)
{
  return index < trace->thread_count ? &trace->threads[index] : NULL;
}

void
ct_trace_set_place(struct ct_trace *trace, uint32_t number, uint32_t process)
{
  trace->place_trace = number;
  trace->place_process = process;
}

void
ct_trace_place(const struct ct_trace *trace, uint32_t *number, uint32_t *process)
{
  *number = trace->place_trace;
  *process = trace->place_process;
}

int
ct_trace_dir_fd(const struct ct_trace *trace)
{
  return trace->dir_fd;
}
