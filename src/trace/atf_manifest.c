/* SPDX-License-Identifier: MIT */
/*
 * The manifest of an ATF directory as one of ours. What contrail wrote there has the names of our own manifest (see
 * docs/atf.md) with times in nanoseconds of the files' clock, which become ticks of one nanosecond; what another
 * program wrote may lack any of it.
 */
#include "trace/atf_internal.h"

#include "base/json.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- which directory ---- */

static bool
has_manifest(int dir_fd, const char *directory)
{
  char name[300];
  snprintf(name, sizeof(name), "%s%s" CT_TRACE_MANIFEST, directory, directory[0] != '\0' ? "/" : "");
  return faccessat(dir_fd, name, F_OK, 0) == 0;
}

/* When the process of a directory began; later for children, so that the first one of a tree comes before them. */
static uint64_t
begin_of(int dir_fd, const char *directory)
{
  char name[300];
  snprintf(name, sizeof(name), "%s/" CT_TRACE_MANIFEST, directory);
  int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  json_t *manifest = fd >= 0 ? json_loadfd(fd, 0, NULL) : NULL;
  if (fd >= 0) {
    close(fd);
  }
  uint64_t begin = json_is_object(manifest) ? ct_json_get(manifest, "start_ns") : UINT64_MAX / 2;
  begin += json_object_get(manifest, "parent") != NULL ? UINT64_MAX / 4 : 0;
  json_decref(manifest);
  return begin;
}

int
ct_atf_enter(struct ct_trace *trace, struct ct_diag *diag)
{
  char first[256] = "";
  uint64_t least = UINT64_MAX;
  int fd = has_manifest(trace->dir_fd, "") ? -1 : openat(trace->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
  if (stream == NULL) {
    if (fd >= 0) {
      close(fd);
    }
    return CT_OK;
  }
  for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
    size_t prefix = strlen(CT_ATF_PROCESS_DIR);
    if (strncmp(entry->d_name, CT_ATF_PROCESS_DIR, prefix) != 0 || !isdigit((unsigned char)entry->d_name[prefix]) ||
        !has_manifest(trace->dir_fd, entry->d_name)) {
      continue;
    }
    uint64_t begin = begin_of(trace->dir_fd, entry->d_name);
    if (first[0] == '\0' || begin < least || (begin == least && strcmp(entry->d_name, first) < 0)) {
      least = begin;
      snprintf(first, sizeof(first), "%s", entry->d_name);
    }
  }
  closedir(stream);
  if (first[0] == '\0') {
    return CT_OK;
  }
  int inner = openat(trace->dir_fd, first, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (inner < 0) {
    return ct_fail(diag, CT_EIO, "cannot open %s/%s", trace->path, first);
  }
  close(trace->dir_fd);
  trace->dir_fd = inner;
  return CT_OK;
}

bool
ct_atf_is_manifest(const json_t *manifest)
{
  const char *format = json_string_value(json_object_get(manifest, "format"));
  return format != NULL && strcmp(format, CT_ATF_FORMAT_NAME) == 0;
}

/* ---- its content ---- */

/* Gives an object another member with the value of one that it has. */
static void
alias(json_t *object, const char *key, const char *from)
{
  json_t *value = json_object_get(object, from);
  if (value != NULL) {
    json_object_set(object, key, value);
  }
}

/* ns = tick - start_boot_ns + start_ns, where both are known. */
static void
make_clock(json_t *manifest)
{
  uint64_t boot = ct_json_get(manifest, "start_boot_ns"), start = ct_json_get(manifest, "start_ns");
  json_t *clock = json_object();
  if (boot != 0 && start != 0 && boot < INT64_MAX / 2 && start < INT64_MAX / 2) {
    ct_json_put(clock, "tsc0", boot);
    ct_json_put(clock, "ns0", start);
    ct_json_put(clock, "tsc1", boot + 1);
    ct_json_put(clock, "ns1", start + 1);
  }
  json_object_set_new(manifest, "clock", clock);
}

static void
make_threads(json_t *manifest)
{
  json_t *threads = json_object_get(manifest, "threads");
  for (size_t i = 0; i < json_array_size(threads); i++) {
    json_t *thread = json_array_get(threads, i);
    const json_t *calls = json_object_get(thread, "calls"), *returns = json_object_get(thread, "returns");
    alias(thread, "end_tsc", "end_time");
    if (json_is_integer(calls) && json_is_integer(returns)) { /* what we call events are these */
      ct_json_put(thread, "events", ct_json_get(thread, "calls") + ct_json_get(thread, "returns"));
    }
  }
}

static void
make_windows(json_t *manifest)
{
  json_t *windows = json_object_get(manifest, "windows");
  for (size_t i = 0; i < json_array_size(windows); i++) {
    json_t *window = json_array_get(windows, i), *reasons = json_object_get(window, "reasons");
    alias(window, "begin_tsc", "start");
    alias(window, "end_tsc", "end");
    for (size_t n = 0; n < json_array_size(reasons); n++) {
      alias(json_array_get(reasons, n), "tsc", "time");
      json_object_del(json_array_get(reasons, n), "function");
    }
  }
}

static void
make_modules(json_t *manifest)
{
  json_t *modules = json_object_get(manifest, "modules");
  for (size_t i = 0; i < json_array_size(modules); i++) {
    json_t *module = json_array_get(modules, i), *functions = json_object_get(module, "functions");
    json_object_set_new(module, "index", json_integer((json_int_t)i));
    uint64_t count = json_is_array(functions) ? json_array_size(functions) : ct_json_get(functions, "count");
    ct_json_put(module, "functions", count);
    if (json_object_get(module, "hooked") == NULL) {
      ct_json_put(module, "hooked", count);
    }
  }
}

int
ct_atf_manifest(struct ct_trace *trace, struct ct_diag *diag)
{
  json_int_t version = json_integer_value(json_object_get(trace->manifest, "version"));
  if (version != CT_ATF_VERSION) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s is ATF of version %lld; this program reads version %d", trace->path,
                   (long long)version, CT_ATF_VERSION);
  }
  struct ct_atf *atf = calloc(1, sizeof(*atf));
  json_t *made = json_deep_copy(trace->manifest);
  if (atf == NULL || made == NULL) {
    free(atf);
    json_decref(made);
    return ct_fail(diag, CT_ENOMEM, "out of memory to open %s", trace->path);
  }
  atf->manifest = trace->manifest;
  trace->manifest = made;
  trace->atf = atf;
  json_object_set_new(made, "format", json_string(CT_TRACE_FORMAT_NAME));
  json_object_set_new(made, "version", json_integer(CT_TRACE_VERSION));
  json_object_del(made, "files");
  json_object_del(made, "kept");
  json_object_del(made, "function_count");
  if (json_object_get(made, "state") == NULL) { /* of a program that has no such thing */
    json_object_set_new(made, "state", json_string("complete"));
  }
  alias(made, "end_tsc", "end_time");
  make_clock(made);
  make_threads(made);
  make_windows(made);
  make_modules(made);
  return CT_OK;
}

/* ---- threads ---- */

/* The time of the last whole event; 0: there is none. */
static uint64_t
last_time(const struct ct_atf_index *index)
{
  struct ct_atf_event event;
  if (index->has_footer) {
    return index->footer.last_ns;
  }
  uint64_t offset = sizeof(index->header) + (index->events - 1) * sizeof(event);
  return index->events > 0 && pread(index->fd, &event, sizeof(event), (off_t)offset) == sizeof(event) ? event.ns : 0;
}

void
ct_atf_inspect(struct ct_trace *trace, struct ct_trace_thread *thread, bool count)
{
  struct ct_atf_index index;
  char name[64];
  ct_atf_index_open(trace, thread->index, &index);
  snprintf(name, sizeof(name), CT_TRACE_THREAD_DIR "%u/" CT_ATF_DETAIL, thread->index);
  thread->file_bytes = index.file_bytes;
  trace->bytes += index.file_bytes + ct_trace_file_bytes(trace, name);
  thread->pid = (uint32_t)ct_json_get(trace->manifest, "pid");
  thread->tid = thread->tid == 0 ? index.header.head.tid : thread->tid;
  uint64_t last = last_time(&index);
  trace->last_tsc = last > trace->last_tsc ? last : trace->last_tsc;
  if (count || !index.has_footer) { /* of a file that is cut the manifest may know more than there is */
    uint64_t known = thread->events;
    thread->events = thread->events == 0 || count || index.events < known ? index.events : known;
  }
  ct_atf_index_close(&index);
}
