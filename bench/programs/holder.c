/* Holds on to a folder in the way named by its first argument, says so, and stays. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int hold(const char *how, const char *folder)
{
	char file[4096];
	snprintf(file, sizeof file, "%s/file", folder);
	if (!strcmp(how, "nothing"))
		return 0;
	if (!strcmp(how, "directory"))
		return chdir(folder);
	if (!strcmp(how, "folder"))
		return open(folder, O_RDONLY | O_DIRECTORY) < 0 ? -1 : 0;
	int descriptor = open(file, O_RDONLY);
	if (descriptor < 0)
		return -1;
	if (!strcmp(how, "file"))
		return 0;
	if (!strcmp(how, "mapping")) {
		void *memory = mmap(NULL, 1, PROT_READ, MAP_SHARED, descriptor, 0);
		close(descriptor);
		return memory == MAP_FAILED ? -1 : 0;
	}
	return -1;
}

int main(int count, char **arguments)
{
	if (count != 3 || hold(arguments[1], arguments[2]) != 0)
		return 1;
	if (write(1, "held", 4) != 4)
		return 1;
	for (;;)
		pause();
}
