/* SPDX-License-Identifier: MIT */
/*
 * The server's main thread: lines in, lines out, signals, and the end.
 *
 * The client's descriptors are moved away from 0 and 1 before anything else: what a program that was launched, or a
 * library, writes to its standard output never gets into the protocol, and nobody else reads the client's messages. A
 * line goes out in pieces that a pipe takes at once, so that a client that does not read never keeps the server from
 * ending.
 */
#include "mcp/held.h"
#include "mcp/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, WRITE_BYTES = PIPE_BUF, END_MS = 3000, GRACE_MS = 1000, STEP_MS = 5 };

/* ---- out ---- */

/*
 * Waits until out takes PIPE_BUF bytes. False: it is closed; or the server is to end, or the client has closed its
 * side, and it does not read.
 */
static bool
await_room(const struct mcp_server *server)
{
  enum { PATIENCE_MS = 500 };
  struct pollfd fds[] = {{.fd = server->out, .events = POLLOUT},
                         {.fd = server->wake_fd, .events = POLLIN},
                         {.fd = server->signal_fd, .events = POLLIN},
                         {.fd = server->in}};
  while (poll(fds, sizeof(fds) / sizeof(fds[0]), -1) < 0 && errno == EINTR) {
  }
  if (fds[0].revents == 0) {
    poll(fds, 1, PATIENCE_MS); /* a moment more */
  }
  return (fds[0].revents & POLLOUT) != 0;
}

static bool
write_all(const struct mcp_server *server, const char *text, size_t length)
{
  while (length != 0) {
    if (!await_room(server)) {
      return false;
    }
    ssize_t written = write(server->out, text, length < WRITE_BYTES ? length : WRITE_BYTES);
    if (written < 0 && errno != EINTR && errno != EAGAIN) {
      return false;
    }
    text += written > 0 ? written : 0;
    length -= written > 0 ? (size_t)written : 0;
  }
  return true;
}

void
mcp_send(struct mcp_server *server, json_t *message)
{
  char *text = message != NULL ? json_dumps(message, JSON_COMPACT) : NULL;
  json_decref(message);
  size_t length = text != NULL ? strlen(text) : 0;
  if (text != NULL) {
    text[length] = '\n'; /* in place of the NUL */
    pthread_mutex_lock(&server->out_lock);
    if (!atomic_load_explicit(&server->out_failed, memory_order_relaxed) && !write_all(server, text, length + 1)) {
      atomic_store_explicit(&server->out_failed, true, memory_order_relaxed); /* pairs with serve's; a hint */
    }
    pthread_mutex_unlock(&server->out_lock);
  }
  free(text);
}

/* ---- in ---- */

struct reader {
  char *text;
  size_t length, capacity;
  bool is_skipping; /* the rest of a line that is too long */
};

static void
take_line(struct mcp_server *server, const char *line, size_t length)
{
  json_error_t error;
  bool is_blank = true;
  for (size_t i = 0; i < length && is_blank; i++) {
    is_blank = line[i] == ' ' || line[i] == '\t' || line[i] == '\r';
  }
  if (is_blank) {
    return;
  }
  json_t *message = json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (message == NULL) {
    char text[sizeof(error.text) + 64];
    snprintf(text, sizeof(text), "not JSON: %.150s (at byte %d)", error.text, error.position);
    mcp_refuse_message(server, MCP_PARSE_ERROR, text);
    return;
  }
  mcp_take_message(server, message);
}

/* The whole lines so far. */
static void
take_lines(struct mcp_server *server, struct reader *reader)
{
  size_t begin = 0;
  for (char *end; (end = memchr(reader->text + begin, '\n', reader->length - begin)) != NULL;) {
    size_t length = (size_t)(end - reader->text) - begin;
    if (!reader->is_skipping) {
      take_line(server, reader->text + begin, length);
    }
    reader->is_skipping = false;
    begin += length + 1;
  }
  reader->length -= begin;
  memmove(reader->text, reader->text + begin, reader->length);
  if (reader->is_skipping || reader->length > MCP_MESSAGE_MAX) {
    if (!reader->is_skipping) {
      mcp_refuse_message(server, MCP_INVALID_REQUEST, "a message has at most 4 MiB");
    }
    reader->is_skipping = true;
    reader->length = 0;
  }
}

/* False: the client has gone. */
static bool
read_some(struct mcp_server *server, struct reader *reader)
{
  if (reader->capacity - reader->length < READ_BYTES) {
    size_t capacity = reader->capacity == 0 ? READ_BYTES * 2 : reader->capacity * 2;
    char *text = realloc(reader->text, capacity);
    if (text == NULL) {
      return false;
    }
    reader->text = text;
    reader->capacity = capacity;
  }
  ssize_t got = read(server->in, reader->text + reader->length, READ_BYTES);
  if (got <= 0) {
    return got < 0 && (errno == EINTR || errno == EAGAIN);
  }
  size_t before = reader->length;
  reader->length += (size_t)got;
  if (memchr(reader->text + before, '\n', (size_t)got) != NULL || reader->length > MCP_MESSAGE_MAX) {
    take_lines(server, reader);
  }
  return true;
}

/* Until the client goes, or a signal comes. */
static void
serve(struct mcp_server *server)
{
  struct reader reader = {NULL};
  struct pollfd fds[2] = {{.fd = server->in, .events = POLLIN}, {.fd = server->signal_fd, .events = POLLIN}};
  for (bool goes_on = true; goes_on;) {
    int ready = poll(fds, 2, -1);
    goes_on = ready > 0 || errno == EINTR;
    if (ready > 0 && fds[1].revents != 0) {
      goes_on = false;
    } else if (ready > 0 && fds[0].revents != 0) {
      goes_on = read_some(server, &reader);
    }
    goes_on = goes_on && !atomic_load_explicit(&server->out_failed, memory_order_relaxed);
  }
  free(reader.text);
}

/* ---- begin and end ---- */

/* The client's descriptors to others, and nothing, or the standard error, in their places. */
static int
move_streams(struct mcp_server *server, struct ct_diag *diag)
{
  server->in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
  server->out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (server->in < 0 || server->out < 0 || nothing < 0) {
    snprintf(diag->text, sizeof(diag->text), "standard input and output cannot be used: %s", strerror(errno));
    return CT_EIO;
  }
  dup2(nothing, STDIN_FILENO);
  dup2(fcntl(STDERR_FILENO, F_GETFD) >= 0 ? STDERR_FILENO : nothing, STDOUT_FILENO);
  close(nothing);
  return 0;
}

/*
 * The name of a temporary directory, which the guardian is to know before there is one. It is as good as unique: should
 * it be there already the server does not begin.
 */
static int
name_directory(struct mcp_server *server, struct ct_diag *diag)
{
  const char *given = server->options->directory, *below = getenv("TMPDIR");
  uint64_t number;
  server->is_temporary = given == NULL;
  if (given != NULL) {
    return 0;
  }
  if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number) ||
      snprintf(server->directory, sizeof(server->directory), "%s/contrail-mcp-%016llx",
               below != NULL && below[0] == '/' ? below : "/tmp",
               (unsigned long long)number) >= (int)sizeof(server->directory)) {
    snprintf(diag->text, sizeof(diag->text), "no name for a directory below TMPDIR");
    return CT_EIO;
  }
  return 0;
}

static int
make_directory(struct mcp_server *server, struct ct_diag *diag)
{
  const char *given = server->options->directory;
  if (given == NULL ? mkdir(server->directory, 0700) != 0
                    : (mkdir(given, 0700) != 0 && errno != EEXIST) || realpath(given, server->directory) == NULL) {
    snprintf(diag->text, sizeof(diag->text), "no directory %.300s for traces: %s",
             given != NULL ? given : server->directory, strerror(errno));
    return CT_EIO;
  }
  return 0;
}

/* What was asked before the client closed its side is answered, if that is soon. */
static void
finish_requests(struct mcp_server *server)
{
  for (int turn = 0; turn < GRACE_MS / STEP_MS && !atomic_load_explicit(&server->out_failed, memory_order_relaxed);
       turn++) {
    pthread_mutex_lock(&server->lock);
    bool is_done = server->requests == NULL;
    pthread_mutex_unlock(&server->lock);
    struct pollfd ends = {.fd = server->signal_fd, .events = POLLIN};
    if (is_done || poll(&ends, 1, STEP_MS) != 0) {
      return;
    }
  }
}

static void
end(struct mcp_server *server)
{
  uint64_t one = 1;
  if (write(server->wake_fd, &one, sizeof(one)) < 0) {
    /* it is readable already */
  }
  bool all_done = mcp_end_requests(server, END_MS), is_clean = mcp_held_end_all(server);
  mcp_guardian_end(server, is_clean && all_done); /* a worker may have a program, of itrace */
  if (server->is_temporary) {
    mcp_remove_tree(server->directory);
  }
  if (!all_done || !is_clean) { /* a worker is in the middle of a long reading: it has what would be freed */
    _exit(0);
  }
  mcp_held_free_all(server);
  json_decref(server->tools);
}

int
mcp_serve(const struct mcp_options *options, struct ct_diag *diag)
{
  struct mcp_server server = {.options = options, .guard_fd = -1, .wake_fd = -1, .signal_fd = -1};
  sigset_t all, ends;
  sigfillset(&all); /* a closed pipe too: the program has what was there before */
  sigprocmask(SIG_SETMASK, &all, &server.program_mask);
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGHUP);
  json_object_seed(0);
  pthread_mutex_init(&server.lock, NULL);
  pthread_mutex_init(&server.out_lock, NULL);
  pthread_cond_init(&server.changed, NULL);
  int code = move_streams(&server, diag);
  code = code != 0 ? code : name_directory(&server, diag);
  if (code != 0) {
    return code;
  }
  mcp_guardian_start(&server);
  code = make_directory(&server, diag);
  if (code != 0) {
    mcp_guardian_end(&server, true);
    return code;
  }
  server.wake_fd = eventfd(0, EFD_CLOEXEC);
  server.signal_fd = signalfd(-1, &ends, SFD_CLOEXEC);
  code = server.wake_fd < 0 || server.signal_fd < 0 ? CT_EIO : mcp_tools_load(&server);
  if (code == 0) {
    serve(&server);
    finish_requests(&server);
  } else {
    snprintf(diag->text, sizeof(diag->text), "out of memory or descriptors");
  }
  end(&server);
  return code;
}
