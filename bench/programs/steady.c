/*
 * Repeats one operation and prints the nanoseconds of each, on average.
 * Arguments: the operation, a file, a folder for a socket, the number of repetitions.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int listen_at(const char *folder, struct sockaddr_un *address)
{
	memset(address, 0, sizeof *address);
	address->sun_family = AF_UNIX;
	snprintf(address->sun_path, sizeof address->sun_path, "%s/socket", folder);
	unlink(address->sun_path);
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)address, sizeof *address) != 0 ||
	    listen(listener, 16) != 0)
		fail("listen");
	return listener;
}

static void connect_once(int listener, const struct sockaddr_un *address)
{
	int client = socket(AF_UNIX, SOCK_STREAM, 0);
	if (connect(client, (const struct sockaddr *)address, sizeof *address) != 0)
		fail("connect");
	int server = accept(listener, NULL, NULL);
	if (server < 0)
		fail("accept");
	close(server);
	close(client);
}

static void read_once(const char *file)
{
	static char block[1 << 20];
	int descriptor = open(file, O_RDONLY);
	if (descriptor < 0)
		fail("open");
	ssize_t got;
	while ((got = read(descriptor, block, sizeof block)) > 0)
		;
	if (got < 0)
		fail("read");
	close(descriptor);
}

int main(int count, char **arguments)
{
	if (count != 5)
		return 2;
	const char *operation = arguments[1], *file = arguments[2], *folder = arguments[3];
	long repetitions = atol(arguments[4]);
	struct sockaddr_un address;
	struct stat status;
	int listener = -1, ends[2], waiting;
	if (!strcmp(operation, "connect"))
		listener = listen_at(folder, &address);
	if (pipe(ends) != 0)
		fail("pipe");
	long long begin = now();
	for (long done = 0; done < repetitions; done++) {
		if (!strcmp(operation, "getppid")) {
			syscall(SYS_getppid);
		} else if (!strcmp(operation, "open+close")) {
			int descriptor = open(file, O_RDONLY);
			if (descriptor < 0)
				fail("open");
			close(descriptor);
		} else if (!strcmp(operation, "stat")) {
			if (stat(file, &status) != 0)
				fail("stat");
		} else if (!strcmp(operation, "ioctl")) {
			if (ioctl(ends[0], FIONREAD, &waiting) != 0)
				fail("ioctl");
		} else if (!strcmp(operation, "connect")) {
			connect_once(listener, &address);
		} else if (!strcmp(operation, "read")) {
			read_once(file);
		} else {
			return 2;
		}
	}
	printf("%lld\n", (now() - begin) / repetitions);
	return 0;
}
