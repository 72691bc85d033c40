/* SPDX-License-Identifier: MIT */
/*
 * The sockets of sessions: where they lie and who may use them, and a server that clients of all kinds do not get out
 * of its rhythm: many at once, slow ones, ones that send nonsense, too much, in pieces, or go away in the middle.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "control/client.h"
#include "control/runtime_dir.h"
#include "control/server.h"

enum { WAIT_MS = 60000, PATIENCE = 50, BIG = 100000 };

static char folder[64];
static atomic_int calls;

static atomic_int opened, looks;

/* "later" has a result once "open" was called that often. */
static json_t *
look(void *context, const uint64_t what[3], enum ct_rpc_turn turn, struct ct_rpc_fault *fault)
{
  assert_ptr_equal(context, &calls);
  atomic_fetch_add(&looks, 1);
  if ((uint64_t)atomic_load(&opened) < what[0] && turn == CT_RPC_ONE_LOOK) {
    fault->code = CT_RPC_LATER;
    return NULL;
  }
  return json_integer(turn);
}

static json_t *
run(void *context, const char *method, const json_t *params, struct ct_rpc_fault *fault)
{
  assert_ptr_equal(context, &calls);
  atomic_fetch_add(&calls, 1);
  if (strcmp(method, "count") == 0) {
    return json_integer(atomic_load(&calls));
  }
  if (strcmp(method, "big") == 0) {
    static char text[BIG + 1];
    memset(text, 'x', BIG);
    return json_string(text);
  }
  if (strcmp(method, "wait") == 0) {
    usleep(PATIENCE * 1000);
    return json_true();
  }
  if (strcmp(method, "open") == 0) {
    return json_integer(atomic_fetch_add(&opened, 1) + 1);
  }
  if (strcmp(method, "later") == 0) {
    json_t *timeout = json_object_get(params, "timeout");
    fault->code = CT_RPC_LATER;
    fault->later = (struct ct_rpc_later){.look = look,
                                         .what = {(uint64_t)json_integer_value(json_object_get(params, "opened"))},
                                         .timeout_ms = timeout != NULL ? json_integer_value(timeout) : -1};
    return NULL;
  }
  fault->code = CT_RPC_METHOD;
  return NULL;
}

static int
setup(void **state)
{
  (void)state;
  strcpy(folder, "/tmp/control-test-XXXXXX");
  assert_non_null(mkdtemp(folder));
  setenv("XDG_RUNTIME_DIR", folder, 1);
  atomic_store(&calls, 0);
  atomic_store(&opened, 0);
  atomic_store(&looks, 0);
  return 0;
}

static int
teardown(void **state)
{
  (void)state;
  char command[128];
  snprintf(command, sizeof(command), "rm -rf %s", folder);
  return system(command);
}

static struct ct_runtime_dir
open_runtime_dir(void)
{
  struct ct_runtime_dir runtime_dir;
  struct ct_diag diag = {""};
  if (ct_runtime_dir_open(&runtime_dir, true, &diag) != CT_OK) {
    fail_msg("%s", diag.text);
  }
  return runtime_dir;
}

static struct ct_server *
serve(const struct ct_runtime_dir *runtime_dir, const char *id)
{
  struct ct_server *server;
  struct ct_diag diag = {""};
  int fd;
  if (ct_runtime_dir_listen(runtime_dir, id, &fd, &diag) != CT_OK ||
      ct_server_start(fd, run, &calls, &server, &diag) != CT_OK) {
    fail_msg("%s", diag.text);
  }
  return server;
}

static int
reach(const struct ct_runtime_dir *runtime_dir, const char *id)
{
  struct ct_diag diag = {""};
  int fd;
  if (ct_runtime_dir_connect(runtime_dir, id, &fd, &diag) != CT_OK) {
    fail_msg("%s", diag.text);
  }
  return fd;
}

/* A connection's only call. */
static int
call(int fd, const char *method, const json_t *params, int timeout_ms, json_t **result, struct ct_diag *diag)
{
  struct ct_client_input input = {.bytes = NULL};
  int code = ct_client_call(fd, &input, method, params, timeout_ms, result, diag);
  free(input.bytes);
  return code;
}

static json_int_t
count(int fd)
{
  struct ct_diag diag = {""};
  json_t *result;
  if (call(fd, "count", NULL, WAIT_MS, &result, &diag) != CT_OK) {
    fail_msg("%s", diag.text);
  }
  json_int_t n = json_integer_value(result);
  json_decref(result);
  return n;
}

static void
say(int fd, const char *text, size_t size)
{
  for (size_t at = 0; at < size;) {
    ssize_t sent = send(fd, text + at, size - at, MSG_NOSIGNAL);
    if (sent > 0) {
      at += (size_t)sent;
    } else {
      struct pollfd wait = {.fd = fd, .events = POLLOUT};
      assert_int_equal(errno, EAGAIN);
      assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
    }
  }
}

/* All that comes until the other side closes; to be freed. */
static char *
hear_all(int fd)
{
  char *text = NULL;
  size_t size = 0;
  for (;;) {
    text = realloc(text, size + 65537);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
    ssize_t got = recv(fd, text + size, 65536, 0);
    if (got <= 0) {
      break;
    }
    size += (size_t)got;
  }
  text[size] = '\0';
  return text;
}

static int
lines(const char *text)
{
  int n = 0;
  for (; *text != '\0'; text++) {
    n += *text == '\n';
  }
  return n;
}

/* ---- the runtime directory ---- */

static void
test_runtime_dir(void **state)
{
  (void)state;
  char path[128];
  struct ct_runtime_dir runtime_dir;
  struct stat info;
  assert_int_equal(ct_runtime_dir_open(&runtime_dir, false, NULL), CT_ENOENT);
  mode_t mask = umask(0);
  runtime_dir = open_runtime_dir();
  umask(mask);
  assert_int_equal(fstat(runtime_dir.fd, &info), 0);
  assert_int_equal(info.st_mode & 07777, 0700);
  snprintf(path, sizeof(path), "%s/contrail", folder);
  assert_string_equal(runtime_dir.path, path);

  mask = umask(0);
  struct ct_server *server = serve(&runtime_dir, "one-1");
  umask(mask);
  assert_int_equal(fstatat(runtime_dir.fd, "one-1.sock", &info, 0), 0);
  assert_true(S_ISSOCK(info.st_mode));
  assert_int_equal(info.st_mode & 07777, 0600);

  char **ids;
  size_t n;
  assert_int_equal(ct_runtime_dir_ids(&runtime_dir, &ids, &n, NULL), CT_OK);
  assert_int_equal(n, 1); /* and nothing else is left there */
  assert_string_equal(ids[0], "one-1");
  ct_runtime_dir_free_ids(ids);
  ct_runtime_dir_remove(&runtime_dir, "one-1");
  ct_server_stop(server);
  int fd;
  assert_int_equal(ct_runtime_dir_connect(&runtime_dir, "one-1", &fd, NULL), CT_ENOENT);
  ct_runtime_dir_close(&runtime_dir);

  /* Not what others could have put things into, nor another user's. */
  assert_int_equal(chmod(path, 0770), 0);
  assert_int_equal(ct_runtime_dir_open(&runtime_dir, true, NULL), CT_EACCES);
  assert_int_equal(chmod(path, 0700), 0);
  if (geteuid() == 0) {
    assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
    assert_int_equal(ct_runtime_dir_open(&runtime_dir, true, NULL), CT_EACCES);
  }
  char elsewhere[sizeof(path) + 1];
  snprintf(elsewhere, sizeof(elsewhere), "%s2", path);
  assert_int_equal(chown(path, geteuid(), (gid_t)-1), 0);
  assert_int_equal(rename(path, elsewhere), 0);
  assert_int_equal(symlink(elsewhere, path), 0);
  assert_int_not_equal(ct_runtime_dir_open(&runtime_dir, true, NULL), CT_OK);
}

/* Without a runtime directory of one's own the sockets are in /tmp. */
static void
test_runtime_dir_in_tmp(void **state)
{
  (void)state;
  char path[64];
  snprintf(path, sizeof(path), "/tmp/contrail-%lu", (unsigned long)geteuid());
  static const char *const values[] = {"", "relative", "/does/not/exist", NULL};
  for (size_t i = 0; i < 4; i++) {
    if (values[i] != NULL) {
      setenv("XDG_RUNTIME_DIR", values[i], 1);
    } else {
      unsetenv("XDG_RUNTIME_DIR");
    }
    struct ct_runtime_dir runtime_dir = open_runtime_dir();
    assert_string_equal(runtime_dir.path, path);
    ct_runtime_dir_close(&runtime_dir);
  }
  if (geteuid() == 0) { /* sudo keeps the environment */
    assert_int_equal(chown(folder, 12345, (gid_t)-1), 0);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    struct ct_runtime_dir runtime_dir = open_runtime_dir();
    assert_string_equal(runtime_dir.path, path);
    ct_runtime_dir_close(&runtime_dir);
  }
}

static void
test_ids(void **state)
{
  (void)state;
  static const char *const good[] = {"a", "redis-server-17", "A_b.c-9"};
  static const char *const bad[] = {
      "",    ".",   "..",       ".a", "a/b",
      "a b", "a\n", "\xc3\xa9", "/",  "0123456789012345678901234567890123456789012345678901234567890123"};
  for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
    assert_true(ct_session_id_is_valid(good[i]));
  }
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    assert_false(ct_session_id_is_valid(bad[i]));
  }
  static const char *const made[][2] = {
      {"/usr/bin/python3", "python3-42"},
      {"a b/c d", "c_d-42"},
      {"/x/.hidden", "_-42"},
      {"/x/", "_-42"},
      {"", "_-42"},
      {"/n/\xc3\xa9", "__-42"},
      {"/x/a-very-long-name-of-a-program-that-goes-on", "a-very-long-name-of-a-program-t-42"}};
  for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
    char id[CT_SESSION_ID_BYTES];
    ct_session_id_make(id, made[i][0], 42);
    assert_string_equal(id, made[i][1]);
    assert_true(ct_session_id_is_valid(id));
  }
}

/* Sockets of sessions that died are taken away by whoever meets them; those of live ones never. */
static void
test_stale(void **state)
{
  (void)state;
  struct ct_runtime_dir runtime_dir = open_runtime_dir();
  struct ct_diag diag = {""};
  int fd, other;
  for (int i = 0; i < 2; i++) {
    pid_t child = fork();
    if (child == 0) {
      _exit(ct_runtime_dir_listen(&runtime_dir, "dead-1", &fd, NULL) == CT_OK ? 7 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_int_equal(faccessat(runtime_dir.fd, "dead-1.sock", F_OK, 0), 0);
    if (i == 0) {
      assert_int_equal(ct_runtime_dir_connect(&runtime_dir, "dead-1", &other, &diag), CT_ENOENT);
    } else {
      assert_int_equal(ct_runtime_dir_listen(&runtime_dir, "dead-1", &fd, &diag), CT_OK);
    }
  }
  assert_int_equal(faccessat(runtime_dir.fd, "dead-1.sock", F_OK, 0), 0);
  assert_int_equal(ct_runtime_dir_listen(&runtime_dir, "dead-1", &other, &diag), CT_EEXIST);
  assert_non_null(strstr(diag.text, "dead-1"));
  close(reach(&runtime_dir, "dead-1"));
  close(fd);
  /* No other file of that name is touched. */
  fd = openat(runtime_dir.fd, "file-1.sock", O_CREAT | O_WRONLY, 0600);
  close(fd);
  assert_int_equal(ct_runtime_dir_connect(&runtime_dir, "file-1", &other, &diag), CT_ENOENT);
  assert_int_equal(faccessat(runtime_dir.fd, "file-1.sock", F_OK, 0), 0);
  assert_int_equal(ct_runtime_dir_connect(&runtime_dir, "../x", &other, &diag), CT_ENOENT);
  ct_runtime_dir_close(&runtime_dir);
}

/* Two processes that come at once: one gets the name. */
static void
test_race(void **state)
{
  (void)state;
  struct ct_runtime_dir runtime_dir = open_runtime_dir();
  for (int round = 0; round < 20; round++) {
    int start[2], result[2], end[2], fd, winners = 0;
    pid_t children[4];
    assert_int_equal(pipe(start) | pipe(result) | pipe(end), 0);
    for (int i = 0; i < 4; i++) {
      children[i] = fork();
      if (children[i] == 0) {
        char c;
        struct ct_runtime_dir own = open_runtime_dir();
        close(start[1]);
        close(end[1]);
        if (read(start[0], &c, 1) < 0) {
          _exit(3);
        }
        int code = ct_runtime_dir_listen(&own, "race-1", &fd, NULL);
        c = (char)(code == CT_OK ? 0 : code == CT_EEXIST ? 1 : 2);
        if (write(result[1], &c, 1) != 1 || read(end[0], &c, 1) != 0) { /* until all have tried */
          _exit(3);
        }
        _exit(0);
      }
    }
    close(start[0]);
    close(start[1]);
    for (int i = 0; i < 4; i++) {
      char c;
      assert_int_equal(read(result[0], &c, 1), 1);
      assert_in_range(c, 0, 1);
      winners += c == 0;
    }
    assert_int_equal(winners, 1);
    close(end[0]);
    close(end[1]);
    close(result[0]);
    close(result[1]);
    for (int i = 0; i < 4; i++) {
      int status;
      waitpid(children[i], &status, 0);
      assert_int_equal(status, 0);
    }
  }
  ct_runtime_dir_close(&runtime_dir);
}

/* ---- the server ---- */

static void *
call_often(void *context)
{
  struct ct_runtime_dir runtime_dir = open_runtime_dir();
  for (int i = 0; i < 20; i++) {
    int fd = reach(&runtime_dir, context);
    for (int j = 0; j < 5; j++) {
      count(fd);
    }
    close(fd);
  }
  ct_runtime_dir_close(&runtime_dir);
  return NULL;
}

static void
test_fifty_clients(void **state)
{
  (void)state;
  struct ct_runtime_dir runtime_dir = open_runtime_dir();
  struct ct_server *server = serve(&runtime_dir, "many-1");
  pthread_t threads[50];
  for (int i = 0; i < 50; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, call_often, "many-1"), 0);
  }
  for (int i = 0; i < 50; i++) {
    pthread_join(threads[i], NULL);
  }
  assert_int_equal(atomic_load(&calls), 50 * 20 * 5);
  ct_server_stop(server);
  ct_runtime_dir_close(&runtime_dir);
}

/* More than there is room for: those that have said nothing for long are closed. */
static void
test_too_many(void **state)
{
  (void)state;
  struct ct_runtime_dir runtime_dir = open_runtime_dir();
  struct ct_server *server = serve(&runtime_dir, "full-1");
  int quiet[CT_SERVER_CLIENTS_MAX], fd = reach(&runtime_dir, "full-1");
  for (int i = 0; i < CT_SERVER_CLIENTS_MAX; i++) {
    quiet[i] = reach(&runtime_dir, "full-1");
    usleep(1000);
    assert_int_equal(count(fd), i + 1);
  }
  struct pollfd wait = {.fd = quiet[0], .events = POLLIN};
  assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
  char c;
  assert_int_equal(recv(quiet[0], &c, 1, 0), 0);
  count(quiet[CT_SERVER_CLIENTS_MAX - 1]);
  for (int i = 0; i < CT_SERVER_CLIENTS_MAX; i++) {
    close(quiet[i]);
  }
  close(fd);
  ct_server_stop(server);
  ct_runtime_dir_close(&runtime_dir);
}

#define COUNT "{\"jsonrpc\": \"2.0\", \"method\": \"count\", \"id\": 1}\n"

static void
test_pieces(void **state)
{
  (void)state;
  struct ct_runtime_dir runtime_dir = open_runtime_dir();
  struct ct_server *server = serve(&runtime_dir, "pieces-1");
  int fd = reach(&runtime_dir, "pieces-1"), other = reach(&runtime_dir, "pieces-1");
  /* Byte by byte, while another one is answered. */
  for (size_t i = 0; i + 1 < strlen(COUNT); i++) {
    say(fd, COUNT + i, 1);
    assert_int_equal(count(other), i + 1);
  }
  say(fd, "\n\n \r\n", 5); /* and empty lines, which mean nothing */
  /* Many in one piece, the last one without its end, which nobody answers. */
  char *text = calloc(501, strlen(COUNT));
  for (int i = 0; i < 500; i++) {
    strcat(text, COUNT);
  }
  strcat(text, "{\"jsonrpc\"");
  say(fd, text, strlen(text));
  free(text);
  shutdown(fd, SHUT_WR);
  text = hear_all(fd);
  assert_int_equal(lines(text), 501);
  free(text);
  close(fd);
  close(other);
  ct_server_stop(server);
  ct_runtime_dir_close(&runtime_dir);
}

static void
test_nonsense(void **state)
{
  (void)state;
  struct ct_runtime_dir runtime_dir = open_runtime_dir();
  struct ct_server *server = serve(&runtime_dir, "garbage-1");
  int good = reach(&runtime_dir, "garbage-1");
  unsigned seed = 1;
  for (int round = 0; round < 50; round++) {
    int fd = reach(&runtime_dir, "garbage-1");
    char junk[5000];
    size_t size = 1 + (size_t)rand_r(&seed) % (sizeof(junk) - 1);
    for (size_t i = 0; i < size; i++) {
      junk[i] = (char)(rand_r(&seed) % (round % 2 == 0 ? 256 : 8) + (round % 2 == 0 ? 0 : '\n'));
    }
    say(fd, junk, size);
    if (round % 3 == 0) {
      shutdown(fd, SHUT_WR), free(hear_all(fd));
    }
    close(fd);
    assert_int_equal(count(good), round + 1);
  }
  /* A line that does not end. */
  int fd = reach(&runtime_dir, "garbage-1");
  char *long_line = malloc(CT_SERVER_REQUEST_BYTES_MAX * 2);
  memset(long_line, '[', CT_SERVER_REQUEST_BYTES_MAX * 2);
  for (size_t at = 0; at < CT_SERVER_REQUEST_BYTES_MAX * 2;) {
    ssize_t sent = send(fd, long_line + at, CT_SERVER_REQUEST_BYTES_MAX * 2 - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    struct pollfd wait = {.fd = fd, .events = POLLIN | POLLOUT};
    if (sent > 0) {
      at += (size_t)sent;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      break;
    }
    assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
    if ((wait.revents & POLLIN) != 0) {
      break;
    }
  }
  char *text = hear_all(fd);
  assert_non_null(strstr(text, "too long"));
  assert_int_equal(lines(text), 1);
  free(text);
  free(long_line);
  close(fd);
  count(good);
  close(good);
  ct_server_stop(server);
  ct_runtime_dir_close(&runtime_dir);
}

/* One that asks and does not read is served no further, while others are; and gets it all when it reads after all. */
static void
test_slow_reader(void **state)
{
  (void)state;
  enum { ASKED = 60 };
  struct ct_runtime_dir runtime_dir = open_runtime_dir();
  struct ct_server *server = serve(&runtime_dir, "slow-1");
  int slow = reach(&runtime_dir, "slow-1"), good = reach(&runtime_dir, "slow-1");
  static const char big[] = "{\"jsonrpc\": \"2.0\", \"method\": \"big\", \"id\": 1}\n";
  for (int i = 0; i < ASKED; i++) {
    say(slow, big, strlen(big));
  }
  int before, after = 0;
  do {
    before = after;
    usleep(100000);
    after = (int)count(good);
  } while (after - before > 1);
  assert_in_range(after, 1, ASKED / 2 + 20); /* what is on the way, in its buffer and the socket's, and ours */
  shutdown(slow, SHUT_WR);
  char *text = hear_all(slow);
  assert_int_equal(lines(text), ASKED);
  assert_true(strlen(text) > (size_t)ASKED * BIG);
  free(text);
  close(slow);
  close(good);
  ct_server_stop(server);
  ct_runtime_dir_close(&runtime_dir);
}

/* The call that is under way when the server is stopped is answered. */
static void *
call_wait(void *context)
{
  struct ct_diag diag = {""};
  json_t *result = NULL;
  assert_int_equal(call(*(int *)context, "wait", NULL, WAIT_MS, &result, &diag), CT_OK);
  json_decref(result);
  return NULL;
}

static void
test_stop(void **state)
{
  (void)state;
  struct ct_runtime_dir runtime_dir = open_runtime_dir();
  struct ct_server *server = serve(&runtime_dir, "stop-1");
  int fd = reach(&runtime_dir, "stop-1");
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, call_wait, &fd), 0);
  while (atomic_load(&calls) == 0) {
    usleep(1000);
  }
  ct_server_stop(server);
  pthread_join(thread, NULL);
  struct ct_diag diag = {""};
  json_t *result = NULL;
  assert_int_equal(call(fd, "count", NULL, WAIT_MS, &result, &diag), CT_ENOENT);
  close(fd);
  /* Without a client at all, and one that never says anything. */
  server = serve(&runtime_dir, "stop-2");
  fd = reach(&runtime_dir, "stop-2");
  ct_server_stop(server);
  close(fd);
  ct_server_stop(NULL);
  ct_runtime_dir_close(&runtime_dir);
}

/* The next line, without its end; to be freed. */
static char *
hear_line(int fd)
{
  char *text = calloc(1, 4096);
  for (size_t size = 0; size < 4095; size++) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
    assert_int_equal(recv(fd, text + size, 1, 0), 1);
    if (text[size] == '\n') {
      text[size] = '\0';
      return text;
    }
  }
  fail_msg("a line without an end");
  return NULL;
}

/* What the line says: an answer's result (an error's code) to the request of that id. */
static void
expect_line(int fd, int id, int wanted)
{
  char *text = hear_line(fd);
  json_t *answer = json_loads(text, 0, NULL), *error = json_object_get(answer, "error");
  json_t *result = error != NULL ? json_object_get(error, "code") : json_object_get(answer, "result");
  if (json_integer_value(json_object_get(answer, "id")) != id || json_integer_value(result) != wanted) {
    fail_msg("%s, not %d to %d", text, wanted, id);
  }
  json_decref(answer);
  free(text);
}

static void
ask_later(int fd, int id, int after, int timeout_ms)
{
  char text[200];
  snprintf(text, sizeof(text),
           "{\"jsonrpc\": \"2.0\", \"method\": \"later\", \"id\": %d, \"params\": {\"opened\": %d, \"timeout\": %d}}\n",
           id, after, timeout_ms);
  say(fd, text, strlen(text));
}

/* What is answered later holds nobody: not the client itself, not others; and it is answered when it can be. */
static void
test_later(void **state)
{
  (void)state;
  static const char open[] = "{\"jsonrpc\": \"2.0\", \"method\": \"open\", \"id\": 9}\n";
  static const char batch[] = "[{\"jsonrpc\": \"2.0\", \"method\": \"later\", \"id\": 1}]\n";
  static const char notification[] = "{\"jsonrpc\": \"2.0\", \"method\": \"later\"}\n";
  struct ct_runtime_dir runtime_dir = open_runtime_dir();
  struct ct_server *server = serve(&runtime_dir, "later-1");
  int fd = reach(&runtime_dir, "later-1"), other = reach(&runtime_dir, "later-1");
  ask_later(fd, 1, 2, -1), ask_later(fd, 2, 1, -1), ask_later(other, 4, 1, -1);
  say(fd, notification, strlen(notification));
  say(fd, open, strlen(open));
  expect_line(fd, 9, 1); /* although it came last */
  expect_line(fd, 2, CT_RPC_ONE_LOOK);
  expect_line(other, 4, CT_RPC_ONE_LOOK);
  ask_later(fd, 3, 7, 60); /* while another one that came before it waits */
  expect_line(fd, 3, CT_RPC_LAST_BY_TIME);
  say(other, open, strlen(open));
  expect_line(other, 9, 2);
  expect_line(fd, 1, CT_RPC_ONE_LOOK);
  /* Not in a batch, and not more than there is room for. */
  say(fd, batch, strlen(batch));
  char *text = hear_line(fd);
  assert_non_null(strstr(text, "cannot be waited for"));
  free(text);
  for (int i = 0; i < CT_SERVER_WAITS_MAX; i++) {
    ask_later(fd, i, 3, -1);
  }
  ask_later(fd, 100, 3, -1);
  expect_line(fd, 100, CT_RPC_LIBRARY + CT_ERANGE);
  say(other, open, strlen(open));
  expect_line(other, 9, 3);
  for (int i = 0; i < CT_SERVER_WAITS_MAX; i++) {
    expect_line(fd, i, CT_RPC_ONE_LOOK);
  }
  close(fd);
  close(other);
  ct_server_stop(server);
  ct_runtime_dir_close(&runtime_dir);
}

/* One that says no more still gets its answer; nobody looks for one that has gone; the end answers all. */
static void
test_later_end(void **state)
{
  (void)state;
  struct ct_runtime_dir runtime_dir = open_runtime_dir();
  struct ct_server *server = serve(&runtime_dir, "later-2");
  int gone = reach(&runtime_dir, "later-2"), half = reach(&runtime_dir, "later-2"), fd = reach(&runtime_dir, "later-2");
  ask_later(gone, 1, 9, -1);
  while (atomic_load(&looks) < 3) {
    usleep(1000);
  }
  close(gone);
  int before, after = atomic_load(&looks);
  do { /* until nobody looks any more */
    before = after;
    usleep(200000);
    after = atomic_load(&looks);
  } while (after != before);
  ask_later(half, 3, 9, 30), ask_later(half, 2, 9, 1000); /* in this order also when both are over */
  shutdown(half, SHUT_WR);
  expect_line(half, 3, CT_RPC_LAST_BY_TIME);
  expect_line(half, 2, CT_RPC_LAST_BY_TIME);
  char *text = hear_all(half);
  assert_string_equal(text, "");
  free(text);
  ask_later(fd, 4, 9, -1), ask_later(fd, 5, 9, 60000);
  after = atomic_load(&looks);
  while (atomic_load(&looks) < after + 2) {
    usleep(1000);
  }
  ct_server_stop(server);
  expect_line(fd, 4, CT_RPC_LAST_AT_END);
  expect_line(fd, 5, CT_RPC_LAST_AT_END);
  close(half);
  close(fd);
  ct_runtime_dir_close(&runtime_dir);
}

/* The socket is open to all, by somebody's mistake: who connects is looked at all the same. */
static void
test_other_user(void **state)
{
  (void)state;
  if (geteuid() != 0) {
    skip();
  }
  struct ct_runtime_dir runtime_dir = open_runtime_dir();
  struct ct_server *server = serve(&runtime_dir, "mine-1");
  char path[128];
  snprintf(path, sizeof(path), "%s/contrail/mine-1.sock", folder);
  assert_int_equal(chmod(folder, 0711) | fchmod(runtime_dir.fd, 0711) | chmod(path, 0666), 0);
  pid_t child = fork();
  if (child == 0) {
    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) {
      _exit(3);
    }
    struct ct_diag diag = {""};
    json_t *result;
    int fd;
    if (ct_runtime_dir_connect(&runtime_dir, "mine-1", &fd, &diag) != CT_OK) {
      _exit(4);
    }
    int code = call(fd, "count", NULL, WAIT_MS, &result, &diag);
    _exit(code == CT_EACCES && strstr(diag.text, "another user") != NULL ? 0 : 5);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(atomic_load(&calls), 0);
  ct_server_stop(server);
  ct_runtime_dir_close(&runtime_dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(test_runtime_dir), TEST(test_runtime_dir_in_tmp), TEST(test_ids),      TEST(test_stale),
      TEST(test_race),        TEST(test_fifty_clients),      TEST(test_too_many), TEST(test_pieces),
      TEST(test_nonsense),    TEST(test_slow_reader),        TEST(test_stop),     TEST(test_later),
      TEST(test_later_end),   TEST(test_other_user),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
