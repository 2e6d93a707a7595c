/* Asks for many replies, one after the other: chmod of a file of its own.
 *
 *	replies FILE COUNT
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	long count = strtol(argv[2], NULL, 10);

	if (fd < 0) {
		perror(argv[1]);
		return 1;
	}
	for (long i = 0; i < count; i++) {
		if (fchmod(fd, i % 2 ? 0600 : 0640) != 0) {
			perror("fchmod");
			return 1;
		}
	}
	return 0;
}
