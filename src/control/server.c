/* SPDX-License-Identifier: MIT */
/*
 * The server of a session's socket; see server.h.
 *
 *   in     what has been read and is not answered yet: at most a request and what one read takes
 *   out    what has not been written yet. While it is more than OUT_ENOUGH nothing is read or run for this client
 *   waits  its calls that have no answer yet, and are looked for now and then. Others are answered meanwhile
 *   feeds  what it is sent without asking. A client that does not read has no more taken out of them: it is theirs to
 * keep little, and to say what was missed
 *
 * In each round every client gets LINES_A_ROUND requests answered, so that a batch of small ones from one does not keep
 * the others waiting.
 */
#include "control/server.h"

#include "base/test_point.h"
#include "base/worker.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  READ_BYTES = 64 << 10,
  OUT_ENOUGH = 256 << 10,
  LINES_A_ROUND = 16,
  LET_IN_A_ROUND = 16,
  STUCK_MS = 10000,      /* without a byte of an answer being taken */
  LAST_WORDS_MS = 1000,  /* for answers when the server stops */
  ACCEPT_AGAIN_MS = 500, /* when there are no more file descriptors */
  FULL_MS = 20,          /* when there are as many clients as there may be */
  LOOK_MS = 20,          /* between looks for what is answered later */
};

struct wait {
  struct ct_rpc_later later;
  int64_t until_ms; /* negative: any time */
};

struct client {
  int fd;
  char *in, *out;
  size_t in_size, in_room, in_seen; /* in_seen: no line end before that */
  size_t out_size, out_room, out_at;
  struct wait waits[CT_SERVER_WAITS_MAX];
  struct ct_rpc_feed feeds[CT_SERVER_WAITS_MAX];
  size_t wait_count, feed_count;
  int64_t moved_ms; /* when it last sent something or took something */
  bool line_waits;  /* a whole request is in there */
  bool ended;       /* it will send no more */
  bool closing;     /* when all is written */
};

struct ct_server {
  int socket, wake;
  ct_rpc_run *run;
  void *context;
  pthread_t thread;
  struct client clients[CT_SERVER_CLIENTS_MAX];
  size_t count;
  int64_t accept_again_ms;
  bool stopping;
};

static int64_t
now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void
drop(struct ct_server *server, size_t i)
{
  struct client *client = &server->clients[i];
  while (client->wait_count != 0) {
    ct_rpc_drop_later(&client->waits[--client->wait_count].later);
  }
  while (client->feed_count != 0) {
    client->feed_count--;
    client->feeds[client->feed_count].close(client->feeds[client->feed_count].state);
  }
  close(client->fd);
  free(client->in);
  free(client->out);
  *client = server->clients[--server->count];
}

/* Room for size more bytes after *used; false without memory. */
static bool
reserve(char **buffer, size_t used, size_t *room, size_t size)
{
  if (*room - used >= size) {
    return true;
  }
  size_t more = (used + size) * 2;
  char *moved = realloc(*buffer, more);
  if (moved == NULL) {
    return false;
  }
  *buffer = moved;
  *room = more;
  return true;
}

static size_t
unwritten(const struct client *client)
{
  return client->out_size - client->out_at;
}

/* Takes over the answer. Without memory for it the client goes. */
static void
put(struct client *client, char *answer, size_t size)
{
  if (answer == NULL || !reserve(&client->out, client->out_size, &client->out_room, size)) {
    client->closing = true;
  } else {
    memcpy(client->out + client->out_size, answer, size);
    client->out_size += size;
  }
  free(answer);
}

static void
refuse(struct client *client, enum ct_rpc_code code, const char *text)
{
  char *answer = ct_rpc_refusal(code, text);
  put(client, answer, answer != NULL ? strlen(answer) : 0);
  client->closing = true;
  client->in_size = client->in_seen = 0;
}

static bool
is_blank(const char *line, size_t length)
{
  return strspn(line, " \t\r") >= length;
}

/* One request or batch. */
static void
answer_line(struct ct_server *server, struct client *client, const char *line, size_t length)
{
  struct ct_rpc_later later = {.look = NULL};
  bool may_wait = client->wait_count < CT_SERVER_WAITS_MAX && client->feed_count < CT_SERVER_WAITS_MAX;
  char *answer = NULL;
  size_t size;
  if (ct_rpc_answer(line, length, server->run, server->context, may_wait ? &later : NULL, &answer, &size) != CT_OK) {
    client->closing = true;
  } else if (answer != NULL) {
    put(client, answer, size);
    if (later.feed.next != NULL) {
      client->feeds[client->feed_count++] = later.feed;
    }
  } else if (later.look != NULL) {
    int64_t until = later.timeout_ms < 0 ? -1 : now_ms() + later.timeout_ms;
    client->waits[client->wait_count++] = (struct wait){later, until};
  }
}

/* Looks for what was to be answered later. */
static void
look_again(struct ct_server *server, struct client *client)
{
  int64_t now = client->wait_count != 0 ? now_ms() : 0;
  for (size_t i = 0; i < client->wait_count && !client->closing && unwritten(client) <= OUT_ENOUGH;) {
    struct wait *wait = &client->waits[i];
    enum ct_rpc_turn turn = server->stopping                               ? CT_RPC_LAST_AT_END
                            : wait->until_ms >= 0 && now >= wait->until_ms ? CT_RPC_LAST_BY_TIME
                                                                           : CT_RPC_ONE_LOOK;
    char *answer = NULL;
    size_t size;
    if (ct_rpc_answer_later(&wait->later, server->context, turn, &answer, &size) != CT_OK) {
      client->closing = true;
    } else if (answer == NULL) {
      i++;
      continue;
    } else {
      put(client, answer, size);
    }
    ct_rpc_drop_later(&wait->later);
    memmove(wait, wait + 1, (--client->wait_count - i) * sizeof(*wait)); /* in their order */
  }
}

/* Says what is new in its feeds. */
static void
report_news(struct ct_server *server, struct client *client)
{
  for (size_t i = 0; i < client->feed_count && !client->closing;) {
    struct ct_rpc_feed *feed = &client->feeds[i];
    bool is_over = false;
    char *line = NULL;
    while (unwritten(client) <= OUT_ENOUGH && !is_over && !client->closing &&
           (line = feed->next(feed->state, server->stopping, &is_over)) != NULL) {
      put(client, line, strlen(line));
    }
    if (is_over) {
      feed->close(feed->state);
      memmove(feed, feed + 1, (--client->feed_count - i) * sizeof(*feed));
    } else {
      i++;
    }
  }
}

/* Answers the lines that are there, up to a round's share. */
static void
answer_lines(struct ct_server *server, struct client *client)
{
  size_t at = 0;
  client->line_waits = false;
  for (int lines = 0; !client->closing; lines++) {
    char *end = memchr(client->in + client->in_seen, '\n', client->in_size - client->in_seen);
    if (end == NULL) {
      client->in_seen = client->in_size;
      break;
    }
    if (lines == LINES_A_ROUND || unwritten(client) > OUT_ENOUGH) {
      client->line_waits = true;
      break;
    }
    size_t length = (size_t)(end - client->in) - at;
    *end = '\0';
    if (!is_blank(client->in + at, length)) {
      answer_line(server, client, client->in + at, length);
    }
    at += length + 1;
    client->in_seen = at;
  }
  memmove(client->in, client->in + at, client->in_size - at);
  client->in_size -= at;
  client->in_seen -= at;
  if (client->in_size > CT_SERVER_REQUEST_BYTES_MAX && !client->line_waits && !client->closing) {
    refuse(client, CT_RPC_REQUEST, "the request is too long");
  }
}

/* False: it has gone. */
static bool
take_in(struct client *client)
{
  if (!reserve(&client->in, client->in_size, &client->in_room, READ_BYTES)) {
    return false;
  }
  ssize_t got = recv(client->fd, client->in + client->in_size, READ_BYTES, 0);
  if (got < 0) {
    return errno == EAGAIN || errno == EINTR;
  }
  if (got == 0) {
    client->ended = true; /* in this direction: what it asked before is answered */
    return true;
  }
  client->in_size += (size_t)got;
  client->moved_ms = now_ms();
  return true;
}

static bool
give_out(struct client *client)
{
  while (unwritten(client) != 0) {
    ssize_t sent = send(client->fd, client->out + client->out_at, unwritten(client), MSG_NOSIGNAL);
    if (sent < 0) {
      return errno == EAGAIN || errno == EINTR;
    }
    client->out_at += (size_t)sent;
    client->moved_ms = now_ms();
  }
  client->out_at = client->out_size = 0;
  return !client->closing;
}

/* ---- connections ---- */

static bool
is_allowed(int fd)
{
  struct ucred peer;
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

/* Who waits for an answer, or for news, is idle by no fault of its own. */
static bool
is_quieter(const struct client *a, const struct client *b)
{
  bool a_waits = a->wait_count + a->feed_count != 0, b_waits = b->wait_count + b->feed_count != 0;
  return a_waits == b_waits ? a->moved_ms < b->moved_ms : b_waits;
}

/* It waits for its turn: this round, or whatever else kept us, has taken long. One that does not take its answers does
 * not. */
static bool
has_asked(const struct client *client)
{
  char byte;
  return !client->closing && !client->ended && unwritten(client) <= OUT_ENOUGH &&
         recv(client->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Room for one more, in place of the client that was idle longest, if that is long enough. */
static bool
make_room(struct ct_server *server)
{
  size_t quietest = 0;
  if (server->count < CT_SERVER_CLIENTS_MAX) {
    return true;
  }
  ct_test_point("control-full");
  struct pollfd next = {.fd = server->socket, .events = POLLIN};
  if (poll(&next, 1, 0) != 1) {
    return false; /* nobody waits */
  }
  for (size_t i = 1; i < server->count; i++) {
    if (is_quieter(&server->clients[i], &server->clients[quietest])) {
      quietest = i;
    }
  }
  if (now_ms() - server->clients[quietest].moved_ms < CT_SERVER_QUIET_MS || has_asked(&server->clients[quietest])) {
    return false;
  }
  drop(server, quietest);
  return true;
}

/* One that waits. False: there is none. */
static bool
let_in(struct ct_server *server)
{
  if (!make_room(server)) {
    server->accept_again_ms = now_ms() + FULL_MS;
    return false;
  }
  int fd = accept4(server->socket, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      server->accept_again_ms = now_ms() + ACCEPT_AGAIN_MS;
    }
    return false;
  }
  struct client *client = &server->clients[server->count++];
  *client = (struct client){.fd = fd, .moved_ms = now_ms()};
  if (!is_allowed(fd)) {
    refuse(client, CT_RPC_LIBRARY + CT_EACCES, "this session is another user's");
  }
  return true;
}

/* ---- the thread ---- */

/* Fills in what to wait for: the two of the server, then the clients, then their feeds: *count. How long, in ms. */
static int
prepare(struct ct_server *server, struct pollfd *polls, nfds_t *count, bool more)
{
  int64_t now = now_ms(), wait = more ? 0 : -1;
  bool accepting = now >= server->accept_again_ms && !server->stopping;
  polls[0] = (struct pollfd){.fd = server->wake, .events = server->stopping ? 0 : POLLIN};
  polls[1] = (struct pollfd){.fd = accepting ? server->socket : -1, .events = POLLIN};
  if (!accepting && wait != 0) {
    wait = server->stopping ? ACCEPT_AGAIN_MS : server->accept_again_ms - now;
  }
  for (size_t i = 0; i < server->count; i++) {
    const struct client *client = &server->clients[i];
    bool full = unwritten(client) > OUT_ENOUGH || client->in_size > CT_SERVER_REQUEST_BYTES_MAX;
    short events = client->closing || client->ended || full || server->stopping ? 0 : POLLIN;
    if (unwritten(client) != 0) {
      events |= POLLOUT;
      if (wait < 0 || wait > ACCEPT_AGAIN_MS) {
        wait = ACCEPT_AGAIN_MS; /* to see who is stuck */
      }
    }
    if (client->wait_count != 0 && (wait < 0 || wait > LOOK_MS)) {
      wait = LOOK_MS;
    }
    polls[2 + i] = (struct pollfd){.fd = client->fd, .events = events};
  }
  *count = 2 + server->count;
  for (size_t i = 0; i < server->count; i++) {
    const struct client *client = &server->clients[i];
    for (size_t k = 0; k < client->feed_count && unwritten(client) <= OUT_ENOUGH; k++) {
      polls[(*count)++] = (struct pollfd){.fd = client->feeds[k].fd, .events = POLLIN};
    }
  }
  return (int)wait;
}

/* One client's turn. False: it is to go. */
static bool
serve(struct ct_server *server, struct client *client, short events, bool *more)
{
  bool asked = (events & POLLIN) != 0;
  if ((events & (POLLERR | POLLNVAL)) != 0 || (asked && !take_in(client))) {
    return false;
  }
  if ((events & POLLHUP) != 0 && !asked) {
    return false;
  }
  if (!server->stopping) {
    if (client->in_size != 0) {
      answer_lines(server, client);
    }
  }
  look_again(server, client);
  report_news(server, client);
  client->closing |=
      client->ended && !client->line_waits && client->wait_count + client->feed_count == 0 && !server->stopping;
  if (!give_out(client)) {
    return false;
  }
  *more |= client->line_waits && unwritten(client) <= OUT_ENOUGH;
  return unwritten(client) == 0 || now_ms() - client->moved_ms < STUCK_MS;
}

static bool
is_all_written(const struct ct_server *server)
{
  for (size_t i = 0; i < server->count; i++) {
    if (unwritten(&server->clients[i]) != 0) {
      return false;
    }
  }
  return true;
}

static void *
server_main(void *context)
{
  struct ct_server *server = context;
  struct pollfd polls[2 + CT_SERVER_CLIENTS_MAX * (1 + CT_SERVER_WAITS_MAX)];
  nfds_t poll_count;
  int64_t end_ms = 0;
  bool more = false;
  while (!server->stopping || (!is_all_written(server) && now_ms() < end_ms)) {
    size_t count = server->count;
    int wait = prepare(server, polls, &poll_count, more);
    if (poll(polls, poll_count, wait) < 0 && errno != EINTR) {
      break;
    }
    if ((polls[0].revents & POLLIN) != 0) {
      server->stopping = true;
      end_ms = now_ms() + LAST_WORDS_MS;
    }
    more = false;
    for (size_t i = count; i-- > 0;) { /* backwards: drop moves the last one, which has had its turn */
      if (!serve(server, &server->clients[i], polls[2 + i].revents, &more)) {
        drop(server, i);
      }
    }
    bool knocks = (polls[1].revents & POLLIN) != 0 && !server->stopping;
    for (int i = 0; i < LET_IN_A_ROUND && knocks; i++) {
      knocks = let_in(server);
    }
  }
  return NULL;
}

int
ct_server_start(int socket, ct_rpc_run *run, void *context, struct ct_server **out, struct ct_diag *diag)
{
  struct ct_server *server = calloc(1, sizeof(*server));
  if (server == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the control socket");
  }
  *server = (struct ct_server){.socket = socket, .wake = eventfd(0, EFD_CLOEXEC), .run = run, .context = context};
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  int error = server->wake < 0 ? errno : ct_worker_create(&server->thread, NULL, server_main, server);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (error != 0) {
    if (server->wake >= 0) {
      close(server->wake);
    }
    free(server);
    return ct_fail(diag, ct_err_from_errno(error), "no thread for the control socket: %s", strerror(error));
  }
  *out = server;
  return CT_OK;
}

void
ct_server_stop(struct ct_server *server)
{
  uint64_t one = 1;
  if (server == NULL) {
    return;
  }
  while (write(server->wake, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  pthread_join(server->thread, NULL);
  while (server->count != 0) {
    drop(server, server->count - 1);
  }
  close(server->socket);
  close(server->wake);
  free(server);
}
