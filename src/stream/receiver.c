/* SPDX-License-Identifier: MIT */
/*
 * The receiver: one trace, from one sender at a time, over as many connections as it takes. A connection begins with
 * the token, in time; the first that has it decides whose stream this is, later ones must have the same id. All in the
 * caller's thread.
 */
#include "stream/link.h"
#include "stream/stored.h"
#include "stream/subscriber.h"

#include "base/clock.h"
#include "base/prompt.h"
#include "base/sized.h"

#include <contrail/stream.h>

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO_HEAD = 24, GOODBYE_MS = 2000 };

struct receiver {
  struct ct_receive_options options;
  struct stored stored;
  struct ct_link_frame frame;
  bool is_tcp, is_one_way, is_broker;
  int listen_fd, fd;
  bool was_served; /* a sender was let in, and has gone */
  uint64_t cuts, missed;
  uint64_t gone_ns; /* when */
  uint32_t checks;  /* since the last END */
  bool is_whole;
};

static void note(const struct receiver *receiver, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void
note(const struct receiver *receiver, const char *fmt, ...)
{
  char text[640];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof(text), fmt, args);
  va_end(args);
  if (receiver->options.note != NULL) {
    receiver->options.note(receiver->options.arg, text);
  }
}

static void
refuse(struct receiver *receiver, const char *text)
{
  if (receiver->is_one_way) {
    return;
  }
  ct_frame_begin(&receiver->frame, CT_FRAME_REFUSED);
  ct_frame_add(&receiver->frame, text, strlen(text));
  if (ct_frame_send(receiver->fd, &receiver->frame)) {
    /* Closed with frames unread, a socket takes the refusal away with it: what comes is read for a moment. */
    shutdown(receiver->fd, SHUT_WR);
    uint64_t until = ct_now_ns() + GOODBYE_MS * 1000000ull;
    while (ct_now_ns() < until) {
      struct pollfd entry = {.fd = receiver->fd, .events = POLLIN};
      if (poll(&entry, 1, GOODBYE_MS) <= 0 ||
          recv(receiver->fd, receiver->frame.data, CT_LINK_PAYLOAD_MAX, MSG_DONTWAIT) <= 0) {
        break;
      }
    }
  }
}

/* Of a socket that has no token: only our user, and root. */
static bool
is_ours(const struct receiver *receiver)
{
  struct ucred peer;
  socklen_t size = sizeof(peer);
  return receiver->is_tcp || (getsockopt(receiver->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
                              (peer.uid == geteuid() || peer.uid == 0));
}

/* NULL, or why this sender is not let in. */
static const char *
objection(struct receiver *receiver)
{
  const struct ct_link_frame *frame = &receiver->frame;
  const uint8_t *data = ct_frame_payload(frame);
  int code = ct_frame_receive(receiver->fd, &receiver->frame, HELLO_HEAD + CT_LINK_TOKEN_MAX, CT_LINK_HELLO_MS);
  if (code == CT_EIO || code == CT_ETIMEOUT) {
    return "nothing was said in time";
  }
  if (code != CT_OK || frame->type != CT_FRAME_HELLO || frame->bytes < HELLO_HEAD ||
      memcmp(data, CT_LINK_MAGIC, 4) != 0) {
    return "this is no stream of contrail";
  }
  if (ct_get32(data + 4) != CT_LINK_VERSION) {
    return "the stream is of another version";
  }
  const char *token = receiver->options.token;
  if (receiver->is_one_way) { /* whoever gave us the descriptor has selected who writes it */
    return NULL;
  }
  if (token != NULL ? !ct_token_equal(token, data + HELLO_HEAD, frame->bytes - HELLO_HEAD) : !is_ours(receiver)) {
    return token != NULL ? "wrong token" : "another user's process";
  }
  if (receiver->stored.has_id && memcmp(receiver->stored.id, data + 8, CT_LINK_ID_BYTES) != 0) {
    return "another recording is received here";
  }
  return NULL;
}

static bool
send_have(void *context, struct stored_file *file)
{
  struct receiver *receiver = context;
  if (!file->is_there) {
    return true;
  }
  ct_frame_begin(&receiver->frame, CT_FRAME_HAVE);
  ct_frame_add64(&receiver->frame, file->bytes);
  ct_frame_add32(&receiver->frame, file->crc);
  ct_frame_add(&receiver->frame, file->name, strlen(file->name));
  return ct_frame_send(receiver->fd, &receiver->frame);
}

struct verdict {
  struct receiver *receiver;
  uint32_t wrong;
};

static bool
judge_file(void *context, struct stored_file *file)
{
  struct verdict *verdict = context;
  struct receiver *receiver = verdict->receiver;
  if (!file->is_due) {
    if (file->is_there) {
      ct_stored_remove(&receiver->stored, file);
    }
    return true;
  }
  file->is_due = false;
  if (file->is_there && file->bytes == file->due_bytes && file->crc == file->due_crc) {
    return true;
  }
  verdict->wrong++;
  ct_frame_begin(&receiver->frame, CT_FRAME_WRONG);
  ct_frame_add(&receiver->frame, file->name, strlen(file->name));
  return receiver->is_one_way || ct_frame_send(receiver->fd, &receiver->frame);
}

/* END: all files are as the sender's, or which are not. */
static int
judge(struct receiver *receiver, struct ct_diag *diag)
{
  if (receiver->frame.bytes != 4 || ct_get32(ct_frame_payload(&receiver->frame)) != receiver->checks ||
      receiver->checks == 0) {
    return ct_fail(diag, CT_EFORMAT, "an end with another number of files than were named");
  }
  receiver->checks = 0;
  struct verdict verdict = {.receiver = receiver};
  bool good = ct_stored_each(&receiver->stored, judge_file, &verdict);
  receiver->is_whole = good && verdict.wrong == 0;
  if (receiver->is_one_way) {
    return receiver->is_whole
               ? CT_OK
               : ct_fail(diag, CT_EFORMAT, "%" PRIu32 " files are not what the sender had", verdict.wrong);
  }
  ct_frame_begin(&receiver->frame, CT_FRAME_VERDICT);
  ct_frame_add32(&receiver->frame, verdict.wrong);
  good = good && ct_frame_send(receiver->fd, &receiver->frame);
  return good ? CT_OK : CT_EIO;
}

static int
take_frame(struct receiver *receiver, struct ct_diag *diag)
{
  switch (receiver->frame.type) {
  case CT_FRAME_DATA:
    return ct_stored_data(&receiver->stored, &receiver->frame, diag);
  case CT_FRAME_WHOLE:
    return ct_stored_whole(&receiver->stored, &receiver->frame, diag);
  case CT_FRAME_CHECK:
    receiver->checks++;
    return ct_stored_check(&receiver->stored, &receiver->frame, diag);
  case CT_FRAME_END:
    return judge(receiver, diag);
  case CT_FRAME_PING:
    return CT_OK;
  case CT_FRAME_BYE:
    return ct_fail(diag, CT_ESRCH, "the sender has given up, and the trace is not whole: %" PRIu64 " bytes are in %s",
                   receiver->stored.bytes, receiver->options.directory);
  default:
    return ct_fail(diag, CT_EFORMAT, "a frame of an unknown type");
  }
}

/* The first frames of a connection: who is it, and what it need not send. False: not let in, or gone again. */
static int
let_in(struct receiver *receiver, bool *in, struct ct_diag *diag)
{
  *in = false;
  const char *why = objection(receiver);
  if (why != NULL) {
    refuse(receiver, why);
    note(receiver, "a connection was refused: %s", why);
    return receiver->is_one_way ? ct_fail(diag, CT_EFORMAT, "%s", why) : CT_OK;
  }
  if (!receiver->stored.has_id) {
    uint8_t id[CT_LINK_ID_BYTES];
    memcpy(id, ct_frame_payload(&receiver->frame) + 8, sizeof(id));
    int code = ct_stored_claim(&receiver->stored, id, diag);
    if (code != CT_OK) {
      refuse(receiver, "the receiver cannot write");
      return code;
    }
  }
  ct_stored_begin(&receiver->stored);
  receiver->checks = 0;
  if (receiver->is_one_way) {
    *in = true;
    return CT_OK;
  }
  *in = ct_stored_each(&receiver->stored, send_have, receiver);
  ct_frame_begin(&receiver->frame, CT_FRAME_READY);
  *in = *in && ct_frame_send(receiver->fd, &receiver->frame);
  return CT_OK;
}

/* One connection, from its begin to its end. An error is one that ends the receiving. */
static int
serve(struct receiver *receiver, struct ct_diag *diag)
{
  bool in;
  int code = let_in(receiver, &in, diag);
  if (code != CT_OK || !in) {
    return code;
  }
  note(receiver, receiver->was_served ? "the sender is back" : "a sender is connected");
  receiver->was_served = true;
  struct ct_diag why = {"the connection is lost"};
  struct ct_prompt prompt;
  ct_prompt_begin(&prompt);
  while ((code = ct_frame_receive(receiver->fd, &receiver->frame, CT_LINK_PAYLOAD_MAX, CT_LINK_IDLE_MS)) == CT_OK &&
         (code = take_frame(receiver, &why)) == CT_OK && !receiver->is_whole) {
    ct_prompt_turn(&prompt);
  }
  ct_prompt_end(&prompt);
  receiver->gone_ns = ct_now_ns();
  if (receiver->is_whole) {
    ct_stored_release(&receiver->stored);
    return CT_OK;
  }
  receiver->cuts++;
  if (receiver->is_one_way) {
    bool is_said = strcmp(why.text, "the connection is lost") != 0 && why.text[0] != '\0';
    return ct_fail(diag, code, "%s",
                   is_said               ? why.text
                   : code == CT_EFORMAT  ? "no frame of a stream"
                   : code == CT_ETIMEOUT ? "the stream has stopped, and the trace is not whole"
                                         : "the stream has ended, and the trace is not whole");
  }
  if (code == CT_EFORMAT) {
    if (why.text[0] == '\0' || strcmp(why.text, "the connection is lost") == 0) {
      snprintf(why.text, sizeof(why.text), "no frame of a stream");
    }
    refuse(receiver, why.text);
  } else if (code != CT_EIO && code != CT_ETIMEOUT) {
    refuse(receiver, why.text);
    return ct_fail(diag, code, "%s", why.text);
  } else if (strcmp(why.text, "the connection is lost") != 0) { /* a file could not be written */
    refuse(receiver, "the receiver cannot write");
    return ct_fail(diag, code, "%s", why.text);
  }
  note(receiver, "%s; waiting %.0f s for the sender to come back", why.text, receiver->options.wait_s);
  return CT_OK;
}

/* The next connection; CT_ETIMEOUT when the sender did not come back. */
static int
next_connection(struct receiver *receiver, struct ct_diag *diag)
{
  for (;;) {
    int timeout = -1;
    if (receiver->was_served) {
      double left = receiver->options.wait_s * 1e3 - (double)((ct_now_ns() - receiver->gone_ns) / 1000000);
      timeout = left > 0 ? (int)(left < 1e6 ? left + 1 : 1e6) : 0;
      if (timeout == 0) {
        return ct_fail(diag, CT_ETIMEOUT,
                       "the sender has not come back for %.0f s, and the trace is not whole: %" PRIu64
                       " bytes are in %s",
                       receiver->options.wait_s, receiver->stored.bytes, receiver->options.directory);
      }
    }
    struct pollfd entry = {.fd = receiver->listen_fd, .events = POLLIN};
    int n = poll(&entry, 1, timeout);
    if (n > 0) {
      receiver->fd = accept4(receiver->listen_fd, NULL, NULL, SOCK_CLOEXEC);
      if (receiver->fd >= 0) {
        int on = 1;
        setsockopt(receiver->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        return CT_OK;
      }
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        return ct_fail(diag, CT_EIO, "%s: %s", receiver->options.address, strerror(errno));
      }
    } else if (n < 0 && errno != EINTR) {
      return ct_fail(diag, CT_EIO, "%s: %s", receiver->options.address, strerror(errno));
    }
  }
}

static int
receive_all(struct receiver *receiver, struct ct_diag *diag)
{
  int code = CT_OK;
  while (code == CT_OK && !receiver->is_whole) {
    code = next_connection(receiver, diag);
    if (code == CT_OK) {
      code = serve(receiver, diag);
      close(receiver->fd);
    }
  }
  return code;
}

/* The stream of a descriptor: one, and no other comes. */
static int
receive_one_way(struct receiver *receiver, struct ct_diag *diag)
{
  int code = ct_address_connect(receiver->options.address, &receiver->fd, diag);
  if (code == CT_OK) {
    code = ct_stored_open(&receiver->stored, receiver->options.directory, receiver->options.limit_bytes, diag);
    code = code == CT_OK ? serve(receiver, diag) : code;
    close(receiver->fd);
  }
  return code;
}

/* At a socket, from as many connections as it takes. */
static int
receive_at_socket(struct receiver *receiver, struct ct_diag *diag)
{
  int code = ct_address_listen(receiver->options.address, &receiver->listen_fd, diag);
  if (code != CT_OK) {
    return code;
  }
  code = ct_stored_open(&receiver->stored, receiver->options.directory, receiver->options.limit_bytes, diag);
  if (code == CT_OK) {
    note(receiver, "waiting at %s", receiver->options.address);
    code = receive_all(receiver, diag);
  }
  close(receiver->listen_fd);
  if (!receiver->is_tcp) {
    unlink(receiver->options.address + strlen("unix:"));
  }
  return code;
}

/* By way of a server that hands on what one sender says to many. */
static int
receive_from_broker(struct receiver *receiver, struct ct_diag *diag)
{
  struct ct_stream_summary summary = {.struct_size = sizeof(summary)};
  int code = ct_stored_open(&receiver->stored, receiver->options.directory, receiver->options.limit_bytes, diag);
  code = code == CT_OK ? ct_subscriber_receive(&receiver->options, &receiver->stored, &summary, diag) : code;
  receiver->cuts = summary.cuts;
  receiver->missed = summary.missed;
  return code;
}

static int
check_options(struct receiver *receiver, const struct ct_receive_options *options, struct ct_diag *diag)
{
  int code = ct_sized_take(&receiver->options, sizeof(receiver->options), options, diag);
  if (code != CT_OK) {
    return code;
  }
  options = &receiver->options;
  if (options->address == NULL || options->directory == NULL) {
    return ct_fail(diag, CT_EINVAL, "an address and a directory are needed");
  }
  code = ct_address_check(options->address, &receiver->is_tcp, diag);
  receiver->is_one_way = ct_address_is_one_way(options->address);
  receiver->is_broker = ct_address_is_broker(options->address);
  if (code == CT_OK && receiver->is_tcp && options->token == NULL) {
    code = ct_fail(diag, CT_EINVAL, "%s needs a token", options->address);
  }
  return code;
}

static bool
count_file(void *context, struct stored_file *file)
{
  *(uint64_t *)context += file->is_there;
  return true;
}

int
ct_receive(const struct ct_receive_options *options, struct ct_stream_summary *summary, struct ct_diag *diag)
{
  struct receiver receiver = {.listen_fd = -1, .fd = -1, .stored.dir_fd = -1};
  int code = check_options(&receiver, options, diag);
  if (code != CT_OK) {
    return code;
  }
  if (!ct_frame_create(&receiver.frame)) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  code = receiver.is_one_way  ? receive_one_way(&receiver, diag)
         : receiver.is_broker ? receive_from_broker(&receiver, diag)
                              : receive_at_socket(&receiver, diag);
  struct ct_stream_summary own = {
      .struct_size = sizeof(own), .bytes = receiver.stored.bytes, .cuts = receiver.cuts, .missed = receiver.missed};
  ct_stored_each(&receiver.stored, count_file, &own.files);
  ct_stored_close(&receiver.stored);
  ct_frame_destroy(&receiver.frame);
  if (summary != NULL) {
    int given = ct_sized_give(summary, &own, sizeof(own), code == CT_OK ? diag : NULL);
    code = code != CT_OK ? code : given;
  }
  return code;
}
