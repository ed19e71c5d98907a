/*
 * Starts one of its arguments for every byte that it reads: '1' is the first. Answers with the
 * nanoseconds from before vfork until after wait, or with a negative number. This small process
 * and this loop are what a start is compared with: nothing is cheaper without a sandbox.
 */

#define _GNU_SOURCE
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int count, char **programs)
{
	char which;
	while (read(0, &which, 1) == 1) {
		int index = which - '0';
		if (index < 1 || index >= count)
			return 1;
		char *arguments[] = { programs[index], NULL };
		char *environment[] = { NULL };
		int status = -1;
		long long begin = now();
		pid_t child = vfork();
		if (child == 0) {
			execve(programs[index], arguments, environment);
			_exit(127);
		}
		if (child < 0 || waitpid(child, &status, 0) != child)
			status = -1;
		long long took = now() - begin;
		if (status != 0)
			took = -1;
		if (write(1, &took, sizeof took) != sizeof took)
			return 1;
	}
	return 0;
}
