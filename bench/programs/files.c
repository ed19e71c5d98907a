/*
 * Changes files in the folder it is started in, and prints how long that took, in nanoseconds.
 * files time SCRIPT AFTER   a script of bash; then another one that is not counted
 * files calls N [CPU]       single system calls: the name and the median of N, a line each
 * files writers W N         W processes that create N files each: the whole time
 * files crowd N             N threads that change something at the same moment, after a line came
 * files unit N              a system call that another process answers: the median of N
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP 1
#endif

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

static int shell(const char *script)
{
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		int null = open("/dev/null", O_WRONLY);
		if (null < 0 || dup2(null, 1) < 0)
			fail("/dev/null");
		execlp("bash", "bash", "-c", script, NULL);
		fail("bash");
	}
	int status;
	if (waitpid(child, &status, 0) != child)
		fail("wait");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int timed(const char *script, const char *after)
{
	long long begin = now();
	int status = shell(script);
	long long end = now();
	if (status == 0 && *after)
		status = shell(after);
	if (status != 0) {
		fprintf(stderr, "a script ended with %d\n", status);
		return 1;
	}
	printf("%lld\n", end - begin);
	return 0;
}

static int compare(const void *one, const void *other)
{
	long long a = *(const long long *)one, b = *(const long long *)other;
	return (a > b) - (a < b);
}

static long long median(long long *times, long number)
{
	qsort(times, number, sizeof *times, compare);
	return times[number / 2];
}

static char name[64], other[64];

static int open_read(long turn)
{
	(void)turn;
	return open("calls/file", O_RDONLY);
}

static int look(long turn)
{
	struct stat status;
	(void)turn;
	return stat("calls/file", &status);
}

static int create(long turn)
{
	snprintf(name, sizeof name, "calls/f%ld", turn);
	return open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
}

static int open_write(long turn)
{
	(void)turn;
	return open("calls/file", O_WRONLY);
}

static int change_mode(long turn)
{
	return chmod("calls/file", turn % 2 ? 0644 : 0640);
}

static int may_write(long turn)
{
	(void)turn;
	return access("calls/file", W_OK);
}

static int move(long turn)
{
	snprintf(name, sizeof name, "calls/f%ld", turn);
	snprintf(other, sizeof other, "calls/g%ld", turn);
	return rename(name, other);
}

static int drop(long turn)
{
	snprintf(name, sizeof name, "calls/g%ld", turn);
	return unlink(name);
}

static int make_folder(long turn)
{
	snprintf(name, sizeof name, "calls/d%ld", turn);
	return mkdir(name, 0755);
}

static int drop_folder(long turn)
{
	snprintf(name, sizeof name, "calls/d%ld", turn);
	return rmdir(name);
}

static int null_device(long turn)
{
	(void)turn;
	return open("/dev/null", O_WRONLY);
}

static int scratch(long turn)
{
	(void)turn;
	return open("/tmp/cowork-bench-file", O_WRONLY | O_CREAT, 0644);
}

static const struct call {
	const char *title;
	int (*act)(long turn);
	int opens;
} CALLS[] = {
	{ "open-read", open_read, 1 },
	{ "stat", look, 0 },
	{ "create", create, 1 },
	{ "open-write", open_write, 1 },
	{ "chmod", change_mode, 0 },
	{ "access", may_write, 0 },
	{ "rename", move, 0 },
	{ "unlink", drop, 0 },
	{ "mkdir", make_folder, 0 },
	{ "rmdir", drop_folder, 0 },
	{ "dev-null", null_device, 1 },
	{ "tmp", scratch, 1 },
};

static void stay_on(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set) != 0)
		fail("sched_setaffinity");
}

static int calls(long number)
{
	long long *times = calloc(number, sizeof *times);
	if (!times || mkdir("calls", 0755) != 0)
		fail("calls");
	int file = open("calls/file", O_WRONLY | O_CREAT, 0644);
	if (file < 0 || write(file, "held\n", 5) != 5)
		fail("calls/file");
	close(file);
	for (size_t each = 0; each < sizeof CALLS / sizeof *CALLS; each++) {
		for (long turn = 0; turn < number; turn++) {
			long long begin = now();
			int result = CALLS[each].act(turn);
			times[turn] = now() - begin;
			if (result < 0)
				fail(CALLS[each].title);
			if (CALLS[each].opens)
				close(result);
		}
		printf("%s %lld\n", CALLS[each].title, median(times, number));
	}
	unlink("/tmp/cowork-bench-file");
	if (unlink("calls/file") != 0 || rmdir("calls") != 0)
		fail("calls");
	return 0;
}

static int writers(long processes, long number)
{
	if (mkdir("writers", 0755) != 0)
		fail("writers");
	long long begin = now();
	for (long each = 0; each < processes; each++) {
		pid_t child = fork();
		if (child < 0)
			fail("fork");
		if (child > 0)
			continue;
		snprintf(other, sizeof other, "writers/%ld", each);
		if (mkdir(other, 0755) != 0 || chdir(other) != 0)
			fail(other);
		for (long turn = 0; turn < number; turn++) {
			snprintf(name, sizeof name, "%ld", turn);
			int file = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
			if (file < 0)
				fail(name);
			close(file);
		}
		_exit(0);
	}
	int status, failed = 0;
	while (wait(&status) > 0)
		failed |= status;
	long long end = now();
	if (failed || shell("rm -rf writers"))
		return 1;
	printf("%lld\n", end - begin);
	return 0;
}

static int gate[2];
static atomic_long calling, refused;

static void *one_of_many(void *number)
{
	char path[64], byte;
	snprintf(path, sizeof path, "crowd/%ld", (long)number);
	while (read(gate[0], &byte, 1) < 0 && errno == EINTR)
		;
	atomic_fetch_add(&calling, 1);
	if (mkdir(path, 0755) != 0)
		atomic_fetch_add(&refused, 1);
	return NULL;
}

static int crowd(long number)
{
	pthread_t *threads = calloc(number, sizeof *threads);
	pthread_attr_t small;
	char byte;
	if (!threads || pipe(gate) != 0 || mkdir("crowd", 0755) != 0)
		fail("crowd");
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (long each = 0; each < number; each++)
		if ((errno = pthread_create(&threads[each], &small, one_of_many, (void *)each)) != 0)
			fail("a thread");
	printf("{\"ready\":%ld}\n", number);
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		return 1;
	close(gate[1]);
	while (atomic_load(&calling) < number)
		usleep(1000);
	/* The last of them are between being counted and being stopped. */
	usleep(300000);
	printf("{\"pending\":%ld}\n", number);
	fflush(stdout);
	for (long each = 0; each < number; each++)
		pthread_join(threads[each], NULL);
	printf("{\"refused\":%ld}\n", atomic_load(&refused));
	fflush(stdout);
	return shell("rm -rf crowd");
}

/* Passes the listener of the child's filter to the parent. */
static void pass(int way, int listener)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof control };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &listener, sizeof listener);
	if (sendmsg(way, &message, 0) != 1)
		fail("sendmsg");
}

static int take(int way)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof control };
	int listener = -1;
	if (recvmsg(way, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
		fail("recvmsg");
	memcpy(&listener, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof listener);
	return listener;
}

static int asked(int way, long number)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };
	long long *times = calloc(number, sizeof *times);
	if (!times || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		fail("no_new_privs");
	int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			       SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	if (listener < 0)
		fail("seccomp");
	pass(way, listener);
	close(listener);
	for (long turn = 0; turn < number; turn++) {
		long long begin = now();
		syscall(SYS_getppid);
		times[turn] = now() - begin;
	}
	printf("%lld\n", median(times, number));
	return 0;
}

static int unit(long number)
{
	int way[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, way) != 0)
		fail("socketpair");
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0)
		exit(asked(way[1], number));
	close(way[1]);
	int listener = take(way[0]);
	ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
	for (long turn = 0; turn < number; turn++) {
		struct seccomp_notif call;
		struct seccomp_notif_resp answer;
		memset(&call, 0, sizeof call);
		memset(&answer, 0, sizeof answer);
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0)
			break;
		answer.id = call.id;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	close(listener);
	int status;
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

int main(int count, char **words)
{
	if (count == 4 && !strcmp(words[1], "time"))
		return timed(words[2], words[3]);
	if (count == 4 && !strcmp(words[1], "calls"))
		stay_on(atoi(words[3]));
	if (count >= 3 && !strcmp(words[1], "calls"))
		return calls(atol(words[2]));
	if (count == 4 && !strcmp(words[1], "writers"))
		return writers(atol(words[2]), atol(words[3]));
	if (count == 3 && !strcmp(words[1], "crowd"))
		return crowd(atol(words[2]));
	if (count == 3 && !strcmp(words[1], "unit"))
		return unit(atol(words[2]));
	return 2;
}
