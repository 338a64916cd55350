#include "sums.h"

long linear(long n)
{
	long sum = 0;

	for (long i = 1; i <= n; i++)
		sum += i;
	return sum;
}
