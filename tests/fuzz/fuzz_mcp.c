/* SPDX-License-Identifier: MIT */
/*
 * Lines that a client of contrail mcp sends: the first byte says which version was agreed upon, then messages, one a line.
 * Whatever they are, each answer is a message of JSON-RPC with an id that was asked with, or without one an error; and the
 * arguments that reach a tool are such as its schema says. Tools do nothing here, and run on this thread.
 */
#include "fuzz.h"

#include "mcp/held.h"

static struct mcp_server server;
static size_t sent, tool_runs;

/* ---- what the rest of the server is here ---- */

static void
check_message(const json_t *message)
{
  const json_t *error = json_object_get(message, "error"), *id = json_object_get(message, "id");
  CHECK(json_is_object(message));
  CHECK(strcmp(json_string_value(json_object_get(message, "jsonrpc")), "2.0") == 0);
  CHECK(json_is_string(id) || json_is_integer(id) || (json_is_null(id) && error != NULL));
  CHECK((error != NULL) != (json_object_get(message, "result") != NULL));
  if (error != NULL) {
    CHECK(json_is_integer(json_object_get(error, "code")) && json_is_string(json_object_get(error, "message")));
  }
}

void
mcp_send(struct mcp_server *to, json_t *message)
{
  size_t i;
  json_t *one;
  CHECK(to == &server && message != NULL);
  char *text = json_dumps(message, JSON_COMPACT);
  CHECK(text != NULL && strchr(text, '\n') == NULL);
  free(text);
  if (json_is_array(message)) {
    CHECK(server.version == MCP_2025_03_26 && json_array_size(message) != 0);
  }
  json_array_foreach(message, i, one)
  {
    check_message(one);
  }
  if (!json_is_array(message)) {
    check_message(message);
  }
  sent++;
  json_decref(message);
}

void
mcp_enqueue(struct mcp_request *request)
{
  request->run(request);
}

static bool
run_tool(struct mcp_call *call)
{
  const char *cursor = mcp_get_text(call->arguments, "cursor"), *key;
  json_t *value;
  tool_runs++;
  CHECK(json_is_object(call->arguments));
  json_object_foreach((json_t *)call->arguments, key, value)
  {
    CHECK(!json_is_string(value) || strlen(json_string_value(value)) == json_string_length(value));
    json_t *name = mcp_name(json_string_value(value));
    CHECK(!json_is_string(name) || json_string_length(name) <= 160 * 3); /* U+FFFD is three bytes */
    json_decref(name);
  }
  if (cursor != NULL) {
    return mcp_put_next_page(call, cursor, mcp_get_count(call->arguments, "limit", 0));
  }
  mcp_put_page(call, "lines", NULL, json_pack("[s, s, s]", "a", "b", "c"), 2, true);
  return true;
}

#define TOOL(name)                                                                                                     \
  bool mcp_tool_##name(struct mcp_call *call)                                                                          \
  {                                                                                                                    \
    return run_tool(call);                                                                                             \
  }
TOOL(launch)
TOOL(attach)
TOOL(trace)
TOOL(query)
TOOL(analyze)
TOOL(session)
TOOL(itrace)
TOOL(explain)

json_t *
mcp_resources_list(struct mcp_server *of)
{
  CHECK(of == &server);
  return json_array();
}

json_t *
mcp_resource_templates(void)
{
  return json_array();
}

void
mcp_resources_read(struct mcp_request *request)
{
  mcp_answer_error(request, MCP_NO_RESOURCE, json_string("none"));
}

/* ---- the input ---- */

static void
take(const char *line, size_t length)
{
  size_t before = sent;
  json_t *message = json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
  if (message == NULL) {
    mcp_refuse_message(&server, MCP_PARSE_ERROR, "not JSON");
    CHECK(sent == before + 1);
    return;
  }
  bool is_request = json_is_object(message) && json_object_get(message, "id") != NULL &&
                    json_is_string(json_object_get(message, "method"));
  mcp_take_message(&server, message);
  CHECK(sent - before <= 1 && (!is_request || sent == before + 1));
  CHECK(server.requests == NULL && server.request_count == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const struct mcp_options options = {.max_sessions = 1};
  if (server.tools == NULL) {
    pthread_mutex_init(&server.lock, NULL);
    pthread_cond_init(&server.changed, NULL);
    CHECK(mcp_tools_load(&server) == 0);
  }
  server.options = &options;
  server.version = size != 0 ? data[0] % (MCP_2025_11_25 + 1) : 0;
  for (size_t at = 1; at < size;) {
    const uint8_t *end = memchr(data + at, '\n', size - at);
    size_t length = end != NULL ? (size_t)(end - data) - at : size - at;
    char *line = malloc(length + 1); /* of its size, for the sanitizer */
    CHECK(line != NULL);
    memcpy(line, data + at, length);
    take(line, length);
    free(line);
    at += length + 1;
  }
  mcp_results_free(&server);
  return 0;
}
