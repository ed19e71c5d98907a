/*
 * Carries connections from one port of this host's loopback to another, and decides nothing: one
 * thread, one buffer, no record. What it takes is what any process in between takes here.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 65536, TOGETHER = 64, BYTES = 65536 };

/* The other end of each connection; 0 where there is none. */
static int other[MOST];
/* Whether an end has said all. */
static char over[MOST];
static char bytes[BYTES];

static struct sockaddr_in at(const char *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

static void watch(int epoll, int fd)
{
	int yes = 1;
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static void end(int fd)
{
	int far = other[fd];
	other[fd] = other[far] = over[fd] = over[far] = 0;
	close(fd);
	close(far);
}

static void carry(int epoll, int fd)
{
	int far = other[fd];
	if (!far)
		return;
	ssize_t got = read(fd, bytes, sizeof bytes);
	if (got > 0) {
		for (ssize_t sent = 0; sent < got;) {
			ssize_t more = write(far, bytes + sent, got - sent);
			if (more < 0)
				return end(fd);
			sent += more;
		}
		return;
	}
	over[fd] = 1;
	if (got < 0 || over[far])
		return end(fd);
	shutdown(far, SHUT_WR);
	epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
}

int main(int count, char **words)
{
	if (count != 3)
		return 1;
	struct sockaddr_in near = at(words[1]), far = at(words[2]);
	int yes = 1, epoll = epoll_create1(0), door = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (bind(door, (struct sockaddr *)&near, sizeof near) || listen(door, 4096))
		return 1;
	watch(epoll, door);
	for (;;) {
		struct epoll_event events[TOGETHER];
		int ready = epoll_wait(epoll, events, TOGETHER, -1);
		for (int i = 0; i < ready; i++) {
			int fd = events[i].data.fd;
			if (fd != door) {
				carry(epoll, fd);
				continue;
			}
			int come = accept4(door, NULL, NULL, SOCK_CLOEXEC);
			int gone = come < 0 ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
			if (gone < 0 || come >= MOST || gone >= MOST
			    || connect(gone, (struct sockaddr *)&far, sizeof far))
				return 1;
			other[come] = gone;
			other[gone] = come;
			watch(epoll, come);
			watch(epoll, gone);
		}
	}
}
