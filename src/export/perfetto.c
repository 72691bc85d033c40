/* SPDX-License-Identifier: MIT */
/*
 * A trace of Perfetto (ui.perfetto.dev): protobuf packets with the begin and end of each call on the track of its
 * thread.
 *
 * So that a call takes few bytes: names are interned, by their numbers in order of appearance, and how calls end too;
 * each thread is a packet sequence with a clock of its own that gives differences; its track and clock are the
 * sequence's defaults; and packets are deflated by some hundred kilobytes. In a packet of a call the time is last, so
 * that what calls have alike is in one piece, up to the next one's; that it needs the sequence's state is not said,
 * since all of it is in the file.
 *
 *   Trace.packet = 1
 *     TracePacket: clock_snapshot 6, timestamp 8, trusted_packet_sequence_id 10, track_event 11, interned_data 12,
 *                  sequence_flags 13, timestamp_clock_id 58, trace_packet_defaults 59, track_descriptor 60
 *     TrackEvent:  debug_annotations 4, type 9, name_iid 10, track_uuid 11, name 23
 *     DebugAnnotation: name_iid 1, uint_value 3, name 10, string_value_iid 17
 *     InternedData: event_names 2, debug_annotation_names 3, debug_annotation_string_values 29
 *
 * Times are nanoseconds since the begin of the recording, given as BOOTTIME. Ends, doubts and numbers of calls are
 * debug annotations. Own times are not in it: what is shown is the clock's.
 */
#include "export/json.h"
#include "export/lanes.h"

#include <contrail/text.h>

#include <stdio.h>
#include <stdlib.h>

enum field {
  PACKET = 1 << 3 | 2,
  CLOCK_SNAPSHOT = 6 << 3 | 2,
  TIMESTAMP = 8 << 3,
  SEQUENCE = 10 << 3,
  TRACK_EVENT = 11 << 3 | 2,
  INTERNED_DATA = 12 << 3 | 2,
  SEQUENCE_FLAGS = 13 << 3,
  CLOCK_ID = 58 << 3,
  DEFAULTS = 59 << 3 | 2,
  TRACK_DESCRIPTOR = 60 << 3 | 2,

  EVENT_ANNOTATION = 4 << 3 | 2,
  EVENT_TYPE = 9 << 3,
  EVENT_NAME_IID = 10 << 3,
  EVENT_TRACK = 11 << 3,
  EVENT_NAME = 23 << 3 | 2,
};
enum { BEGIN = 1, END = 2, INSTANT = 3, CLEARED = 1, NEEDS_STATE = 2, BOOTTIME = 6, OWN_CLOCK = 64 };
enum { END_NAME_IID = 1 };
enum { NAME_MAX_BYTES = 16 << 10, SMALL_PACKET = 160, NOTE_MAX = 8, BEGIN_MAX = 24, MESSAGE_MAX = 40 << 10 };

/* A call's begin on the thread's own track, up to the time; its second byte has the size, without the time. */
struct begin {
  uint8_t data[BEGIN_MAX];
  uint32_t bytes;
  uint32_t iid; /* 0: the sequence has not had it yet */
};

struct perfetto {
  struct ct_sink *out;
  struct ct_walk_texts texts; /* the names, as UTF-8 */
  struct begin *begins;       /* of functions in the sequence; count + 1 */
  uint32_t next_iid;
  struct ct_export_lanes lanes;
  uint64_t track, process_track, next_track; /* uuids; lanes of the thread follow its own */
  uint64_t *lane_tracks;
  uint32_t lane_room;
  uint32_t sequence;
  uint64_t last_ns;
  uint8_t head[8]; /* of each event: the sequence */
  uint32_t head_bytes;
  struct begin end; /* the same of a call's end */
  struct note {     /* the annotation that says so, of each end */
    uint8_t data[NOTE_MAX];
    uint32_t bytes;
  } notes[CT_SPAN_ENDS];
};

/* ---- messages ---- */

/* A message that is being made, for those that are few. */
struct message {
  uint8_t *at, *end;
  uint8_t bytes[MESSAGE_MAX];
};

static void
begin_message(struct message *message)
{
  message->at = message->bytes;
  message->end = message->bytes + sizeof(message->bytes);
}

static void
add_number(struct message *message, uint32_t field, uint64_t value)
{
  if (message->end - message->at >= 20) {
    message->at = ct_varint_put(ct_varint_put(message->at, field), value);
  }
}

static void
add_bytes(struct message *message, uint32_t field, const void *data, size_t bytes)
{
  if ((size_t)(message->end - message->at) >= bytes + 20) {
    message->at = ct_varint_put(ct_varint_put(message->at, field), bytes);
    memcpy(message->at, data, bytes);
    message->at += bytes;
  }
}

/* At most so many bytes of it, which ends with a whole character. */
static size_t
text_bytes(const char *text)
{
  size_t bytes = strlen(text);
  if (bytes > NAME_MAX_BYTES) {
    bytes = NAME_MAX_BYTES;
    while (bytes != 0 && ((uint8_t)text[bytes] & 0xC0) == 0x80) {
      bytes--;
    }
  }
  return bytes;
}

static void
add_text(struct message *message, uint32_t field, const char *text)
{
  char *clean = ct_utf8_copy(text);
  add_bytes(message, field, clean != NULL ? clean : "?", clean != NULL ? text_bytes(clean) : 1);
  free(clean);
}

static void
add_message(struct message *message, uint32_t field, const struct message *inner)
{
  add_bytes(message, field, inner->bytes, (size_t)(inner->at - inner->bytes));
}

static void
put_packet(struct ct_sink *out, const struct message *packet)
{
  size_t bytes = (size_t)(packet->at - packet->bytes);
  ct_out_room(out, bytes + 20);
  *out->at++ = PACKET;
  out->at = ct_varint_put(out->at, bytes);
  memcpy(out->at, packet->bytes, bytes);
  out->at += bytes;
}

/* ---- tracks ---- */

/* kind: of TrackDescriptor, process (3), thread (4), or 0 with a name: a track below another one. */
static void
put_track(struct perfetto *perfetto, const struct ct_walk_place *place, uint64_t uuid, uint64_t parent, uint32_t kind,
          const char *name)
{
  struct message packet, track, inner;
  begin_message(&packet);
  begin_message(&track);
  begin_message(&inner);
  add_number(&track, 1 << 3, uuid);
  if (parent != 0) {
    add_number(&track, 5 << 3, parent);
  }
  if (kind == 0) {
    add_text(&track, 2 << 3 | 2, name);
  } else {
    add_number(&inner, 1 << 3, place->pid);
    if (kind == 4) {
      add_number(&inner, 2 << 3, place->thread->tid);
    }
    add_text(&inner, kind == 4 ? 5 << 3 | 2 : 6 << 3 | 2, name);
    add_message(&track, kind << 3 | 2, &inner);
  }
  add_number(&packet, SEQUENCE, perfetto->sequence);
  add_message(&packet, TRACK_DESCRIPTOR, &track);
  put_packet(perfetto->out, &packet);
}

static int
begin_process(void *arg, const struct ct_walk_place *place)
{
  struct perfetto *perfetto = arg;
  free(perfetto->begins);
  perfetto->begins = NULL;
  perfetto->process_track = perfetto->next_track++;
  perfetto->sequence = 1;
  put_track(perfetto, place, perfetto->process_track, 0, 3, ct_export_program(place->trace));
  return ct_walk_texts_begin(&perfetto->texts, place->trace);
}

/* With how calls end: at most so many texts of few characters. */
static void
add_ends(struct message *packet)
{
  struct message data, entry;
  begin_message(&data);
  begin_message(&entry);
  add_number(&entry, 1 << 3, END_NAME_IID);
  add_text(&entry, 2 << 3 | 2, "end");
  add_message(&data, 3 << 3 | 2, &entry);
  for (uint32_t end = 0; end < CT_SPAN_ENDS; end++) {
    begin_message(&entry);
    add_number(&entry, 1 << 3, end + 1);
    add_text(&entry, 2 << 3 | 2, ct_span_end_text((enum ct_span_end)end));
    add_message(&data, 29 << 3 | 2, &entry);
  }
  add_message(packet, INTERNED_DATA, &data);
}

/* The begin of a sequence: its clock begins at 0, and gives differences from here on. */
static void
put_sequence(struct perfetto *perfetto)
{
  struct message packet, inner, clock;
  begin_message(&packet);
  begin_message(&inner);
  begin_message(&clock);
  add_number(&packet, SEQUENCE, perfetto->sequence);
  add_number(&packet, SEQUENCE_FLAGS, CLEARED);
  add_number(&clock, EVENT_TRACK, perfetto->track);
  add_number(&inner, CLOCK_ID, OWN_CLOCK);
  add_message(&inner, TRACK_EVENT, &clock);
  add_message(&packet, DEFAULTS, &inner);
  begin_message(&inner);
  for (int i = 0; i < 2; i++) {
    begin_message(&clock);
    add_number(&clock, 1 << 3, i == 0 ? BOOTTIME : OWN_CLOCK);
    add_number(&clock, 2 << 3, 0);
    if (i == 1) {
      add_number(&clock, 3 << 3, true);
    }
    add_message(&inner, 1 << 3 | 2, &clock);
  }
  add_message(&packet, CLOCK_SNAPSHOT, &inner);
  add_ends(&packet);
  put_packet(perfetto->out, &packet);
}

/* iid 0: no name. */
static void
make_event(const struct perfetto *perfetto, struct begin *begin, uint8_t type, uint32_t iid)
{
  uint8_t *at = begin->data;
  *at++ = PACKET;
  at++;
  memcpy(at, perfetto->head, perfetto->head_bytes);
  at += perfetto->head_bytes;
  *at++ = TRACK_EVENT;
  uint8_t *event = at++;
  *at++ = EVENT_TYPE;
  *at++ = type;
  if (iid != 0) {
    *at++ = EVENT_NAME_IID;
    at = ct_varint_put(at, iid);
  }
  *event = (uint8_t)(at - event - 1);
  *at++ = TIMESTAMP;
  begin->bytes = (uint32_t)(at - begin->data);
  begin->data[1] = (uint8_t)(begin->bytes - 2);
  begin->iid = iid;
}

static int
begin_thread(void *arg, const struct ct_walk_place *place)
{
  struct perfetto *perfetto = arg;
  size_t count = (size_t)ct_trace_function_count(place->trace) + 1;
  if (perfetto->begins == NULL) {
    perfetto->begins = calloc(count, sizeof(*perfetto->begins));
  } else {
    memset(perfetto->begins, 0, count * sizeof(*perfetto->begins));
  }
  if (perfetto->begins == NULL) {
    return CT_ENOMEM;
  }
  perfetto->next_iid = 1;
  perfetto->last_ns = 0;
  perfetto->sequence = place->number + 2;
  perfetto->track = perfetto->next_track++;
  uint8_t *at = ct_varint_put(ct_varint_put(perfetto->head, SEQUENCE), perfetto->sequence);
  perfetto->head_bytes = (uint32_t)(at - perfetto->head);
  make_event(perfetto, &perfetto->end, END, 0);
  put_sequence(perfetto);
  put_track(perfetto, place, perfetto->track, perfetto->process_track, 4, ct_export_thread_name(place));
  return 0;
}

static int
end_thread(void *arg, const struct ct_walk_place *place, uint64_t end_tsc)
{
  struct perfetto *perfetto = arg;
  ct_export_lanes_clear(&perfetto->lanes);
  return ct_out_failed(perfetto->out) ? CT_EIO : 0;
}

/* The track of another stack of the thread; 0: the thread's own, which is the default. */
static int
track_of(struct perfetto *perfetto, const struct ct_walk_place *place, uint32_t context, uint64_t *track)
{
  uint32_t lane;
  bool is_new;
  *track = 0;
  if (CT_LIKELY(context == 0)) {
    return 0;
  }
  if (ct_export_lane(&perfetto->lanes, context, &lane, &is_new) != 0) {
    return CT_ENOMEM;
  }
  if (is_new) {
    char name[200];
    if (lane >= perfetto->lane_room) {
      uint32_t room = 2 * lane + 16;
      uint64_t *grown = reallocarray(perfetto->lane_tracks, room, sizeof(*grown));
      if (grown == NULL) {
        return CT_ENOMEM;
      }
      perfetto->lane_tracks = grown;
      perfetto->lane_room = room;
    }
    perfetto->lane_tracks[lane] = perfetto->next_track++;
    snprintf(name, sizeof(name), "%.150s (stack %u)", ct_export_thread_name(place), lane);
    put_track(perfetto, place, perfetto->lane_tracks[lane], perfetto->track, 0, name);
  }
  *track = perfetto->lane_tracks[lane];
  return 0;
}

/* ---- events ---- */

/* What the clock of the sequence has to go on by. It never goes back. */
static uint64_t
delta_to(struct perfetto *perfetto, const struct ct_walk_place *place, uint64_t tsc)
{
  uint64_t ns = ct_walk_ns(place, tsc);
  uint64_t delta = ns > perfetto->last_ns ? ns - perfetto->last_ns : 0;
  perfetto->last_ns += delta;
  return delta;
}

/* An event with a name that has been interned, or a note, or neither. */
static inline void
put_event(struct perfetto *perfetto, uint64_t delta, uint8_t type, uint32_t iid, uint64_t track,
          const struct note *note)
{
  struct ct_sink *out = perfetto->out;
  ct_out_room(out, SMALL_PACKET);
  /* Sizes go before what has them: both are below 128, one byte. */
  uint8_t *packet = out->at, *at = packet + 2;
  packet[0] = PACKET;
  memcpy(at, perfetto->head, sizeof(perfetto->head));
  at += perfetto->head_bytes;
  *at++ = TRACK_EVENT;
  uint8_t *event = at++;
  *at++ = EVENT_TYPE;
  *at++ = type;
  if (iid != 0) {
    *at++ = EVENT_NAME_IID;
    at = ct_varint_put(at, iid);
  }
  if (track != 0) {
    *at++ = EVENT_TRACK;
    at = ct_varint_put(at, track);
  }
  if (note != NULL) {
    memcpy(at, note->data, NOTE_MAX);
    at += note->bytes;
  }
  *event = (uint8_t)(at - event - 1);
  *at++ = TIMESTAMP;
  at = ct_varint_put(at, delta);
  packet[1] = (uint8_t)(at - packet - 2);
  out->at = at;
}

/* A name that the sequence has not had yet goes before the first event with it. */
static __attribute__((noinline)) void
intern_new(struct perfetto *perfetto, uint32_t fn)
{
  struct message packet, data, entry;
  uint32_t iid = perfetto->next_iid++;
  make_event(perfetto, &perfetto->begins[fn < perfetto->texts.count ? fn : perfetto->texts.count], BEGIN, iid);
  begin_message(&packet);
  begin_message(&data);
  begin_message(&entry);
  add_number(&entry, 1 << 3, iid);
  add_text(&entry, 2 << 3 | 2, ct_walk_name(perfetto->texts.trace, fn));
  add_message(&data, 2 << 3 | 2, &entry);
  add_message(&packet, INTERNED_DATA, &data);
  add_number(&packet, SEQUENCE, perfetto->sequence);
  add_number(&packet, SEQUENCE_FLAGS, NEEDS_STATE);
  put_packet(perfetto->out, &packet);
}

static inline const struct begin *
intern(struct perfetto *perfetto, uint32_t fn)
{
  const struct begin *begin = &perfetto->begins[fn < perfetto->texts.count ? fn : perfetto->texts.count];
  if (CT_UNLIKELY(begin->iid == 0)) {
    intern_new(perfetto, fn);
  }
  return begin;
}

static void
annotate(struct message *event, const char *name, uint64_t number)
{
  struct message annotation;
  begin_message(&annotation);
  add_text(&annotation, 10 << 3 | 2, name);
  add_number(&annotation, 3 << 3, number);
  add_message(event, EVENT_ANNOTATION, &annotation);
}

static void
make_notes(struct perfetto *perfetto)
{
  for (uint8_t end = 0; end < CT_SPAN_ENDS; end++) {
    uint8_t data[] = {EVENT_ANNOTATION, 5, 1 << 3, END_NAME_IID, (uint8_t)(17 << 3 | 0x80), 17 << 3 >> 7, end + 1};
    static_assert(sizeof(data) < NOTE_MAX && CT_SPAN_ENDS < 127, "a number of one byte");
    memcpy(perfetto->notes[end].data, data, sizeof(data));
    perfetto->notes[end].bytes = sizeof(data);
  }
}

static void
put_long_event(struct perfetto *perfetto, uint64_t delta, const struct message *event)
{
  struct message packet;
  begin_message(&packet);
  add_number(&packet, SEQUENCE, perfetto->sequence);
  add_message(&packet, TRACK_EVENT, event);
  add_number(&packet, TIMESTAMP, delta);
  put_packet(perfetto->out, &packet);
}

/* The end of a call that is more than that, or an instant. */
static __attribute__((noinline)) void
put_annotated(struct perfetto *perfetto, uint64_t delta, uint8_t type, const struct ct_span *span, uint64_t track)
{
  struct message event;
  begin_message(&event);
  add_number(&event, EVENT_TYPE, type);
  if (type == INSTANT) {
    add_number(&event, EVENT_NAME_IID,
               perfetto->begins[span->fn < perfetto->texts.count ? span->fn : perfetto->texts.count].iid);
  }
  if (track != 0) {
    add_number(&event, EVENT_TRACK, track);
  }
  if (span->end != CT_SPAN_RETURNED) {
    const struct note *note = &perfetto->notes[span->end];
    memcpy(event.at, note->data, NOTE_MAX);
    event.at += note->bytes;
  }
  if (ct_span_is_unfinished(span->end)) {
    annotate(&event, "open", 1);
  }
  if ((span->uncertain & CT_SPAN_UNCERTAIN) != 0) {
    annotate(&event, "uncertain", 1);
  }
  if ((span->uncertain & CT_SPAN_BEFORE) != 0) {
    annotate(&event, "before", 1);
  }
  if (span->end == CT_SPAN_POINT || span->end == CT_SPAN_COUNTED) {
    annotate(&event, "calls", span->end == CT_SPAN_POINT ? span->calls : span->duration_ticks);
  }
  put_long_event(perfetto, delta, &event);
}

static int
put_begin(void *arg, const struct ct_walk_place *place, const struct ct_span_frame *frame, uint64_t context)
{
  struct perfetto *perfetto = arg;
  uint64_t track;
  int code = track_of(perfetto, place, (uint32_t)context, &track);
  if (code == 0) {
    uint32_t iid = intern(perfetto, frame->fn)->iid;
    put_event(perfetto, delta_to(perfetto, place, frame->enter_tsc), BEGIN, iid, track, NULL);
  }
  return code;
}

static int
put_end(void *arg, const struct ct_walk_place *place, const struct ct_span *span, bool was_entered)
{
  struct perfetto *perfetto = arg;
  uint64_t track;
  int code = track_of(perfetto, place, span->context, &track);
  if (code != 0) {
    return code;
  }
  if (CT_LIKELY(was_entered && (span->end | span->uncertain) == 0)) {
    put_event(perfetto, delta_to(perfetto, place, span->end_tsc), END, 0, track, NULL);
    return 0;
  }
  if (CT_LIKELY(was_entered && span->uncertain == 0 && !ct_span_is_unfinished(span->end))) {
    put_event(perfetto, delta_to(perfetto, place, span->end_tsc), END, 0, track, &perfetto->notes[span->end]);
    return 0;
  }
  if (!was_entered) {
    intern(perfetto, span->fn);
  }
  put_annotated(perfetto, delta_to(perfetto, place, span->end_tsc), was_entered ? END : INSTANT, span, track);
  return 0;
}

/* On the thread's own track, whose begins and ends are made but for their times. */
static void
put_plain(struct perfetto *perfetto, const struct ct_walk_place *place, const struct ct_span_edge *edge, size_t count)
{
  struct ct_sink *out = perfetto->out;
  const struct begin end = perfetto->end;
  for (const struct ct_span_edge *last = edge + count; edge < last; edge++) {
    const struct begin *rest = edge->what == CT_SPAN_EDGE_BEGIN ? intern(perfetto, edge->fn) : &end;
    uint64_t delta = delta_to(perfetto, place, edge->tsc);
    if (CT_UNLIKELY(edge->what == CT_SPAN_TAIL)) {
      put_event(perfetto, delta, END, 0, 0, &perfetto->notes[CT_SPAN_TAIL]);
      continue;
    }
    ct_out_room(out, SMALL_PACKET);
    uint8_t *packet = out->at, *time = packet + rest->bytes;
    memcpy(packet, rest->data, BEGIN_MAX);
    out->at = ct_varint_put(time, delta);
    packet[1] += (uint8_t)(out->at - time);
  }
}

static int
put_edges(void *arg, const struct ct_walk_place *place, uint64_t context, const struct ct_span_edge *edges,
          size_t count)
{
  struct perfetto *perfetto = arg;
  uint64_t track;
  int code = track_of(perfetto, place, (uint32_t)context, &track);
  if (code != 0 || track == 0) {
    put_plain(perfetto, place, edges, code == 0 ? count : 0);
    return code;
  }
  for (size_t i = 0; i < count; i++) {
    const struct ct_span_edge *edge = &edges[i];
    bool is_begin = edge->what == CT_SPAN_EDGE_BEGIN;
    uint32_t iid = is_begin ? intern(perfetto, edge->fn)->iid : 0;
    put_event(perfetto, delta_to(perfetto, place, edge->tsc), is_begin ? BEGIN : END, iid, track,
              edge->what == CT_SPAN_TAIL ? &perfetto->notes[CT_SPAN_TAIL] : NULL);
  }
  return 0;
}

static int
put_lost(void *arg, const struct ct_walk_place *place, uint64_t events, uint64_t tsc)
{
  struct perfetto *perfetto = arg;
  struct message event;
  begin_message(&event);
  add_number(&event, EVENT_TYPE, INSTANT);
  add_text(&event, EVENT_NAME, "events lost");
  annotate(&event, "events", events);
  put_long_event(perfetto, delta_to(perfetto, place, tsc), &event);
  return 0;
}

static int
write_perfetto(const struct ct_export_job *job, struct ct_sink *out, struct ct_diag *diag)
{
  const struct ct_walk_handler handler = {.begin_process = begin_process,
                                          .begin_thread = begin_thread,
                                          .entered = put_begin,
                                          .ended = put_end,
                                          .edges = put_edges,
                                          .lost = put_lost,
                                          .end_thread = end_thread};
  struct perfetto perfetto = {.out = out, .next_track = 1};
  struct ct_walk_sums sums = {0};
  make_notes(&perfetto);
  int err = ct_walk(job, &handler, &perfetto, &sums, diag);
  ct_walk_texts_destroy(&perfetto.texts);
  ct_export_lanes_clear(&perfetto.lanes);
  free(perfetto.lane_tracks);
  free(perfetto.begins);
  return err;
}

static int
write_format(const struct ct_export_job *job, struct ct_diag *diag)
{
  return ct_export_file(job, CT_OUT_PACKETS, write_perfetto, diag);
}

const struct ct_export_writer ct_export_perfetto = {
    .format = {.name = "perfetto", .summary = "a trace for ui.perfetto.dev", .takes_filters = true},
    .write = write_format,
};
