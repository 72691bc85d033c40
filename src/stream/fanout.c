/* SPDX-License-Identifier: MIT */
/* The sender's half of fanout.h: who listens, how far each of them is, what they ask for. */
#include "stream/fanout.h"

#include "stream/sending.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
  LISTENERS_MAX = 1024, /* more are not distinguished from strangers: their messages are passed over */
  STALL_MS = 2000,      /* so long the slowest is waited for */
  TURN_MS = 20,
  END_PING_MS = 200,   /* after END, whose loss shows by what comes next */
  HEAR_MS = 20,        /* of messages that come one after the other: more are heard next time */
  ASKS_MAX = 64 << 20, /* bytes of what is asked and not answered yet, by all together */
  GATHER_MS = 1000,    /* since the sender came: who listened before has said so by then */
};

struct listener {
  uint64_t id;
  uint64_t heard_ns;
  uint64_t at;       /* the last message that it has acknowledged */
  bool is_following; /* it was answered, and has not asked since */
  bool is_late;      /* was waited for in vain, and is not any more until it says something */
  bool is_done;      /* it has confirmed the whole trace */
  uint8_t *ask;      /* the frame's payload; NULL: nothing is asked */
  uint32_t ask_bytes;
};

struct ct_fanout {
  struct ct_broker *broker;
  uint64_t run, number;
  uint64_t begun_ns;   /* connected for the first time */
  uint64_t end_number; /* of the last END */
  uint8_t *message;    /* CT_FANOUT_HEAD_BYTES + a frame */
  struct listener *listeners;
  size_t count;
  size_t ask_bytes;        /* of all listeners' */
  bool is_asked, is_wrong; /* since the last look */
};

int
ct_fanout_create(struct ct_fanout **fanout, struct ct_diag *diag)
{
  struct ct_fanout *made = calloc(1, sizeof(*made));
  if (made != NULL) {
    made->message = malloc(CT_FANOUT_HEAD_BYTES + CT_LINK_HEADER_BYTES + CT_LINK_PAYLOAD_MAX);
    made->listeners = calloc(LISTENERS_MAX, sizeof(*made->listeners));
  }
  if (made == NULL || made->message == NULL || made->listeners == NULL ||
      getrandom(&made->run, sizeof(made->run), 0) != sizeof(made->run)) {
    ct_fanout_destroy(made);
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  *fanout = made;
  return CT_OK;
}

void
ct_fanout_destroy(struct ct_fanout *fanout)
{
  if (fanout == NULL) {
    return;
  }
  ct_broker_close(fanout->broker);
  for (size_t i = 0; i < fanout->count; i++) {
    free(fanout->listeners[i].ask);
  }
  free(fanout->listeners);
  free(fanout->message);
  free(fanout);
}

int
ct_fanout_connect(struct ct_sender *sender, struct ct_diag *diag)
{
  struct ct_fanout *fanout = sender->fanout;
  int code = ct_broker_connect(sender->address, sender->token, CT_BROKER_SENDER, &fanout->broker, diag);
  if (code != CT_OK) {
    return code;
  }
  size_t most = ct_broker_most(fanout->broker);
  if (most < CT_FANOUT_SMALLEST) {
    ct_fanout_disconnect(fanout);
    return ct_fail(diag, CT_EUNSUPPORTED,
                   "%s: the server takes messages of %zu bytes at most (max_payload); %d are needed", sender->address,
                   most, CT_FANOUT_SMALLEST);
  }
  size_t room = most - 1024; /* for heads and the name */
  sender->chunk = room < CT_LINK_CHUNK ? room : CT_LINK_CHUNK;
  fanout->begun_ns = fanout->begun_ns != 0 ? fanout->begun_ns : ct_now_ns();
  return CT_OK;
}

void
ct_fanout_disconnect(struct ct_fanout *fanout)
{
  ct_broker_close(fanout->broker);
  fanout->broker = NULL;
}

bool
ct_fanout_is_connected(const struct ct_fanout *fanout)
{
  return fanout->broker != NULL;
}

static struct listener *
listener_of(struct ct_fanout *fanout, uint64_t id)
{
  for (size_t i = 0; i < fanout->count; i++) {
    if (fanout->listeners[i].id == id) {
      return &fanout->listeners[i];
    }
  }
  if (fanout->count == LISTENERS_MAX) {
    return NULL;
  }
  fanout->listeners[fanout->count] = (struct listener){.id = id};
  return &fanout->listeners[fanout->count++];
}

static void
take_ask(struct ct_fanout *fanout, struct listener *listener, const uint8_t *payload, uint32_t bytes)
{
  size_t others = fanout->ask_bytes - (listener->ask != NULL ? listener->ask_bytes : 0);
  uint8_t *copy = bytes <= CT_LINK_PAYLOAD_MAX && others + bytes <= ASKS_MAX ? malloc(bytes + 1u) : NULL;
  if (copy != NULL) { /* else it asks again */
    memcpy(copy, payload, bytes);
    free(listener->ask);
    listener->ask = copy;
    fanout->ask_bytes = others + bytes;
    listener->ask_bytes = bytes;
    listener->is_following = listener->is_done = false;
    fanout->is_asked = true;
  }
}

static void
take_verdict(struct ct_fanout *fanout, struct listener *listener, uint64_t at, const uint8_t *payload, uint32_t bytes)
{
  if (bytes == 4 && ct_get32(payload) == 0) { /* of an END before, too: all of them say the same */
    listener->is_done = true;
  } else if (bytes == 4 && at == fanout->end_number) {
    fanout->is_wrong = true;
  }
}

/* A message of a receiver, which is believed nothing: at worst something is sent once more. */
static void
take_message(struct ct_sender *sender, const uint8_t *data, size_t size)
{
  static const uint8_t any[CT_LINK_ID_BYTES];
  struct ct_fanout *fanout = sender->fanout;
  const uint8_t *head = data + CT_FANOUT_HEAD_BYTES, *payload = head + CT_LINK_HEADER_BYTES;
  if (size < CT_FANOUT_HEAD_BYTES + CT_LINK_HEADER_BYTES || memcmp(data, CT_FANOUT_ASK_MAGIC, 4) != 0 ||
      ct_get32(data + 4) != CT_FANOUT_VERSION || ct_get32(head) != size - CT_FANOUT_HEAD_BYTES - CT_LINK_HEADER_BYTES) {
    return;
  }
  bool is_ours = memcmp(data + 8, sender->id, CT_LINK_ID_BYTES) == 0;
  uint8_t type = head[4];
  uint32_t bytes = ct_get32(head);
  if (!is_ours && (type != CT_FRAME_ASK || memcmp(data + 8, any, sizeof(any)) != 0)) {
    return;
  }
  struct listener *listener = listener_of(fanout, ct_get64(data + 24));
  if (listener == NULL) {
    return;
  }
  uint64_t at = ct_get64(data + 32);
  sender->moved_ns = listener->heard_ns = ct_now_ns();
  listener->is_late = false;
  if (listener->is_following && at > listener->at && at <= fanout->number) {
    listener->at = at;
  }
  if (type == CT_FRAME_ASK) {
    take_ask(fanout, listener, payload, bytes);
  } else if (type == CT_FRAME_WRONG && ct_stream_kind((const char *)payload, bytes) != CT_STREAM_FOREIGN) {
    ct_sender_wrong(sender, (const char *)payload, bytes);
  } else if (type == CT_FRAME_VERDICT) {
    take_verdict(fanout, listener, at, payload, bytes);
  }
}

/*
 * Hears what receivers have said, for so long at most until there is something. False: the connection is lost. Whoever
 * may publish there may do so without end, faster than it can be heard.
 */
static bool
hear(struct ct_sender *sender, int timeout_ms)
{
  const uint8_t *data;
  size_t size;
  int code;
  uint64_t until = ct_now_ns() + (uint64_t)(timeout_ms + HEAR_MS) * 1000000;
  while ((code = ct_broker_next(sender->fanout->broker, timeout_ms, &data, &size)) == CT_OK && ct_now_ns() < until) {
    take_message(sender, data, size);
    timeout_ms = 0;
  }
  return code == CT_OK || code == CT_ETIMEOUT;
}

static bool
is_present(const struct listener *listener)
{
  return ct_now_ns() - listener->heard_ns < CT_LINK_IDLE_MS * 1000000ull;
}

/* Somebody that follows is so far behind that more would only fill the server. */
static struct listener *
find_slow(struct ct_fanout *fanout)
{
  for (size_t i = 0; i < fanout->count; i++) {
    struct listener *listener = &fanout->listeners[i];
    if (listener->is_following && !listener->is_done && !listener->is_late &&
        fanout->number - listener->at >= CT_FANOUT_AHEAD) {
      return listener;
    }
  }
  return NULL;
}

static bool
wait_for_slow(struct ct_sender *sender)
{
  uint64_t until = ct_now_ns() + STALL_MS * 1000000ull;
  struct listener *slow;
  while ((slow = find_slow(sender->fanout)) != NULL) {
    if (ct_now_ns() > until) {
      slow->is_late = true;
    }
    if (ct_sender_is_abandoned(sender) || !hear(sender, TURN_MS)) {
      return false;
    }
  }
  return true;
}

bool
ct_fanout_put(struct ct_sender *sender)
{
  struct ct_fanout *fanout = sender->fanout;
  struct ct_link_frame *frame = &sender->frame;
  if (fanout->broker == NULL || !hear(sender, 0) || !wait_for_slow(sender)) {
    return false;
  }
  uint8_t *head = fanout->message, *frame_head = head + CT_FANOUT_HEAD_BYTES;
  const uint32_t version = CT_FANOUT_VERSION;
  fanout->number++;
  memcpy(head, CT_FANOUT_MAGIC, 4);
  memcpy(head + 4, &version, 4);
  memcpy(head + 8, sender->id, CT_LINK_ID_BYTES);
  memcpy(head + 24, &fanout->run, 8);
  memcpy(head + 32, &fanout->number, 8);
  memset(frame_head, 0, CT_LINK_HEADER_BYTES);
  memcpy(frame_head, &frame->bytes, 4);
  frame_head[4] = frame->type;
  memcpy(frame_head + CT_LINK_HEADER_BYTES, ct_frame_payload(frame), frame->bytes);
  if (frame->type == CT_FRAME_END) {
    fanout->end_number = fanout->number;
  }
  return ct_broker_put(fanout->broker, fanout->message, CT_FANOUT_HEAD_BYTES + CT_LINK_HEADER_BYTES + frame->bytes);
}

/* Whether somebody follows: then a file is only ever gone back in. */
static bool
is_followed(const struct ct_fanout *fanout)
{
  for (size_t i = 0; i < fanout->count; i++) {
    if (fanout->listeners[i].is_following && !fanout->listeners[i].is_done && is_present(&fanout->listeners[i])) {
      return true;
    }
  }
  return false;
}

/* What one receiver has: u64 bytes, u32 CRC-32C, u32 bytes of the name, name; for each file. */
static bool
go_back(struct ct_sender *sender, const uint8_t *data, uint32_t left, bool may_skip)
{
  ct_sender_claim_begin(sender);
  while (left >= 16) {
    uint32_t length = ct_get32(data + 12);
    if (length > left - 16 || ct_stream_kind((const char *)data + 16, length) == CT_STREAM_FOREIGN) {
      break;
    }
    struct ct_claim claim = {(const char *)data + 16, length, ct_get64(data), ct_get32(data + 8), may_skip};
    if (!ct_sender_claim(sender, &claim)) {
      return false;
    }
    data += 16 + length;
    left -= 16 + length;
  }
  ct_sender_claim_end(sender);
  return true;
}

bool
ct_fanout_answer(struct ct_sender *sender)
{
  struct ct_fanout *fanout = sender->fanout;
  struct ct_diag refused;
  if (ct_broker_is_refused(fanout->broker, &refused)) {
    snprintf(sender->refusal, sizeof(sender->refusal), "%.380s", refused.text);
    return false;
  }
  if (!hear(sender, 0)) {
    return false;
  }
  ct_sender_mend(sender);
  fanout->is_asked = false;
  uint64_t answered[LISTENERS_MAX];
  uint32_t count = 0;
  for (size_t i = 0; i < fanout->count; i++) {
    struct listener *listener = &fanout->listeners[i];
    if (listener->ask == NULL) {
      continue;
    }
    uint8_t *ask = listener->ask; /* another may come while this one is looked at */
    listener->ask = NULL;
    fanout->ask_bytes -= listener->ask_bytes;
    bool is_good = go_back(sender, ask, listener->ask_bytes, count == 0 && !is_followed(fanout));
    free(ask);
    if (!is_good) {
      return false;
    }
    listener->is_following = true;
    answered[count++] = listener->id;
    listener->at = fanout->number;
  }
  if (count == 0) {
    return true;
  }
  ct_frame_begin(&sender->frame, CT_FRAME_SYNC);
  ct_frame_add32(&sender->frame, count);
  ct_frame_add(&sender->frame, answered, count * sizeof(answered[0]));
  return ct_sender_put(sender);
}

bool
ct_fanout_is_asked(const struct ct_fanout *fanout)
{
  return fanout != NULL && fanout->is_asked;
}

/* Those that are there have all, and there is one. One that has gone without is waited for, and one that has not said
 * yet. */
static bool
are_done(const struct ct_fanout *fanout)
{
  if (ct_now_ns() - fanout->begun_ns < GATHER_MS * 1000000ull) {
    return false;
  }
  for (size_t i = 0; i < fanout->count; i++) {
    if (!fanout->listeners[i].is_done) {
      return false;
    }
  }
  return fanout->count > 0;
}

int
ct_fanout_verdicts(struct ct_sender *sender)
{
  struct ct_fanout *fanout = sender->fanout;
  fanout->is_wrong = false;
  for (;;) {
    if (fanout->is_asked) {
      return 2;
    }
    if (fanout->is_wrong) {
      return 0;
    }
    if (are_done(fanout)) {
      return 1;
    }
    if (ct_now_ns() - sender->moved_ns > sender->patience_ns || ct_sender_is_abandoned(sender)) {
      return 2; /* the caller sees that it is over */
    }
    if (!hear(sender, TURN_MS) || !ct_sender_ping(sender, END_PING_MS)) {
      return -1;
    }
  }
}

void
ct_fanout_count(const struct ct_fanout *fanout, size_t *confirmed, size_t *all)
{
  *confirmed = 0;
  for (size_t i = 0; i < fanout->count; i++) {
    *confirmed += fanout->listeners[i].is_done;
  }
  *all = fanout->count;
}
