/* SPDX-License-Identifier: MIT */
/*
 * Streams of events, which outlive their connections.
 *
 * What a stream has said is kept by its session, so that a client whose connection broke can come again (GET with
 * Last-Event-ID) and has the rest. The id of an event is "3.17": the 17th of the session's third stream. A stream is
 * kept while its request is worked on, and KEEP_MS after its end; of all streams of a session no more than KEPT_BYTES.
 * What goes first are streams that have ended, then notes of progress: the answer is a stream's last event.
 *
 * A reader that does not read gets no more than HTTP_QUEUE_MAX, or one event that is longer; then its connection ends,
 * and it can come again.
 */
#include "mcp/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEEP_MS = 120000, KEPT_BYTES = 16 << 20, KEPT_ENDED = 16, EVENT_BYTES = 80 };
enum { ALONE_BYTES = 1 << 10, ID_DIGITS = 9 };

struct http_event {
  struct http_event *next;
  unsigned number; /* from 1 */
  size_t length;
  char text[];
};

/* ---- making and freeing ---- */

struct http_stream *
http_stream_make(void)
{
  struct http_stream *stream = calloc(1, sizeof(*stream));
  if (stream != NULL) {
    stream->ids = json_array();
    stream->tokens = json_array();
  }
  return stream;
}

void
http_stream_join(struct http_session *session, struct http_stream *stream)
{
  stream->session = session;
  stream->number = ++session->streams_made;
  stream->next = session->streams;
  session->streams = stream;
}

static void
drop_first(struct http_stream *stream)
{
  struct http_event *event = stream->first;
  stream->first = event->next;
  stream->last = stream->first != NULL ? stream->last : NULL;
  stream->session->kept_bytes -= event->length;
  free(event);
}

void
http_stream_free(struct http_stream *stream)
{
  if (stream == NULL) {
    return;
  }
  while (stream->first != NULL) {
    drop_first(stream);
  }
  for (struct http_stream **at = stream->session != NULL ? &stream->session->streams : NULL; at != NULL && *at != NULL;
       at = &(*at)->next) {
    if (*at == stream) {
      *at = stream->next;
      break;
    }
  }
  if (stream->reader != NULL) {
    stream->reader->stream = NULL;
  }
  json_decref(stream->ids);
  json_decref(stream->tokens);
  free(stream);
}

/* ---- what is said ---- */

/* Where the events of a stream begin, after this one; from now on its client can come again. */
static void
begin(struct http_exchange *exchange, unsigned after)
{
  char text[EVENT_BYTES];
  const struct http_stream *stream = exchange->stream;
  exchange->is_stream = true;
  exchange->reported_ms = http_now_ms();
  /* An event without data, so that its id is known before there is another: so since 2025-11-25. */
  if (stream != NULL && stream->session != NULL && strcmp(stream->session->version, "2025-11-25") >= 0) {
    int length = snprintf(text, sizeof(text), "id: %u.%u\ndata: \n\n", stream->number, after);
    http_append(&exchange->events, text, (size_t)length);
  }
}

void
http_stream_say(struct http_exchange *exchange, const char *comment)
{
  if (!exchange->is_stream) {
    begin(exchange, exchange->stream != NULL ? exchange->stream->said : 0);
  }
  exchange->reported_ms = http_now_ms();
  http_append(&exchange->events, comment, strlen(comment));
  http_wake(exchange);
}

/* False: it does not read, or there is no memory; its connection will end. */
static bool
send_event(struct http_exchange *reader, const struct http_event *event)
{
  char head[EVENT_BYTES];
  struct http_bytes *events = &reader->events;
  if (!reader->is_stream) {
    begin(reader, event->number - 1);
  }
  size_t waiting = events->length - events->taken;
  int length = snprintf(head, sizeof(head), "id: %u.%u\nevent: message\ndata: ", reader->stream->number, event->number);
  reader->reported_ms = http_now_ms();
  if ((waiting + event->length <= HTTP_QUEUE_MAX || waiting <= ALONE_BYTES) &&
      http_append(events, head, (size_t)length) && http_append(events, event->text, event->length) &&
      http_append(events, "\n\n", 2)) {
    return true;
  }
  events->length = events->taken + waiting; /* no half event */
  return false;
}

/* The reader gets no more; its stream goes on. */
static void
release(struct http_exchange *reader)
{
  reader->stream->reader = NULL;
  reader->stream = NULL;
  reader->is_over = true;
  http_wake(reader);
}

/* Makes room: streams that have ended, the oldest first; then the first events of others. */
static void
trim(struct http_session *session, const struct http_stream *but)
{
  while (session->kept_bytes > KEPT_BYTES) {
    struct http_stream *ended = NULL, *long_one = NULL;
    for (struct http_stream *one = session->streams; one != NULL; one = one->next) {
      ended = one->is_over && one->reader == NULL && one != but ? one : ended;
      long_one = one->first != NULL && one->first != one->last ? one : long_one;
    }
    if (ended != NULL) {
      http_stream_free(ended);
    } else if (long_one != NULL) {
      drop_first(long_one);
    } else {
      return; /* answers alone: each must get to its client */
    }
  }
}

bool
http_stream_add(struct http_stream *stream, const char *text, size_t length)
{
  struct http_event *event = malloc(sizeof(*event) + length);
  struct http_exchange *reader = stream->reader;
  if (event == NULL) {
    return false;
  }
  event->next = NULL;
  event->number = ++stream->said;
  event->length = length;
  memcpy(event->text, text, length);
  if (stream->last != NULL) {
    stream->last->next = event;
  } else {
    stream->first = event;
  }
  stream->last = event;
  stream->session->kept_bytes += length;
  if (reader != NULL && !send_event(reader, event)) {
    release(reader);
  } else if (reader != NULL) {
    http_wake(reader);
  }
  trim(stream->session, stream);
  return true;
}

void
http_stream_end(struct http_stream *stream)
{
  stream->is_over = true;
  stream->left_ms = http_now_ms();
  if (stream->reader != NULL) {
    stream->reader->is_over = true;
    http_wake(stream->reader);
  }
}

/* ---- readers ---- */

void
http_stream_read(struct http_stream *stream, struct http_exchange *reader)
{
  stream->reader = reader;
  reader->stream = stream;
}

void
http_stream_leave(struct http_exchange *reader)
{
  struct http_stream *stream = reader->stream;
  reader->stream = NULL;
  if (stream == NULL) {
    return;
  }
  stream->reader = NULL;
  stream->left_ms = http_now_ms();
  if (stream->session == NULL || !reader->is_stream) { /* nobody has an id of its events */
    http_stream_free(stream);
  }
}

static struct http_stream *
find(const struct http_session *session, unsigned number)
{
  struct http_stream *stream = session->streams;
  while (stream != NULL && stream->number != number) {
    stream = stream->next;
  }
  return stream;
}

/* Digits alone, so that no other number is meant; where they end, or NULL. */
static const char *
parse_number(const char *text, unsigned *number)
{
  size_t digits = strspn(text, "0123456789");
  *number = 0;
  for (size_t i = 0; i < digits && i < ID_DIGITS; i++) {
    *number = *number * 10 + (unsigned)(text[i] - '0');
  }
  return digits != 0 && digits <= ID_DIGITS ? text + digits : NULL;
}

bool
http_stream_resume(struct http_exchange *exchange, const char *last_event)
{
  unsigned number, after;
  char lost[EVENT_BYTES];
  const char *end = parse_number(last_event, &number);
  end = end != NULL && *end == '.' ? parse_number(end + 1, &after) : NULL;
  if (end == NULL || *end != '\0') {
    return false;
  }
  struct http_stream *stream = find(exchange->session, number);
  if (stream == NULL || after > stream->said) {
    return false;
  }
  if (stream->reader != NULL) { /* its connection broke, and we have not seen it yet */
    release(stream->reader);
  }
  http_stream_read(stream, exchange);
  exchange->is_listening = stream->is_listening;
  exchange->is_stream = true;
  exchange->reported_ms = http_now_ms();
  unsigned first = stream->first != NULL ? stream->first->number : stream->said + 1;
  int length = after + 1 < first
                   ? snprintf(lost, sizeof(lost), ": %u events are not kept any more\n\n", first - after - 1)
                   : snprintf(lost, sizeof(lost), ": again\n\n");
  http_append(&exchange->events, lost, (size_t)length);
  for (const struct http_event *event = stream->first; event != NULL; event = event->next) {
    if (event->number > after && !send_event(exchange, event)) {
      release(exchange); /* it comes again for the rest */
      return true;
    }
  }
  exchange->is_over = stream->is_over;
  return true;
}

struct http_stream *
http_stream_listen(struct http_session *session)
{
  for (struct http_stream *one = session->streams, *next; one != NULL; one = next) {
    next = one->next;
    if (one->is_listening) { /* there is one at a time */
      if (one->reader != NULL) {
        return NULL;
      }
      http_stream_free(one);
    }
  }
  struct http_stream *stream = http_stream_make();
  if (stream != NULL) {
    http_stream_join(session, stream);
    stream->is_listening = true;
  }
  return stream;
}

/* ---- the session's ---- */

void
http_streams_tick(struct http_session *session, uint64_t now_ms)
{
  size_t ended = 0;
  for (struct http_stream *one = session->streams, *next; one != NULL; one = next) {
    next = one->next;
    bool is_left = one->is_over && one->reader == NULL;
    ended += is_left;
    if (is_left && (ended > KEPT_ENDED || now_ms - one->left_ms > KEEP_MS)) {
      http_stream_free(one);
    }
  }
}

void
http_streams_free(struct http_session *session)
{
  while (session->streams != NULL) {
    http_stream_free(session->streams);
  }
}
