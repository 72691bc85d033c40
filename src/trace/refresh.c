/* SPDX-License-Identifier: MIT */
/*
 * What a recording that goes on has added to its trace since it was opened: functions, modules, threads, and the end.
 * Cursors give events up to where the threads' files ended then.
 *
 * The manifest is written anew and renamed into place, so another inode or time says that there is something new. Texts
 * of the old one are still pointed to (names of threads, paths of modules), by views too: those that the new one has at
 * the same place, unchanged, stay, and each new one is kept until the trace is closed.
 */
#include "trace/atf_internal.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDS_MAX (1u << 24) /* the ring has 23 bits for one */

void
ct_trace_refresh_free(struct ct_trace *trace)
{
  for (struct ct_functions_text *text = trace->more_functions, *next; text != NULL; text = next) {
    next = text->next;
    free(text);
  }
  for (size_t i = 0; i < trace->past_count; i++) {
    json_decref(trace->past[i]);
  }
  free(trace->past);
}

/* ---- functions ---- */

static int
add_function(struct ct_trace *trace, const struct ct_trace_function *function)
{
  if (function->id >= IDS_MAX) {
    return 0;
  }
  if (function->id >= trace->function_count) {
    size_t count = (size_t)function->id + 1;
    struct ct_trace_function *grown = realloc(trace->functions, count * sizeof(*grown));
    if (grown == NULL) {
      return CT_ENOMEM;
    }
    memset(grown + trace->function_count, 0, (count - trace->function_count) * sizeof(*grown));
    trace->functions = grown;
    trace->function_count = (uint32_t)count;
  }
  struct ct_trace_function *slot = &trace->functions[function->id];
  if (slot->raw_name == NULL || ct_function_is_unknown(slot)) {
    *slot = *function;
  }
  return 0;
}

/* So far blocks are read from now on. Of pieces the files say it that are held. */
static void
take_ends(struct ct_trace *trace)
{
  for (uint32_t i = 0; i < trace->thread_count; i++) {
    uint64_t bytes = ct_trace_thread_bytes(trace, i);
    trace->threads[i].file_bytes = bytes != 0 ? bytes : trace->threads[i].file_bytes;
  }
}

/* The lines that are whole, of those that are new. */
static int
refresh_functions(struct ct_trace *trace)
{
  uint64_t bytes = ct_trace_file_bytes(trace, CT_TRACE_FUNCTIONS);
  if (bytes <= trace->functions_bytes || bytes - trace->functions_bytes > PTRDIFF_MAX / 2) {
    return 0;
  }
  size_t size = (size_t)(bytes - trace->functions_bytes);
  struct ct_functions_text *more = malloc(sizeof(*more) + size + 1);
  int fd = openat(trace->dir_fd, CT_TRACE_FUNCTIONS, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (more == NULL || fd < 0) {
    free(more);
    if (fd >= 0) {
      close(fd);
    }
    return more == NULL ? CT_ENOMEM : 0;
  }
  size = ct_read_at(fd, more->text, size, trace->functions_bytes);
  close(fd);
  char *line = more->text, *end;
  int code = 0;
  while (code == 0 && (end = memchr(line, '\n', (size_t)(more->text + size - line))) != NULL) {
    struct ct_trace_function function;
    *end = '\0';
    code = ct_function_line(line, &function) ? add_function(trace, &function) : 0;
    line = end + 1;
  }
  trace->functions_bytes += (uint64_t)(line - more->text);
  more->next = trace->more_functions;
  trace->more_functions = more;
  return code;
}

/* ---- the manifest ---- */

static bool
is_newer(const struct ct_trace *trace, const struct stat *now)
{
  return now->st_ino != trace->manifest_seen.st_ino || now->st_size != trace->manifest_seen.st_size ||
         now->st_mtim.tv_sec != trace->manifest_seen.st_mtim.tv_sec ||
         now->st_mtim.tv_nsec != trace->manifest_seen.st_mtim.tv_nsec;
}

void
ct_trace_see_manifest(struct ct_trace *trace)
{
  if (fstatat(trace->dir_fd, CT_TRACE_MANIFEST, &trace->manifest_seen, 0) != 0) {
    memset(&trace->manifest_seen, 0, sizeof(trace->manifest_seen));
  }
}

/* Keeps what is pointed into until the trace is closed. */
static int
keep(struct ct_trace *trace, json_t *json)
{
  if ((trace->past_count & (trace->past_count - 1)) == 0) {
    size_t capacity = trace->past_count == 0 ? 1 : trace->past_count * 2;
    json_t **past = reallocarray(trace->past, capacity, sizeof(json_t *));
    if (past == NULL) {
      return CT_ENOMEM;
    }
    trace->past = past;
  }
  trace->past[trace->past_count++] = json_incref(json);
  return 0;
}

/* The text that is pointed to from now on: the old one, if it is the same. */
static int
take_text(struct ct_trace *trace, const char *old, json_t *text, const char **out)
{
  const char *now = json_string_value(text);
  if (now == NULL || strcmp(now, old) == 0) {
    *out = old;
    return 0;
  }
  *out = now;
  return keep(trace, text);
}

/* The modules before are `old`; their texts live. */
static int
take_modules(struct ct_trace *trace, const struct ct_trace_module *old, uint32_t old_count)
{
  size_t position;
  json_t *item;
  int code = 0;
  json_array_foreach(json_object_get(trace->manifest, "modules"), position, item)
  {
    const json_t *given = json_object_get(item, "index");
    json_int_t index = given == NULL ? (json_int_t)position : json_integer_value(given);
    if (code != 0 || index < 0 || index >= trace->module_count) {
      continue;
    }
    struct ct_trace_module *module = &trace->modules[index];
    bool was = index < old_count;
    code = take_text(trace, was ? old[index].path : "", json_object_get(item, "path"), &module->path);
    code = code == 0
               ? take_text(trace, was ? old[index].build_id : "", json_object_get(item, "build_id"), &module->build_id)
               : code;
  }
  return code;
}

static struct ct_trace_thread *
thread_of(struct ct_trace *trace, uint64_t index)
{
  for (uint32_t i = 0; i < trace->thread_count; i++) {
    if (trace->threads[i].index == index) {
      return &trace->threads[i];
    }
  }
  return NULL;
}

static int
take_threads(struct ct_trace *trace)
{
  size_t position;
  json_t *item;
  int code = 0;
  json_array_foreach(json_object_get(trace->manifest, "threads"), position, item)
  {
    const json_t *given = json_object_get(item, "index");
    json_int_t index = json_is_integer(given) ? json_integer_value(given) : (json_int_t)position;
    struct ct_trace_thread *thread = index >= 0 && code == 0 ? thread_of(trace, (uint64_t)index) : NULL;
    if (thread != NULL) {
      code = take_text(trace, thread->name, json_object_get(item, "name"), &thread->name);
      thread->dropped = (uint64_t)json_integer_value(json_object_get(item, "dropped"));
      thread->exited = json_is_true(json_object_get(item, "exited"));
      json_int_t end = json_integer_value(json_object_get(item, "end_tsc"));
      thread->end_tsc = end > 0 ? (uint64_t)end : thread->end_tsc;
    }
  }
  return code;
}

/*
 * The manifest before the first refresh stays, since the first threads and modules point into it; of later ones the
 * texts that are pointed to.
 */
static int
refresh_manifest(struct ct_trace *trace, struct ct_diag *diag)
{
  struct stat now;
  if (fstatat(trace->dir_fd, CT_TRACE_MANIFEST, &now, 0) != 0 || !is_newer(trace, &now)) {
    return 0;
  }
  json_t *old = trace->manifest;
  struct ct_trace_module *modules = trace->modules;
  uint32_t module_count = trace->module_count;
  uint64_t bytes = trace->bytes;
  trace->modules = NULL;
  trace->module_count = 0;
  int code = ct_manifest_load(trace, diag);
  trace->bytes = bytes;
  if (trace->atf != NULL) { /* a trace does not become one of another format */
    ct_atf_free(trace->atf);
    trace->atf = NULL;
    code = CT_EFORMAT;
  }
  if (code != 0) { /* half of it, say, on a file system that is not ours: the next time */
    if (trace->manifest != old) {
      json_decref(trace->manifest);
    }
    free(trace->modules);
    trace->manifest = old;
    trace->modules = modules;
    trace->module_count = module_count;
    return code == CT_ENOMEM ? code : 0;
  }
  trace->manifest_seen = now;
  code = trace->past_count == 0 ? keep(trace, old) : 0;
  code = code == 0 ? take_modules(trace, modules, module_count) : code;
  free(modules);
  json_decref(old);
  return code;
}

/* The paths of the modules that a newer manifest lists and the one that was read does not. */
static int
add_modules(struct ct_trace *trace, json_t *manifest)
{
  json_t *list = json_object_get(manifest, "modules");
  uint32_t old_count = trace->module_count;
  if (json_array_size(list) <= old_count || json_array_size(list) > UINT32_MAX) {
    return 0;
  }
  if (trace->past_count == 0 && keep(trace, trace->manifest) != 0) { /* as before the first refresh */
    return CT_ENOMEM;
  }
  int code = keep(trace, manifest);
  return code == 0 ? ct_manifest_add_modules(trace, list) : code;
}

/*
 * Functions are read last, and may be of modules that have come since the manifest was read. Where whoever records
 * takes care that somebody looks (session_list_modules), a manifest that lists a module is there before any block with
 * a call in it. The ends of the blocks have been read by now: so what it lists now is enough.
 */
int
ct_trace_find_modules(struct ct_trace *trace)
{
  struct stat now;
  char *text;
  size_t size;
  if (trace->atf != NULL || trace->complete || ct_trace_knows_modules(trace) ||
      fstatat(trace->dir_fd, CT_TRACE_MANIFEST, &now, 0) != 0 || !is_newer(trace, &now)) {
    return 0;
  }
  int code = ct_trace_read_file(trace, CT_TRACE_MANIFEST, &text, &size);
  if (code != 0) {
    return code == CT_ENOMEM ? code : 0;
  }
  json_t *manifest = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
  free(text);
  code = add_modules(trace, manifest);
  json_decref(manifest);
  return code;
}

uint64_t
ct_trace_thread_bytes(const struct ct_trace *trace, uint32_t thread)
{
  char name[CT_BLOCK_FILE_NAME_BYTES];
  if (thread >= trace->thread_count) {
    return 0;
  }
  ct_block_file_name(name, trace->threads[thread].index, CT_TRACE_INDEX, 0);
  return ct_trace_file_bytes(trace, name);
}

/* ---- all ---- */

static int
refresh_names(struct ct_trace *trace)
{
  int code = refresh_functions(trace);
  return code == 0 ? ct_trace_find_modules(trace) : code;
}

static int
refresh_parts(struct ct_trace *trace, struct ct_diag *diag)
{
  int code = refresh_manifest(trace, diag);
  ct_trace_hold_anew(trace);
  if (code != 0) {
    take_ends(trace);
    return code;
  }
  code = ct_trace_add_threads(trace);
  if (code == 0) {
    code = take_threads(trace);
  }
  take_ends(trace);
  return code == 0 ? refresh_names(trace) : code; /* after that */
}

int
ct_trace_refresh(struct ct_trace *trace, struct ct_diag *diag)
{
  if (trace->atf != NULL || trace->has_range || trace->complete) {
    return CT_OK; /* a piece of time has its end */
  }
  uint64_t functions = trace->functions_bytes;
  ct_range_free_places(trace); /* of the threads there were */
  ct_range_free_pasts(trace);
  int code = refresh_parts(trace, diag);
  if (trace->functions_bytes != functions ||
      trace->complete) { /* they know the functions there were: read again when asked */
    ct_trace_sources_free(trace);
    trace->sources = NULL;
    trace->sources_text = NULL;
    trace->sources_read = false;
    ct_trace_prototypes_free(trace);
    trace->prototypes = NULL;
  }
  if (code != 0) {
    return ct_fail(diag, code, "cannot read on in %s: %s", trace->path, ct_err_text(code));
  }
  if (trace->complete) {
    json_decref(trace->crash);
    json_decref(trace->stacks);
    ct_stacks_load(trace);
  }
  return CT_OK;
}
