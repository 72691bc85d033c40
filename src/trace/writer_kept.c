/* SPDX-License-Identifier: MIT */
/*
 * The writer of a recording that keeps the last stretch only, in memory: blocks and what the program wrote go to a
 * store (store.h) instead of their files, and from there to the files at the end, or to another directory while the
 * recording goes on.
 */
#include "trace/kept.h"
#include "trace/writer_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void
ct_trace_writer_keep(struct ct_trace_writer *writer, struct ct_store *store)
{
  writer->store = store;
  ct_store_describe(store, writer->dir_fd, writer->path, 0);
}

const char *
ct_trace_writer_keep_of(struct ct_trace_writer *writer, pid_t pid)
{
  if (!writer->store_described) {
    char *path = realpath(writer->path, NULL);
    ct_store_describe(writer->store, writer->dir_fd, path != NULL ? path : writer->path, pid);
    free(path);
    writer->store_described = true;
  }
  return ct_store_path(writer->store);
}

int
ct_trace_writer_limit(struct ct_trace_writer *writer, uint64_t bytes)
{
  return ct_pieces_create(bytes, &writer->pieces);
}

bool
ct_trace_writer_limited(struct ct_trace_writer *writer, struct ct_pieces_state *state)
{
  if (writer->pieces == NULL) {
    return false;
  }
  ct_pieces_get_state(writer->pieces, state);
  return true;
}

bool
ct_trace_writer_kept(struct ct_trace_writer *writer, struct ct_store_state *state)
{
  if (writer->store == NULL) {
    return false;
  }
  ct_store_get_state(writer->store, state);
  return true;
}

void
ct_writer_put(struct ct_trace_writer *writer, enum ct_writer_kind kind, struct ct_stream *stream, const uint8_t *data,
              size_t bytes, uint32_t events)
{
  struct ct_store_item item = {.kind = CT_STORE_CAPTURES};
  if (kind == CT_WRITER_BLOCK) {
    item = (struct ct_store_item){.thread = stream->index, .tid = stream->tid, .pid = stream->pid, .events = events};
    if (strcmp(stream->name, CT_TRACE_DETAIL) == 0) {
      struct ct_detail_block_header header;
      memcpy(&header, data, sizeof(header));
      item.kind = CT_STORE_DETAIL;
      item.last_tsc = header.last_tsc;
    } else {
      struct ct_block_header header;
      memcpy(&header, data, sizeof(header));
      item.kind = CT_STORE_BLOCK;
      item.last_tsc = header.last_tsc;
      item.name = stream->thread_name;
      item.share = &stream->share;
    }
  }
  ct_store_put(writer->store, &item, data, bytes);
}

void
ct_encoder_name(struct ct_encoder *encoder, const char *name)
{
  snprintf(encoder->stream->thread_name, sizeof(encoder->stream->thread_name), "%s", name);
}

/* What a thread that has ended had recorded is still there, or all is kept. */
static bool
is_needed(const struct ct_trace_writer *writer, const struct ct_encoder *encoder)
{
  if (writer->pieces != NULL) {
    const struct ct_stream *detail = ct_detail_stream(encoder);
    return ct_pieces_has(writer->pieces, encoder->stream) ||
           (detail != NULL ? ct_pieces_has(writer->pieces, detail) : writer->detail_judge != NULL);
  }
  return writer->store == NULL || ct_store_has(writer->store, &encoder->stream->share);
}

bool
ct_trace_writer_retire(struct ct_trace_writer *writer, struct ct_encoder *encoder)
{
  if (!encoder->closed || is_needed(writer, encoder)) {
    return false;
  }
  uint32_t i = 0;
  while (i < writer->encoder_count && writer->encoders[i] != encoder) {
    i++;
  }
  if (i == writer->encoder_count) {
    return false;
  }
  memmove(&writer->encoders[i], &writer->encoders[i + 1], (--writer->encoder_count - i) * sizeof(writer->encoders[0]));
  ct_encoder_free(encoder);
  return true;
}

/* ---- to the files ---- */

static struct ct_kept_limits
limits_of(const struct ct_store_state *state)
{
  return (struct ct_kept_limits){.bytes = state->capacity + CT_STORE_HEADER_BYTES,
                                 .ns = state->limit_ns,
                                 .begin_tsc = state->begin_tsc,
                                 .since_ns = state->since_ns};
}

int
ct_writer_unload(struct ct_trace_writer *writer, json_t *manifest)
{
  struct ct_kept *kept;
  struct ct_store_state state;
  struct ct_diag diag = {""};
  ct_store_get_state(writer->store, &state);
  int code = ct_kept_create(writer->dir_fd, writer->path, &kept, &diag);
  if (code != CT_OK) {
    return ct_writer_fail(writer, code, "%s", diag.text);
  }
  struct ct_kept_limits limits = limits_of(&state);
  code = ct_kept_add_all(kept, writer->store, state.next_sequence, &diag);
  code = code == CT_OK ? ct_kept_amend(kept, manifest, &limits) : code;
  ct_kept_destroy(kept);
  if (code != CT_OK) {
    writer->store_stays = true;
    ct_writer_fail(writer, code, "%.300s; the events are in %.100s: contrail recover writes them when there is room",
                   diag.text, ct_store_path(writer->store));
  }
  return code;
}

void
ct_trace_writer_flush(struct ct_trace_writer *writer)
{
  for (uint32_t i = 0; i < writer->encoder_count; i++) {
    if (!writer->encoders[i]->closed) {
      ct_encoder_flush(writer->encoders[i]);
    }
  }
  ct_trace_writer_flush_functions(writer);
  ct_trace_writer_flush_captures(writer);
}

/* Copies a file of the trace, if it is there, up to the end that it has now. */
static int
copy_file(const struct ct_trace_writer *writer, int to_fd, const char *name, const char *to_path, struct ct_diag *diag)
{
  enum { CHUNK = 256 << 10 };
  int from = openat(writer->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (from < 0) {
    return CT_OK;
  }
  int to = openat(to_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  uint8_t *chunk = malloc(CHUNK);
  uint64_t at = 0;
  size_t written;
  ssize_t n = 0;
  int err = to < 0 ? errno : chunk == NULL ? ENOMEM : 0;
  while (err == 0 && (n = pread(from, chunk, CHUNK, (off_t)at)) > 0) {
    err = ct_writer_write_at(to, chunk, (size_t)n, at, &written) ? 0 : errno;
    at += (uint64_t)n;
  }
  err = err == 0 && (n < 0 || fsync(to) != 0) ? errno : err;
  free(chunk);
  close(from);
  if (to >= 0) {
    close(to);
  }
  return err == 0 ? CT_OK
                  : ct_fail(diag, ct_err_from_errno(err), "cannot write %s/%s: %s", to_path, name, strerror(err));
}

static int
write_manifest(int dir_fd, const char *path, const json_t *manifest, struct ct_diag *diag)
{
  char *text = json_dumps(manifest, JSON_INDENT(1));
  if (text == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the manifest, or text in it that is not UTF-8");
  }
  int err = ct_file_replace(dir_fd, CT_TRACE_MANIFEST, text, strlen(text), true);
  free(text);
  return err == 0
             ? CT_OK
             : ct_fail(diag, ct_err_from_errno(err), "cannot write %s/%s: %s", path, CT_TRACE_MANIFEST, strerror(err));
}

int
ct_trace_writer_dump(struct ct_trace_writer *writer, uint64_t end_sequence, json_t *manifest, int dir_fd,
                     const char *path, struct ct_kept_sums *sums, struct ct_diag *diag)
{
  static const char *const names[] = {CT_TRACE_FUNCTIONS, CT_TRACE_STACKS, CT_TRACE_CRASH};
  struct ct_kept *kept;
  struct ct_store_state state;
  ct_writer_thread_wait(writer); /* the names of all functions are in their file */
  int code = ct_kept_create(dir_fd, path, &kept, diag);
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && code == CT_OK; i++) {
    code = copy_file(writer, dir_fd, names[i], path, diag);
  }
  if (code == CT_OK) {
    code = ct_kept_add_all(kept, writer->store, end_sequence, diag);
  }
  if (code == CT_OK) {
    /* What has gone meanwhile went from the beginning; what is here may still hold some of it. */
    ct_store_get_state(writer->store, &state);
    struct ct_kept_limits limits = limits_of(&state);
    ct_kept_get_sums(kept, sums);
    code = ct_kept_amend(kept, manifest, &limits);
  }
  code = code == CT_OK ? ct_kept_sync(kept, diag) : code;
  code = code == CT_OK ? write_manifest(dir_fd, path, manifest, diag) : code;
  ct_kept_destroy(kept);
  return code;
}
