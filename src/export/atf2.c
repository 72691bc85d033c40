/* SPDX-License-Identifier: MIT */
/*
 * The export to ATF V2 (docs/atf.md): SESSION/pid_P for each process, with the events of each thread one after the
 * other. Memory does not grow with the trace: a buffer for each of the two files at hand, and what is kept of each
 * function and thread.
 *
 * ATF has calls, returns and exceptions, and nothing else. What else there is becomes the nearest of these, or is left
 * out, and is counted (enum ct_atf_loss): in the manifest, and in the summary's line.
 */
#include "export/atf.h"

#include "base/test_point.h"
#include "trace/format.h"
#include "trace/tree.h"
#include "trace/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The whole of an export. */
struct session {
  const struct ct_export_job *job;
  int fd;
  uint64_t losses[ATF_LOSSES];
};

/* A thread as it is written. */
struct stream {
  struct ct_atf_process *process;
  struct ct_atf_thread *thread;
  struct ct_details *details; /* NULL: it has none */
  struct ct_atf_file index, detail;
  uint32_t tid;
  uint32_t thread_index;
  uint64_t count, count_max, first_detail, last_detail;
  uint64_t first_detail_ns, last_detail_ns;
  bool is_full; /* more events than the format holds */
};

static uint64_t
function_of(const struct stream *stream, uint32_t fn)
{
  const struct ct_atf_process *process = stream->process;
  return fn < ct_trace_function_count(process->trace) ? process->ids.of[fn] : CT_ATF_NO_FUNCTION;
}

static void
head_of(const struct stream *stream, uint32_t magic, struct ct_atf_head *head)
{
  *head = (struct ct_atf_head){.magic = magic,
                               .endian = CT_ATF_LITTLE_ENDIAN,
                               .version = CT_ATF_FILE_VERSION,
                               .arch = CT_ATF_ARCH_X86_64,
                               .os = CT_ATF_OS_LINUX,
                               .tid = stream->tid};
}

/* ---- details ---- */

/* The record of a call or return that has detail. Its number, or CT_ATF_NO_DETAIL. */
static uint32_t
put_detail(struct stream *stream, const struct ct_event *event, const struct ct_atf_event *out)
{
  const struct ct_detail *detail = stream->details != NULL ? ct_details_of(stream->details, event) : NULL;
  if (detail == NULL || stream->thread->details == CT_ATF_NO_DETAIL) {
    return CT_ATF_NO_DETAIL;
  }
  struct ct_atf_detail record = {.type = detail->is_return ? CT_ATF_DETAIL_RETURN : CT_ATF_DETAIL_CALL,
                                 .sequence = (uint32_t)stream->count,
                                 .tid = stream->tid,
                                 .ns = out->ns,
                                 .function = out->function,
                                 .stack_pointer = detail->sp};
  if (detail->is_return) {
    record.registers[0] = detail->rax;
    record.registers[1] = detail->rdx;
    record.registers[2] = detail->xmm0;
    record.registers[3] = detail->xmm1;
  } else {
    memcpy(record.registers, detail->registers, sizeof(record.registers));
    record.return_address = detail->return_address;
    record.frame_pointer = detail->bp;
    record.stack_bytes = (uint16_t)detail->stack_bytes;
  }
  record.record_bytes = (uint32_t)sizeof(record) + record.stack_bytes;
  ct_atf_file_put(&stream->detail, &record, sizeof(record));
  if (record.stack_bytes != 0) {
    ct_atf_file_put(&stream->detail, detail->stack, record.stack_bytes);
  }
  if (stream->thread->details == 0) {
    stream->first_detail = stream->count;
    stream->first_detail_ns = out->ns;
  }
  stream->last_detail = stream->count;
  stream->last_detail_ns = out->ns;
  return (uint32_t)stream->thread->details++;
}

/* ---- events ---- */

/* event: of which a detail may be; NULL: of none. */
static void
put(struct stream *stream, enum ct_atf_kind kind, uint64_t tsc, uint32_t fn, uint32_t depth,
    const struct ct_event *event)
{
  struct ct_atf_thread *thread = stream->thread;
  struct ct_atf_event out = {.ns = ct_atf_time(stream->process, tsc),
                             .function = function_of(stream, fn),
                             .tid = stream->tid,
                             .kind = kind,
                             .depth = depth,
                             .detail = CT_ATF_NO_DETAIL};
  if (stream->count == stream->count_max) {
    stream->is_full = true;
    return;
  }
  if (event != NULL) {
    out.detail = put_detail(stream, event, &out);
  }
  ct_atf_file_put(&stream->index, &out, sizeof(out));
  thread->calls += kind == CT_ATF_CALL;
  thread->returns += kind == CT_ATF_RETURN;
  thread->exceptions += kind == CT_ATF_EXCEPTION;
  thread->first_ns = stream->count == 0 ? out.ns : thread->first_ns;
  thread->last_ns = out.ns;
  stream->count++;
}

/* A frame that ended without a return of its own. */
static void
put_left(struct stream *stream, const struct ct_event *event)
{
  bool is_return =
      event->reason == CT_UNWOUND_TAIL || event->reason == CT_UNWOUND_UNSEEN || event->reason == CT_UNWOUND_LOST;
  if (is_return) {
    stream->thread->losses[ATF_UNSEEN]++;
  } else if (event->reason != CT_UNWOUND_JUMP) {
    stream->thread->losses[ATF_LEFT]++;
  }
  put(stream, is_return ? CT_ATF_RETURN : CT_ATF_EXCEPTION, event->tsc, event->fn, event->depth, NULL);
}

static void
put_other(struct stream *stream, const struct ct_event *event)
{
  uint64_t *losses = stream->thread->losses;
  switch (event->kind) {
  case CT_EV_TAIL:
    if (event->closed_fn != UINT32_MAX) {
      put(stream, CT_ATF_RETURN, event->tsc, event->closed_fn, event->depth, NULL);
      losses[ATF_TAIL]++;
    }
    put(stream, CT_ATF_CALL, event->tsc, event->fn, event->depth, event);
    break;
  case CT_EV_POINT:
    put(stream, CT_ATF_CALL, event->tsc, event->fn, event->depth, NULL);
    put(stream, CT_ATF_RETURN, event->tsc, event->fn, event->depth, NULL);
    losses[ATF_POINT]++;
    losses[ATF_SAMPLED] += event->value > 1 ? event->value - 1 : 0;
    break;
  case CT_EV_UNWOUND:
    put_left(stream, event);
    break;
  case CT_EV_ORPHAN_RETURN:
    put(stream, CT_ATF_RETURN, event->tsc, event->fn, event->depth, NULL);
    losses[ATF_ORPHAN]++;
    break;
  case CT_EV_VALUE:
    losses[event->reason == CT_VALUE_BEFORE ? ATF_BEFORE : ATF_VALUE]++;
    break;
  case CT_EV_LOST:
    losses[ATF_LOST] += event->value;
    break;
  case CT_EV_COUNTED:
    losses[ATF_COUNTED] += event->value;
    break;
  case CT_EV_SWITCH:
    losses[ATF_SWITCH]++;
    break;
  case CT_EV_EXEC:
    losses[ATF_EXEC]++;
    break;
  case CT_EV_AWAY:
    losses[ATF_AWAY]++;
    break;
  default: /* the interval of sampling: points say it themselves */
    break;
  }
}

static void
put_events(struct stream *stream, const struct ct_event *events, size_t count)
{
  for (const struct ct_event *event = events; event < events + count; event++) {
    if (event->kind == CT_EV_ENTER || event->kind == CT_EV_RETURN) {
      put(stream, event->kind == CT_EV_ENTER ? CT_ATF_CALL : CT_ATF_RETURN, event->tsc, event->fn, event->depth, event);
    } else {
      put_other(stream, event);
    }
  }
}

/* ---- a thread ---- */

static int
close_index(struct stream *stream)
{
  const struct ct_atf_thread *thread = stream->thread;
  ct_atf_file_flush(&stream->index);
  struct ct_atf_index_header header = {.clock = CT_ATF_CLOCK_BOOTTIME,
                                       .event_bytes = sizeof(struct ct_atf_event),
                                       .event_count = (uint32_t)stream->count,
                                       .events_offset = sizeof(header),
                                       .footer_offset = sizeof(header) + stream->index.bytes,
                                       .first_ns = thread->first_ns,
                                       .last_ns = thread->last_ns};
  struct ct_atf_index_footer footer = {.magic = CT_ATF_INDEX_FOOTER_MAGIC,
                                       .crc = stream->index.crc,
                                       .event_count = stream->count,
                                       .first_ns = thread->first_ns,
                                       .last_ns = thread->last_ns,
                                       .event_bytes = stream->index.bytes};
  head_of(stream, CT_ATF_INDEX_MAGIC, &header.head);
  header.head.flags = thread->details != 0 ? CT_ATF_HAS_DETAIL : 0;
  return ct_atf_file_close(&stream->index, &header, &footer);
}

static int
close_detail(struct stream *stream)
{
  if (stream->detail.fd < 0) {
    return 0;
  }
  ct_atf_file_flush(&stream->detail);
  struct ct_atf_detail_header header = {.events_offset = sizeof(header),
                                        .event_count = stream->thread->details,
                                        .event_bytes = stream->detail.bytes,
                                        .first_sequence = stream->first_detail,
                                        .last_sequence = stream->last_detail};
  struct ct_atf_detail_footer footer = {.magic = CT_ATF_DETAIL_FOOTER_MAGIC,
                                        .crc = stream->detail.crc,
                                        .event_count = stream->thread->details,
                                        .event_bytes = stream->detail.bytes,
                                        .first_ns = stream->first_detail_ns,
                                        .last_ns = stream->last_detail_ns};
  head_of(stream, CT_ATF_DETAIL_MAGIC, &header.head);
  return ct_atf_file_close(&stream->detail, &header, &footer);
}

static int
create_files(struct stream *stream, const struct ct_trace_thread *thread, int *dir_fd)
{
  char name[64];
  snprintf(name, sizeof(name), CT_TRACE_THREAD_DIR "%" PRIu32, thread->index);
  if (mkdirat(stream->process->dir_fd, name, 0700) != 0) {
    return errno;
  }
  *dir_fd = openat(stream->process->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*dir_fd < 0 || !ct_atf_file_create(&stream->index, *dir_fd, CT_ATF_INDEX)) {
    return errno;
  }
  return stream->details != NULL && !ct_atf_file_create(&stream->detail, *dir_fd, CT_ATF_DETAIL) ? errno : 0;
}

/* What the format's counts hold. */
static uint64_t
events_max(void)
{
  return ct_test_number("CONTRAIL_TEST_ATF_EVENTS", CT_ATF_EVENTS_MAX);
}

static int
no_room(const struct ct_trace_thread *thread, struct ct_diag *diag)
{
  return ct_fail(diag, CT_ERANGE,
                 "thread %" PRIu32 " has more events than ATF V2 counts, %" PRIu64
                 " in a thread: export a piece (--from, --to, "
                 "--window) or other threads",
                 thread->tid, events_max());
}

/* Events by batches until the end, or the first failure. 0 or errno. */
static int
write_events(const struct ct_export_job *job, struct stream *stream, struct ct_cursor *cursor, uint64_t done)
{
  const struct ct_view_progress *progress = &job->options->progress;
  const struct ct_event *events;
  for (size_t count; (count = ct_cursor_next(cursor, &events)) != 0 && !stream->is_full;) {
    put_events(stream, events, count);
    if (stream->index.error != 0 || stream->detail.error != 0) {
      return stream->index.error != 0 ? stream->index.error : stream->detail.error;
    }
    if (progress->update != NULL &&
        progress->update(progress->arg, done + ct_cursor_offset(cursor), ct_trace_bytes(stream->process->trace)) != 0) {
      return ECANCELED;
    }
  }
  return 0;
}

static void
note_state(const struct ct_export_job *job, const struct stream *stream, enum ct_cursor_state state)
{
  struct ct_view_notes *notes = job->notes;
  if (state == CT_CURSOR_DAMAGED) {
    notes->first_damaged_tid = notes->damaged_threads == 0 ? stream->tid : notes->first_damaged_tid;
    notes->damaged_threads++;
  }
  notes->damaged_details += stream->details != NULL && ct_details_state(stream->details) == CT_CURSOR_DAMAGED;
}

static int
write_thread(const struct ct_export_job *job, struct ct_atf_process *process, uint32_t position, uint64_t done,
             struct ct_diag *diag)
{
  const struct ct_trace_thread *thread = ct_trace_thread(process->trace, position);
  struct ct_cursor *cursor = NULL;
  int dir_fd = -1, failed = 0;
  if (!ct_trace_has_range(process->trace) && thread->events > events_max()) {
    return no_room(thread, diag);
  }
  struct stream *stream = calloc(1, sizeof(*stream));
  if (stream == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory to write thread %" PRIu32, thread->tid);
  }
  *stream = (struct stream){
      .process = process, .thread = &process->threads[position], .tid = thread->tid, .count_max = events_max()};
  stream->index.fd = stream->detail.fd = -1;
  stream->thread->is_written = true;
  int err = ct_cursor_open(process->trace, position, 0, &cursor, diag);
  int detailed = err == CT_OK ? ct_details_open(process->trace, position, &stream->details, NULL) : CT_ENOENT;
  job->notes->damaged_details += detailed != CT_OK && detailed != CT_ENOENT;
  if (err == CT_OK) {
    failed = create_files(stream, thread, &dir_fd);
    failed = failed == 0 ? write_events(job, stream, cursor, done) : failed;
    note_state(job, stream, ct_cursor_state(cursor));
    int index_failed = close_index(stream), detail_failed = close_detail(stream);
    failed = failed != 0 ? failed : index_failed != 0 ? index_failed : detail_failed;
    if (failed == 0 && stream->details != NULL && stream->thread->details == 0) {
      unlinkat(dir_fd, CT_ATF_DETAIL, 0);
    }
    err = stream->is_full ? no_room(thread, diag) : CT_OK;
  }
  if (err == CT_OK && failed != 0) {
    err = ct_fail(diag, ct_err_from_errno(failed), "cannot write %s: %s", job->options->path, strerror(failed));
  }
  for (int i = 0; i < ATF_LOSSES; i++) {
    process->losses[i] += stream->thread->losses[i];
  }
  process->bytes += stream->index.bytes + stream->detail.bytes;
  job->summary->events += stream->count;
  job->summary->threads++;
  ct_details_close(stream->details);
  ct_cursor_close(cursor);
  if (dir_fd >= 0) {
    close(dir_fd);
  }
  free(stream);
  return err;
}

/* ---- a process ---- */

static bool
is_wanted(const struct ct_export_job *job, uint32_t tid)
{
  bool wanted = job->options->tid_count == 0;
  for (size_t i = 0; i < job->options->tid_count; i++) {
    wanted |= job->options->tids[i] == tid;
  }
  return wanted;
}

static int
write_threads(const struct ct_export_job *job, struct ct_atf_process *process, struct ct_diag *diag)
{
  int err = CT_OK;
  uint64_t done = 0;
  for (uint32_t i = 0; i < ct_trace_thread_count(process->trace) && err == CT_OK; i++) {
    const struct ct_trace_thread *thread = ct_trace_thread(process->trace, i);
    if (is_wanted(job, thread->tid)) {
      err = write_thread(job, process, i, done, diag);
    }
    done += thread->file_bytes;
  }
  return err;
}

/* Makes pid_P; for a process whose number another one of the tree has had, pid_P-2. */
static int
make_directory(int session_fd, uint64_t pid, char *name, size_t size)
{
  for (unsigned n = 1; n < 100; n++) {
    snprintf(name, size, n == 1 ? CT_ATF_PROCESS_DIR "%" PRIu64 : CT_ATF_PROCESS_DIR "%" PRIu64 "-%u", pid, n);
    if (mkdirat(session_fd, name, 0700) == 0) {
      return openat(session_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (errno != EEXIST) {
      break;
    }
  }
  return -1;
}

static int
write_process(struct session *session, struct ct_trace *trace, json_t *children, char *name, size_t size,
              struct ct_diag *diag)
{
  const struct ct_export_job *job = session->job;
  const json_t *manifest = ct_trace_manifest(trace);
  uint64_t boot = (uint64_t)json_integer_value(json_object_get(manifest, "start_boot_ns"));
  struct ct_atf_process process = {.trace = trace, .has_boot = boot != 0, .dir_fd = -1, .children = children};
  process.boot_ns = process.has_boot ? (int64_t)(boot - ct_trace_start_ns(trace)) : 0;
  process.threads = calloc((size_t)ct_trace_thread_count(trace) + 1, sizeof(*process.threads));
  int err = process.threads != NULL ? ct_atf_ids_create(trace, &process.ids) : CT_ENOMEM;
  if (err != CT_OK) {
    free(process.threads);
    return ct_fail(diag, err, "out of memory to write the functions of %s", ct_trace_path(trace));
  }
  uint64_t pid = (uint64_t)json_integer_value(json_object_get(manifest, "pid"));
  process.dir_fd = make_directory(session->fd, pid, name, size);
  if (process.dir_fd < 0) {
    int saved = errno;
    err = ct_fail(diag, ct_err_from_errno(saved), "cannot write %s: %s", job->options->path, strerror(saved));
  }
  err = err == CT_OK ? write_threads(job, &process, diag) : err;
  if (err == CT_OK) {
    err = ct_atf_write_manifest(&process);
    if (err != CT_OK) {
      int saved = errno;
      ct_fail(diag, err, "cannot write %s: %s", job->options->path, err == CT_EIO ? strerror(saved) : ct_err_text(err));
    }
  }
  job->summary->processes++;
  job->summary->bytes += process.bytes;
  for (int i = 0; i < ATF_LOSSES; i++) {
    session->losses[i] += process.losses[i];
  }
  if (process.dir_fd >= 0) {
    close(process.dir_fd);
  }
  ct_atf_ids_destroy(&process.ids);
  free(process.threads);
  return err;
}

/* ---- a process tree ---- */

/* Writes the child and notes in its entry where. One that has no trace stays as it is. */
static int
write_child(struct session *session, json_t *child, struct ct_diag *diag)
{
  char name[64];
  struct ct_trace *trace;
  int err = ct_export_open_child(session->job->trace, child, &trace);
  json_object_set_new(child, "directory", json_null());
  if (err != CT_OK) {
    return err == CT_ENOENT ? CT_OK : ct_fail(diag, err, "out of memory to write a child");
  }
  err = write_process(session, trace, NULL, name, sizeof(name), diag);
  ct_trace_close(trace);
  if (err == CT_OK) {
    json_object_set_new(child, "directory", json_string(name));
  }
  return err;
}

static void
say_losses(const struct session *session, struct ct_export_summary *summary)
{
  size_t length = 0;
  for (int i = 0; i < ATF_LOSSES; i++) {
    if (session->losses[i] != 0 && length < sizeof(summary->mapped)) {
      char name[64];
      snprintf(name, sizeof(name), "%s", ct_atf_loss_names[i]);
      for (char *p = name; *p != '\0'; p++) {
        *p = *p == '_' ? ' ' : *p;
      }
      length += (size_t)snprintf(summary->mapped + length, sizeof(summary->mapped) - length, "%s%" PRIu64 " %s",
                                 length != 0 ? ", " : "", session->losses[i], name);
    }
  }
}

static int
write_tree(struct session *session, struct ct_diag *diag)
{
  const struct ct_export_job *job = session->job;
  json_t *children = json_deep_copy(json_object_get(ct_trace_manifest(job->trace), "children"));
  char name[64];
  int err = CT_OK;
  for (size_t i = 0; i < json_array_size(children) && err == CT_OK; i++) {
    err = write_child(session, json_array_get(children, i), diag);
  }
  err = err == CT_OK ? write_process(session, job->trace, children, name, sizeof(name), diag) : err;
  json_decref(children);
  if (err == CT_OK && job->options->tid_count != 0 && job->summary->threads == 0) {
    err = ct_fail(diag, CT_ERANGE, "%s has no thread %" PRIu32, ct_trace_path(job->trace), job->options->tids[0]);
  }
  return err;
}

static int
write_atf2(const struct ct_export_job *job, struct ct_diag *diag)
{
  struct session session = {.job = job};
  bool made = false;
  int err = ct_trace_directory_create(job->options->path, &session.fd, &made, diag);
  if (err != CT_OK) {
    return err;
  }
  err = write_tree(&session, diag);
  if (err == CT_OK) {
    say_losses(&session, job->summary);
  } else {
    ct_trace_empty(session.fd);
    if (made) {
      rmdir(job->options->path);
    }
  }
  close(session.fd);
  return err;
}

const struct ct_export_writer ct_export_atf2 = {
    .format = {.name = "atf2",
               .summary = "ATF V2, a directory of index.atf and detail.atf files",
               .is_directory = true},
    .write = write_atf2,
};
