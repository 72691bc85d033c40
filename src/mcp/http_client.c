/* SPDX-License-Identifier: MIT */
/*
 * Connections. Whoever can reach the port can open one, and nobody knows whose it is until it has shown the token:
 * other users of the machine, and web pages, can too. So that they keep nobody out, one that has not shown it has
 * REQUEST_MS to bring its first request, however slowly its bytes come, and of such there are STRANGERS_MAX; one more,
 * and the oldest goes. One that has shown it may take longer.
 */
#include "mcp/http.h"

#include <stdlib.h>
#include <sys/socket.h>

enum { REQUEST_MS = 10000, TRUSTED_REQUEST_MS = 60000, STRANGERS_MAX = 32 };

struct http_client *
http_client_of(struct MHD_Connection *connection)
{
  const union MHD_ConnectionInfo *info =
      http_library.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return info != NULL ? info->socket_context : NULL;
}

/* libmicrohttpd sees that it is shut, and closes it. */
static void
shut(struct http_client *client)
{
  if (!client->is_shut) {
    shutdown(client->fd, SHUT_RDWR);
    client->is_shut = true;
  }
}

/* One has come; if there are too many strangers the oldest goes. */
static void
limit_strangers(struct http_server *server)
{
  struct http_client *oldest = NULL;
  size_t count = 0;
  for (struct http_client *one = server->clients; one != NULL; one = one->next) {
    bool is_stranger = !one->is_trusted && !one->is_shut;
    count += is_stranger;
    oldest = is_stranger && !one->is_served ? one : oldest;
  }
  if (count > STRANGERS_MAX && oldest != NULL) {
    shut(oldest);
  }
}

static void
take(struct http_server *server, struct MHD_Connection *connection, void **memory)
{
  const union MHD_ConnectionInfo *info =
      http_library.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  struct http_client *client = info != NULL ? calloc(1, sizeof(*client)) : NULL;
  if (client == NULL) {
    return;
  }
  client->fd = info->connect_fd;
  client->since_ms = http_now_ms();
  client->next = server->clients;
  server->clients = client;
  *memory = client;
  limit_strangers(server);
}

void
http_notified(void *context, struct MHD_Connection *connection, void **memory, enum MHD_ConnectionNotificationCode code)
{
  struct http_server *server = context;
  struct http_client *client = *memory;
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    take(server, connection, memory);
    return;
  }
  *memory = NULL;
  for (struct http_client **at = &server->clients; client != NULL && *at != NULL; at = &(*at)->next) {
    if (*at == client) {
      *at = client->next;
      break;
    }
  }
  free(client);
}

bool
http_clients_tick(struct http_server *server, uint64_t now_ms)
{
  bool some_wait = false;
  for (struct http_client *one = server->clients; one != NULL; one = one->next) {
    if (!one->is_served && now_ms - one->since_ms > (one->is_trusted ? TRUSTED_REQUEST_MS : REQUEST_MS)) {
      shut(one);
    }
    some_wait = some_wait || !one->is_served;
  }
  return some_wait;
}
