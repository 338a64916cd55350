long linear(long n);
long squares(long n);
long cubes(long n);
