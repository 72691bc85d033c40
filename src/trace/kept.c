/* SPDX-License-Identifier: MIT */
/* See kept.h. */
#include "trace/kept.h"

#include "base/crc32c.h"
#include "base/json.h"
#include "trace/reader_internal.h"
#include "trace/writer_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN_MAX = 48 };

enum which { INDEX, DETAIL, FILES };
static const char *const file_names[FILES] = {CT_TRACE_INDEX, CT_TRACE_DETAIL};

struct kept_file {
  int fd;         /* -1: closed */
  uint64_t bytes; /* 0: there is none yet */
};

struct kept_thread {
  uint32_t index, tid, pid;
  char name[CT_STORE_NAME_BYTES];
  struct kept_file files[FILES];
  uint64_t events, first_event, next_event, missing, dropped;
  uint64_t next_number;
  bool has_blocks;
};

struct ct_kept {
  int dir_fd;
  char *path;
  struct kept_thread *threads;
  uint32_t thread_count, thread_capacity;
  uint32_t *table; /* of positions + 1 by index; table_size of them, a power of two */
  uint32_t table_size;
  uint32_t open[OPEN_MAX]; /* files that are: position of the thread * FILES + which */
  uint32_t open_count;
  int captures_fd;
  uint64_t captures_bytes;
  struct ct_kept_sums sums;
};

int
ct_kept_create(int dir_fd, const char *path, struct ct_kept **out, struct ct_diag *diag)
{
  struct ct_kept *kept = calloc(1, sizeof(*kept));
  if (kept != NULL) {
    *kept = (struct ct_kept){.dir_fd = dir_fd, .path = strdup(path), .table_size = 256, .captures_fd = -1};
    kept->table = calloc(kept->table_size, sizeof(*kept->table));
  }
  if (kept == NULL || kept->path == NULL || kept->table == NULL) {
    ct_kept_destroy(kept);
    return ct_fail(diag, CT_ENOMEM, "out of memory for the threads of %s", path);
  }
  *out = kept;
  return CT_OK;
}

static void
close_all(struct ct_kept *kept)
{
  for (uint32_t i = 0; i < kept->open_count; i++) {
    struct kept_file *file = &kept->threads[kept->open[i] / FILES].files[kept->open[i] % FILES];
    close(file->fd);
    file->fd = -1;
  }
  kept->open_count = 0;
}

void
ct_kept_destroy(struct ct_kept *kept)
{
  if (kept == NULL) {
    return;
  }
  close_all(kept);
  if (kept->captures_fd >= 0) {
    close(kept->captures_fd);
  }
  free(kept->threads);
  free(kept->table);
  free(kept->path);
  free(kept);
}

/* ---- threads ---- */

static uint32_t *
slot_of(const struct ct_kept *kept, uint32_t index)
{
  uint32_t at = index * 2654435761u & (kept->table_size - 1);
  while (kept->table[at] != 0 && kept->threads[kept->table[at] - 1].index != index) {
    at = (at + 1) & (kept->table_size - 1);
  }
  return &kept->table[at];
}

static struct kept_thread *
find_thread(const struct ct_kept *kept, uint32_t index)
{
  uint32_t at = *slot_of(kept, index);
  return at != 0 ? &kept->threads[at - 1] : NULL;
}

static bool
grow(struct ct_kept *kept)
{
  if (kept->thread_count == kept->thread_capacity) {
    uint32_t capacity = kept->thread_capacity == 0 ? 64 : kept->thread_capacity * 2;
    struct kept_thread *threads = realloc(kept->threads, capacity * sizeof(*threads));
    if (threads == NULL) {
      return false;
    }
    kept->threads = threads;
    kept->thread_capacity = capacity;
  }
  if (kept->thread_count < kept->table_size / 2) {
    return true;
  }
  uint32_t *table = calloc((size_t)kept->table_size * 2, sizeof(*table));
  if (table == NULL) {
    return false;
  }
  free(kept->table);
  kept->table = table;
  kept->table_size *= 2;
  for (uint32_t i = 0; i < kept->thread_count; i++) {
    *slot_of(kept, kept->threads[i].index) = i + 1;
  }
  return true;
}

static struct kept_thread *
add_thread(struct ct_kept *kept, const struct ct_store_record *record)
{
  struct kept_thread *thread = find_thread(kept, record->thread);
  if (thread == NULL) {
    if (!grow(kept)) {
      return NULL;
    }
    *slot_of(kept, record->thread) = kept->thread_count + 1;
    thread = &kept->threads[kept->thread_count++];
    *thread = (struct kept_thread){
        .index = record->thread, .tid = record->tid, .pid = record->pid, .files = {{.fd = -1}, {.fd = -1}}};
  }
  if (record->name[0] != '\0') {
    memcpy(thread->name, record->name, sizeof(thread->name));
  }
  return thread;
}

/* ---- files ---- */

static int
failed(const struct ct_kept *kept, const char *name, int err, struct ct_diag *diag)
{
  return ct_fail(diag, ct_err_from_errno(err), "cannot write %s/%s: %s", kept->path, name, strerror(err));
}

/* A file of ours that is written anew. -1 and errno. */
static int
create_in(int dir_fd, const char *name)
{
  struct stat file;
  int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd >= 0 && (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_uid != geteuid() || file.st_nlink != 1 ||
                  ftruncate(fd, 0) != 0)) {
    close(fd);
    errno = EPERM;
    return -1;
  }
  return fd;
}

/* One of the thread's files, made if it is new. -1 and errno. */
static int
open_thread_file(const struct ct_kept *kept, const struct kept_thread *thread, enum which which)
{
  char folder[32];
  bool is_new = thread->files[which].bytes == 0;
  snprintf(folder, sizeof(folder), "%s%" PRIu32, CT_TRACE_THREAD_DIR, thread->index);
  if (is_new && mkdirat(kept->dir_fd, folder, 0700) != 0 && errno != EEXIST) {
    return -1;
  }
  int folder_fd = openat(kept->dir_fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder_fd < 0) {
    return -1;
  }
  int fd = is_new ? create_in(folder_fd, file_names[which])
                  : openat(folder_fd, file_names[which], O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  int err = errno;
  close(folder_fd);
  errno = err;
  return fd;
}

static int
use_file(struct ct_kept *kept, struct kept_thread *thread, enum which which, struct ct_diag *diag)
{
  struct kept_file *file = &thread->files[which];
  if (file->fd >= 0) {
    return CT_OK;
  }
  if (kept->open_count == OPEN_MAX) {
    close_all(kept);
  }
  file->fd = open_thread_file(kept, thread, which);
  if (file->fd < 0 && (errno == EMFILE || errno == ENFILE) && kept->open_count != 0) {
    close_all(kept);
    file->fd = open_thread_file(kept, thread, which);
  }
  if (file->fd < 0) {
    return failed(kept, file_names[which], errno, diag);
  }
  kept->open[kept->open_count++] = (uint32_t)(thread - kept->threads) * FILES + which;
  return CT_OK;
}

/* To one of the thread's files, after its header. */
static int
append(struct ct_kept *kept, struct kept_thread *thread, enum which which, const uint8_t *data, size_t bytes,
       struct ct_diag *diag)
{
  struct kept_file *file = &thread->files[which];
  size_t written;
  int code = use_file(kept, thread, which, diag);
  if (code == CT_OK && file->bytes == 0) {
    struct ct_file_header header = ct_file_header_make(thread->index, thread->tid, thread->pid, CT_TRACE_VERSION_KEPT);
    if (which == DETAIL) {
      header.magic = CT_DETAIL_FILE_MAGIC;
      header.header_crc = ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc));
    }
    if (!ct_writer_write_at(file->fd, &header, sizeof(header), 0, &written)) {
      return failed(kept, file_names[which], errno, diag);
    }
    file->bytes = sizeof(header);
    kept->sums.bytes += sizeof(header);
  }
  if (code == CT_OK && !ct_writer_write_at(file->fd, data, bytes, file->bytes, &written)) {
    return failed(kept, file_names[which], errno, diag);
  }
  file->bytes += code == CT_OK ? bytes : 0;
  kept->sums.bytes += code == CT_OK ? bytes : 0;
  return code;
}

/* ---- records ---- */

static int
add_block(struct ct_kept *kept, const struct ct_store_record *record, const uint8_t *data, struct ct_diag *diag)
{
  struct ct_block_header header;
  if (record->data_bytes < sizeof(header)) {
    kept->sums.damaged++;
    return CT_OK;
  }
  memcpy(&header, data, sizeof(header));
  if (!ct_block_header_ok(&header) || header.payload_bytes != record->data_bytes - sizeof(header) ||
      ct_crc32c(0, data + sizeof(header), header.payload_bytes) != header.payload_crc) {
    kept->sums.damaged++;
    return CT_OK;
  }
  struct kept_thread *thread = add_thread(kept, record);
  if (thread == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the threads of %s", kept->path);
  }
  if (thread->has_blocks && header.number < thread->next_number) {
    kept->sums.damaged++;
    return CT_OK;
  }
  int code = append(kept, thread, INDEX, data, record->data_bytes, diag);
  if (code != CT_OK) {
    return code;
  }
  uint64_t events = (uint64_t)header.calls + header.returns;
  if (!thread->has_blocks) {
    thread->first_event = header.first_event;
    kept->sums.not_kept += header.first_event;
  } else if (header.first_event > thread->next_event) {
    thread->missing += header.first_event - thread->next_event;
    kept->sums.missing += header.first_event - thread->next_event;
  }
  thread->has_blocks = true;
  thread->next_number = (uint64_t)header.number + 1;
  thread->next_event = header.first_event + events;
  thread->events += events;
  thread->dropped += header.lost;
  kept->sums.events += events;
  kept->sums.last_tsc = header.last_tsc > kept->sums.last_tsc ? header.last_tsc : kept->sums.last_tsc;
  return CT_OK;
}

static int
add_detail(struct ct_kept *kept, const struct ct_store_record *record, const uint8_t *data, struct ct_diag *diag)
{
  struct ct_detail_block_header header, copy;
  if (record->data_bytes < sizeof(header)) {
    kept->sums.damaged++;
    return CT_OK;
  }
  memcpy(&header, data, sizeof(header));
  copy = header;
  copy.header_crc = 0;
  if (header.magic != CT_DETAIL_BLOCK_MAGIC || ct_crc32c(0, &copy, sizeof(copy)) != header.header_crc ||
      header.payload.stored_bytes != record->data_bytes - sizeof(header) ||
      ct_crc32c(0, data + sizeof(header), header.payload.stored_bytes) != header.payload_crc) {
    kept->sums.damaged++;
    return CT_OK;
  }
  struct kept_thread *thread = add_thread(kept, record);
  return thread != NULL ? append(kept, thread, DETAIL, data, record->data_bytes, diag)
                        : ct_fail(diag, CT_ENOMEM, "out of memory for the threads of %s", kept->path);
}

/* Whole records of what the program wrote, and nothing else. */
static bool
captures_ok(const uint8_t *data, size_t size)
{
  struct ct_capture_record record;
  for (size_t at = 0; at < size; at += record.record_bytes) {
    if (size - at < sizeof(record)) {
      return false;
    }
    memcpy(&record, data + at, sizeof(record));
    if (record.record_bytes < sizeof(record) || record.record_bytes > size - at ||
        record.crc != ct_crc32c(0, data + at + sizeof(record.crc), record.record_bytes - sizeof(record.crc))) {
      return false;
    }
  }
  return true;
}

static int
add_captures(struct ct_kept *kept, const struct ct_store_record *record, const uint8_t *data, struct ct_diag *diag)
{
  size_t written;
  if (!captures_ok(data, record->data_bytes)) {
    kept->sums.damaged++;
    return CT_OK;
  }
  if (kept->captures_fd < 0) {
    struct ct_file_header header = ct_file_header_make(0, 0, 0, CT_TRACE_VERSION);
    header.magic = CT_CAPTURES_MAGIC;
    header.header_crc = ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc));
    kept->captures_fd = create_in(kept->dir_fd, CT_TRACE_CAPTURES);
    if (kept->captures_fd < 0 || !ct_writer_write_at(kept->captures_fd, &header, sizeof(header), 0, &written)) {
      return failed(kept, CT_TRACE_CAPTURES, errno, diag);
    }
    kept->captures_bytes = sizeof(header);
  }
  if (!ct_writer_write_at(kept->captures_fd, data, record->data_bytes, kept->captures_bytes, &written)) {
    return failed(kept, CT_TRACE_CAPTURES, errno, diag);
  }
  kept->captures_bytes += record->data_bytes;
  return CT_OK;
}

int
ct_kept_add(struct ct_kept *kept, const struct ct_store_record *record, const uint8_t *data, struct ct_diag *diag)
{
  kept->sums.put_tsc = record->put_tsc;
  kept->sums.put_ns = record->put_ns;
  switch (record->kind) {
  case CT_STORE_BLOCK:
    return add_block(kept, record, data, diag);
  case CT_STORE_DETAIL:
    return add_detail(kept, record, data, diag);
  case CT_STORE_CAPTURES:
    return add_captures(kept, record, data, diag);
  default:
    kept->sums.damaged++;
    return CT_OK;
  }
}

/* "thread_N/index.ctb" and so on. */
static void
name_file(char name[64], const struct kept_thread *thread, enum which which)
{
  snprintf(name, 64, "%s%" PRIu32 "/%s", CT_TRACE_THREAD_DIR, thread->index, file_names[which]);
}

int
ct_kept_start_over(struct ct_kept *kept, struct ct_diag *diag)
{
  char name[64];
  close_all(kept);
  for (uint32_t i = 0; i < kept->thread_count; i++) {
    for (enum which which = INDEX; which < FILES; which++) {
      name_file(name, &kept->threads[i], which);
      if (kept->threads[i].files[which].bytes != 0 && unlinkat(kept->dir_fd, name, 0) != 0) {
        return failed(kept, name, errno, diag);
      }
    }
    *strrchr(name, '/') = '\0';
    unlinkat(kept->dir_fd, name, AT_REMOVEDIR);
  }
  if (kept->captures_fd >= 0) {
    close(kept->captures_fd);
    kept->captures_fd = -1;
    unlinkat(kept->dir_fd, CT_TRACE_CAPTURES, 0);
  }
  kept->captures_bytes = 0;
  kept->thread_count = 0;
  memset(kept->table, 0, kept->table_size * sizeof(*kept->table));
  kept->sums = (struct ct_kept_sums){0};
  return CT_OK;
}

/*
 * When the oldest record has gone before it was its turn, those before it have too, and what was added of them is no
 * longer next to what is there. Then the rest of them begins in the middle of what is left, so that who adds to the
 * store cannot overtake again and again.
 */
int
ct_kept_add_all(struct ct_kept *kept, struct ct_store *store, uint64_t end_sequence, struct ct_diag *diag)
{
  struct ct_store_state state;
  struct ct_store_record record;
  struct ct_store_buffer buffer = {0};
  int code = CT_OK;
  ct_store_get_state(store, &state);
  for (uint64_t n = state.first_sequence; n < end_sequence && code == CT_OK; n++) {
    code = ct_store_copy(store, n, &record, &buffer);
    if (code == CT_OK) {
      code = ct_kept_add(kept, &record, buffer.data, diag);
    } else if (code == CT_ENOENT) {
      ct_store_get_state(store, &state);
      n = state.first_sequence < end_sequence ? state.first_sequence + (end_sequence - state.first_sequence) / 2 - 1
                                              : end_sequence - 1;
      code = ct_kept_start_over(kept, diag);
    } else {
      ct_fail(diag, code, "out of memory");
    }
  }
  free(buffer.data);
  return code;
}

static int
sync_at(const struct ct_kept *kept, const char *name, int flags, struct ct_diag *diag)
{
  int fd = openat(kept->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | flags);
  int err = fd < 0 || (fsync(fd) != 0 && errno != EINVAL) ? errno : 0;
  if (fd >= 0) {
    close(fd);
  }
  return err == 0 ? CT_OK : failed(kept, name, err, diag);
}

int
ct_kept_sync(struct ct_kept *kept, struct ct_diag *diag)
{
  char name[64];
  int code = CT_OK;
  for (uint32_t i = 0; i < kept->thread_count && code == CT_OK; i++) {
    for (enum which which = INDEX; which < FILES && code == CT_OK; which++) {
      name_file(name, &kept->threads[i], which);
      code = kept->threads[i].files[which].bytes != 0 ? sync_at(kept, name, 0, diag) : CT_OK;
    }
    *strrchr(name, '/') = '\0';
    code = code == CT_OK ? sync_at(kept, name, O_DIRECTORY, diag) : code;
  }
  if (code == CT_OK && kept->captures_fd >= 0) {
    code = sync_at(kept, CT_TRACE_CAPTURES, 0, diag);
  }
  return code == CT_OK ? sync_at(kept, ".", O_DIRECTORY, diag) : code;
}

void
ct_kept_get_sums(const struct ct_kept *kept, struct ct_kept_sums *sums)
{
  *sums = kept->sums;
  sums->threads = kept->thread_count;
}

/* ---- the manifest ---- */

static json_t *
files_json(const struct ct_kept *kept)
{
  json_t *files = json_object();
  char name[64];
  struct stat file;
  static const char *const tables[] = {CT_TRACE_FUNCTIONS, CT_TRACE_SOURCES, CT_TRACE_PROTOTYPES};
  for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
    if (fstatat(kept->dir_fd, tables[i], &file, AT_SYMLINK_NOFOLLOW) == 0) {
      ct_json_put(files, tables[i], (uint64_t)file.st_size);
    }
  }
  if (kept->captures_bytes != 0) {
    ct_json_put(files, CT_TRACE_CAPTURES, kept->captures_bytes);
  }
  for (uint32_t i = 0; i < kept->thread_count; i++) {
    name_file(name, &kept->threads[i], INDEX);
    if (kept->threads[i].files[INDEX].bytes != 0) {
      ct_json_put(files, name, kept->threads[i].files[INDEX].bytes);
    }
  }
  return files;
}

/* A thread that the manifest lists: what is here of its events. Returns how many are not. */
static uint64_t
amend_thread(const struct ct_kept *kept, json_t *item)
{
  const struct kept_thread *thread = find_thread(kept, (uint32_t)ct_json_get(item, "index"));
  uint64_t events = ct_json_get(item, "events"), not_kept = events;
  if (thread != NULL) {
    not_kept = thread->has_blocks ? thread->first_event : 0;
    ct_json_put(item, "events", thread->events + thread->missing);
    if (thread->dropped > ct_json_get(item, "dropped")) { /* since the recorder wrote the manifest, before it died */
      ct_json_put(item, "dropped", thread->dropped);
    }
  } else {
    ct_json_put(item, "events", 0);
  }
  ct_json_put(item, "not_kept", not_kept);
  return not_kept;
}

static int
by_number(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Threads that the manifest did not know yet. */
static uint64_t
add_threads(const struct ct_kept *kept, json_t *threads)
{
  size_t count = json_array_size(threads), i;
  uint64_t *listed = malloc((count + 1) * sizeof(*listed)), not_kept = 0;
  json_t *item;
  if (listed == NULL) {
    return 0;
  }
  json_array_foreach(threads, i, item) listed[i] = ct_json_get(item, "index");
  qsort(listed, count, sizeof(*listed), by_number);
  for (uint32_t n = 0; n < kept->thread_count; n++) {
    const struct kept_thread *thread = &kept->threads[n];
    uint64_t index = thread->index;
    if (bsearch(&index, listed, count, sizeof(index), by_number) == NULL) {
      item = json_object();
      ct_json_put(item, "index", index);
      ct_json_put(item, "tid", thread->tid);
      json_object_set_new(item, "name", ct_json_string(thread->name));
      ct_json_put(item, "events", thread->events + thread->missing);
      ct_json_put(item, "dropped", thread->dropped);
      ct_json_put(item, "not_kept", thread->first_event);
      not_kept += thread->first_event;
      json_array_append_new(threads, item);
    }
  }
  free(listed);
  return not_kept;
}

/* By the manifest's clock, CLOCK_MONOTONIC; 0: it has none. */
static uint64_t
ns_of(const json_t *manifest, uint64_t tsc)
{
  const json_t *clock = json_object_get(manifest, "clock");
  uint64_t tsc0 = ct_json_get(clock, "tsc0"), tsc1 = ct_json_get(clock, "tsc1");
  uint64_t ns0 = ct_json_get(clock, "ns0"), ns1 = ct_json_get(clock, "ns1");
  if (tsc1 <= tsc0 || ns1 < ns0) {
    return 0;
  }
  double ns = ((double)tsc - (double)tsc0) * (double)(ns1 - ns0) / (double)(tsc1 - tsc0);
  return ns > -(double)ns0 ? (uint64_t)((double)ns0 + ns) : 0;
}

/* Windows begin where the trace does; those before that are gone. */
static void
clip_windows(json_t *windows, const struct ct_kept_limits *limits)
{
  for (size_t i = json_array_size(windows); i-- > 0 && limits->begin_tsc != 0;) {
    json_t *window = json_array_get(windows, i);
    if (ct_json_get(window, "end_tsc") < limits->begin_tsc) {
      json_array_remove(windows, i);
    } else if (ct_json_get(window, "begin_tsc") < limits->begin_tsc) {
      ct_json_put(window, "begin_tsc", limits->begin_tsc);
      ct_json_put(window, "begin_ns", limits->since_ns);
    }
  }
}

int
ct_kept_amend(const struct ct_kept *kept, json_t *manifest, const struct ct_kept_limits *given)
{
  /* What is given is when a block came to the memory, which may be long after what is in it. */
  struct ct_kept_limits of_begin = *given, *limits = &of_begin;
  uint64_t since_ns = given->begin_tsc != 0 ? ns_of(manifest, given->begin_tsc) : 0;
  limits->since_ns = since_ns != 0 ? since_ns : given->since_ns;
  json_t *threads = json_object_get(manifest, "threads"), *item, *output = json_object_get(manifest, "output");
  json_t *about = json_object();
  uint64_t gone = ct_json_get(json_object_get(manifest, "kept"), "threads_gone");
  uint64_t not_kept = ct_json_get(json_object_get(manifest, "kept"), "threads_gone_events");
  size_t i;
  if (!json_is_array(threads)) {
    threads = json_array();
    json_object_set_new(manifest, "threads", threads);
  }
  json_array_foreach(threads, i, item) not_kept += amend_thread(kept, item);
  not_kept += add_threads(kept, threads);
  ct_json_put(about, "limit_bytes", limits->bytes);
  if (limits->ns != 0) {
    ct_json_put(about, "limit_ns", limits->ns);
  }
  ct_json_put(about, "begin_tsc", limits->begin_tsc);
  ct_json_put(about, "since_ns", limits->since_ns);
  ct_json_put(about, "not_kept", not_kept);
  if (gone != 0) {
    ct_json_put(about, "threads_gone", gone);
  }
  json_object_set_new(manifest, "kept", about);
  clip_windows(json_object_get(manifest, "windows"), limits);
  ct_json_put(manifest, "version", CT_TRACE_VERSION_KEPT);
  if (json_is_object(output)) {
    uint64_t header = kept->captures_bytes != 0 ? sizeof(struct ct_file_header) : 0;
    ct_json_put(output, "recorded_bytes", kept->captures_bytes - header);
  }
  return json_object_set_new(manifest, "files", files_json(kept)) == 0 ? CT_OK : CT_ENOMEM;
}
