/* SPDX-License-Identifier: MIT */
/*
 * A dump: the last stretch that a session keeps, written as a trace while the recording goes on. The session's thread
 * takes a snapshot, which is short; the files are written by the thread that asked, since a disk may take its time.
 * Until it has done so the trace is not closed.
 */
#include "record/session_internal.h"

#include "base/sized.h"
#include "base/worker.h"
#include "trace/kept.h"
#include "trace/tree.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMES = 10000 };

struct snapshot {
  json_t *manifest;
  uint64_t end_sequence; /* of the store's records: these and no later ones */
  uint64_t end_ns;
  struct ct_prototype_source *sources; /* source_count; of the types of values */
  size_t source_count;
};

static void
free_snapshot(struct snapshot *snapshot)
{
  json_decref(snapshot->manifest);
  free(snapshot->sources);
}

static int
take_snapshot(struct ct_session *session, void *argument, struct ct_diag *diag)
{
  struct snapshot *snapshot = argument;
  struct ct_store_state state;
  struct session_recording *recording = &session->recording;
  if (recording->writer == NULL) {
    return ct_fail(diag, CT_EINVAL, "nothing is recorded any more: the trace is %s", session->options.directory);
  }
  pthread_mutex_lock(&recording->writer_lock);
  ct_trace_writer_flush(recording->writer);
  bool is_kept = ct_trace_writer_kept(recording->writer, &state);
  struct ct_manifest manifest = recording->manifest; /* as if it were detached now; what it points to is the same */
  ct_manifest_detach(&manifest);
  snapshot->manifest = is_kept ? session_manifest(session, &manifest, true) : NULL;
  snapshot->end_sequence = state.next_sequence;
  snapshot->source_count = ct_modules_prototype_sources(&recording->modules, &snapshot->sources);
  snapshot->end_ns = manifest.end_ns;
  pthread_mutex_unlock(&recording->writer_lock);
  if (!is_kept) {
    return ct_fail(diag, CT_EINVAL, "the session keeps all events, not the last ones: its trace is %s",
                   session->options.directory);
  }
  pthread_mutex_lock(&session->sync.guard);
  recording->dumps++;
  pthread_mutex_unlock(&session->sync.guard);
  return 0;
}

static void
end_dump(struct ct_session *session)
{
  pthread_mutex_lock(&session->sync.guard);
  session->recording.dumps--;
  pthread_cond_broadcast(&session->sync.changed);
  pthread_mutex_unlock(&session->sync.guard);
}

/* The directory that was asked for, or the first of DIR.dump-1, DIR.dump-2 ... that is new. */
static int
make_directory(const struct ct_session *session, const char *wanted, char path[PATH_MAX], int *fd, bool *made,
               struct ct_diag *diag)
{
  const char *trace = session->options.directory;
  int length = (int)strlen(trace), code = CT_EEXIST;
  while (length > 1 && trace[length - 1] == '/') {
    length--;
  }
  if (wanted != NULL) {
    snprintf(path, PATH_MAX, "%s", wanted);
    return ct_trace_directory_create(path, fd, made, diag);
  }
  for (unsigned n = 1; n <= NAMES; n++) {
    snprintf(path, PATH_MAX, "%.*s.dump-%u", length, trace, n);
    if (access(path, F_OK) != 0) {
      code = ct_trace_directory_create(path, fd, made, diag);
      if (code == CT_OK && *made) {
        return CT_OK;
      }
      if (code != CT_OK) {
        return code;
      }
      close(*fd); /* somebody made it at the same time */
    }
  }
  return ct_fail(diag, code, "there are %u dumps of %s; remove some", NAMES, trace);
}

/* Without them the trace is as good as before, so a failure is none of the dump's. */
static void
write_prototypes(struct ct_session *session, const struct snapshot *snapshot, int dir_fd)
{
  char *text;
  size_t size;
  uint64_t bytes;
  if (ct_prototypes_text(snapshot->sources, snapshot->source_count, session->recording.modules.plans,
                         session->recording.writer, &text, &size) == 0 &&
      size != 0) {
    (void)ct_trace_put_prototypes(dir_fd, text, size, &bytes);
  }
  free(text);
}

static int
write_dump(struct ct_session *session, const char *directory, const struct snapshot *snapshot,
           struct ct_session_dump *dump, struct ct_diag *diag)
{
  struct ct_kept_sums sums;
  char path[PATH_MAX];
  int fd;
  bool made = false;
  int code = make_directory(session, directory, path, &fd, &made, diag);
  if (code != CT_OK) {
    return code;
  }
  write_prototypes(session, snapshot, fd);
  code = ct_trace_writer_dump(session->recording.writer, snapshot->end_sequence, snapshot->manifest, fd, path, &sums,
                              diag);
  if (code == CT_OK && session->options.give) {
    ct_trace_give(fd, session->options.owner, session->options.owner_group);
  }
  if (code == CT_OK) {
    json_t *kept = json_object_get(snapshot->manifest, "kept");
    uint64_t since = (uint64_t)json_integer_value(json_object_get(kept, "since_ns"));
    dump->events = sums.events;
    dump->bytes = sums.bytes;
    dump->not_kept = (uint64_t)json_integer_value(json_object_get(kept, "not_kept"));
    dump->ns = snapshot->end_ns > since ? snapshot->end_ns - since : 0;
    if (realpath(path, dump->directory) == NULL) {
      snprintf(dump->directory, sizeof(dump->directory), "%s", path);
    }
  } else {
    ct_trace_empty(fd);
    if (made) {
      rmdir(path);
    }
  }
  close(fd);
  return code;
}

int
ct_session_dump(struct ct_session *session, const char *directory, struct ct_session_dump *dump, struct ct_diag *diag)
{
  struct ct_session_dump own = {.struct_size = sizeof(own)};
  struct snapshot snapshot = {NULL};
  int code = session_command(session, CT_ERROR_INIT, take_snapshot, &snapshot, diag);
  if (code != 0) {
    free_snapshot(&snapshot);
    return code;
  }
  code = write_dump(session, directory, &snapshot, &own, diag);
  end_dump(session);
  free_snapshot(&snapshot);
  return code == 0 && dump != NULL ? ct_sized_give(dump, &own, sizeof(own), diag) : code;
}

/* ---- of a trigger ---- */

struct aside {
  struct ct_session *session;
  struct snapshot snapshot;
};

static void *
dump_main(void *context)
{
  struct aside *aside = context;
  struct ct_session_dump dump = {.struct_size = sizeof(dump)};
  struct ct_diag diag = {""};
  if (write_dump(aside->session, NULL, &aside->snapshot, &dump, &diag) != 0) {
    aside->session->triggers.dump_why = diag;
    /* release: pairs with session_note_dump */
    atomic_store_explicit(&aside->session->triggers.dump_failed, true, memory_order_release);
  }
  ct_windows_note_dump(aside->session->triggers.windows, dump.bytes);
  free_snapshot(&aside->snapshot);
  end_dump(aside->session);
  free(aside);
  return NULL;
}

int
session_dump_aside(struct ct_session *session, struct ct_diag *diag)
{
  struct aside *aside = calloc(1, sizeof(*aside));
  if (aside == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  session_join_dumper(session);
  aside->session = session;
  int code = take_snapshot(session, &aside->snapshot, diag);
  if (code == 0 && ct_worker_create(&session->triggers.dumper, NULL, dump_main, aside) != 0) {
    end_dump(session);
    code = ct_fail(diag, CT_ENOMEM, "cannot start a thread for a dump");
  }
  if (code != 0) {
    free_snapshot(&aside->snapshot);
    free(aside);
    return code;
  }
  session->triggers.has_dumper = true;
  return 0;
}
