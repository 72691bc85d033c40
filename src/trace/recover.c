/* SPDX-License-Identifier: MIT */
/* See <contrail/recover.h>. Nothing that is found is believed: neither the memory nor the trace. */
#include <contrail/recover.h>

#include "base/file.h"
#include "base/json.h"
#include "base/runtime_dir.h"
#include "base/sized.h"
#include "trace/batch.h"
#include "trace/kept.h"
#include "trace/reader_internal.h"
#include "trace/tree.h"
#include "trace/writer_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE_RECOVERED "recovered"
#define TAIL_MAX        (8u << 20) /* of a file, after its last whole block, that is looked at */

/* ---- what there is ---- */

static json_t *load_manifest(int dir_fd, const char *path, struct ct_diag *diag);

/* Another trace may have its name, and the number of its directory. dir_fd: -1: it cannot be opened. */
static bool
is_another(const struct ct_store_header *header, const struct stat *directory, int dir_fd)
{
  if (directory->st_dev != header->device || directory->st_ino != header->inode) {
    return true;
  }
  json_t *manifest = dir_fd >= 0 ? load_manifest(dir_fd, header->path, NULL) : NULL;
  uint64_t pid = ct_json_get(manifest, "pid");
  json_decref(manifest);
  return pid != 0 && header->pid != 0 && pid != (uint64_t)header->pid;
}

static bool
is_gone(const struct ct_store_header *header)
{
  struct stat directory;
  int dir_fd = open(header->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  bool gone = lstat(header->path, &directory) != 0 || is_another(header, &directory, dir_fd);
  if (dir_fd >= 0) {
    close(dir_fd);
  }
  return gone;
}

static void
visit_memory(const struct ct_runtime_dir *dir, const char *name, ct_recover_visit *visit, void *context)
{
  struct ct_store_image *image;
  struct ct_recover_memory memory = {.struct_size = sizeof(memory)};
  int code = ct_store_open(dir->fd, name, &image, NULL);
  if (code != CT_OK && code != CT_EFORMAT) {
    return;
  }
  snprintf(memory.path, sizeof(memory.path), "%s/%s", dir->path, name);
  if (code == CT_OK) {
    const struct ct_store_header *header = ct_store_image_header(image);
    memcpy(memory.directory, header->path, sizeof(memory.directory));
    memory.pid = header->pid;
    memory.start_wall_ns = header->start_wall_ns;
    memory.directory_is_gone = is_gone(header);
    ct_store_close(image);
  }
  visit(context, &memory);
}

static void
visit_directory(const struct ct_runtime_dir *dir, ct_recover_visit *visit, void *context)
{
  int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
  if (stream == NULL) {
    if (fd >= 0) {
      close(fd);
    }
    return;
  }
  for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
    size_t length = strlen(entry->d_name), suffix = strlen(CT_STORE_SUFFIX);
    if (length > suffix && strcmp(entry->d_name + length - suffix, CT_STORE_SUFFIX) == 0) {
      visit_memory(dir, entry->d_name, visit, context);
    }
  }
  closedir(stream);
}

int
ct_recover_list(ct_recover_visit *visit, void *context, struct ct_diag *diag)
{
  struct ct_runtime_dir dir;
  int code = ct_runtime_dir_open(&dir, false, diag);
  if (code == CT_OK) {
    visit_directory(&dir, visit, context);
    ct_runtime_dir_close(&dir);
  }
  int shm = ct_runtime_dir_open_shm(&dir, false, NULL);
  if (shm == CT_OK) {
    visit_directory(&dir, visit, context);
    ct_runtime_dir_close(&dir);
  }
  return code == CT_ENOENT ? CT_OK : code;
}

/* ---- the manifest ---- */

/* The manifest of a trace directory, whose recording has no end. NULL after a line. */
static json_t *
load_manifest(int dir_fd, const char *path, struct ct_diag *diag)
{
  struct stat file;
  int fd = openat(dir_fd, CT_TRACE_MANIFEST, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  bool is_regular = fd >= 0 && fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
  json_t *manifest = is_regular ? json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL) : NULL;
  const char *format = json_string_value(json_object_get(manifest, "format"));
  if (fd >= 0) {
    close(fd);
  }
  if (format == NULL || strcmp(format, CT_TRACE_FORMAT_NAME) != 0) {
    json_decref(manifest);
    ct_fail(diag, CT_EFORMAT, "%s has no whole " CT_TRACE_MANIFEST ": nothing can be shown of it", path);
    return NULL;
  }
  return manifest;
}

static bool
is_recording(const json_t *manifest)
{
  const char *state = json_string_value(json_object_get(manifest, "state"));
  return state != NULL && strcmp(state, "recording") == 0;
}

/* What was dropped after the manifest was written is known of the blocks. */
static void
sum_dropped(json_t *manifest)
{
  uint64_t sum = 0;
  size_t i;
  const json_t *threads = json_object_get(manifest, "threads"), *thread;
  json_array_foreach(threads, i, thread) sum += ct_json_get(thread, "dropped");
  if (sum > ct_json_get(manifest, "dropped_total")) {
    ct_json_put(manifest, "dropped_total", sum);
  }
}

static int
save_manifest(int dir_fd, const char *path, json_t *manifest, struct ct_diag *diag)
{
  sum_dropped(manifest);
  json_object_set_new(manifest, "state", json_string(STATE_RECOVERED));
  char *text = json_dumps(manifest, JSON_INDENT(1));
  if (text == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the manifest");
  }
  int err = ct_file_replace(dir_fd, CT_TRACE_MANIFEST, text, strlen(text), true);
  free(text);
  return err == 0
             ? CT_OK
             : ct_fail(diag, ct_err_from_errno(err), "cannot write %s/" CT_TRACE_MANIFEST ": %s", path, strerror(err));
}

/* A directory of ours. -1 after a line. */
static int
open_ours(const char *path, struct stat *status, struct ct_diag *diag)
{
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    ct_fail(diag, ct_err_from_errno(errno), "cannot open the trace directory %s: %s", path, strerror(errno));
    return -1;
  }
  if (fstat(fd, status) != 0 || status->st_uid != geteuid()) {
    close(fd);
    ct_fail(diag, CT_EACCES, "%s belongs to another user", path);
    return -1;
  }
  return fd;
}

/*
 * When the recording ended: with its last event, or with a mark that is later. A manifest tells of marks whose events
 * had not been written yet. No mark is later than the manifest.
 */
static uint64_t
find_end(const json_t *manifest, uint64_t last_tsc)
{
  const json_t *windows = json_object_get(manifest, "windows"), *window, *reason;
  uint64_t written = ct_json_get(json_object_get(manifest, "clock"), "tsc1"), end = last_tsc;
  size_t i, k;
  json_array_foreach((json_t *)windows, i, window)
  {
    json_array_foreach(json_object_get(window, "reasons"), k, reason)
    {
      uint64_t tsc = ct_json_get(reason, "tsc");
      end = tsc > end && tsc <= written ? tsc : end;
    }
  }
  return end;
}

/* Windows end where the trace does: what was written of those that were open says when that was written. */
static void
clip_windows(json_t *manifest, uint64_t end_tsc)
{
  const json_t *clock = json_object_get(manifest, "clock");
  uint64_t tsc0 = ct_json_get(clock, "tsc0"), tsc1 = ct_json_get(clock, "tsc1");
  uint64_t ns0 = ct_json_get(clock, "ns0"), ns1 = ct_json_get(clock, "ns1");
  json_t *windows = json_object_get(manifest, "windows"), *window;
  size_t i;
  json_array_foreach(windows, i, window)
  {
    uint64_t begin = ct_json_get(window, "begin_tsc"), end = begin > end_tsc ? begin : end_tsc;
    if (ct_json_get(window, "end_tsc") > end && end > tsc0 && tsc1 > tsc0 && ns1 > ns0) {
      ct_json_put(window, "end_tsc", end);
      ct_json_put(window, "end_ns",
                  ns0 + (uint64_t)((double)(end - tsc0) * (double)(ns1 - ns0) / (double)(tsc1 - tsc0)));
    }
  }
}

/* ---- from memory ---- */

/* The recording ended with the last record. */
static void
put_end(json_t *manifest, const struct ct_kept_sums *sums)
{
  json_t *clock = json_object_get(manifest, "clock");
  uint64_t tsc0 = ct_json_get(clock, "tsc0"), ns0 = ct_json_get(clock, "ns0");
  uint64_t end = find_end(manifest, sums->last_tsc);
  if (json_is_object(clock) && sums->put_tsc > tsc0 && sums->put_ns > ns0) {
    uint64_t ns = sums->put_ns - ns0;
    ct_json_put(clock, "tsc1", sums->put_tsc);
    ct_json_put(clock, "ns1", sums->put_ns);
    ct_json_put(manifest, "end_ns", sums->put_ns);
    ct_json_put(manifest, "end_wall_ns", ct_json_get(manifest, "start_wall_ns") + ns);
    ct_json_put(manifest, "end_boot_ns", ct_json_get(manifest, "start_boot_ns") + ns);
  }
  ct_json_put(manifest, "end_tsc", end);
  clip_windows(manifest, end);
}

static int
write_records(struct ct_store_image *image, struct ct_kept *kept, struct ct_diag *diag)
{
  struct ct_store_record record;
  struct ct_store_buffer buffer = {0};
  int code = CT_OK;
  while (code == CT_OK && ct_store_next(image, &record, &buffer)) {
    code = ct_kept_add(kept, &record, buffer.data, diag);
  }
  free(buffer.data);
  return code;
}

static int
write_trace(struct ct_store_image *image, int dir_fd, json_t *manifest, struct ct_recover_report *report,
            struct ct_diag *diag)
{
  const struct ct_store_header *header = ct_store_image_header(image);
  struct ct_kept *kept;
  struct ct_kept_sums sums;
  int code = ct_kept_create(dir_fd, header->path, &kept, diag);
  if (code != CT_OK) {
    return code;
  }
  code = write_records(image, kept, diag);
  ct_kept_get_sums(kept, &sums);
  struct ct_kept_limits limits = {.bytes = header->capacity + CT_STORE_HEADER_BYTES,
                                  .ns = header->limit_ns <= INT64_MAX ? header->limit_ns : 0,
                                  .begin_tsc = header->begin_tsc < sums.last_tsc ? header->begin_tsc : 0};
  if (code == CT_OK) {
    put_end(manifest, &sums);
    code = ct_kept_amend(kept, manifest, &limits);
  }
  code = code == CT_OK ? ct_kept_sync(kept, diag) : code;
  code = code == CT_OK ? save_manifest(dir_fd, header->path, manifest, diag) : code;
  ct_kept_destroy(kept);
  snprintf(report->directory, sizeof(report->directory), "%s", header->path);
  report->threads = sums.threads;
  report->events = sums.events;
  report->not_kept = ct_json_get(json_object_get(manifest, "kept"), "not_kept");
  report->missing = sums.missing;
  report->damaged = sums.damaged + ct_store_image_gaps(image);
  return code;
}

static int
recover_image(struct ct_store_image *image, const char *path, struct ct_recover_report *report, struct ct_diag *diag)
{
  const struct ct_store_header *header = ct_store_image_header(image);
  struct stat status;
  struct ct_diag why = {""};
  int dir_fd = open_ours(header->path, &status, &why);
  if (dir_fd < 0 || is_another(header, &status, dir_fd)) {
    if (dir_fd >= 0) {
      close(dir_fd);
    }
    return ct_fail(
        diag, CT_ENOENT,
        "the trace directory that the events in %.200s belong to has gone (%.200s); rm gives the memory back", path,
        header->path);
  }
  json_t *manifest = load_manifest(dir_fd, header->path, diag);
  int code = manifest != NULL ? CT_OK : CT_EFORMAT;
  if (code == CT_OK && !is_recording(manifest) &&
      strcmp(json_string_value(json_object_get(manifest, "state")) != NULL
                 ? json_string_value(json_object_get(manifest, "state"))
                 : "",
             "failed") != 0) {
    code = ct_fail(diag, CT_EFORMAT, "%s is complete already", header->path);
  }
  code = code == CT_OK ? write_trace(image, dir_fd, manifest, report, diag) : code;
  json_decref(manifest);
  close(dir_fd);
  return code;
}

int
ct_recover_memory(const char *path, struct ct_recover_report *report, struct ct_diag *diag)
{
  struct ct_recover_report own = {.struct_size = sizeof(own)};
  struct ct_store_image *image;
  const char *slash = strrchr(path, '/');
  char *folder = slash != NULL ? strndup(path, (size_t)(slash - path)) : strdup(".");
  int dir_fd = folder != NULL ? open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
  const char *name = slash != NULL ? slash + 1 : path;
  free(folder);
  if (dir_fd < 0) {
    return ct_fail(diag, ct_err_from_errno(errno), "cannot open %s: %s", path, strerror(errno));
  }
  int code = ct_store_open(dir_fd, name, &image, diag);
  if (code == CT_OK) {
    code = recover_image(image, path, &own, diag);
    if (code == CT_OK && unlinkat(dir_fd, name, 0) != 0) {
      code = ct_fail(diag, ct_err_from_errno(errno), "cannot remove %s: %s", path, strerror(errno));
    }
    ct_store_close(image);
  }
  close(dir_fd);
  return code == CT_OK ? ct_sized_give(report, &own, sizeof(own), diag) : code;
}

/* ---- of a trace ---- */

/* Takes away what follows the last whole block, unless there is another whole one in it. Returns how much that was. */
static uint64_t
cut_tail(int dir_fd, const char *name, uint64_t whole, uint64_t bytes)
{
  static const uint32_t magic = CT_BLOCK_MAGIC;
  size_t tail = bytes - whole <= TAIL_MAX ? (size_t)(bytes - whole) : 0;
  uint8_t *data = tail != 0 ? malloc(tail) : NULL;
  int fd = data != NULL ? openat(dir_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
  struct stat file;
  bool good = fd >= 0 && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_nlink == 1 &&
              ct_read_at(fd, data, tail, whole) == tail;
  for (size_t i = 1; good && i + sizeof(struct ct_block_header) <= tail; i++) {
    struct ct_block_header header;
    if (memcmp(data + i, &magic, sizeof(magic)) == 0) {
      memcpy(&header, data + i, sizeof(header));
      good = !ct_block_header_ok(&header);
    }
  }
  good = good && ftruncate(fd, (off_t)whole) == 0;
  if (fd >= 0) {
    close(fd);
  }
  free(data);
  return good ? bytes - whole : 0;
}

static json_t *
listed_thread(json_t *threads, uint32_t index)
{
  size_t i;
  json_t *item;
  json_array_foreach(threads, i, item)
  {
    if (ct_json_get(item, "index") == index) {
      return item;
    }
  }
  item = json_pack("{s:i, s:s, s:i}", "index", (int)index, "name", "", "dropped", 0);
  json_array_append_new(threads, item);
  return item;
}

struct recovery {
  struct ct_trace *trace;
  int dir_fd;
  json_t *manifest, *threads, *files;
  bool is_in_pieces;
  ct_recover_loss_visit *loss;
  void *context;
  struct ct_recover_report *report;
};

/* Lists the files, or pieces; what follows the last whole block, if that is in the last of them, is cut off. Returns
 * how much that was. */
static uint64_t
recover_file(struct recovery *r, uint32_t thread, const char *base, uint64_t whole)
{
  char name[CT_BLOCK_FILE_NAME_BYTES];
  struct ct_block_file *file = ct_block_file_open(r->dir_fd, thread, base);
  uint64_t cut = 0, bytes;
  for (uint32_t n = 0; file != NULL && n < ct_block_file_pieces(file); n++) {
    uint32_t number = ct_block_file_piece(file, n, &bytes);
    ct_block_file_name(name, thread, base, number);
    uint64_t end = n + 1 == ct_block_file_pieces(file) ? ct_block_file_in_last(file, whole) : UINT64_MAX;
    if (end < bytes) {
      cut = cut_tail(r->dir_fd, name, end, bytes);
      bytes -= cut;
    }
    ct_json_put(r->files, name, bytes);
  }
  ct_block_file_close(file);
  return cut;
}

static void
recover_thread(struct recovery *r, const struct ct_trace_thread *thread)
{
  struct ct_block_sums sums;
  struct ct_recover_loss loss = {.struct_size = sizeof(loss), .index = thread->index, .tid = thread->tid};
  json_t *item = listed_thread(r->threads, thread->index);
  ct_trace_sum_blocks(r->trace, thread->index, &sums);
  uint64_t known = ct_json_get(item, "events"), all = sums.not_kept + sums.events + sums.missing_events;
  loss.cut_bytes = recover_file(r, thread->index, CT_TRACE_INDEX, sums.whole_bytes);
  recover_file(r, thread->index, CT_TRACE_DETAIL, UINT64_MAX);
  loss.events = sums.missing_events + (known > all ? known - all : 0);
  if (r->is_in_pieces) {
    uint64_t gone = sums.events == 0 ? loss.events : 0; /* with its last piece, as far as is known */
    loss.events -= gone;
    ct_json_put(item, "not_kept", sums.not_kept + gone);
    r->report->not_kept += sums.not_kept + gone;
  }
  ct_json_put(item, "events", sums.events + loss.events);
  ct_json_put(item, "lost", loss.events);
  if (sums.lost > ct_json_get(item, "dropped")) {
    ct_json_put(item, "dropped", sums.lost);
  }
  ct_json_put(item, "tid", thread->tid);
  r->report->threads++;
  r->report->events += sums.events;
  r->report->missing += loss.events;
  r->report->cut_bytes += loss.cut_bytes;
  if (r->loss != NULL && (loss.events != 0 || loss.cut_bytes != 0)) {
    r->loss(r->context, &loss);
  }
}

/* Of a recording of bounded size: what is not there any more. */
static void
recover_kept(struct recovery *r)
{
  json_t *kept = json_object_get(r->manifest, "kept");
  struct ct_trace_kept here = {.struct_size = sizeof(here)};
  if (ct_trace_get_kept(r->trace, &here) == 0) {
    r->report->not_kept += ct_json_get(kept, "threads_gone_events");
    ct_json_put(kept, "not_kept", r->report->not_kept);
    ct_json_put(kept, "begin_tsc", here.begin_tsc);
    ct_json_put(kept, "since_ns", here.begin_tsc != 0 ? ct_trace_ns(r->trace, here.begin_tsc) : 0);
  }
}

static int
recover_files(struct recovery *r, const char *directory, struct ct_diag *diag)
{
  static const char *const names[] = {CT_TRACE_FUNCTIONS, CT_TRACE_SOURCES, CT_TRACE_PROTOTYPES};
  r->is_in_pieces = ct_json_get(r->manifest, "version") == CT_TRACE_VERSION_PIECES;
  r->threads = json_object_get(r->manifest, "threads");
  if (!json_is_array(r->threads)) {
    r->threads = json_array();
    json_object_set_new(r->manifest, "threads", r->threads);
  }
  r->files = json_object();
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    uint64_t bytes = ct_trace_file_bytes(r->trace, names[i]);
    if (bytes != 0) {
      ct_json_put(r->files, names[i], bytes);
    }
  }
  recover_file(r, CT_BLOCK_FILE_NO_THREAD, CT_TRACE_CAPTURES, UINT64_MAX);
  for (uint32_t i = 0; i < ct_trace_thread_count(r->trace); i++) {
    recover_thread(r, ct_trace_thread(r->trace, i));
  }
  if (r->is_in_pieces) {
    recover_kept(r);
  }
  uint64_t end = find_end(r->manifest, ct_trace_end_tsc(r->trace)), end_ns = ct_trace_ns(r->trace, end);
  json_object_set_new(r->manifest, "files", r->files);
  ct_json_put(r->manifest, "function_count", ct_trace_function_count(r->trace));
  if (end != 0 && end_ns > ct_trace_start_ns(r->trace)) {
    ct_json_put(r->manifest, "end_tsc", end);
    ct_json_put(r->manifest, "end_ns", end_ns);
    clip_windows(r->manifest, end);
    r->report->ns = end_ns - ct_trace_start_ns(r->trace);
  }
  return save_manifest(r->dir_fd, directory, r->manifest, diag);
}

/* The events of the trace are in memory that is not known to be its own: says why they cannot be had. */
static int
check_memory(const json_t *kept, const char *directory, struct ct_diag *diag)
{
  const char *path = json_string_value(json_object_get(kept, "memory"));
  const char *slash = path != NULL ? strrchr(path, '/') : NULL;
  struct ct_store_image *image = NULL;
  char *folder = slash != NULL ? strndup(path, (size_t)(slash - path)) : NULL;
  int dir_fd = folder != NULL ? open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
  int code = dir_fd >= 0 ? ct_store_open(dir_fd, slash + 1, &image, diag) : CT_ENOENT;
  if (code == CT_OK || code == CT_ENOENT) {
    code = ct_fail(diag, CT_ENOENT, "the events of %s were in memory, which is gone", directory);
  }
  ct_store_close(image);
  if (dir_fd >= 0) {
    close(dir_fd);
  }
  free(folder);
  return code;
}

int
ct_recover_trace(const char *directory, ct_recover_loss_visit *loss, void *context, struct ct_recover_report *report,
                 struct ct_diag *diag)
{
  struct ct_recover_report own = {.struct_size = sizeof(own)};
  struct stat status;
  struct recovery r = {.loss = loss, .context = context, .report = &own};
  r.dir_fd = open_ours(directory, &status, diag);
  if (r.dir_fd < 0) {
    return CT_EACCES;
  }
  int code = CT_OK;
  r.manifest = load_manifest(r.dir_fd, directory, diag);
  if (r.manifest == NULL) {
    code = CT_EFORMAT;
  } else if (!is_recording(r.manifest)) {
    code = ct_fail(diag, CT_ENOENT, "%s has an end: there is nothing to recover", directory);
  } else if (ct_trace_is_held(r.dir_fd)) {
    code = ct_fail(diag, CT_EEXIST, "%s is being recorded", directory);
  } else if (json_object_get(json_object_get(r.manifest, "kept"), "memory") != NULL) {
    code = check_memory(json_object_get(r.manifest, "kept"), directory, diag);
  }
  if (code == CT_OK) {
    code = ct_trace_open(directory, &r.trace, diag);
  }
  if (code == CT_OK) {
    code = recover_files(&r, directory, diag);
  }
  snprintf(own.directory, sizeof(own.directory), "%s", directory);
  ct_trace_close(r.trace);
  json_decref(r.manifest);
  close(r.dir_fd);
  return code == CT_OK ? ct_sized_give(report, &own, sizeof(own), diag) : code;
}
