/* SPDX-License-Identifier: MIT */
/* JSON-RPC 2.0: the examples of the specification, and what it leaves to us. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "control/rpc.h"

static int notified;

static json_t *
run(void *context, const char *method, const json_t *params, struct ct_rpc_fault *fault)
{
  static const char *const members[] = {"minuend", "subtrahend", NULL};
  assert_ptr_equal(context, &notified);
  if (strcmp(method, "subtract") == 0) {
    json_int_t a, b;
    if (ct_rpc_only(params, fault, members) != CT_OK) {
      return NULL;
    }
    if (params == NULL || json_unpack((json_t *)params, "{s:I, s:I}", "minuend", &a, "subtrahend", &b) != 0) {
      return ct_rpc_wrong_params(fault, "minuend and subtrahend are numbers");
    }
    return json_integer(a - b);
  }
  if (strcmp(method, "notify") == 0) {
    notified++;
    return json_null();
  }
  if (strcmp(method, "fail") == 0) {
    ct_fail(&fault->diag, CT_EACCES, "caf\xe9 is closed");
    return ct_rpc_failed(fault, CT_EACCES);
  }
  if (strcmp(method, "crash") == 0) {
    return NULL;
  }
  fault->code = CT_RPC_METHOD;
  return NULL;
}

/* The answer to text is what expected says, as JSON; NULL: none. */
static void
check(const char *text, const char *expected)
{
  char *answer;
  size_t size;
  assert_int_equal(ct_rpc_answer(text, strlen(text), run, &notified, NULL, &answer, &size), CT_OK);
  if (expected == NULL) {
    if (answer != NULL) {
      fail_msg("%s: answered by %s", text, answer);
    }
    assert_int_equal(size, 0);
    return;
  }
  assert_non_null(answer);
  assert_int_equal(size, strlen(answer));
  assert_ptr_equal(strchr(answer, '\n'), answer + size - 1);
  json_error_t error;
  json_t *got = json_loads(answer, 0, NULL), *want = json_loads(expected, 0, &error);
  if (want == NULL) {
    fail_msg("%s: %s", expected, error.text);
  }
  if (!json_equal(got, want)) {
    fail_msg("%s: answered by %s, not %s", text, answer, expected);
  }
  json_decref(got);
  json_decref(want);
  free(answer);
}

#define ERROR(code, message, id)                                                                                       \
  "{\"jsonrpc\": \"2.0\", \"error\": {\"code\": " code ", \"message\": \"" message "\"}, \"id\": " id "}"
#define RESULT(result, id) "{\"jsonrpc\": \"2.0\", \"result\": " result ", \"id\": " id "}"
#define SUBTRACT           "\"jsonrpc\": \"2.0\", \"method\": \"subtract\", \"params\": {\"subtrahend\": 23, \"minuend\": 42}"

static void
test_calls(void **state)
{
  (void)state;
  check("{" SUBTRACT ", \"id\": 3}", RESULT("19", "3"));
  check("{" SUBTRACT ", \"id\": \"three\"}", RESULT("19", "\"three\""));
  check("{" SUBTRACT ", \"id\": null}", RESULT("19", "null"));
  check("{" SUBTRACT ", \"id\": 1.5}", RESULT("19", "1.5"));
  check("{" SUBTRACT "}", NULL);
  check("{\"jsonrpc\": \"2.0\", \"method\": \"notify\", \"params\": [], \"id\": 9223372036854775807}",
        RESULT("null", "9223372036854775807"));
  notified = 0;
  check("{\"jsonrpc\": \"2.0\", \"method\": \"notify\"}", NULL);
  assert_int_equal(notified, 1);
  /* Not even errors of a notification are answered. */
  check("{\"jsonrpc\": \"2.0\", \"method\": \"nowhere\"}", NULL);
  check("{\"jsonrpc\": \"2.0\", \"method\": \"subtract\", \"params\": [1]}", NULL);
}

static void
test_errors(void **state)
{
  (void)state;
  check("{\"jsonrpc\": \"2.0\", \"method\": \"foobar\", \"id\": \"1\"}", ERROR("-32601", "Method not found", "\"1\""));
  check("{\"jsonrpc\": \"2.0\", \"method\": 1, \"params\": {}, \"id\": 4}",
        ERROR("-32600", "method is not a string", "4"));
  check("{\"method\": \"notify\", \"id\": 4}", ERROR("-32600", "jsonrpc is not \\\"2.0\\\"", "4"));
  check("{\"jsonrpc\": \"1.0\", \"method\": \"notify\"}", ERROR("-32600", "jsonrpc is not \\\"2.0\\\"", "null"));
  check("{\"jsonrpc\": \"2.0\", \"method\": \"notify\", \"id\": {}}",
        ERROR("-32600", "id is neither string, number nor null", "null"));
  check("{\"jsonrpc\": \"2.0\", \"method\": \"notify\", \"params\": \"bar\", \"id\": 4}",
        ERROR("-32600", "params is no structure", "4"));
  check("17", ERROR("-32600", "a request is an object", "null"));
  check("\"stop\"", ERROR("-32600", "a request is an object", "null"));
  check("{\"jsonrpc\": \"2.0\", \"method\": \"subtract\", \"params\": [42, 23], \"id\": 1}",
        ERROR("-32602", "parameters are given by name", "1"));
  check("{\"jsonrpc\": \"2.0\", \"method\": \"subtract\", \"params\": {\"minuend\": \"x\"}, \"id\": 1}",
        ERROR("-32602", "minuend and subtrahend are numbers", "1"));
  check("{\"jsonrpc\": \"2.0\", \"method\": \"subtract\", \"params\": {\"minuend\": 1, \"other\": 2}, \"id\": 1}",
        ERROR("-32602", "there is no parameter 'other'", "1"));
  check("{\"jsonrpc\": \"2.0\", \"method\": \"crash\", \"id\": 1}", ERROR("-32603", "Internal error", "1"));
  /* A text that is not UTF-8 is made so: the answer is JSON whatever the file was called. */
  check("{\"jsonrpc\": \"2.0\", \"method\": \"fail\", \"id\": 1}", ERROR("-32006", "caf\\ufffd is closed", "1"));
}

static void
test_parse_errors(void **state)
{
  (void)state;
  static const char *const wrong[] = {"{\"jsonrpc\": \"2.0\", \"method\": \"foobar, \"params\": \"bar\", \"baz]",
                                      "[{\"jsonrpc\": \"2.0\", \"method\"",
                                      "{} {}",
                                      "{\"jsonrpc\": \"2.0\", \"jsonrpc\": \"2.0\", \"method\": \"notify\", \"id\": 1}",
                                      "\xff\xfe",
                                      "{\"id\": 1e999}",
                                      "nonsense"};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    char *answer;
    size_t size;
    notified = 0;
    assert_int_equal(ct_rpc_answer(wrong[i], strlen(wrong[i]), run, &notified, NULL, &answer, &size), CT_OK);
    json_t *json = json_loads(answer, 0, NULL);
    json_int_t code;
    json_t *id;
    assert_int_equal(json_unpack(json, "{s:{s:I}, s:o}", "error", "code", &code, "id", &id), 0);
    assert_int_equal(code, -32700);
    assert_true(json_is_null(id));
    assert_int_equal(notified, 0);
    json_decref(json);
    free(answer);
  }
}

static void
test_batches(void **state)
{
  (void)state;
  check("[]", ERROR("-32600", "an empty batch", "null"));
  check("[1]", "[" ERROR("-32600", "a request is an object", "null") "]");
  check("[{" SUBTRACT ", \"id\": 1}, {" SUBTRACT
        "}, 7, {\"jsonrpc\": \"2.0\", \"method\": \"get\", \"id\": \"g\"}, [], {" SUBTRACT ", \"id\": 1}]",
        "[" RESULT("19", "1") ", " ERROR("-32600", "a request is an object", "null") ", " ERROR(
            "-32601", "Method not found", "\"g\"") ", " ERROR("-32600", "a request is an object",
                                                              "null") ", " RESULT("19", "1") "]");
  notified = 0;
  check("[{\"jsonrpc\": \"2.0\", \"method\": \"notify\"}, {\"jsonrpc\": \"2.0\", \"method\": \"notify\"}]", NULL);
  assert_int_equal(notified, 2);

  char *many = calloc(CT_RPC_BATCH_MAX + 2, 64);
  for (int count = CT_RPC_BATCH_MAX; count <= CT_RPC_BATCH_MAX + 1; count++) {
    notified = 0;
    strcpy(many, "[");
    for (int i = 0; i < count; i++) {
      strcat(many,
             i == 0 ? "{\"jsonrpc\":\"2.0\",\"method\":\"notify\"}" : ",{\"jsonrpc\":\"2.0\",\"method\":\"notify\"}");
    }
    strcat(many, "]");
    check(many, count <= CT_RPC_BATCH_MAX ? NULL : ERROR("-32600", "too many requests in one batch", "null"));
    assert_int_equal(notified, count <= CT_RPC_BATCH_MAX ? count : 0);
  }
  free(many);
}

/* ---- the asking side ---- */

static int
take(const char *answer, json_int_t *value, struct ct_diag *diag)
{
  json_t *result = NULL;
  int code = ct_rpc_take_answer(answer, strlen(answer), 5, &result, diag);
  if (code == CT_OK) {
    *value = json_integer_value(result);
  } else {
    assert_null(result);
  }
  json_decref(result);
  return code;
}

static void
test_answers(void **state)
{
  (void)state;
  struct ct_diag diag = {""};
  json_int_t value = 0;
  json_t *params = json_pack("{s:i, s:i}", "minuend", 42, "subtrahend", 23);
  char *request = ct_rpc_request("subtract", params, 5), *answer;
  size_t size;
  assert_int_equal(ct_rpc_answer(request, strlen(request), run, &notified, NULL, &answer, &size), CT_OK);
  assert_int_equal(take(answer, &value, &diag), CT_OK);
  assert_int_equal(value, 19);
  free(answer);
  free(request);
  json_decref(params);

  assert_int_equal(take(ERROR("-32601", "what?", "5"), &value, &diag), CT_EUNSUPPORTED);
  assert_string_equal(diag.text, "what?");
  assert_int_equal(take(ERROR("-32602", "no", "5"), &value, &diag), CT_EINVAL);
  assert_int_equal(take(ERROR("-32006", "no", "null"), &value, &diag), CT_EACCES);
  assert_int_equal(take(ERROR("-32603", "no", "5"), &value, &diag), CT_EIO);
  assert_int_equal(take(ERROR("12", "no", "5"), &value, &diag), CT_EIO);
  static const char *const wrong[] = {
      "", "{}", "[]", "7", RESULT("1", "6"), RESULT("1", "\"5\""), RESULT("1", "null"), "\xff"};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    assert_int_equal(take(wrong[i], &value, &diag), CT_EFORMAT);
  }

  request = ct_rpc_request("notify", NULL, 1);
  assert_null(strstr(request, "params"));
  free(request);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_calls),   cmocka_unit_test(test_errors),  cmocka_unit_test(test_parse_errors),
      cmocka_unit_test(test_batches), cmocka_unit_test(test_answers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
