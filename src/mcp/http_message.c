/* SPDX-License-Identifier: MIT */
/*
 * Messages between requests of HTTP and sessions. What a POST brings is looked at here as far as its answer needs: an
 * answer goes to the POST that has its id, a note of progress to the one that has its token. A message whose answer
 * would bear no id is refused here, so a session never says a thing that belongs to nobody.
 */
#include "mcp/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARSE_ERROR = -32700, INVALID_REQUEST = -32600, BUSY = -32000, BATCH_MAX = 256 };
enum { BAD_REQUEST = 400, ACCEPTED = 202, UNAVAILABLE = 503 };

static bool
is_id(const json_t *id)
{
  return json_is_string(id) || json_is_integer(id);
}

/* Where it is in the list, or -1. */
static int
find_value(const json_t *list, const json_t *value)
{
  for (size_t i = 0; value != NULL && i < json_array_size(list); i++) {
    if (json_equal(json_array_get(list, i), value)) {
      return (int)i;
    }
  }
  return -1;
}

/* The one of the session that waits for the answer to the request. */
static struct http_stream *
find_waiting(const struct http_session *session, const json_t *id)
{
  for (struct http_stream *one = session->streams; one != NULL; one = one->next) {
    if (find_value(one->ids, id) >= 0) {
      return one;
    }
  }
  return NULL;
}

/* ---- to the session ---- */

/* The request that it names is not answered any more. */
static void
cancel(const struct http_session *session, const json_t *id)
{
  struct http_stream *waiting = is_id(id) ? find_waiting(session, id) : NULL;
  if (waiting != NULL) {
    json_array_remove(waiting->ids, (size_t)find_value(waiting->ids, id));
    if (json_array_size(waiting->ids) == 0) {
      http_stream_end(waiting);
    }
  }
}

/* NULL, or what is wrong with a message, alone or of a batch. Notes what it asks for. */
static const char *
note_message(struct http_exchange *exchange, const json_t *message)
{
  const char *version = mcp_get_text(message, "jsonrpc"), *method = mcp_get_text(message, "method");
  json_t *id = json_object_get(message, "id"), *params = json_object_get(message, "params");
  if (!json_is_object(message) || version == NULL || strcmp(version, "2.0") != 0) {
    return "not a message of JSON-RPC 2.0";
  }
  if (method == NULL) {
    bool is_answer = json_object_get(message, "result") != NULL || json_object_get(message, "error") != NULL;
    return is_answer ? NULL : "there is no method";
  }
  if (id == NULL) {
    return NULL;
  }
  if (!is_id(id)) {
    return "an id is a string or an integer";
  }
  if (find_value(exchange->stream->ids, id) >= 0 ||
      (exchange->session != NULL && find_waiting(exchange->session, id) != NULL)) {
    return "a request with this id is not answered yet";
  }
  json_array_append(exchange->stream->ids, id);
  json_t *token = json_object_get(json_object_get(params, "_meta"), "progressToken");
  if (is_id(token)) {
    json_array_append(exchange->stream->tokens, token);
  }
  return NULL;
}

static const char *
note_all(struct http_exchange *exchange, const json_t *message)
{
  if (!json_is_array(message)) {
    return note_message(exchange, message);
  }
  const char *wrong = NULL;
  size_t count = json_array_size(message);
  if (exchange->session == NULL || strcmp(exchange->session->version, "2025-03-26") != 0) {
    return "batches are part of protocol version 2025-03-26 alone";
  }
  if (count == 0 || count > BATCH_MAX) {
    return count == 0 ? "an empty batch" : "a batch has at most 256 messages";
  }
  for (size_t i = 0; i < count && wrong == NULL; i++) {
    wrong = note_message(exchange, json_array_get(message, i));
  }
  return wrong;
}

/* The cancellations in it, once it is sure that it goes on. */
static void
cancel_all(struct http_exchange *exchange, const json_t *message)
{
  for (size_t i = 0; i < json_array_size(message); i++) {
    cancel_all(exchange, json_array_get(message, i));
  }
  const char *method = mcp_get_text(message, "method");
  if (method != NULL && strcmp(method, "notifications/cancelled") == 0) {
    cancel(exchange->session, json_object_get(json_object_get(message, "params"), "requestId"));
  }
}

/*
 * The body as a line, which is the caller's; NULL: no memory. It is passed on as it came: written anew a message may
 * become longer than the session takes. Line ends in it stand between values, not in texts.
 */
static char *
body_line(struct http_bytes *body)
{
  bool good = http_append(body, "", 1);
  char *line = good ? body->text : NULL;
  for (char *at = line; at != NULL && *at != '\0'; at++) {
    *at = *at == '\n' || *at == '\r' ? ' ' : *at;
  }
  if (good) {
    memset(body, 0, sizeof(*body));
  }
  return line;
}

static unsigned
take(struct http_exchange *exchange, const json_t *message, int *code, const char **wrong)
{
  *code = INVALID_REQUEST;
  *wrong = note_all(exchange, message);
  if (*wrong != NULL) {
    return BAD_REQUEST;
  }
  const char *method = mcp_get_text(message, "method");
  if (exchange->session == NULL) {
    if (method == NULL || strcmp(method, "initialize") != 0 || json_array_size(exchange->stream->ids) == 0) {
      *wrong = "an Mcp-Session-Id is wanted, which the answer to initialize gives";
      return BAD_REQUEST;
    }
    *code = BUSY;
    exchange->is_initialize = true;
    exchange->session = http_session_start(exchange->server, wrong);
    if (exchange->session == NULL) {
      return UNAVAILABLE;
    }
  }
  if (!http_session_write(exchange->session, body_line(&exchange->body))) {
    if (exchange->is_initialize) {
      http_session_end(exchange->server, exchange->session); /* nobody will know its id */
    }
    *code = BUSY;
    *wrong = "the session has too much to read already";
    return UNAVAILABLE;
  }
  exchange->is_call = method != NULL && strcmp(method, "tools/call") == 0;
  if (json_array_size(exchange->stream->ids) != 0) {
    http_stream_join(exchange->session, exchange->stream);
  }
  cancel_all(exchange, message);
  return exchange->stream->session == NULL ? ACCEPTED : 0;
}

unsigned
http_take_message(struct http_exchange *exchange, int *code, const char **wrong)
{
  static char text[JSON_ERROR_TEXT_LENGTH + 64]; /* there is one thread */
  json_error_t error;
  json_t *message = json_loadb(exchange->body.text != NULL ? exchange->body.text : "", exchange->body.length,
                               JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  struct http_stream *stream = http_stream_make();
  if (stream == NULL) {
    json_decref(message);
    *code = BUSY;
    *wrong = "out of memory";
    return UNAVAILABLE;
  }
  http_stream_read(stream, exchange);
  if (message == NULL) {
    snprintf(text, sizeof(text), "not JSON: %.150s (at byte %d)", error.text, error.position);
    *code = PARSE_ERROR;
    *wrong = text;
    return BAD_REQUEST;
  }
  unsigned status = take(exchange, message, code, wrong);
  json_decref(message);
  return status;
}

/* ---- from the session ---- */

/* The answer to initialize: the session goes on, or there is none. */
static void
see_initialized(struct http_server *server, struct http_session *session, const json_t *message)
{
  const char *version = mcp_get_text(json_object_get(message, "result"), "protocolVersion");
  if (version != NULL) {
    snprintf(session->version, sizeof(session->version), "%.15s", version);
  } else {
    http_session_end(server, session);
  }
}

static void
give_answer(struct http_server *server, struct http_stream *waiting, const json_t *message, const char *line,
            size_t length)
{
  struct http_session *session = waiting->session;
  struct http_exchange *reader = waiting->reader;
  json_array_clear(waiting->ids);
  if (reader != NULL && !reader->is_stream) {
    reader->answer = strndup(line, length);
  } else {
    http_stream_add(waiting, line, length);
  }
  http_stream_end(waiting);
  if (reader != NULL && reader->is_initialize) {
    see_initialized(server, session, message);
  }
}

/* A note: of progress to who asked for it, others to the session's listener. */
static void
give_note(const struct http_session *session, const json_t *message, const char *line, size_t length)
{
  const json_t *token = json_object_get(json_object_get(message, "params"), "progressToken");
  for (struct http_stream *one = session->streams; one != NULL; one = one->next) {
    if (!one->is_over && (token != NULL ? find_value(one->tokens, token) >= 0 : one->is_listening)) {
      http_stream_add(one, line, length);
      return;
    }
  }
}

void
http_give_line(struct http_server *server, struct http_session *session, const char *line, size_t length)
{
  json_error_t error;
  json_t *message = json_loadb(line, length, JSON_ALLOW_NUL, &error);
  const json_t *id = json_object_get(message, "id");
  struct http_stream *waiting = id != NULL ? find_waiting(session, id) : NULL;
  for (size_t i = 0; waiting == NULL && i < json_array_size(message); i++) {
    id = json_object_get(json_array_get(message, i), "id");
    waiting = id != NULL ? find_waiting(session, id) : NULL;
  }
  if (waiting != NULL) {
    give_answer(server, waiting, message, line, length);
  } else if (json_object_get(message, "method") != NULL) {
    give_note(session, message, line, length);
  } /* else: the answer to one that was cancelled, or whose client has gone */
  json_decref(message);
}
