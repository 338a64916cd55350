#include "sums.h"

long cubes(long n)
{
	long sum = 0;

	for (long i = 1; i <= n; i++)
		sum += i * i * i;
	return sum;
}
