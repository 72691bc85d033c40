/* SPDX-License-Identifier: MIT */
/*
 * Feeds of a session's socket: notifications that come of themselves, to clients that read them, that do not, that go
 * away; a server that stops.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "control/client.h"
#include "control/runtime_dir.h"
#include "control/server.h"

enum { WAIT_MS = 60000, MANY = 30000, ENOUGH_BYTES = 2 << 20 };

static char folder[64];
static atomic_int taken, closed, lasts;

/* Numbers from 0 up to a limit, or to those that have been made. */
struct numbers {
  json_int_t next, end;
  int fd;
};

static char *
next_number(void *state, bool is_last, bool *is_over)
{
  struct numbers *numbers = state;
  uint64_t unused;
  if (is_last && numbers->next == 0) {
    atomic_fetch_add(&lasts, 1);
    *is_over = true;
    return ct_rpc_notification("last", json_object());
  }
  if (numbers->next == numbers->end) {
    *is_over = numbers->end != 0;
    while (read(numbers->fd, &unused, sizeof(unused)) < 0 && errno == EINTR) {
    }
    return NULL;
  }
  atomic_fetch_add(&taken, 1);
  return ct_rpc_notification("number", json_integer(numbers->next++));
}

static void
close_numbers(void *state)
{
  struct numbers *numbers = state;
  close(numbers->fd);
  free(numbers);
  atomic_fetch_add(&closed, 1);
}

static json_t *
run(void *context, const char *method, const json_t *params, struct ct_rpc_fault *fault)
{
  (void)context;
  if (strcmp(method, "count") == 0) {
    return json_integer(atomic_load(&taken));
  }
  struct numbers *numbers = malloc(sizeof(*numbers));
  *numbers = (struct numbers){.end = json_integer_value(json_object_get(params, "end")),
                              .fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)};
  fault->later.feed =
      (struct ct_rpc_feed){.next = next_number, .close = close_numbers, .state = numbers, .fd = numbers->fd};
  return json_true();
}

static struct ct_runtime_dir runtime_dir;
static struct ct_server *server;

static int
setup(void **state)
{
  (void)state;
  struct ct_diag diag = {""};
  int fd;
  strcpy(folder, "/tmp/control-test-XXXXXX");
  assert_non_null(mkdtemp(folder));
  setenv("XDG_RUNTIME_DIR", folder, 1);
  atomic_store(&taken, 0);
  atomic_store(&closed, 0);
  atomic_store(&lasts, 0);
  if (ct_runtime_dir_open(&runtime_dir, true, &diag) != CT_OK ||
      ct_runtime_dir_listen(&runtime_dir, "feeds-1", &fd, &diag) != CT_OK ||
      ct_server_start(fd, run, NULL, &server, &diag) != CT_OK) {
    fail_msg("%s", diag.text);
  }
  return 0;
}

static int
teardown(void **state)
{
  (void)state;
  char command[128];
  ct_runtime_dir_close(&runtime_dir);
  snprintf(command, sizeof(command), "rm -rf %s", folder);
  return system(command);
}

static int
reach(void)
{
  struct ct_diag diag = {""};
  int fd;
  if (ct_runtime_dir_connect(&runtime_dir, "feeds-1", &fd, &diag) != CT_OK) {
    fail_msg("%s", diag.text);
  }
  return fd;
}

static void
subscribe(int fd, struct ct_client_input *input, json_int_t end)
{
  struct ct_diag diag = {""};
  json_t *params = json_pack("{s:I}", "end", end), *result = NULL;
  assert_int_equal(ct_client_call(fd, input, "feed", params, WAIT_MS, &result, &diag), CT_OK);
  json_decref(result);
  json_decref(params);
}

/* The next line's method and number. */
static const char *
hear(int fd, struct ct_client_input *input, json_int_t *number)
{
  static char method[32];
  struct ct_diag diag = {""};
  char *line;
  size_t length;
  if (ct_client_line(fd, input, WAIT_MS, &line, &length, &diag) != CT_OK) {
    return "";
  }
  json_t *json = json_loadb(line, length, 0, NULL);
  assert_null(json_object_get(json, "id"));
  snprintf(method, sizeof(method), "%s", json_string_value(json_object_get(json, "method")));
  *number = json_integer_value(json_object_get(json, "params"));
  json_decref(json);
  free(line);
  return method;
}

static json_int_t
count(void)
{
  struct ct_diag diag = {""};
  struct ct_client_input input = {.bytes = NULL};
  json_t *result = NULL;
  int fd = reach();
  assert_int_equal(ct_client_call(fd, &input, "count", NULL, WAIT_MS, &result, &diag), CT_OK);
  json_int_t n = json_integer_value(result);
  json_decref(result);
  free(input.bytes);
  close(fd);
  return n;
}

static void
await(atomic_int *number, int wanted)
{
  for (int i = 0; i < WAIT_MS && atomic_load(number) != wanted; i++) {
    usleep(1000);
  }
  assert_int_equal(atomic_load(number), wanted);
}

/* All of it, in order, once; then other calls on the same connection. */
static void
test_reads(void **state)
{
  (void)state;
  struct ct_client_input input = {.bytes = NULL};
  json_int_t number;
  int fd = reach();
  subscribe(fd, &input, MANY);
  for (json_int_t i = 0; i < MANY; i++) {
    assert_string_equal(hear(fd, &input, &number), "number");
    assert_int_equal(number, i);
  }
  await(&closed, 1);
  subscribe(fd, &input, 1);
  assert_string_equal(hear(fd, &input, &number), "number");
  free(input.bytes);
  close(fd);
  ct_server_stop(server);
}

/* Who does not read has no more made for him than fits between us, and keeps nobody waiting. */
static void
test_does_not_read(void **state)
{
  (void)state;
  struct ct_client_input input = {.bytes = NULL};
  json_int_t before = -1, after = 0,
             line = (json_int_t)strlen("{\"jsonrpc\":\"2.0\",\"method\":\"number\",\"params\":0}\n");
  int fd = reach();
  subscribe(fd, &input, INT32_MAX);
  while (before != after) {
    before = after;
    usleep(20000);
    after = count();
  }
  assert_in_range(after, 1, ENOUGH_BYTES / line);
  close(fd);
  await(&closed, 1);
  free(input.bytes);
  ct_server_stop(server);
}

/* Feeds that have nothing to say: how many there may be, their end with the connection's, the last word. */
static void
test_silent(void **state)
{
  (void)state;
  struct ct_client_input input = {.bytes = NULL}, other = {.bytes = NULL};
  struct ct_diag diag = {""};
  json_t *result = NULL;
  json_int_t number;
  int fd = reach(), gone = reach();
  for (int i = 0; i < CT_SERVER_WAITS_MAX; i++) {
    subscribe(fd, &input, 0);
    subscribe(gone, &other, 0);
  }
  assert_int_equal(ct_client_call(fd, &input, "feed", NULL, WAIT_MS, &result, &diag), CT_ERANGE);
  close(gone);
  await(&closed, CT_SERVER_WAITS_MAX + 1);
  ct_server_stop(server);
  assert_int_equal(atomic_load(&lasts), CT_SERVER_WAITS_MAX);
  for (int i = 0; i < CT_SERVER_WAITS_MAX; i++) {
    assert_string_equal(hear(fd, &input, &number), "last");
  }
  assert_string_equal(hear(fd, &input, &number), "");
  assert_int_equal(atomic_load(&closed), 2 * CT_SERVER_WAITS_MAX + 1);
  free(input.bytes);
  free(other.bytes);
  close(fd);
}

/* In a batch there is no feed, and for a request that wants no answer. */
static void
test_without(void **state)
{
  (void)state;
  static const char batch[] = "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"feed\"}]\n";
  static const char silent[] = "{\"jsonrpc\":\"2.0\",\"method\":\"feed\"}\n";
  struct ct_client_input input = {.bytes = NULL};
  struct ct_diag diag = {""};
  char *line;
  size_t length;
  int fd = reach();
  assert_int_equal(send(fd, silent, strlen(silent), 0), strlen(silent));
  assert_int_equal(send(fd, batch, strlen(batch), 0), strlen(batch));
  assert_int_equal(ct_client_line(fd, &input, WAIT_MS, &line, &length, &diag), CT_OK);
  assert_non_null(strstr(line, "cannot be waited for"));
  free(line);
  assert_int_equal(atomic_load(&closed), 2);
  free(input.bytes);
  close(fd);
  ct_server_stop(server);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
  const struct CMUnitTest tests[] = {TEST(test_reads), TEST(test_does_not_read), TEST(test_silent), TEST(test_without)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
