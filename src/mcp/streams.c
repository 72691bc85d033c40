/* SPDX-License-Identifier: MIT */
/*
 * A launched program's standard streams: input from /dev/null or from a text, output and error by pipes into files of
 * the server's directory. What goes beyond a limit is read and counted, so that the program never waits. One that is to
 * outlive the server writes into the files itself, since nobody would read a pipe then.
 */
#include "mcp/held.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIMIT_BYTES = 64 << 20, CHUNK = 64 << 10, GRACE_MS = 200 };

/* Its standard input. */
static int
open_input(const char *text)
{
  if (text == NULL) {
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  int fd = memfd_create("stdin", MFD_CLOEXEC);
  size_t length = strlen(text), at = 0;
  while (fd >= 0 && at < length) {
    ssize_t written = write(fd, text + at, length - at);
    if (written <= 0 && errno != EINTR) {
      close(fd);
      return -1;
    }
    at += written > 0 ? (size_t)written : 0;
  }
  if (fd >= 0) {
    lseek(fd, 0, SEEK_SET);
  }
  return fd;
}

static int
open_output(struct mcp_stream *stream, const struct mcp_held *held, const char *name, bool is_kept)
{
  int ends[2];
  if (snprintf(stream->path, sizeof(stream->path), "%s.%s", held->place, name) >= (int)sizeof(stream->path) ||
      snprintf(stream->name, sizeof(stream->name), "%s.%s", held->directory, name) >= (int)sizeof(stream->name)) {
    stream->path[0] = '\0';
    errno = ENAMETOOLONG;
    return -1;
  }
  int file = open(stream->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) {
    stream->path[0] = '\0'; /* somebody else's, perhaps: it is not to be removed when this fails */
  }
  if (file < 0 || is_kept) {
    return file;
  }
  if (pipe2(ends, O_CLOEXEC) != 0) {
    close(file);
    return -1;
  }
  stream->file = file;
  stream->from = ends[0];
  return ends[1];
}

bool
mcp_streams_open(struct mcp_held *held, int fds[3])
{
  struct mcp_session *session = held->session;
  fds[0] = open_input(session->input);
  fds[1] = open_output(&session->streams[0], held, "stdout", session->is_kept);
  fds[2] = open_output(&session->streams[1], held, "stderr", session->is_kept);
  return fds[0] >= 0 && fds[1] >= 0 && fds[2] >= 0;
}

/* What there is in the pipe, into the file. False: the pipe has ended. */
static bool
move(struct mcp_stream *stream, char *chunk)
{
  ssize_t got = read(stream->from, chunk, CHUNK);
  if (got <= 0) {
    return got < 0 && errno == EINTR;
  }
  uint64_t room = LIMIT_BYTES - stream->bytes, fits = (uint64_t)got < room ? (uint64_t)got : room;
  ssize_t written = fits != 0 ? write(stream->file, chunk, fits) : 0;
  written = written > 0 ? written : 0;
  stream->bytes += (uint64_t)written;
  stream->dropped += (uint64_t)(got - written);
  return true;
}

void *
mcp_streams_pump(void *argument)
{
  struct mcp_held *held = argument;
  struct mcp_session *session = held->session;
  char *chunk = malloc(CHUNK);
  struct pollfd fds[2];
  for (int i = 0; i < 2; i++) {
    fds[i] = (struct pollfd){.fd = session->streams[i].from, .events = POLLIN};
  }
  while (chunk != NULL && (fds[0].fd >= 0 || fds[1].fd >= 0)) {
    if (poll(fds, 2, -1) < 0 && errno != EINTR) {
      break;
    }
    for (int i = 0; i < 2; i++) {
      if (fds[i].fd >= 0 && fds[i].revents != 0 && !move(&session->streams[i], chunk)) {
        fds[i].fd = -1;
      }
    }
  }
  free(chunk);
  pthread_mutex_lock(&held->server->lock);
  session->is_pumped = true;
  pthread_cond_broadcast(&held->server->changed);
  pthread_mutex_unlock(&held->server->lock);
  mcp_held_put(held);
  return NULL;
}

/* No text has so many control characters. */
static bool
is_binary(const char *bytes, size_t count)
{
  enum { SHARE = 20 };
  size_t odd = 0;
  for (size_t i = 0; i < count; i++) {
    unsigned char byte = (unsigned char)bytes[i];
    odd += byte < ' ' && (byte == '\0' || strchr("\t\n\v\f\r\b\033", byte) == NULL);
  }
  return odd * SHARE > count;
}

/* The last bytes of the file; to be freed. Whoever may write there can have put a FIFO or a link in its place. */
static char *
read_tail(const char *path, size_t bytes, uint64_t *size, bool *binary)
{
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))) {
    close(fd);
    fd = -1;
  }
  char *text = fd >= 0 ? calloc(1, bytes + 1) : NULL;
  off_t end = text != NULL ? lseek(fd, 0, SEEK_END) : 0;
  off_t from = end > (off_t)bytes ? end - (off_t)bytes : 0;
  ssize_t got = text != NULL ? pread(fd, text, bytes, from) : 0;
  *binary = got > 0 && is_binary(text, (size_t)got);
  for (ssize_t i = 0; i < got; i++) {
    text[i] = text[i] == '\0' ? '?' : text[i];
  }
  *size = (uint64_t)(end > 0 ? end : 0);
  if (fd >= 0) {
    close(fd);
  }
  return text;
}

json_t *
mcp_stream_json(const struct mcp_stream *stream, size_t tail_bytes)
{
  uint64_t size = 0;
  bool binary = false;
  char *tail = read_tail(stream->path, tail_bytes, &size, &binary);
  json_t *json = json_pack("{s:o, s:I}", "file", mcp_text(stream->name), "bytes", (json_int_t)size);
  if (stream->dropped != 0) {
    json_object_set_new(json, "not_kept_bytes", json_integer((json_int_t)stream->dropped));
  }
  if (binary) { /* of which nobody can make anything, and each byte is a token */
    json_object_set_new(json, "not_shown", json_string("it is no text"));
  } else if (tail != NULL && tail[0] != '\0' && tail_bytes != 0) {
    json_object_set_new(json, size > tail_bytes ? "end" : "text", mcp_text(tail));
  }
  free(tail);
  return json;
}
