/* SPDX-License-Identifier: MIT */
/*
 * Requests of HTTP to contrail mcp, as libmicrohttpd gives them: heads and bodies of any bytes, in pieces, at the same time,
 * broken off at any moment; and sessions that answer when they like, in any order, or end. Whatever comes: without the token
 * nothing gets to a session; what gets to one is a line of JSON; an answer goes to the request that has its id, once, and
 * over streams that broke each event comes in its turn; at the end nothing is left.
 *
 * libmicrohttpd is what is here (http_library is a table of functions), and so are sessions (http_session.c forks).
 */
#include "fuzz.h"

#include "mcp/http.h"

#include <stdarg.h>

enum { CONNECTIONS = 6, SESSIONS = 3, HEADERS = 8, VALUE_BYTES = 64, PIECE_BYTES = 600 };
#define TOKEN "0123456789abcdef"

struct MHD_Response {
  unsigned users;
  char *text;
  size_t size;
  MHD_ContentReaderCallback reader;
  void *context;
};

struct header {
  char name[24], value[VALUE_BYTES];
};

struct MHD_Connection {
  struct header headers[HEADERS];
  size_t header_count;
  char method[12], url[24];
  void *client, *exchange;
  struct MHD_Response *response;
  unsigned status;
  bool is_open, is_busy, is_suspended, has_token;
  unsigned last; /* number of the stream's last event that was seen */
};

static struct MHD_Connection connections[CONNECTIONS];
static struct http_server server;
static struct http_session sessions[SESSIONS];
static uint64_t now_ms;

/* ---- what the rest of the front is here ---- */

uint64_t
http_now_ms(void)
{
  return now_ms;
}

struct http_session *
http_session_start(struct http_server *of, const char **wrong)
{
  CHECK(of == &server);
  for (size_t i = 0; i < SESSIONS; i++) {
    if (sessions[i].id[0] == '\0') {
      snprintf(sessions[i].id, sizeof(sessions[i].id), "s%zu", i);
      sessions[i].next = of->sessions;
      of->sessions = &sessions[i];
      return &sessions[i];
    }
  }
  *wrong = "full";
  return NULL;
}

struct http_session *
http_session_find(struct http_server *of, const char *id)
{
  for (struct http_session *one = of->sessions; one != NULL; one = one->next) {
    if (strcmp(one->id, id) == 0) {
      return one;
    }
  }
  return NULL;
}

/* What was written to it: one line, which it keeps, to answer it when it likes. */
bool
http_session_write(struct http_session *session, char *line)
{
  json_t *message = json_loads(line, JSON_ALLOW_NUL, NULL);
  CHECK(message != NULL && strchr(line, '\n') == NULL && session->id[0] != '\0');
  json_decref(message);
  bool fits = session->out.length < 1 << 16;
  if (fits) {
    http_append(&session->out, line, strlen(line));
    http_append(&session->out, "\n", 1);
  }
  free(line);
  return fits;
}

void
http_session_end(struct http_server *of, struct http_session *session)
{
  for (struct http_exchange *one = of->exchanges; one != NULL; one = one->next) {
    if (one->session == session) {
      one->session = NULL;
      one->is_over = true;
      http_wake(one);
    }
  }
  http_streams_free(session);
  CHECK(session->kept_bytes == 0);
  for (struct http_session **at = &of->sessions; *at != NULL; at = &(*at)->next) {
    if (*at == session) {
      *at = session->next;
      break;
    }
  }
  free(session->out.text);
  memset(session, 0, sizeof(*session));
}

/* ---- libmicrohttpd ---- */

static const char *
lookup(struct MHD_Connection *connection, enum MHD_ValueKind kind, const char *key)
{
  for (size_t i = 0; i < connection->header_count; i++) {
    if (strcasecmp(connection->headers[i].name, key) == 0) {
      return connection->headers[i].value;
    }
  }
  return NULL;
}

static int
each_value(struct MHD_Connection *connection, enum MHD_ValueKind kind, MHD_KeyValueIterator iterator, void *context)
{
  for (size_t i = 0; i < connection->header_count; i++) {
    iterator(context, kind, connection->headers[i].name, connection->headers[i].value);
  }
  return (int)connection->header_count;
}

static const union MHD_ConnectionInfo *
get_info(struct MHD_Connection *connection, enum MHD_ConnectionInfoType type, ...)
{
  static union MHD_ConnectionInfo info;
  if (type == MHD_CONNECTION_INFO_SOCKET_CONTEXT) {
    info.socket_context = connection->client;
  } else {
    info.connect_fd = -1;
  }
  return &info;
}

static struct MHD_Response *
make_buffer(size_t size, void *buffer, enum MHD_ResponseMemoryMode mode)
{
  struct MHD_Response *response = calloc(1, sizeof(*response));
  CHECK(response != NULL && mode == MHD_RESPMEM_MUST_COPY);
  response->users = 1;
  response->size = size;
  response->text = malloc(size + 1);
  CHECK(response->text != NULL);
  memcpy(response->text, buffer, size);
  response->text[size] = '\0';
  return response;
}

static struct MHD_Response *
make_callback(uint64_t size, size_t block, MHD_ContentReaderCallback reader, void *context,
              MHD_ContentReaderFreeCallback done)
{
  struct MHD_Response *response = calloc(1, sizeof(*response));
  CHECK(response != NULL && done == NULL);
  response->users = 1;
  response->reader = reader;
  response->context = context;
  return response;
}

static enum MHD_Result
add_header(struct MHD_Response *response, const char *name, const char *value)
{
  CHECK(response != NULL && strpbrk(value, "\r\n") == NULL);
  return MHD_YES;
}

static enum MHD_Result
queue(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response)
{
  CHECK(connection->response == NULL && connection->is_busy);
  response->users++;
  connection->response = response;
  connection->status = status;
  CHECK(status == 200 || status == 202 || status == 204 || (status >= 400 && status <= 415) || status == 503);
  CHECK(connection->has_token || status == 401 || status == 403);
  return MHD_YES;
}

static void
destroy(struct MHD_Response *response)
{
  if (--response->users == 0) {
    free(response->text);
    free(response);
  }
}

static void
suspend(struct MHD_Connection *connection)
{
  CHECK(!connection->is_suspended);
  connection->is_suspended = true;
}

static void
resume(struct MHD_Connection *connection)
{
  CHECK(connection->is_suspended);
  connection->is_suspended = false;
}

/* ---- connections ---- */

static void
complete(struct MHD_Connection *connection, enum MHD_RequestTerminationCode code)
{
  if (connection->exchange != NULL) {
    http_completed(&server, connection, &connection->exchange, code);
  }
  CHECK(connection->exchange == NULL);
  if (connection->response != NULL) {
    destroy(connection->response);
    connection->response = NULL;
  }
  connection->is_busy = connection->is_suspended = false;
}

static void
open_connection(struct MHD_Connection *connection)
{
  if (!connection->is_open) {
    memset(connection, 0, sizeof(*connection));
    connection->is_open = true;
    http_notified(&server, connection, &connection->client, MHD_CONNECTION_NOTIFY_STARTED);
  }
}

static void
close_connection(struct MHD_Connection *connection)
{
  if (connection->is_open) {
    complete(connection, MHD_REQUEST_TERMINATED_CLIENT_ABORT);
    http_notified(&server, connection, &connection->client, MHD_CONNECTION_NOTIFY_CLOSED);
    connection->is_open = false;
  }
}

static enum MHD_Result
hand_over(struct MHD_Connection *connection, const char *data, size_t size)
{
  size_t left = size;
  enum MHD_Result result = http_handle(&server, connection, connection->url, connection->method, "HTTP/1.1", data, &left,
                                       &connection->exchange);
  if (result == MHD_NO) {
    close_connection(connection);
  }
  CHECK(result == MHD_NO || left == 0);
  return result;
}

/* Each event of a stream has the number after the one before; what is said is JSON. */
static void
check_events(struct MHD_Connection *connection, char *text)
{
  for (char *line = text; (line = strstr(line, "id: ")) != NULL; line++) {
    unsigned stream, number;
    if ((line == text || line[-1] == '\n') && sscanf(line, "id: %u.%u", &stream, &number) == 2) {
      CHECK(number == connection->last || number == connection->last + 1 || connection->last == 0);
      connection->last = number;
    }
  }
}

/* What libmicrohttpd does with one that is not suspended, and whose request is whole. */
static void
advance(struct MHD_Connection *connection)
{
  while (connection->is_open && connection->is_busy && !connection->is_suspended) {
    const struct MHD_Response *response = connection->response;
    if (response == NULL) {
      if (hand_over(connection, NULL, 0) == MHD_NO) {
        return;
      }
      CHECK(connection->response != NULL || connection->is_suspended);
    } else if (response->reader != NULL) {
      char piece[PIECE_BYTES + 1];
      ssize_t got = response->reader(response->context, 0, piece, PIECE_BYTES);
      if (got < 0) {
        complete(connection, MHD_REQUEST_TERMINATED_COMPLETED_OK);
        return;
      }
      CHECK(got <= PIECE_BYTES && (got != 0 || connection->is_suspended));
      piece[got] = '\0';
      check_events(connection, piece);
    } else {
      json_t *message = response->size != 0 ? json_loadb(response->text, response->size, JSON_ALLOW_NUL, NULL) : json_null();
      CHECK(message != NULL);
      json_decref(message);
      complete(connection, MHD_REQUEST_TERMINATED_COMPLETED_OK);
    }
  }
}

/* ---- the input ---- */

static void
add(struct MHD_Connection *connection, const char *name, const char *value)
{
  if (connection->header_count < HEADERS) {
    struct header *header = &connection->headers[connection->header_count++];
    snprintf(header->name, sizeof(header->name), "%s", name);
    snprintf(header->value, sizeof(header->value), "%s", value);
  }
}

static void
text_of(struct input *input, char *text, size_t size)
{
  size_t taken;
  uint8_t *part = input_part(input, input_number(input, 1) % size, &taken);
  memcpy(text, part, taken);
  text[taken] = '\0';
  free(part);
}

/* The headers of a good request, but for what the input changes: a bit each. */
static void
make_head(struct input *input, struct MHD_Connection *connection)
{
  static const char *const names[] = {"Host", "Origin", "Authorization", "Accept", "Content-Type", "Mcp-Session-Id",
                                      "MCP-Protocol-Version", "Last-Event-ID"};
  static const char *const good[] = {"localhost", NULL, "Bearer " TOKEN, "*/*", "application/json", NULL, NULL, NULL};
  uint64_t changed = input_number(input, 1), session = input_number(input, 1) % (SESSIONS + 2);
  unsigned tokens = 0;
  char value[VALUE_BYTES];
  connection->header_count = 0;
  connection->has_token = false;
  for (size_t i = 0; i < HEADERS; i++) {
    const char *given = good[i];
    if (i == 5 && session < SESSIONS) {
      snprintf(value, sizeof(value), "s%u", (unsigned)session);
      given = value;
    }
    if ((changed >> i & 1) != 0) {
      text_of(input, value, sizeof(value));
      given = value;
    }
    if (given != NULL) {
      add(connection, names[i], given);
      tokens += i == 2;
      connection->has_token |= i == 2 && http_is_authorized(given, TOKEN);
    }
  }
  CHECK(tokens <= 1);
}

static void
begin(struct input *input, struct MHD_Connection *connection)
{
  static const char *const methods[] = {"POST", "POST", "POST", "GET", "DELETE", "PUT"};
  open_connection(connection);
  if (connection->is_busy) {
    return;
  }
  snprintf(connection->method, sizeof(connection->method), "%s", methods[input_number(input, 1) % 6]);
  snprintf(connection->url, sizeof(connection->url), "%s", "/mcp");
  make_head(input, connection);
  connection->is_busy = true;
  connection->last = 0;
  if (hand_over(connection, NULL, 0) == MHD_NO) {
    return;
  }
  for (unsigned pieces = input_number(input, 1) % 4; pieces != 0 && connection->is_open; pieces--) {
    size_t taken;
    uint8_t *part = input_part(input, input_number(input, 1), &taken);
    if (taken != 0 && connection->response == NULL && hand_over(connection, (const char *)part, taken) == MHD_NO) {
      free(part);
      return;
    }
    free(part);
  }
  advance(connection);
}

/* A session takes its first line, and says what the input wants: an answer to it, progress, or anything else. */
static void
say(struct input *input, struct http_session *session)
{
  uint64_t what = input_number(input, 1) % 4;
  size_t taken;
  if (session->id[0] == '\0') {
    return;
  }
  if (what == 3) {
    uint8_t *part = input_part(input, input_number(input, 1), &taken);
    http_give_line(&server, session, (const char *)part, taken);
    free(part);
    return;
  }
  char *end = session->out.length != 0 ? memchr(session->out.text, '\n', session->out.length) : NULL;
  json_t *message = end != NULL ? json_loadb(session->out.text, (size_t)(end - session->out.text), JSON_ALLOW_NUL, NULL) : NULL;
  json_t *id = json_object_get(message, "id"), *line = NULL;
  if (what == 2) {
    json_t *token = json_object_get(json_object_get(json_object_get(message, "params"), "_meta"), "progressToken");
    line = json_pack("{s:s, s:s, s:{s:O?}}", "jsonrpc", "2.0", "method", "notifications/progress", "params",
                     "progressToken", token);
  } else if (id != NULL) {
    line = json_pack("{s:s, s:O, s:{s:s}}", "jsonrpc", "2.0", "id", id, "result", "protocolVersion", "2025-11-25");
  }
  if (what != 2 && end != NULL) {
    size_t gone = (size_t)(end - session->out.text) + 1;
    session->out.length -= gone;
    memmove(session->out.text, end + 1, session->out.length);
  }
  char *text = line != NULL ? json_dumps(line, JSON_COMPACT) : NULL;
  json_decref(message);
  json_decref(line);
  if (text != NULL) {
    http_give_line(&server, session, text, strlen(text));
  }
  free(text);
}

static void
step(struct input *input)
{
  uint64_t what = input_number(input, 1), which = input_number(input, 1);
  switch (what % 6) {
  case 0:
  case 1:
    begin(input, &connections[which % CONNECTIONS]);
    break;
  case 2:
  case 3:
    say(input, &sessions[which % SESSIONS]);
    break;
  case 4:
    if ((what & 64) != 0) {
      close_connection(&connections[which % CONNECTIONS]);
    } else if ((what & 128) != 0 && sessions[which % SESSIONS].id[0] != '\0') {
      http_session_end(&server, &sessions[which % SESSIONS]);
    }
    break;
  default:
    now_ms += 100 * (1 + which);
    http_exchanges_tick(&server, now_ms);
    http_clients_tick(&server, now_ms);
    for (struct http_session *one = server.sessions; one != NULL; one = one->next) {
      http_streams_tick(one, now_ms);
    }
  }
  for (size_t i = 0; i < CONNECTIONS; i++) {
    advance(&connections[i]);
  }
}

struct http_library http_library = {.lookup_connection_value = lookup,
                                    .get_connection_values = each_value,
                                    .get_connection_info = get_info,
                                    .create_response_from_buffer = make_buffer,
                                    .create_response_from_callback = make_callback,
                                    .add_response_header = add_header,
                                    .queue_response = queue,
                                    .destroy_response = destroy,
                                    .suspend_connection = suspend,
                                    .resume_connection = resume};

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  struct input input = {data, data + size};
  now_ms = 1000;
  server = (struct http_server){.is_loopback = true};
  snprintf(server.token, sizeof(server.token), "%s", TOKEN);
  while (input.at < input.end) {
    step(&input);
  }
  for (size_t i = 0; i < CONNECTIONS; i++) {
    close_connection(&connections[i]);
  }
  while (server.sessions != NULL) {
    http_session_end(&server, server.sessions);
  }
  CHECK(server.exchanges == NULL && server.clients == NULL);
  return 0;
}
