#include "sums.h"

long squares(long n)
{
	long sum = 0;

	for (long i = 1; i <= n; i++)
		sum += i * i;
	return sum;
}
