/* SPDX-License-Identifier: MIT */
/*
 * Files of the trace that somebody else changes while they are written: the recorded program is often of the same user,
 * and may cut them short, put others in their place or take them away. Blocks go only to the file that was made for
 * them. Before something is appended to a file its size is compared with what was written, since the hole that is left
 * where it was cut short does not show afterwards; at the end all that the manifest lists is compared, by name.
 */
#include "base/json.h"
#include "trace/block_file.h"
#include "trace/writer_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first one is named, with what has happened to it. */
static void
note(struct ct_trace_writer *writer, const char *name, const char *what)
{
  if (writer->changed.text[0] == '\0') {
    snprintf(writer->changed.text, sizeof(writer->changed.text), "%.64s %s", name, what);
  }
}

static const char *
compare_sizes(uint64_t is, uint64_t was)
{
  return is < was ? "was cut short" : is > was ? "was appended to" : NULL;
}

/* "thread_3/index.ctb", step by step, so that neither of the two is followed where it is a symbolic link. */
static int
open_in(int dir_fd, const char *path, int flags)
{
  char folder[CT_BLOCK_FILE_NAME_BYTES];
  const char *slash = strchr(path, '/');
  snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - path) : 1, slash != NULL ? path : ".");
  int folder_fd = openat(dir_fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder_fd < 0) {
    return -1;
  }
  int fd = openat(folder_fd, slash != NULL ? slash + 1 : path, O_NOFOLLOW | O_CLOEXEC | flags, 0600);
  int err = errno;
  close(folder_fd);
  errno = err;
  return fd;
}

int
ct_stream_open(const struct ct_trace_writer *writer, struct ct_stream *stream, const char *name, int flags)
{
  struct stat file = {0};
  char again[40];
  bool is_new = (flags & O_CREAT) != 0;
  int fd = open_in(writer->dir_fd, name, is_new ? O_WRONLY | flags : O_PATH); /* opens nothing yet: it may be a FIFO */
  if (fd < 0) {
    return -1;
  }
  int code = fstat(fd, &file);
  if (is_new) {
    stream->device = file.st_dev;
    stream->inode = file.st_ino;
    return fd;
  }
  int seen = fd;
  fd = -1;
  if (code != 0 || stream->device != file.st_dev || stream->inode != file.st_ino) {
    errno = ESTALE;
  } else {
    snprintf(again, sizeof(again), "/proc/self/fd/%d", seen);
    fd = open(again, O_WRONLY | O_CLOEXEC);
  }
  int err = errno;
  close(seen);
  errno = err;
  return fd;
}

void
ct_writer_look(struct ct_trace_writer *writer, const char *name, int fd, uint64_t bytes)
{
  struct stat file;
  const char *what = fstat(fd, &file) == 0 ? compare_sizes((uint64_t)file.st_size, bytes) : NULL;
  if (what != NULL) {
    note(writer, name, what);
  }
}

void
ct_stream_look(struct ct_trace_writer *writer, const struct ct_stream *stream)
{
  char name[CT_BLOCK_FILE_NAME_BYTES];
  ct_stream_file_name(stream, name);
  ct_writer_look(writer, name, stream->fd, stream->file_bytes);
}

/* Is it what is open? */
static bool
is_same(int fd, const struct stat *file)
{
  struct stat own;
  return fd < 0 || fstat(fd, &own) != 0 || (own.st_dev == file->st_dev && own.st_ino == file->st_ino);
}

static void
look_at_name(struct ct_trace_writer *writer, const char *name, uint64_t bytes)
{
  struct stat file;
  if (fstatat(writer->dir_fd, name, &file, AT_SYMLINK_NOFOLLOW) != 0) {
    note(writer, name, errno == ENOENT || errno == ENOTDIR ? "was taken away" : "cannot be looked at");
    return;
  }
  int fd = strcmp(name, CT_TRACE_FUNCTIONS) == 0  ? writer->functions_fd
           : strcmp(name, CT_TRACE_CAPTURES) == 0 ? writer->writer_thread.captures_fd
                                                  : -1;
  const char *what =
      S_ISREG(file.st_mode) && is_same(fd, &file) ? compare_sizes((uint64_t)file.st_size, bytes) : "was replaced";
  if (what != NULL) {
    note(writer, name, what);
  }
}

/* Not of pieces, whose streams know their last one only. */
static void
look_for_others(struct ct_trace_writer *writer, const struct ct_stream *stream)
{
  char name[CT_BLOCK_FILE_NAME_BYTES];
  struct stat file;
  ct_stream_file_name(stream, name);
  if (stream->inode != 0 && fstatat(writer->dir_fd, name, &file, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(file.st_mode) &&
      (file.st_dev != stream->device || file.st_ino != stream->inode)) {
    note(writer, name, "was replaced");
  }
}

void
ct_writer_note_changed(struct ct_trace_writer *writer, json_t *manifest)
{
  const char *name;
  json_t *bytes, *notes;
  for (uint32_t i = 0; i < writer->encoder_count && writer->pieces == NULL; i++) {
    const struct ct_encoder *encoder = writer->encoders[i];
    look_for_others(writer, encoder->stream);
    if (ct_detail_stream(encoder) != NULL) {
      look_for_others(writer, ct_detail_stream(encoder));
    }
  }
  look_at_name(writer, CT_TRACE_FUNCTIONS, writer->writer_thread.functions_bytes);
  json_object_foreach(json_object_get(manifest, "files"), name, bytes)
  {
    look_at_name(writer, name, (uint64_t)json_integer_value(bytes));
  }
  if (writer->changed.text[0] == '\0') {
    return;
  }
  size_t length = strlen(writer->changed.text);
  snprintf(writer->changed.text + length, sizeof(writer->changed.text) - length,
           " by somebody else while it was written: some of what was recorded may be missing");
  notes = json_deep_copy(json_object_get(manifest, "notes"));
  notes = notes != NULL ? notes : json_array();
  json_array_append_new(notes, ct_json_string(writer->changed.text));
  json_object_set_new(manifest, "notes", notes);
}

const char *
ct_trace_writer_changed(const struct ct_trace_writer *writer)
{
  return writer->changed.text;
}
