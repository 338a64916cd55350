#include <stdio.h>
#include <stdlib.h>
#include "sums.h"

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 0;

	printf("%ld %ld %ld\n", linear(n), squares(n), cubes(n));
	return 0;
}
