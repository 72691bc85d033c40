/* SPDX-License-Identifier: MIT */
/*
 * Pages. What a question has found is kept, up to MCP_ROWS_MAX items, so that a cursor goes on in the same answer
 * although the recording does too. A page ends at its number of items, or where it would have more bytes than an answer
 * may. Of the results the oldest go when there are more than RESULTS_MAX, or their bytes are too many.
 *
 * A cursor is "r7.50": the result and the first item of the page.
 */
#include "mcp/held.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS_MAX = 24, RESULTS_BYTES = 64 << 20, ITEM_BYTES = 8000 };

struct mcp_result {
  struct mcp_result *next;
  unsigned number;
  size_t bytes; /* of its items, as in an answer */
  char key[16];
  json_t *columns; /* NULL: lines */
  json_t *items;
  json_t *uncertain; /* what the first page said of all of them; NULL: nothing yet */
  bool has_more;
};

static void
free_result(struct mcp_result *result)
{
  json_decref(result->columns);
  json_decref(result->uncertain);
  json_decref(result->items);
  free(result);
}

/* Bytes in an answer. */
static size_t
size_of(const json_t *item)
{
  return json_dumpb(item, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) + 1;
}

/* Keeps the items under a new number, 0: there is no memory for that. Takes over nothing. */
static unsigned
keep(struct mcp_server *server, const char *key, json_t *columns, json_t *items, bool has_more)
{
  struct mcp_result *result = calloc(1, sizeof(*result)), *dropped = NULL, *next;
  size_t i, bytes = 0;
  json_t *item;
  if (result == NULL) {
    return 0;
  }
  json_array_foreach(items, i, item)
  {
    result->bytes += size_of(item);
  }
  snprintf(result->key, sizeof(result->key), "%s", key);
  result->columns = columns != NULL ? json_incref(columns) : NULL;
  result->items = json_incref(items);
  result->has_more = has_more;
  pthread_mutex_lock(&server->lock);
  unsigned number = result->number = ++server->results_made;
  result->next = server->results;
  server->results = result;
  size_t count = 0;
  for (struct mcp_result *at = server->results; at != NULL && dropped == NULL; at = at->next) {
    bytes += at->bytes;
    if (++count == RESULTS_MAX || (at->next != NULL && bytes + at->next->bytes > RESULTS_BYTES)) {
      dropped = at->next;
      at->next = NULL;
    }
  }
  pthread_mutex_unlock(&server->lock);
  for (; dropped != NULL; dropped = next) {
    next = dropped->next;
    free_result(dropped);
  }
  return number;
}

void
mcp_results_note(struct mcp_call *call)
{
  pthread_mutex_lock(&call->server->lock);
  for (struct mcp_result *at = call->server->results; at != NULL; at = at->next) {
    if (at->number == call->kept && at->uncertain == NULL) {
      at->uncertain = json_deep_copy(call->uncertain);
    }
  }
  pthread_mutex_unlock(&call->server->lock);
}

/* Items from `from` on, up to the limits; gives the first that is not in it. */
static size_t
page(const json_t *items, size_t from, uint64_t limit, json_t *out)
{
  size_t bytes = 0, at = from;
  limit = limit != 0 ? limit : MCP_ROWS;
  for (; at < json_array_size(items) && at - from < limit; at++) {
    json_t *item = json_array_get(items, at);
    size_t size = size_of(item);
    if (size > ITEM_BYTES && at != from) {
      break; /* at the begin of a page of its own */
    }
    bytes += size;
    if (bytes > MCP_ANSWER_BYTES && at != from) {
      break;
    }
    json_array_append(out, item);
  }
  return at;
}

/* Has the tool that was called to_file? */
static bool
can_have_file(const struct mcp_call *call)
{
  const json_t *tool = json_object_get(call->server->tools, mcp_get_text(call->request->params, "name")),
               *members = json_object_get(json_object_get(tool, "input"), "properties");
  return json_object_get(members, "to_file") != NULL;
}

/* Says what follows, if something does. number 0: nothing was kept. */
static void
put_rest(struct mcp_call *call, size_t next, size_t total, bool has_more, unsigned number)
{
  mcp_put(call, "shown",
          json_integer((json_int_t)json_array_size(json_object_get(call->body, "rows")) +
                       (json_int_t)json_array_size(json_object_get(call->body, "lines"))));
  if (next < total && number != 0) {
    mcp_put(call, "more", mcp_textf("%zu%s more", total - next, has_more ? " and" : ""));
    mcp_put(call, "cursor", mcp_textf("r%u.%zu", number, next));
  } else if (has_more) {
    mcp_put(call, "more", json_string("more than these"));
    mcp_suggest(call, can_have_file(call)
                          ? "narrow the question down, or give to_file: true to have all of it in a file"
                          : "narrow the question down, or begin further on (step)");
  }
}

void
mcp_put_page(struct mcp_call *call, const char *key, json_t *columns, json_t *items, uint64_t limit, bool has_more)
{
  json_t *shown = json_array();
  size_t next = page(items, 0, limit, shown), total = json_array_size(items);
  unsigned number = next < total ? keep(call->server, key, columns, items, has_more) : 0;
  call->kept = number;
  if (columns != NULL) {
    mcp_put(call, "columns", json_incref(columns));
  }
  mcp_put(call, key, shown);
  put_rest(call, next, total, has_more, number);
  json_decref(columns);
  json_decref(items);
}

bool
mcp_put_next_page(struct mcp_call *call, const char *cursor, uint64_t limit)
{
  struct mcp_server *server = call->server;
  unsigned number;
  size_t from;
  char key[16], end;
  bool has_more = false;
  json_t *items = NULL, *columns = NULL;
  if (sscanf(cursor, "r%u.%zu%c", &number, &from, &end) != 2) {
    return mcp_fail(call, "'%.60s' is no cursor: take it from the answer that it stands in", cursor);
  }
  pthread_mutex_lock(&server->lock);
  for (const struct mcp_result *result = server->results; result != NULL; result = result->next) {
    if (result->number == number) {
      items = json_incref(result->items);
      columns = result->columns != NULL ? json_incref(result->columns) : NULL;
      snprintf(key, sizeof(key), "%s", result->key);
      has_more = result->has_more;
      json_array_extend(call->uncertain, result->uncertain);
      break;
    }
  }
  pthread_mutex_unlock(&server->lock);
  if (items == NULL || from > json_array_size(items)) {
    json_decref(items);
    json_decref(columns);
    return mcp_fail(call, "what the cursor '%.60s' is of is not kept any more: ask the question again", cursor);
  }
  json_t *shown = json_array();
  size_t next = page(items, from, limit, shown), total = json_array_size(items);
  if (columns != NULL) {
    mcp_put(call, "columns", columns);
  }
  mcp_put(call, key, shown);
  put_rest(call, next, total, has_more, number);
  json_decref(items);
  call->has_target_text = true;
  return true;
}

void
mcp_results_free(struct mcp_server *server)
{
  for (struct mcp_result *next; server->results != NULL; server->results = next) {
    next = server->results->next;
    free_result(server->results);
  }
}
