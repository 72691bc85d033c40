/* SPDX-License-Identifier: MIT */
/*
 * What comes in on a session's socket, as a request and as an answer. Whatever it is, a request is answered by one line
 * of JSON-RPC or, when there was nothing but notifications, by nothing; an answer is taken or refused with a reason.
 */
#include "fuzz.h"

#include "control/runtime_dir.h"
#include "control/rpc.h"

static size_t calls;

static json_t *
run(void *context, const char *method, const json_t *params, struct ct_rpc_fault *fault)
{
  static const char *const members[] = {"end", "patterns", NULL};
  CHECK(context == &calls && method != NULL && (params == NULL || json_is_object(params)));
  calls++;
  if (ct_rpc_only(params, fault, members) != CT_OK) {
    CHECK(fault->code == CT_RPC_PARAMS && fault->diag.text[0] != '\0');
    return NULL;
  }
  switch (method[0]) {
  case 's':
    return json_object();
  case 't':
    return json_deep_copy(json_object_get(params, "patterns"));
  case 'f':
    ct_fail(&fault->diag, CT_EACCES, "%s", method);
    return ct_rpc_failed(fault, CT_EACCES);
  default:
    fault->code = CT_RPC_METHOD;
    return NULL;
  }
}

/* One answer: what the specification wants of it. */
static void
check_answer(const json_t *answer)
{
  const json_t *error = json_object_get(answer, "error"), *id = json_object_get(answer, "id");
  CHECK(json_object_size(answer) == 3);
  CHECK(strcmp(json_string_value(json_object_get(answer, "jsonrpc")), "2.0") == 0);
  CHECK(json_is_string(id) || json_is_number(id) || json_is_null(id));
  CHECK((error != NULL) != (json_object_get(answer, "result") != NULL));
  if (error != NULL) {
    CHECK(json_is_integer(json_object_get(error, "code")) && json_is_string(json_object_get(error, "message")));
    CHECK(json_integer_value(json_object_get(error, "code")) < 0);
  }
}

static bool
is_request(const json_t *request)
{
  const json_t *params = json_object_get(request, "params"), *id = json_object_get(request, "id");
  const char *version = json_string_value(json_object_get(request, "jsonrpc"));
  return version != NULL && strcmp(version, "2.0") == 0 && json_is_string(json_object_get(request, "method")) &&
         (id == NULL || json_is_string(id) || json_is_number(id) || json_is_null(id)) &&
         (params == NULL || json_is_object(params) || json_is_array(params));
}

/* How many answers there must be. */
static size_t
count_expected(const json_t *request)
{
  size_t count = 0, i;
  const json_t *one;
  if (!json_is_array(request)) {
    return request == NULL || !is_request(request) || json_object_get(request, "id") != NULL;
  }
  if (json_array_size(request) == 0 || json_array_size(request) > CT_RPC_BATCH_MAX) {
    return 1;
  }
  json_array_foreach((json_t *)request, i, one) count += !is_request(one) || json_object_get(one, "id") != NULL;
  return count;
}

static void
check_request(const char *text, size_t size)
{
  char *line = NULL;
  size_t length = 0, i;
  json_t *request = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL), *one;
  calls = 0;
  CHECK(ct_rpc_answer(text, size, run, &calls, NULL, &line, &length) == CT_OK);
  size_t expected = count_expected(request);
  CHECK((line != NULL) == (expected != 0) && calls <= CT_RPC_BATCH_MAX);
  if (line != NULL) {
    CHECK(length == strlen(line) && strchr(line, '\n') == line + length - 1);
    json_t *answer = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
    CHECK(answer != NULL);
    if (json_is_array(answer)) {
      CHECK(json_array_size(answer) == expected && json_is_array(request));
      json_array_foreach(answer, i, one) check_answer(one);
    } else {
      CHECK(expected == 1);
      check_answer(answer);
    }
    json_t *result = NULL;
    struct ct_diag diag = {""};
    json_int_t id = json_integer_value(json_object_get(answer, "id"));
    int code = ct_rpc_take_answer(line, length, id, &result, &diag);
    CHECK(code == CT_OK ? result != NULL && json_is_integer(json_object_get(answer, "id")) : diag.text[0] != '\0');
    json_decref(result);
    json_decref(answer);
  }
  json_decref(request);
  free(line);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char *text = malloc(size + 1), id[CT_SESSION_ID_BYTES];
  CHECK(text != NULL);
  memcpy(text, data, size);
  text[size] = '\0';
  check_request(text, size);

  json_t *result = NULL;
  struct ct_diag diag = {""};
  int code = ct_rpc_take_answer(text, size, 1, &result, &diag);
  CHECK(code == CT_OK ? result != NULL : result == NULL && code < 0 && diag.text[0] != '\0');
  json_decref(result);

  ct_session_id_make(id, text, (long)size);
  CHECK(ct_session_id_is_valid(id));
  free(text);
  return 0;
}
