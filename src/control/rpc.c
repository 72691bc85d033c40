/* SPDX-License-Identifier: MIT */
/* JSON-RPC 2.0; see rpc.h. */
#include "control/rpc.h"

#include "base/json.h"

#include <contrail/text.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *
code_text(int code)
{
  switch (code) {
  case CT_RPC_PARSE:
    return "Parse error";
  case CT_RPC_REQUEST:
    return "Invalid Request";
  case CT_RPC_METHOD:
    return "Method not found";
  case CT_RPC_PARAMS:
    return "Invalid params";
  case CT_RPC_INTERNAL:
    return "Internal error";
  default:
    return ct_err_text(code - CT_RPC_LIBRARY);
  }
}

json_t *
ct_rpc_failed(struct ct_rpc_fault *fault, int ct_err)
{
  fault->code = CT_RPC_LIBRARY + ct_err;
  return NULL;
}

json_t *
ct_rpc_wrong_params(struct ct_rpc_fault *fault, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(fault->diag.text, sizeof(fault->diag.text), fmt, ap);
  va_end(ap);
  fault->code = CT_RPC_PARAMS;
  return NULL;
}

int
ct_rpc_only(const json_t *params, struct ct_rpc_fault *fault, const char *const *members)
{
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)params, name, value)
  {
    size_t i = 0;
    while (members[i] != NULL && strcmp(members[i], name) != 0) {
      i++;
    }
    if (members[i] == NULL) {
      ct_rpc_wrong_params(fault, "there is no parameter '%.100s'", name);
      return CT_EINVAL;
    }
  }
  return CT_OK;
}

/* Takes over id. */
static json_t *
error_answer(int code, const char *text, json_t *id)
{
  return json_pack("{s:s, s:{s:i, s:o}, s:o}", "jsonrpc", "2.0", "error", "code", code, "message",
                   ct_json_string(text != NULL && text[0] != '\0' ? text : code_text(code)), "id", id);
}

/* The id of a request, for its answer; NULL when it has none or one that is not allowed. */
static json_t *
id_of(const json_t *request)
{
  json_t *id = json_object_get(request, "id");
  return json_is_string(id) || json_is_number(id) || json_is_null(id) ? id : NULL;
}

static const char *
fault_of_request(const json_t *request)
{
  const char *version = json_string_value(json_object_get(request, "jsonrpc"));
  const json_t *params = json_object_get(request, "params");
  if (!json_is_object(request)) {
    return "a request is an object";
  }
  if (version == NULL || strcmp(version, "2.0") != 0) {
    return "jsonrpc is not \"2.0\"";
  }
  if (!json_is_string(json_object_get(request, "method"))) {
    return "method is not a string";
  }
  if (json_object_get(request, "id") != NULL && id_of(request) == NULL) {
    return "id is neither string, number nor null";
  }
  if (params != NULL && !json_is_object(params) && !json_is_array(params)) {
    return "params is no structure";
  }
  return NULL;
}

/* Takes over the result. */
static json_t *
answer_of(json_t *id, json_t *result, const struct ct_rpc_fault *fault)
{
  return result == NULL ? error_answer(fault->code, fault->diag.text, json_incref(id))
                        : json_pack("{s:s, s:o, s:O}", "jsonrpc", "2.0", "result", result, "id", id);
}

/* The answer to one request: NULL for a notification, whatever becomes of it, and for what is answered later. */
static json_t *
answer_one(const json_t *request, ct_rpc_run *run, void *context, struct ct_rpc_later *later)
{
  const char *wrong = fault_of_request(request);
  if (wrong != NULL) {
    json_t *id = id_of(request);
    return error_answer(CT_RPC_REQUEST, wrong, id != NULL ? json_incref(id) : json_null());
  }
  json_t *params = json_object_get(request, "params");
  json_t *id = id_of(request), *result = NULL;
  struct ct_rpc_fault fault = {.code = CT_RPC_INTERNAL};
  if (json_is_array(params) && json_array_size(params) != 0) {
    ct_rpc_wrong_params(&fault, "parameters are given by name");
  } else {
    result = run(context, json_string_value(json_object_get(request, "method")), json_is_object(params) ? params : NULL,
                 &fault);
  }
  struct ct_rpc_feed *feed = &fault.later.feed;
  if (feed->next != NULL && (id == NULL || result == NULL || later == NULL)) {
    feed->close(feed->state);
    feed->next = NULL;
    json_decref(result);
    result = NULL;
    fault.code = CT_RPC_LATER;
  }
  if (id == NULL) {
    json_decref(result);
    return NULL;
  }
  if (feed->next != NULL) {
    later->feed = *feed;
  }
  if (result == NULL && fault.code == CT_RPC_LATER && later != NULL) {
    *later = fault.later;
    later->id = json_incref(id);
    return NULL;
  }
  if (result == NULL && fault.code == CT_RPC_LATER) {
    ct_rpc_failed(&fault, CT_ERANGE);
    ct_fail(&fault.diag, CT_ERANGE, "it cannot be waited for: too many calls wait already, or it is one of a batch");
  }
  return answer_of(id, result, &fault);
}

static json_t *
answer_batch(const json_t *requests, ct_rpc_run *run, void *context)
{
  size_t i, count = json_array_size(requests);
  json_t *request, *answers;
  if (count == 0) {
    return error_answer(CT_RPC_REQUEST, "an empty batch", json_null());
  }
  if (count > CT_RPC_BATCH_MAX) {
    return error_answer(CT_RPC_REQUEST, "too many requests in one batch", json_null());
  }
  answers = json_array();
  json_array_foreach(requests, i, request)
  {
    json_t *answer = answer_one(request, run, context, NULL);
    if (answer != NULL) {
      json_array_append_new(answers, answer);
    }
  }
  if (json_array_size(answers) != 0) {
    return answers;
  }
  json_decref(answers);
  return NULL;
}

/* The line of an answer; releases it. */
static char *
line_of(json_t *json)
{
  char *text = json_dumps(json, JSON_COMPACT);
  size_t length = text != NULL ? strlen(text) : 0;
  char *line = text != NULL ? realloc(text, length + 2) : NULL;
  json_decref(json);
  if (line == NULL) {
    free(text);
    return NULL;
  }
  memcpy(line + length, "\n", 2);
  return line;
}

/* Takes over json, which may be NULL. */
static int
give_line(json_t *json, char **answer, size_t *size)
{
  char *line = json != NULL ? line_of(json) : NULL;
  if (json != NULL && line == NULL) {
    return CT_ENOMEM;
  }
  *answer = line;
  *size = line != NULL ? strlen(line) : 0;
  return CT_OK;
}

int
ct_rpc_answer(const char *text, size_t length, ct_rpc_run *run, void *context, struct ct_rpc_later *later,
              char **answer, size_t *size)
{
  json_error_t error;
  if (later != NULL) {
    *later = (struct ct_rpc_later){.look = NULL};
  }
  json_t *request = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
  json_t *json = request == NULL          ? error_answer(CT_RPC_PARSE, error.text, json_null())
                 : json_is_array(request) ? answer_batch(request, run, context)
                                          : answer_one(request, run, context, later);
  json_decref(request);
  int code = give_line(json, answer, size);
  if (code != CT_OK && later != NULL && later->feed.next != NULL) {
    later->feed.close(later->feed.state);
    later->feed.next = NULL;
  }
  return code;
}

int
ct_rpc_answer_later(const struct ct_rpc_later *later, void *context, enum ct_rpc_turn turn, char **answer, size_t *size)
{
  struct ct_rpc_fault fault = {.code = CT_RPC_INTERNAL};
  json_t *result = later->look(context, later->what, turn, &fault);
  bool not_yet = result == NULL && fault.code == CT_RPC_LATER && turn == CT_RPC_ONE_LOOK;
  if (fault.code == CT_RPC_LATER) {
    fault.code = CT_RPC_INTERNAL;
  }
  return give_line(not_yet ? NULL : answer_of(later->id, result, &fault), answer, size);
}

void
ct_rpc_drop_later(struct ct_rpc_later *later)
{
  json_decref(later->id);
  *later = (struct ct_rpc_later){.look = NULL};
}

char *
ct_rpc_notification(const char *method, json_t *params)
{
  return line_of(json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params));
}

char *
ct_rpc_refusal(enum ct_rpc_code code, const char *text)
{
  return line_of(error_answer(code, text, json_null()));
}

/* ---- the other side ---- */

char *
ct_rpc_request(const char *method, const json_t *params, json_int_t id)
{
  return line_of(json_pack("{s:s, s:s, s:O*, s:I}", "jsonrpc", "2.0", "method", method, "params", params, "id", id));
}

static int
take_error(const json_t *error, struct ct_diag *diag)
{
  json_int_t code = json_integer_value(json_object_get(error, "code"));
  const char *message = json_string_value(json_object_get(error, "message"));
  int err = code == CT_RPC_METHOD                                  ? CT_EUNSUPPORTED
            : code == CT_RPC_PARAMS                                ? CT_EINVAL
            : code < CT_RPC_LIBRARY && code >= CT_RPC_LIBRARY - 99 ? (int)(code - CT_RPC_LIBRARY)
                                                                   : CT_EIO;
  return ct_fail(diag, err, "%s", message != NULL ? message : "an error without a text");
}

int
ct_rpc_take_answer(const char *text, size_t length, json_int_t id, json_t **result, struct ct_diag *diag)
{
  json_t *answer = json_loadb(text, length, 0, NULL);
  json_t *error = json_object_get(answer, "error"), *given = json_object_get(answer, "result");
  json_t *its_id = json_object_get(answer, "id");
  int code;
  /* A refusal that came before the request was understood has no id. */
  if (error != NULL && (json_is_null(its_id) || json_integer_value(its_id) == id)) {
    code = take_error(error, diag);
  } else if (given != NULL && json_is_integer(its_id) && json_integer_value(its_id) == id) {
    *result = json_incref(given);
    code = CT_OK;
  } else {
    code = ct_fail(diag, CT_EFORMAT, "what the session answered is not understood");
  }
  json_decref(answer);
  return code;
}
