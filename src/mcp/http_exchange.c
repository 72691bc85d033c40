/* SPDX-License-Identifier: MIT */
/*
 * Requests of HTTP: what is looked at before anything else (host, origin, token, path, headers), and the answers.
 *
 * A POST with a request waits for the session's answer, suspended. An answer that comes soon is JSON. When there is a
 * note of progress before it, or a second has gone by, the response becomes a stream of events, which ends with the
 * answer; a comment now and then keeps it open and shows when the client has gone. A GET is such a stream from the
 * start, and so is a call of a tool from a client that knows events without data (2025-11-25): it has the stream's id
 * before anything is done, so that the answer is not lost with its connection.
 *
 *     new -> body ... -> taken -> (suspended <-> woken) -> answered -> completed
 */
#include "mcp/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { STREAM_AFTER_MS = 1000, COMMENT_MS = 15000, BLOCK_BYTES = 16 << 10, EXCESS_MAX = 16 << 20 };
enum { INVALID_REQUEST = -32600, GONE = -32001, BUSY = -32000, INTERNAL = -32603 };

/* ---- responses ---- */

static enum MHD_Result
queue(struct http_exchange *exchange, unsigned status, struct MHD_Response *response)
{
  enum MHD_Result result = MHD_NO;
  if (response != NULL) {
    http_library.add_response_header(response, "Cache-Control", "no-store");
    http_library.add_response_header(response, "X-Content-Type-Options", "nosniff");
    result = http_library.queue_response(exchange->connection, status, response);
    http_library.destroy_response(response);
  }
  exchange->is_answered = result == MHD_YES;
  return result;
}

static enum MHD_Result
respond_text(struct http_exchange *exchange, unsigned status, const char *text, const char *header, const char *value)
{
  struct MHD_Response *response =
      http_library.create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY);
  if (response != NULL && text[0] != '\0') {
    http_library.add_response_header(response, "Content-Type", "application/json");
  }
  if (response != NULL && header != NULL) {
    http_library.add_response_header(response, header, value);
  }
  return queue(exchange, status, response);
}

static enum MHD_Result
refuse_with(struct http_exchange *exchange, unsigned status, int code, const char *wrong, const char *header,
            const char *value)
{
  json_t *error =
      json_pack("{s:s, s:n, s:{s:i, s:o}}", "jsonrpc", "2.0", "id", "error", "code", code, "message", mcp_text(wrong));
  char *text = error != NULL ? json_dumps(error, JSON_COMPACT) : NULL;
  json_decref(error);
  enum MHD_Result result = text != NULL ? respond_text(exchange, status, text, header, value) : MHD_NO;
  free(text);
  return result;
}

static enum MHD_Result
refuse(struct http_exchange *exchange, unsigned status, int code, const char *wrong)
{
  return refuse_with(exchange, status, code, wrong, NULL, NULL);
}

/* The next of a stream's events, as libmicrohttpd asks for them. */
static ssize_t
read_events(void *context, uint64_t position, char *to, size_t size)
{
  struct http_exchange *exchange = context;
  struct http_bytes *events = &exchange->events;
  size_t length = events->length - events->taken;
  if (length == 0 && exchange->is_over) {
    return MHD_CONTENT_READER_END_OF_STREAM;
  }
  if (length == 0) {
    exchange->is_suspended = true;
    http_library.suspend_connection(exchange->connection);
    return 0;
  }
  length = length < size ? length : size;
  memcpy(to, events->text + events->taken, length);
  events->taken += length;
  if (events->taken == events->length) {
    http_empty(events);
  }
  return (ssize_t)length;
}

static enum MHD_Result
respond_stream(struct http_exchange *exchange)
{
  struct MHD_Response *response =
      http_library.create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_events, exchange, NULL);
  if (response != NULL) {
    http_library.add_response_header(response, "Content-Type", "text/event-stream");
  }
  exchange->is_stream = true; /* a cancelled one is a stream without an event */
  return queue(exchange, MHD_HTTP_OK, response);
}

/* One that was taken, and has been woken, or need not wait. */
static enum MHD_Result
respond(struct http_exchange *exchange)
{
  if (exchange->answer != NULL) {
    bool has_id = exchange->is_initialize && exchange->session != NULL;
    return respond_text(exchange, MHD_HTTP_OK, exchange->answer, has_id ? "Mcp-Session-Id" : NULL,
                        has_id ? exchange->session->id : NULL);
  }
  if (exchange->is_over && exchange->session == NULL && !exchange->is_stream) {
    return refuse(exchange, MHD_HTTP_NOT_FOUND, GONE, "the session has ended before this was answered");
  }
  if (exchange->is_stream || exchange->is_over) { /* cancelled: a stream without an event */
    return respond_stream(exchange);
  }
  exchange->is_suspended = true;
  http_library.suspend_connection(exchange->connection);
  return MHD_YES;
}

void
http_wake(struct http_exchange *exchange)
{
  if (exchange->is_suspended) {
    exchange->is_suspended = false;
    http_library.resume_connection(exchange->connection);
  }
}

bool
http_exchanges_tick(struct http_server *server, uint64_t now_ms)
{
  static const char comment[] = ": waiting\n\n";
  bool one_will = false;
  for (struct http_exchange *one = server->exchanges; one != NULL; one = one->next) {
    if (!one->is_suspended) {
      continue;
    }
    bool waits = !one->is_stream && !one->is_initialize; /* an initialize's answer has a header of its own */
    if (now_ms - (one->is_stream ? one->reported_ms : one->begun_ms) >=
            (one->is_stream ? COMMENT_MS : STREAM_AFTER_MS) &&
        (one->is_stream || waits)) {
      http_stream_say(one, comment);
    }
    one_will = one_will || waits;
  }
  return one_will;
}

/* ---- requests ---- */

static const char *
header(const struct http_exchange *exchange, const char *name)
{
  return http_library.lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

/*
 * Headers of which one is looked at: with two of them somebody else might look at the other. The same of what says
 * where a body ends: a proxy between might see another request begin there.
 */
struct counts {
  unsigned hosts, origins, tokens, sessions, ends;
};

static enum MHD_Result
count(void *context, enum MHD_ValueKind kind, const char *key, const char *value)
{
  struct counts *counts = context;
  counts->hosts += strcasecmp(key, "Host") == 0;
  counts->origins += strcasecmp(key, "Origin") == 0;
  counts->tokens += strcasecmp(key, "Authorization") == 0;
  counts->sessions += strcasecmp(key, "Mcp-Session-Id") == 0;
  counts->ends += strcasecmp(key, "Content-Length") == 0 || strcasecmp(key, "Transfer-Encoding") == 0;
  return MHD_YES;
}

/* MHD_YES and is_refused false: whoever asks may. */
static enum MHD_Result
check_caller(struct http_exchange *exchange)
{
  const struct http_server *server = exchange->server;
  const char *origin = header(exchange, "Origin");
  struct counts counts = {0};
  http_library.get_connection_values(exchange->connection, MHD_HEADER_KIND, count, &counts);
  exchange->is_refused = true;
  if (counts.hosts != 1 || !http_is_our_host(header(exchange, "Host"), server->is_loopback)) {
    return refuse(exchange, MHD_HTTP_FORBIDDEN, INVALID_REQUEST, "Host is none of this server's");
  }
  if (counts.origins > 1 || (origin != NULL && !http_is_our_origin(origin, server->is_loopback))) {
    return refuse(exchange, MHD_HTTP_FORBIDDEN, INVALID_REQUEST, "Origin is another's page");
  }
  bool is_trusted = counts.tokens == 1 && http_is_authorized(header(exchange, "Authorization"), server->token);
  if (exchange->client != NULL) {
    exchange->client->is_trusted = is_trusted;
  }
  if (!is_trusted) {
    return refuse_with(exchange, MHD_HTTP_UNAUTHORIZED, INVALID_REQUEST,
                       "Authorization: Bearer with the server's token is wanted", "WWW-Authenticate", "Bearer");
  }
  const char *coding = header(exchange, "Transfer-Encoding");
  if (counts.ends > 1 || counts.sessions > 1 || (coding != NULL && strcasecmp(coding, "chunked") != 0)) {
    return refuse(exchange, MHD_HTTP_BAD_REQUEST, INVALID_REQUEST,
                  "one Content-Length, or Transfer-Encoding: chunked, and one Mcp-Session-Id");
  }
  exchange->is_refused = false;
  return MHD_YES;
}

/* The headers of a POST or GET. */
static enum MHD_Result
check_form(struct http_exchange *exchange, bool is_post)
{
  const char *accept = header(exchange, "Accept"), *type = header(exchange, "Content-Type");
  const char *length = header(exchange, "Content-Length");
  static const char json[] = "application/json";
  exchange->is_refused = true;
  if (!http_accepts(accept, "text/event-stream") || (is_post && !http_accepts(accept, json))) {
    return refuse(exchange, MHD_HTTP_NOT_ACCEPTABLE, INVALID_REQUEST,
                  is_post ? "Accept is to have application/json and text/event-stream"
                          : "Accept is to have text/event-stream");
  }
  if (is_post && (type == NULL || strncasecmp(type, json, sizeof(json) - 1) != 0 ||
                  strchr("; \t", type[sizeof(json) - 1]) == NULL)) {
    return refuse(exchange, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, INVALID_REQUEST, "Content-Type is to be application/json");
  }
  if (length != NULL && strtoull(length, NULL, 10) > HTTP_BODY_MAX) {
    return refuse(exchange, MHD_HTTP_CONTENT_TOO_LARGE, INVALID_REQUEST, "a message has at most 4 MiB");
  }
  exchange->is_refused = false;
  return MHD_YES;
}

/* The session that the headers name, which speaks the version that they name. */
static enum MHD_Result
find_session(struct http_exchange *exchange, bool is_post)
{
  static const char *const versions[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", NULL};
  const char *id = header(exchange, "Mcp-Session-Id"), *version = header(exchange, "MCP-Protocol-Version");
  bool is_known = version == NULL;
  for (size_t i = 0; !is_known && versions[i] != NULL; i++) {
    is_known = strcmp(versions[i], version) == 0;
  }
  exchange->is_refused = true;
  if (!is_known) {
    return refuse(exchange, MHD_HTTP_BAD_REQUEST, INVALID_REQUEST,
                  "MCP-Protocol-Version is none of 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05");
  }
  if (id == NULL && !is_post) {
    return refuse(exchange, MHD_HTTP_BAD_REQUEST, INVALID_REQUEST, "an Mcp-Session-Id is wanted");
  }
  struct http_session *session = id != NULL ? http_session_find(exchange->server, id) : NULL;
  if (id != NULL && session == NULL) {
    return refuse(exchange, MHD_HTTP_NOT_FOUND, GONE, "there is no such session, or it has ended: initialize anew");
  }
  if (session != NULL && version != NULL && strcmp(version, session->version) != 0) {
    return refuse(exchange, MHD_HTTP_BAD_REQUEST, INVALID_REQUEST,
                  "MCP-Protocol-Version is not the one that this session has agreed upon");
  }
  exchange->is_refused = false;
  exchange->session = session;
  if (session != NULL) {
    session->used_ms = http_now_ms();
  }
  return MHD_YES;
}

/* A request's head has come. */
static enum MHD_Result
begin(struct http_exchange *exchange, const char *url, const char *method)
{
  bool is_post = strcmp(method, "POST") == 0, is_get = strcmp(method, "GET") == 0;
  enum MHD_Result result = check_caller(exchange);
  if (exchange->is_refused) {
    return result;
  }
  exchange->is_refused = true;
  if (strcmp(url, "/mcp") != 0) {
    return refuse(exchange, MHD_HTTP_NOT_FOUND, INVALID_REQUEST, "the only path is /mcp");
  }
  if (!is_post && !is_get && strcmp(method, "DELETE") != 0) {
    return refuse_with(exchange, MHD_HTTP_METHOD_NOT_ALLOWED, INVALID_REQUEST, "POST, GET or DELETE", "Allow",
                       "POST, GET, DELETE");
  }
  exchange->is_refused = false;
  if (is_post || is_get) {
    result = check_form(exchange, is_post);
  }
  return exchange->is_refused ? result : find_session(exchange, is_post);
}

static enum MHD_Result
take_post(struct http_exchange *exchange)
{
  int code = INTERNAL;
  const char *wrong = "";
  if (exchange->body.length > HTTP_BODY_MAX) {
    return refuse(exchange, MHD_HTTP_CONTENT_TOO_LARGE, INVALID_REQUEST, "a message has at most 4 MiB");
  }
  unsigned status = http_take_message(exchange, &code, &wrong);
  free(exchange->body.text);
  memset(&exchange->body, 0, sizeof(exchange->body));
  if (status == MHD_HTTP_ACCEPTED) {
    return respond_text(exchange, status, "", NULL, NULL);
  }
  if (status != 0) {
    return refuse(exchange, status, code, wrong);
  }
  if (exchange->is_call && strcmp(exchange->session->version, "2025-11-25") >= 0) {
    http_stream_say(exchange, "");
  }
  return respond(exchange);
}

static enum MHD_Result
take_get(struct http_exchange *exchange)
{
  const char *last = header(exchange, "Last-Event-ID");
  if (last != NULL) {
    return http_stream_resume(exchange, last)
               ? respond_stream(exchange)
               : refuse(exchange, MHD_HTTP_GONE, INVALID_REQUEST, "Last-Event-ID: that stream is not kept (any more)");
  }
  struct http_stream *stream = http_stream_listen(exchange->session);
  if (stream == NULL) {
    return refuse(exchange, MHD_HTTP_CONFLICT, INVALID_REQUEST, "this session's stream is being read already");
  }
  exchange->is_listening = true;
  http_stream_read(stream, exchange);
  http_stream_say(exchange, ": listening\n\n"); /* the head goes out with it */
  return respond_stream(exchange);
}

/* A request that has come as a whole. */
static enum MHD_Result
take(struct http_exchange *exchange, const char *method)
{
  exchange->is_taken = true;
  if (exchange->client != NULL) {
    exchange->client->is_served = true;
  }
  if (strcmp(method, "POST") == 0) {
    /* While its body came its session may have ended: with no session it would begin one. */
    return exchange->is_over ? respond(exchange) : take_post(exchange);
  }
  if (exchange->session == NULL) {
    return refuse(exchange, MHD_HTTP_NOT_FOUND, GONE, "the session has ended");
  }
  if (strcmp(method, "GET") == 0) {
    return take_get(exchange);
  }
  struct http_session *session = exchange->session;
  exchange->session = NULL;
  http_session_end(exchange->server, session);
  return respond_text(exchange, MHD_HTTP_NO_CONTENT, "", NULL, NULL);
}

enum MHD_Result
http_handle(void *context, struct MHD_Connection *connection, const char *url, const char *method, const char *version,
            const char *data, size_t *size, void **memory)
{
  struct http_server *server = context;
  struct http_exchange *exchange = *memory;
  if (exchange == NULL) {
    exchange = calloc(1, sizeof(*exchange));
    if (exchange == NULL || server->is_ending) {
      free(exchange);
      return MHD_NO;
    }
    exchange->server = server;
    exchange->connection = connection;
    exchange->client = http_client_of(connection);
    exchange->begun_ms = http_now_ms();
    exchange->next = server->exchanges;
    server->exchanges = exchange;
    *memory = exchange;
    return begin(exchange, url, method);
  }
  if (*size != 0) {
    bool fits = exchange->body.length <= HTTP_BODY_MAX; /* one that does not is read on for a while, then answered */
    bool good = exchange->is_refused || !fits || http_append(&exchange->body, data, *size);
    exchange->body_bytes += *size;
    *size = 0;
    return good && exchange->body_bytes <= EXCESS_MAX ? MHD_YES : MHD_NO;
  }
  if (exchange->is_answered || exchange->is_refused) {
    return MHD_YES;
  }
  return exchange->is_taken ? respond(exchange) : take(exchange, method);
}

void
http_completed(void *context, struct MHD_Connection *connection, void **memory, enum MHD_RequestTerminationCode code)
{
  struct http_server *server = context;
  struct http_exchange *exchange = *memory;
  *memory = NULL;
  if (exchange == NULL) {
    return;
  }
  for (struct http_exchange **at = &server->exchanges; *at != NULL; at = &(*at)->next) {
    if (*at == exchange) {
      *at = exchange->next;
      break;
    }
  }
  if (exchange->session != NULL) {
    exchange->session->used_ms = http_now_ms();
    if (exchange->is_initialize && (!exchange->is_answered || code != MHD_REQUEST_TERMINATED_COMPLETED_OK)) {
      http_session_end(server, exchange->session); /* nobody knows its id */
    }
  }
  http_stream_leave(exchange);
  if (exchange->client != NULL) {
    exchange->client->is_served = false;
    exchange->client->since_ms = http_now_ms();
  }
  free(exchange->answer);
  free(exchange->body.text);
  free(exchange->events.text);
  free(exchange);
}
