/* The guest's way to the host: ports that pebs/engines/bochs/instrument.cc takes.
 *   port PORT          writes standard input to that port, byte by byte
 *   port exit STATUS   ends the virtual machine with that status
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <unistd.h>

enum { EXIT_PORT = 0xF4 };

static int refuse(const char *what)
{
	perror(what);
	return 2;
}

int main(int argc, char **argv)
{
	static char buffer[65536];
	unsigned short port;
	ssize_t bytes;

	if (argc == 3 && strcmp(argv[1], "exit") == 0) {
		if (ioperm(EXIT_PORT, 1, 1) != 0)
			return refuse("ioperm");
		outb((unsigned char)atoi(argv[2]), EXIT_PORT);
		return 2; /* nobody listens */
	}
	if (argc != 2) {
		fprintf(stderr, "usage: port PORT | port exit STATUS\n");
		return 64;
	}
	port = (unsigned short)strtoul(argv[1], NULL, 0);
	if (ioperm(port, 1, 1) != 0)
		return refuse("ioperm");
	while ((bytes = read(STDIN_FILENO, buffer, sizeof(buffer))) > 0)
		outsb(port, buffer, (unsigned long)bytes);
	return bytes == 0 ? 0 : refuse("read");
}
